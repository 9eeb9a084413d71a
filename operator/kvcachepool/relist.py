"""Lists everything once at start, and again every few minutes.

A watch that was cut never says what was removed meanwhile (kopf lists again, but a list has no removals), and
a lost label yields no event. The list also shows what a dead watch has not delivered.
"""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Iterable

from kvcachepool import constants
from kvcachepool.cluster import ApiError, Cluster
from kvcachepool.watchcache import KINDS, Key, WatchCache, slim

logger = logging.getLogger(__name__)

INTERVAL_SECONDS = 300.0
_RETRY_SECONDS = (1.0, 2.0, 5.0, 10.0, 30.0)


class Relist:
    """Keeps the cache complete."""

    def __init__(
        self,
        cluster: Cluster,
        cache: WatchCache,
        *,
        namespaces: Iterable[str],
        changed: Callable[[Key], None],
        also: Callable[[], Awaitable[None]] | None = None,
        optional: Callable[[], Iterable[str]] = tuple,
        interval: float = INTERVAL_SECONDS,
    ) -> None:
        """`also` is called in each round, before the objects of pools are listed; `optional` gives kinds of children
        that not every cluster has."""
        self._optional = optional
        self._cluster = cluster
        self._cache = cache
        self._namespaces: tuple[str | None, ...] = tuple(namespaces) or (None,)
        self._changed = changed
        self._also = also
        self._interval = interval

    async def first(self, waiting: Callable[[str], None] = lambda _reason: None) -> None:
        """Fills the cache; keeps trying, and tells `waiting` why it could not."""
        for attempt in range(10**9):
            try:
                await self.once()
            except ApiError as error:
                waiting(f"cannot list: {error}")
                logger.warning("cannot list what there is: %s", error)
                await asyncio.sleep(_RETRY_SECONDS[min(attempt, len(_RETRY_SECONDS) - 1)])
            else:
                return

    async def forever(self) -> None:
        """Repeats until it is cancelled; a failed round is left to the next one, whatever the failure: the process
        ends with this task, and would with each that follows it."""
        while True:
            await asyncio.sleep(self._interval * random.uniform(0.9, 1.1))  # noqa: S311
            try:
                await self.once()
            except ApiError as error:
                logger.warning("relist failed, next one in %.0f s: %s", self._interval, error)
            except Exception:
                logger.exception("relist failed, next one in %.0f s", self._interval)

    async def once(self) -> None:
        """Lists each kind in each watched scope. Raises ApiError."""
        if self._also is not None:
            await self._also()
        for kind in (*KINDS, *self._optional()):
            await self.kind(kind)

    async def kind(self, kind: str) -> None:
        """Lists one kind in each watched scope. Raises ApiError."""
        selector = "" if kind == constants.KIND else constants.LABEL_POOL
        for namespace in self._namespaces:
            objects, version = await self._cluster.list(kind, namespace, selector, keep=slim)
            for key in self._cache.replace(kind, namespace, objects, version):
                self._changed(key)
