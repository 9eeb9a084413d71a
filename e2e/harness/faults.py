"""Faults that need the host under the embedded cluster: processes, packets and queues of our own pods.

Each is undone when its context ends, also when the test fails; what is set in a pod's network namespace goes with the
pod at the latest.
"""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager

from e2e.harness import processes
from e2e.harness.kube import Json, Kube
from kvcachepool import constants
from kvcachepool.drill.faults import Fault
from kvcachepool.drill.ground import Ground
from kvcachepool.lookup import CannotRunError

HELD = 20.0
"""Seconds of a fault that lasts: longer than the time after which the master drops a silent member (10 s)."""
HUNG = 45.0
"""Longer than a store pod may hang before it is restarted (22 s)."""
SLOW = "20mbit"
"""A load of 1,024 tokens of the tiny model, 4 MiB, takes 1.7 s then."""
_DNS = ("deployment", "coredns", "-n", "kube-system")
Hold = Callable[[Ground], AbstractAsyncContextManager[None]]


class HostFaults:
    """Of one cluster."""

    def __init__(self, kube: Kube) -> None:
        self._kube = kube

    def all(self) -> dict[str, Fault]:
        """By name, in the order to run them: an engine last, it takes longest to come back."""
        master, store, engine = constants.MASTER, constants.STORE, constants.ENGINE
        found = (
            Fault("master-killed", "SIGKILL; the container starts again at the same address", "", self._kill(master)),
            Fault("master-paused", "SIGSTOP, then SIGCONT", "", self._pause(master), HELD),
            Fault("master-unreachable", "members' packets to the master are dropped", "", self._cut_off, HELD),
            Fault("dns-gone", "the master is killed while no name can be resolved", "", self._no_names, HELD),
            Fault("store-killed", "SIGKILL of a store member whose segment is being read", "", self._kill(store)),
            Fault("store-hung", "SIGSTOP of a store member whose segment is being read", "", self._pause(store), HUNG),
            Fault("slow-transport", f"the store pod sends {SLOW}/s at most", "", self._slow, HELD),
            Fault("engine-killed", "SIGKILL of an engine in the middle of a load", "", self._kill(engine), store=False),
        )
        return {fault.name: fault for fault in found}

    def pods(self, ground: Ground, component: str) -> list[Json]:
        """Running pods of the pool's component; of several masters the one that leads, which alone is ready."""
        found = running(self._kube, ground.namespace, ground.pool.metadata.name, component)
        return sorted(found, key=lambda pod: not all(c["ready"] for c in pod["status"]["containerStatuses"]))

    async def pod(self, ground: Ground, component: str) -> Json:
        """The first one. Raises CannotRunError."""
        found = await asyncio.to_thread(self.pods, ground, component)
        if not found:
            raise CannotRunError(f"no {component} runs")
        return found[0]

    def _kill(self, component: str) -> Hold:
        @asynccontextmanager
        async def hold(ground: Ground) -> AsyncIterator[None]:
            pod = await self.pod(ground, component)
            if component == constants.ENGINE:
                ground.killed(pod["metadata"]["uid"])
            processes.kill(pod, component)
            yield

        return hold

    def _pause(self, component: str) -> Hold:
        @asynccontextmanager
        async def hold(ground: Ground) -> AsyncIterator[None]:
            with processes.frozen(await self.pod(ground, component), component):
                yield

        return hold

    @asynccontextmanager
    async def _cut_off(self, ground: Ground) -> AsyncIterator[None]:
        """Only members are cut off: the kubelet still reaches the master and does not restart it."""
        members = [pod for kind in (constants.ENGINE, constants.STORE) for pod in self.pods(ground, kind)]
        with cut_off([await self.pod(ground, constants.MASTER)], members):
            yield

    @asynccontextmanager
    async def _slow(self, ground: Ground) -> AsyncIterator[None]:
        """A token bucket at the store pod's interface; this kernel has no netem, so there is no added latency."""
        store = await self.pod(ground, constants.STORE)
        bucket = ["tbf", "rate", SLOW, "burst", "32kbit", "latency", "400ms"]
        _in_network_of(store, constants.STORE, "tc", "qdisc", "add", "dev", "eth0", "root", *bucket)
        try:
            yield
        finally:
            _in_network_of(store, constants.STORE, "tc", "qdisc", "del", "dev", "eth0", "root", check=False)

    @asynccontextmanager
    async def _no_names(self, ground: Ground) -> AsyncIterator[None]:
        """Members have to connect anew and cannot ask for the master's address."""
        run = self._kube.run
        await asyncio.to_thread(run, "scale", *_DNS, "--replicas=0")
        try:
            processes.kill(await self.pod(ground, constants.MASTER), constants.MASTER)
            yield
        finally:
            run("scale", *_DNS, "--replicas=1")
            await asyncio.to_thread(run, "rollout", "status", *_DNS, "--timeout=120s")


def running(kube: Kube, namespace: str, pool: str, component: str) -> list[Json]:
    """Pods of the component whose container runs."""
    selector = f"kvcachepool.io/pool={pool},kvcachepool.io/component={component}"
    found = kube.items("pods", "-n", namespace, "-l", selector)
    return [pod for pod in found if processes.container_processes(pod, component)]


@contextmanager
def cut_off(masters: Sequence[Json], members: Sequence[Json]) -> Iterator[None]:
    """Within the context the masters get no packet of these members."""
    rules = [(master, ["INPUT", "-s", pod["status"]["podIP"], "-j", "DROP"]) for master in masters for pod in members]
    done: list[tuple[Json, list[str]]] = []
    try:
        for master, rule in rules:
            _in_network_of(master, constants.MASTER, "iptables", "-w", "-I", *rule)
            done.append((master, rule))
        yield
    finally:
        for master, rule in done:
            _in_network_of(master, constants.MASTER, "iptables", "-w", "-D", *rule, check=False)


def _in_network_of(pod: Json, container: str, *command: str, check: bool = True) -> None:
    found = processes.container_processes(pod, container)
    if not found and not check:
        return  # the container is gone, and its namespace with it or soon
    subprocess.run(["nsenter", "-t", str(found[0]), "-n", *command], check=check, capture_output=True)
