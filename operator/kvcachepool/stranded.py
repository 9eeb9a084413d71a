"""Engines that have lost the store for good, by evidence, and the next of them to restart. Pure.

A store client comes back by itself after a restart of the master or a break of the network; some do not, and their
engine then computes everything while its health says 200. Evidence is its segment that stays away while the master
serves others, or its saves that are all refused while the store has room.
"""

from collections.abc import Mapping
from typing import Final

from kvcachepool import constants
from kvcachepool.api import KVCachePool
from kvcachepool.facts import EngineTrend, Observed, PodFacts

_AWAY_SECONDS: Final = 180
_REFUSED_SECONDS: Final = 120
_REFUSED_KEYS: Final = 20
"""Evidence from which an engine counts as stranded; clients come back within seconds, and every break of the store
lasts as long as `clientTtlSeconds`, at most ten minutes by the API."""
_LOOPING_SECONDS: Final = 60
_ROOM: Final = 0.97


def stranded(pool: KVCachePool, observed: Observed) -> Mapping[str, str]:
    """Evidence by pod."""
    master = observed.master
    if master is None or not master.reachable or not master.segments:
        return {}
    patience = pool.store.master.client_ttl_seconds
    found = {}
    for pod in observed.members(constants.ENGINE):
        trend, away = observed.engine_trends.get(pod.name), observed.absent.get(pod.name, 0)
        if not pod.ready:
            continue
        if away >= _AWAY_SECONDS + patience:
            found[pod.name] = "the master does not list its segment"
        elif trend is not None and _refused(trend, patience) and _has_room(observed):
            found[pod.name] = "all its saves are refused while the store has room"
    return found


def looping(pool: KVCachePool, observed: Observed) -> Mapping[str, float]:
    """Engines whose loads fail again and again, faster than prompts are computed: failed blocks by pod. Until a silent
    member is dropped, loads of its blocks are repeated; that is no loop yet."""
    patience = pool.store.master.client_ttl_seconds + _LOOPING_SECONDS
    return {name: t.looped_keys for name, t in observed.engine_trends.items() if t.looping_seconds >= patience}


def next_to_restart(pool: KVCachePool, observed: Observed) -> PodFacts | None:
    """The engine to evict now; None while another one is not ready, or where the spec does not allow it. One that runs
    for less than an engine may take to start is left alone: a restart that did not help is not repeated at once."""
    if pool.spec.engines.restart_when_stranded != "OneAtATime":
        return None
    engines = observed.members(constants.ENGINE)
    if any(pod.deleting for pod in observed.pods if pod.component == constants.ENGINE):
        return None
    if len(engines) < pool.spec.engines.replicas or not all(pod.ready for pod in engines):
        return None
    ill = {*stranded(pool, observed), *looping(pool, observed)}
    settled = pool.spec.engines.startup_seconds
    found = (pod for pod in engines if pod.owned and pod.name in ill and _runs(observed, pod) >= settled)
    return min(found, key=lambda pod: pod.name, default=None)


def _runs(observed: Observed, pod: PodFacts) -> int:
    trend = observed.engine_trends.get(pod.name)
    return trend.up_seconds if trend is not None else 0


def _refused(trend: EngineTrend, patience: int) -> bool:
    return trend.refused_seconds >= _REFUSED_SECONDS + patience and trend.refused_keys >= _REFUSED_KEYS


def _has_room(observed: Observed) -> bool:
    master = observed.master
    return (
        master is not None
        and bool(master.capacity)
        and master.allocated is not None
        and master.allocated < _ROOM * float(master.capacity or 0)
    )
