"""LeaderWorkerSet, should its CRD come after the operator's start.

kopf watches what is served when it starts, and the operator may not read CRDs. So as long as a pool asks for groups,
the API server is asked every few seconds whether it serves them, and afterwards for those there are. A later start of
the operator watches them; no call is made where no pool asks for groups.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import Final

from kvcachepool.cluster import ApiError
from kvcachepool.facts import Object
from kvcachepool.relist import Relist
from kvcachepool.render.leader_worker_set import KIND
from kvcachepool.surroundings import Surroundings

logger = logging.getLogger(__name__)

_LOOK_SECONDS: Final = 5.0


class Groups:
    """Looks for the kind, then at its objects."""

    def __init__(self, surroundings: Surroundings, relist: Relist, pools: Callable[[], Iterable[Object]]) -> None:
        self._surroundings = surroundings
        self._relist = relist
        self._pools = pools

    async def forever(self) -> None:
        """Until it is cancelled. Not for an operator that found the kind at its start: it watches it."""
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            try:
                if any(_asks(pool) for pool in self._pools()):
                    await self.once()
            except ApiError as error:
                logger.warning("cannot look for %s: %s", KIND, error)
            except Exception:
                logger.exception("cannot look for %s; next look in %.0f s", KIND, _LOOK_SECONDS)

    async def once(self) -> None:
        """One look. Raises ApiError."""
        if self._surroundings.leader_worker_sets:
            await self._relist.kind(KIND)
        elif await self._surroundings.look_for_groups():
            logger.info("%s is served now", KIND)


def _asks(pool: Object) -> bool:
    """Of a raw pool, valid or not."""
    engines = (pool.get("spec") or {}).get("engines")
    nodes = engines.get("nodesPerEngine") if isinstance(engines, dict) else None
    return isinstance(nodes, int) and nodes > 1
