"""A bounded time of kills, edits and scale changes under the loop of requests."""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import Callable
from pathlib import Path

from e2e.harness import drills, operator, processes
from e2e.harness.faults import HostFaults
from e2e.harness.kube import Kube
from kvcachepool import constants
from kvcachepool.drill.ground import Ground
from kvcachepool.drill.loop import Loop, Pace
from kvcachepool.drill.suite import Suite, until_reused
from kvcachepool.drill.verdict import Course, Row, judge

_PAUSE = 6.0
"""Seconds between two events."""


class Soak:
    """One run in one pool. Requests that fail at an engine that was killed or told to leave are excepted, until it
    answers again; nothing else is."""

    def __init__(self, kube: Kube, namespace: str, name: str, seed: int) -> None:
        self._kube, self._namespace, self._name = kube, namespace, name
        self._rng = random.Random(seed)
        self._spec = kube.pool(namespace, name)["spec"]
        self.log: list[str] = []

    async def run(self, kubeconfig: Path, seconds: float) -> Row:
        """Events for so many seconds; the spec is the old one afterwards. The row's failures are what counts."""
        async with drills.ground(kubeconfig, self._namespace, self._name) as ground:
            await Suite(ground).prepare()
            loop = Loop(ground.asker, ground.references, ground.shared, ground.engines, Pace())
            ground.killed = loop.killed
            async with loop.running():
                end = time.monotonic() + seconds
                try:
                    await self._events(ground, end)
                finally:
                    await asyncio.to_thread(self._restore)
                ended = loop.now
                await until_reused(loop, ended, 0, 300)
                samples = list(loop.samples)
        return judge(Course("soak", samples, loop.kills, 0.0, ended))

    async def _events(self, ground: Ground, end: float) -> None:
        """Every kind of event in turn, in an order of its own each time."""
        kinds: list[Callable[[Ground], None]] = []
        while time.monotonic() < end:
            if not kinds:
                kinds = [self._kill_master, self._kill_operator, self._kill_engine, self._edit, self._scale, self._grow]
                self._rng.shuffle(kinds)
            await asyncio.to_thread(kinds.pop(), ground)
            await asyncio.sleep(_PAUSE)

    def _note(self, text: str) -> None:
        self.log.append(text)
        print(f"soak: {text}", flush=True)

    def _kill(self, ground: Ground, component: str) -> None:
        pods = HostFaults(self._kube).pods(ground, component)
        whole = component != constants.ENGINE or len(self._ready_engines()) >= 2
        if not pods or not whole:
            self._note(f"no {component} to spare")
            return
        pod = self._rng.choice(pods)
        if component == constants.ENGINE:
            ground.killed(pod["metadata"]["uid"])
        processes.kill(pod, component)
        self._note(f"killed {pod['metadata']['name']}")

    def _kill_master(self, ground: Ground) -> None:
        self._kill(ground, constants.MASTER)

    def _kill_engine(self, ground: Ground) -> None:
        self._kill(ground, constants.ENGINE)

    def _kill_operator(self, _: Ground) -> None:
        leading = [p for p in operator.pods(self._kube) if p["metadata"]["name"] == operator.leader(self._kube)]
        if leading and processes.kill(leading[0], "operator"):
            self._note(f"killed {leading[0]['metadata']['name']}")

    def _edit(self, _: Ground) -> None:
        tokens = 7000 + self._rng.randrange(1000)
        self._patch({"verification": {"promptTokens": tokens}}, f"promptTokens {tokens}")

    def _scale(self, _: Ground) -> None:
        replicas = self._rng.choice([2, 3])
        self._patch({"engines": {"replicas": replicas}}, f"{replicas} engines")

    def _grow(self, _: Ground) -> None:
        replicas = self._rng.choice([1, 2])
        self._patch({"store": {"replicas": replicas}}, f"{replicas} store pods")

    def _patch(self, spec: object, what: str) -> None:
        self._kube.run("patch", "kvpool", "-n", self._namespace, self._name, "--type=merge",
                       f"-p={json.dumps({'spec': spec})}")  # fmt: skip
        self._note(f"spec: {what}")

    def _restore(self) -> None:
        kept = ("verification", "engines", "store")
        self._patch({key: self._spec[key] for key in kept}, "as before")

    def _ready_engines(self) -> list[str]:
        selector = f"kvcachepool.io/pool={self._name},kvcachepool.io/component={constants.ENGINE}"
        pods = self._kube.items("pods", "-n", self._namespace, "-l", selector)
        return [
            pod["metadata"]["name"]
            for pod in pods
            if any(c["type"] == "Ready" and c["status"] == "True" for c in pod["status"].get("conditions", ()))
        ]
