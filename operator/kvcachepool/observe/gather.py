"""Everything one pass knows about one pool, put together.

Cluster objects come from the watch cache, so a steady pass makes no API call. Master and engines are asked over their
pods' addresses, all at once, and only those that run; whatever does not answer is a fact too, never an exception.
"""

import asyncio
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final, Protocol

from kvcachepool import constants
from kvcachepool.api import KVCachePool
from kvcachepool.constants import ENGINE, ENGINE_KINDS, MASTER, STORE, WORKER
from kvcachepool.facts import ContainerFacts, EngineFacts, MasterFacts, Object, Observed, PodFacts, WorkloadFacts
from kvcachepool.observe.engine import read_engine
from kvcachepool.observe.environment import SourceReader, resolved
from kvcachepool.observe.http import HttpReader
from kvcachepool.observe.logs import actionable_line
from kvcachepool.observe.master import COUNTED_KEYS, read_keys, read_master
from kvcachepool.observe.memory import KeyCount, PoolMemory
from kvcachepool.observe.pods import owned_by, pod_facts, workload_facts
from kvcachepool.observe.references import ReferenceReader, missing
from kvcachepool.observe.transports import LogReader, read_transports

_LOG = logging.getLogger(__name__)
_CONCURRENT_ENGINES: Final = 64
"""Engines asked at once in one pass: bounds memory (their pages are up to 200 KB) without slowing other pools."""
_LOGS_PER_PASS: Final = 8
_LOG_LINES: Final = 2000
_LOG_BYTES: Final = 1024 * 1024
_REREAD_LOG_SECONDS: Final = 60.0


class ClusterReader(ReferenceReader, SourceReader, LogReader, Protocol):
    """What a pass reads of the cluster. `pods` and `children` are answered from the watch cache."""

    def pods(self, key: tuple[str, str]) -> Iterable[Object]:
        """Pods in the pool's namespace that carry its label."""
        ...

    def children(self, key: tuple[str, str]) -> Mapping[tuple[str, str], Object]:
        """Deployments, Services and ConfigMaps that carry the pool's label, by (kind, name)."""
        ...


async def gather(pool: KVCachePool, io: ClusterReader, http: HttpReader, memory: PoolMemory, now: float) -> Observed:
    """Observe the pool. `now` is epoch seconds. Takes at most a few seconds, whatever hangs."""
    uid = pool.metadata.uid
    children = {name: raw for name, raw in io.children(pool.key).items() if owned_by(raw, uid)}
    deployments = _workloads(pool, children)
    pods = [pod_facts(raw, deployments.keys()) for raw in io.pods(pool.key)]
    pods.sort(key=lambda pod: pod.name)
    pods = await resolved(pods, pool.metadata.namespace, io, memory, now)
    where = _where(pool, pods)
    epoch = memory.traffic.epoch
    lines, absent, transports, master, engines = await asyncio.gather(
        _log_lines(pool.metadata.namespace, pods, io, memory, now),
        missing(pool, io, memory, now),
        read_transports(pool, pods, io, memory),
        _ask_master(where, http),
        _ask_engines([pod for pod in pods if pod.component in (ENGINE, "") and _asked(pod)], http),
    )
    if where is not None and master is not None:
        if master.service_ready is not False:  # one that stands by, or has not begun, lost no index of the pool
            memory.master.record(where.process, master, now)
        moving = sum(facts.component == ENGINE for facts in deployments.values()) > 1
        former = pool.status.schema_.previous_digest
        await _count_keys(former, where, master, http, memory.keys, now=now, moving=moving)
    departed, unlisted = memory.presence.look(_segment_owners(pool, pods), master, now)
    by_name = {pod.name: pod for pod in pods}
    trends = memory.engines.look(by_name, engines, now)
    uids = {pod.name: pod.uid for pod in pods}
    memory.traffic.record({uids[name]: facts for name, facts in engines.items()}, frozenset(uids.values()), now, epoch)
    return Observed(
        pods=tuple(replace(pod, log_line=lines.get(pod.uid, "")) for pod in pods),
        workloads=deployments,
        children=children,
        missing=absent,
        departed=departed,
        absent=unlisted,
        keys_by_prefix=memory.keys.counts,
        master=master,
        engines=engines,
        engine_trends={
            name: replace(trend, up_seconds=_up_seconds(by_name[name], now)) for name, trend in trends.items()
        },
        transports=transports,
        rates=memory.traffic.rates(now),
        store_trend=memory.master.trend(now),
        verification=memory.probe.result,
    )


def _workloads(pool: KVCachePool, children: Mapping[tuple[str, str], Object]) -> dict[str, WorkloadFacts]:
    """By name. While a generation changes between one node an engine and several, there is one of each kind: the wanted
    one counts."""
    wanted = "LeaderWorkerSet" if pool.spec.engines.nodes_per_engine > 1 else "Deployment"
    kinds = sorted(ENGINE_KINDS, key=lambda kind: kind == wanted)
    return {name: workload_facts(raw) for kind in kinds for (found, name), raw in children.items() if found == kind}


