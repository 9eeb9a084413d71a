"""Pods that name a pool which does not exist get an Event that says so.

The API server cannot refuse them: an admission policy looks at each pool of the namespace alone (docs/adr/0013). They
share nothing, since no Service selects them; but their owner should learn of the slip of the pen.
"""

import asyncio
import logging
from collections.abc import Callable

from kvcachepool import constants
from kvcachepool.cluster import ApiError, Cluster, NotLeaderError
from kvcachepool.watchcache import WatchCache

logger = logging.getLogger(__name__)

_INTERVAL_SECONDS = 5.0
REASON = "PoolNotFound"


class Strangers:
    """Tells each such pod once. A pod is told at the second look: its pool may be made a moment after it."""

    def __init__(self, cluster: Cluster, cache: WatchCache, *, leads: Callable[[], bool]) -> None:
        self._cluster = cluster
        self._cache = cache
        self._leads = leads
        self._looked: dict[str, bool] = {}
        """Uid to whether it was told."""

    async def forever(self) -> None:
        """Looks every few seconds, in memory, until it is cancelled."""
        while True:
            await asyncio.sleep(_INTERVAL_SECONDS)
            if self._leads():
                try:
                    await self.once()
                except Exception:
                    logger.exception("could not look for pods without a pool; next look in %.0f s", _INTERVAL_SECONDS)

    async def once(self) -> None:
        """One look."""
        before, self._looked = self._looked, {}
        for pod in self._cache.strangers():
            metadata = pod["metadata"]
            uid, leaving = metadata.get("uid", ""), metadata.get("deletionTimestamp")
            self._looked[uid] = before.get(uid, False)
            if uid in before and not self._looked[uid] and not leaving:
                self._looked[uid] = await self._tell(metadata["namespace"], metadata["name"], uid, metadata["labels"])

    async def _tell(self, namespace: str, name: str, uid: str, labels: dict[str, str]) -> bool:
        there = sorted(pool for where, pool in self._cache.pools() if where == namespace)
        message = (
            f"label {constants.LABEL_POOL} names the pool {labels[constants.LABEL_POOL]}, which does not exist in "
            f"namespace {namespace} (there: {', '.join(there) or 'none'}); the pod shares no cache"
        )
        try:
            await self._cluster.post_event((namespace, name), uid, "Warning", REASON, message, about="Pod")
        except (ApiError, NotLeaderError) as error:
            logger.warning("%s/%s: event %s was not posted: %s", namespace, name, REASON, error)
            return False
        logger.info("%s/%s: %s: %s", namespace, name, REASON, message)
        return True
