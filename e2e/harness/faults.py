"""Faults that need the host under the embedded cluster: processes, packets and queues of our own pods.

Each is undone when its context ends, also when the test fails; what is set in a pod's network namespace goes with the
pod at the latest.
"""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from e2e.harness import processes
from e2e.harness.kube import Json, Kube
from kvcachepool import constants
from kvcachepool.drill.faults import Fault
from kvcachepool.drill.ground import DrillError, Ground

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
        """Running pods of the pool's component."""
        selector = f"kvcachepool.io/pool={ground.pool.metadata.name},kvcachepool.io/component={component}"
        found = self._kube.items("pods", "-n", ground.namespace, "-l", selector)
        return [pod for pod in found if processes.container_processes(pod, component)]

    async def pod(self, ground: Ground, component: str) -> Json:
        """The first one. Raises DrillError."""
        found = await asyncio.to_thread(self.pods, ground, component)
        if not found:
            raise DrillError(f"no {component} runs")
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
        master = await self.pod(ground, constants.MASTER)
        members = [pod for kind in (constants.ENGINE, constants.STORE) for pod in self.pods(ground, kind)]
        rules = [["INPUT", "-s", pod["status"]["podIP"], "-j", "DROP"] for pod in members]
        done: list[list[str]] = []
        try:
            for rule in rules:
                _in_network_of(master, constants.MASTER, "iptables", "-w", "-I", *rule)
                done.append(rule)
            yield
        finally:
            for rule in done:
                _in_network_of(master, constants.MASTER, "iptables", "-w", "-D", *rule, check=False)

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


def _in_network_of(pod: Json, container: str, *command: str, check: bool = True) -> None:
    found = processes.container_processes(pod, container)
    if not found and not check:
        return  # the container is gone, and its namespace with it or soon
    subprocess.run(["nsenter", "-t", str(found[0]), "-n", *command], check=check, capture_output=True)
