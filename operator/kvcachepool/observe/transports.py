"""Which transport each member has installed, by its own log.

The master lists the protocol that a member was told to use. A transfer engine that is told RDMA, with no device named
and none in its pod, takes TCP with one warning in its log, and mounts its segment as "rdma" all the same (seen with
0.3.13.post1; Mooncake transfer_engine_impl.cpp, `init`). So the log is the only witness; it is read once for each start
of a container, and only where RDMA was asked for: over TCP, TCP is forced.
"""

import asyncio
import logging
import re
from collections.abc import Mapping, Sequence
from typing import Final, Protocol

from kvcachepool.api import KVCachePool
from kvcachepool.constants import MASTER
from kvcachepool.facts import PodFacts
from kvcachepool.observe.memory import PoolMemory

_LOG = logging.getLogger(__name__)
_PER_PASS: Final = 8
_BYTES: Final = 1024 * 1024
"""From the log's beginning: an engine installs its transport before it loads the model."""
_RDMA: Final = re.compile(r"RDMA device: \S+, LID: |installTransport, type=(?:rdma|efa|barex)\b")
_TCP: Final = "TcpTransport: listen on port"


class LogReader(Protocol):
    """What is read of the cluster."""

    async def pod_log(
        self, namespace: str, pod: str, container: str, *, previous: bool, tail_lines: int | None, limit_bytes: int
    ) -> str:
        """A container's log: all of it, or the last `tail_lines`; of that the first `limit_bytes`. May raise."""
        ...


def installed(log: str) -> str:
    """RDMA or TCP; empty where the log does not tell. One process of a pod that fell back is enough for TCP."""
    if _TCP in log:
        return "TCP"
    return "RDMA" if _RDMA.search(log) else ""


async def read_transports(
    pool: KVCachePool, pods: Sequence[PodFacts], io: LogReader, memory: PoolMemory
) -> Mapping[str, str]:
    """RDMA or TCP by pod name, of those whose log tells; empty over TCP."""
    if pool.spec.transport.active_rdma is None:
        memory.transports.clear()
        return {}
    ready = {_start(pod): pod for pod in pods if pod.component != MASTER and pod.ready and pod.main is not None}
    for gone in memory.transports.keys() - ready.keys():
        del memory.transports[gone]
    unread = [start for start in ready if start not in memory.transports][:_PER_PASS]
    logs = await asyncio.gather(*(_log(io, pool.metadata.namespace, ready[start]) for start in unread))
    memory.transports |= {start: installed(log) for start, log in zip(unread, logs, strict=True) if log is not None}
    return {pod.name: found for start, pod in ready.items() if (found := memory.transports.get(start))}


def _start(pod: PodFacts) -> tuple[str, int]:
    return pod.uid, pod.main.restarts if pod.main is not None else 0


async def _log(io: LogReader, namespace: str, pod: PodFacts) -> str | None:
    try:
        return await io.pod_log(
            namespace, pod.name, pod.main.name if pod.main else "", previous=False, tail_lines=None, limit_bytes=_BYTES
        )
    except Exception as error:  # the next pass tries again
        _LOG.info("cannot read the log of %s/%s: %s", namespace, pod.name, error)
        return None
