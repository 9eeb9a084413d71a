"""Puts the parts of a pass together: the real observe, plan, status and probe behind `reconcile.Steps`."""

import time
from collections.abc import Callable, Iterable, Mapping

from kvcachepool.api import KVCachePool, PoolStatus
from kvcachepool.api.parse import parse_pool
from kvcachepool.cluster import Cluster
from kvcachepool.facts import Object, Observed
from kvcachepool.observe.gather import gather
from kvcachepool.observe.http import HttpReader
from kvcachepool.observe.memory import PoolMemory
from kvcachepool.plan import make_plan
from kvcachepool.probe.runner import ProbeRunner
from kvcachepool.reconcile import Steps
from kvcachepool.settings import Settings
from kvcachepool.status import failed_status, invalid_status, make_status, pod_transitions, transitions
from kvcachepool.status.admitted import announcement
from kvcachepool.watchcache import WatchCache
from kvcachepool.workqueue import Key


class ClusterView:
    """What `observe` may read: objects from the watch cache, the few other things from the API server."""

    def __init__(self, cluster: Cluster, cache: WatchCache) -> None:
        self._cache = cache
        self.exists = cluster.exists
        self.keys = cluster.keys
        self.config = cluster.config
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


class Parts:
    """The real parts of a pass, and what they keep between passes."""

    def __init__(
        self,
        settings: Settings,
        cluster: Cluster,
        cache: WatchCache,
        *,
        probed: Callable[[Key], None],
        surroundings: Callable[[Key, Observed], Observed] = lambda _key, observed: observed,
    ) -> None:
        """`probed` is told of a pool whose probe has a result; `surroundings` adds what all pools share."""
        self._surroundings = surroundings
        self._settings = settings
        self._view = ClusterView(cluster, cache)
        self._http = HttpReader()
        self._memories = Memories()
        self._probes = ProbeRunner(self._http, settings, probed)

    def steps(self) -> Steps:
        """As a pass uses them."""
        return Steps(
            parse=parse_pool,
            observe=self._observe,
            plan=lambda pool, observed: make_plan(pool, observed, self._settings),
            announce=announcement,
            status=make_status,
            invalid_status=invalid_status,
            failed_status=failed_status,
            transitions=transitions,
            pod_transitions=pod_transitions,
            verify=self._verify,
            forget=self._forget,
        )

    async def reset(self) -> None:
        """Ends probes and drops memories: another replica works now."""
        await self._probes.close()
        self._memories.clear()

    async def close(self) -> None:
        """Ends everything."""
        await self.reset()
        await self._http.close()

    async def _observe(self, pool: KVCachePool) -> Observed:
        observed = await gather(pool, self._view, self._http, self._memories.get(pool), time.time())
        return self._surroundings(pool.key, observed)

    def _verify(self, pool: KVCachePool, status: PoolStatus, observed: Observed, changed: bool) -> None:
        digest = status.schema_.digest
        if digest:
            memory = self._memories.get(pool)
            self._probes.consider(pool, observed, memory, digest, time.time(), changed=changed)

    def _forget(self, key: Key) -> None:
        self._probes.cancel(key)
        self._memories.forget(key)
