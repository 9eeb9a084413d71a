"""Puts the parts of a pass together: the real observe, plan, status and probe behind `reconcile.Steps`."""

import time
from collections.abc import Iterable, Mapping

from kvcachepool.api import KVCachePool
from kvcachepool.api.parse import parse_pool
from kvcachepool.cluster import Cluster
from kvcachepool.facts import Object, Observed
from kvcachepool.observe.gather import gather
from kvcachepool.observe.http import HttpReader
from kvcachepool.observe.memory import PoolMemory
from kvcachepool.plan import make_plan
from kvcachepool.reconcile import Steps
from kvcachepool.settings import Settings
from kvcachepool.status import invalid_status, make_status
from kvcachepool.status.events import transitions
from kvcachepool.watchcache import WatchCache
from kvcachepool.workqueue import Key


class ClusterView:
    """What `observe` may read: objects from the watch cache, the few other things from the API server."""

    def __init__(self, cluster: Cluster, cache: WatchCache) -> None:
        self._cache = cache
        self.exists = cluster.exists
        self.keys = cluster.keys
        self.pod_log = cluster.pod_log

    def pods(self, key: Key) -> Iterable[Object]:
        """Pods that carry the pool's label."""
        return self._cache.pods(key)

    def children(self, key: Key) -> Mapping[tuple[str, str], Object]:
        """Other objects that carry the pool's label."""
        return self._cache.children(key)


class Memories:
    """What is remembered of each pool between passes."""

    def __init__(self) -> None:
        self._of: dict[Key, PoolMemory] = {}

    def get(self, pool: KVCachePool) -> PoolMemory:
        """The pool's memory; a new one for a new pool of an old name."""
        memory = self._of.get(pool.key)
        if memory is None or memory.uid != pool.metadata.uid:
            memory = self._of[pool.key] = PoolMemory(uid=pool.metadata.uid)
        return memory

    def forget(self, key: Key) -> None:
        """Drops one pool's memory."""
        self._of.pop(key, None)

    def clear(self) -> None:
        """Drops all."""
        self._of.clear()


def steps(settings: Settings, cluster: Cluster, cache: WatchCache, http: HttpReader, memories: Memories) -> Steps:
    """The steps of a real pass."""
    view = ClusterView(cluster, cache)

    async def observe(pool: KVCachePool) -> Observed:
        return await gather(pool, view, http, memories.get(pool), time.time())

    return Steps(
        parse=parse_pool,
        observe=observe,
        plan=lambda pool, observed: make_plan(pool, observed, settings),
        status=make_status,
        invalid_status=invalid_status,
        transitions=transitions,
        verify=lambda _pool, _plan, _observed: None,
        forget=memories.forget,
    )