def _asked(pod: PodFacts) -> bool:
    return bool(pod.ip) and pod.phase == "Running" and not pod.deleting and pod.main is not None and pod.main.running


def _up_seconds(pod: PodFacts, now: float) -> int:
    """0 where the start is not known."""
    try:
        return max(int(now - datetime.fromisoformat(pod.started).timestamp()), 0)
    except ValueError:
        return 0


def _segment_owners(pool: KVCachePool, pods: Sequence[PodFacts]) -> list[PodFacts]:
    """Pods that lend memory; of users' own members it is not known whether they do."""
    components = {STORE} if pool.store.mode == "Dedicated" else {ENGINE, WORKER}
    return [pod for pod in pods if pod.component in components and pod.owned]


def _serving_master(pods: Sequence[PodFacts]) -> PodFacts | None:
    """The operator's own master pod; a ready one first, should an old one still be ending or others stand by."""
    candidates = [pod for pod in pods if pod.component == MASTER and pod.owned and _asked(pod)]
    return next((pod for pod in candidates if pod.ready), candidates[0] if candidates else None)


@dataclass(frozen=True, slots=True)
class _Where:
    """Where the pool's master tells about itself."""

    host: str
    port: int
    process: str
    """Tells one start from the next, as far as that can be seen."""


def _where(pool: KVCachePool, pods: Sequence[PodFacts]) -> _Where | None:
    external = pool.store.master.external
    if external is not None:
        return _Where(*external.http, process="external")
    pod = _serving_master(pods)
    if pod is None:
        return None
    restarts = pod.main.restarts if pod.main is not None else 0
    return _Where(pod.ip, constants.MASTER_HTTP_PORT, process=f"{pod.uid}/{restarts}")


async def _ask_master(where: _Where | None, http: HttpReader) -> MasterFacts | None:
    return await read_master(http, where.host, where.port) if where is not None else None


async def _count_keys(
    former: str, where: _Where, master: MasterFacts, http: HttpReader, memory: KeyCount, *, now: float, moving: bool
) -> None:
    """Counts what a former schema still holds, now and then, and only in a store whose keys are few."""
    if not former or not master.reachable or master.keys is None:
        return
    if master.keys > COUNTED_KEYS:
        memory.counts = None
    elif memory.due(former, moving=moving, now=now):
        memory.counts, memory.when = await read_keys(http, where.host, where.port), now


async def _ask_engines(pods: Sequence[PodFacts], http: HttpReader) -> dict[str, EngineFacts]:
    slots = asyncio.Semaphore(_CONCURRENT_ENGINES)
    answers = await asyncio.gather(*(_engine(slots, http, pod) for pod in pods))
    return {pod.name: facts for pod, facts in zip(pods, answers, strict=True)}


async def _engine(slots: asyncio.Semaphore, http: HttpReader, pod: PodFacts) -> EngineFacts:
    async with slots:
        return await read_engine(http, pod.ip, pod.port)


def _crashed(pod: PodFacts) -> ContainerFacts | None:
    """The first container that has ended and should not have, and is not well again."""
    for container in pod.containers:
        ended = container.exit_code is not None and not container.ready
        if ended and not (container.init and container.exit_code == 0):
            return container
    return None


async def _log_lines(
    namespace: str, pods: Sequence[PodFacts], io: ClusterReader, memory: PoolMemory, now: float
) -> dict[str, str]:
    """First actionable log line by pod uid, read once for each crash."""
    crashed = {pod.uid: (pod, container) for pod in pods if (container := _crashed(pod)) is not None}
    wanted = {(uid, container.name, container.restarts): (pod, container) for uid, (pod, container) in crashed.items()}
    for gone in memory.log_lines.keys() - wanted.keys():
        del memory.log_lines[gone]
    unread = [
        (identity, pod, container)
        for identity, (pod, container) in wanted.items()
        if identity not in memory.log_lines
        or (not memory.log_lines[identity][1] and now - memory.log_lines[identity][0] >= _REREAD_LOG_SECONDS)
    ][:_LOGS_PER_PASS]
    texts = await asyncio.gather(*(_log(io, namespace, pod.name, container) for _, pod, container in unread))
    for (identity, _, container), text in zip(unread, texts, strict=True):
        memory.log_lines[identity] = (now, actionable_line(text) or actionable_line(container.exit_message))
    return {identity[0]: line for identity, (_, line) in memory.log_lines.items()}


async def _log(io: ClusterReader, namespace: str, pod: str, container: ContainerFacts) -> str:
    try:
        # the API server gives a waiting container's last log as its present one
        return await io.pod_log(
            namespace, pod, container.name, previous=container.running, limit_bytes=_LOG_BYTES, tail_lines=_LOG_LINES
        )
    except Exception as error:  # the log may be gone with its node; the pass goes on without it
        _LOG.info("cannot read the log of %s/%s (%s): %s", namespace, pod, container.name, error)
        return ""
