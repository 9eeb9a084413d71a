"""Drills in a pool, one after the other: stock, baseline, fault, recovery, and a whole pool before the next one."""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from kvcachepool.cluster import ApiError
from kvcachepool.drill.faults import Fault
from kvcachepool.drill.ground import Ground
from kvcachepool.drill.loop import Engine, Loop, Pace, make_references
from kvcachepool.drill.report import line
from kvcachepool.drill.verdict import NOT_RUN, Course, Row, judge, reused_after
from kvcachepool.lookup import CannotRunError
from kvcachepool.observe.engine import read_models
from kvcachepool.probe.client import RequestError
from kvcachepool.probe.sequence import prompt_length

_REFERENCES: Final = 4


@dataclass(frozen=True, slots=True)
class Times:
    """Seconds, but for the stock."""

    baseline: float = 10.0
    """Requests without a fault, to compare with: at least so long, and until something was reused."""
    stock: int = 3
    """Prompts that each engine stores before the fault, for the others to read during it."""
    after: float = 10.0
    """Requests go on at least so long after the fault."""
    recovery: float = 300.0
    """At most so long after the fault reuse must work again, and all pods be ready."""


@dataclass(slots=True)
class Suite:
    """Drills in one pool."""

    ground: Ground
    prompt_tokens: int = 1024
    pace: Pace = field(default_factory=Pace)
    times: Times = field(default_factory=Times)
    say: Callable[[str], None] = lambda _text: None
    """Progress, for people."""
    done: Callable[[Row], None] = lambda _row: None
    """Each row as soon as there is one: a run can be interrupted."""

    async def run(self, faults: Sequence[Fault]) -> list[Row]:
        """A row for each. Raises CannotRunError where no drill can be run at all."""
        await self.prepare()
        return [await self._drill(fault) for fault in faults]

    async def prepare(self) -> None:
        """Prompts with their right answers, known before anything is broken. Raises CannotRunError."""
        ground, engines = self.ground, await self._ready_engines()
        try:
            models, error = await read_models(ground.http, engines[0].host, engines[0].port)
            if error or ground.asker.model not in models:
                raise CannotRunError(
                    f"{engines[0].name} does not serve {ground.asker.model}: {error or sorted(models)}"
                )
            block = ground.pool.spec.schema_.block_size
            length = prompt_length(self.prompt_tokens, models[ground.asker.model], block)
            ground.references = await make_references(ground.asker, engines, length, _REFERENCES)
        except RequestError as error:
            raise CannotRunError(f"the engines do not answer without a fault: {error}") from error
        if not ground.references:
            raise CannotRunError(
                "computed answers and those from a cache differ without any fault: nothing can be compared"
            )

    async def _ready_engines(self) -> list[Engine]:
        engines = [e for e in await self.ground.engines() if e.ready and not e.leaving]
        least = 2 if self.ground.shared else 1
        if len(engines) < least:
            raise CannotRunError(
                f"{len(engines)} engines are ready, expected at least {least}: see condition EnginesReady"
            )
        return engines

    async def _drill(self, fault: Fault) -> Row:
        if fault.store and not self.ground.shared:
            return Row(fault.name, NOT_RUN, detail=f"backend {self.ground.pool.spec.backend.name} has no store")
        self.say(f"{fault.name}: {fault.meaning}")
        try:
            row = await self._run(fault)
        except (CannotRunError, ApiError) as error:
            row = Row(fault.name, NOT_RUN, detail=str(error))
        self.say(line(row))
        self.done(row)
        return row

    async def _run(self, fault: Fault) -> Row:
        ground, engines = self.ground, await self._ready_engines()
        ready = await ground.ready()
        loop = Loop(ground.asker, ground.references, ground.shared, ground.engines, self.pace)
        ground.killed = loop.killed
        for engine in engines * self.times.stock:
            await loop.stock(engine)
        async with loop.running():
            await until_reused(loop, 0, self.times.baseline, self.times.recovery)
            if reused_after(loop.samples, 0) is None:
                raise CannotRunError("nothing is reused even without a fault: see condition ReuseVerified")
            before = await ground.keys() if ground.shared else None
            evicted = await ground.evictions() if ground.shared else None
            loop.release()
            began = loop.now
            async with fault.hold(ground):
                await asyncio.sleep(fault.seconds)
            ended = loop.now
            self.say(f"{fault.name}: the fault is over, {len(loop.samples)} requests so far")
            await until_reused(loop, ended, self.times.after, self.times.recovery)
            after = await ground.keys() if before is not None else None
            evicted_since = await ground.evictions() if evicted is not None else None
            samples = list(loop.samples)
        lost = len(before - after) if before is not None and after is not None else None
        evictions = evicted_since - evicted if evicted is not None and evicted_since is not None else None
        keys = len(before) if before is not None else None
        row = judge(Course(fault.name, samples, loop.kills, began, ended, keys, lost, evictions))
        if not await self._settled(ready):
            self.say(f"{fault.name}: not all pods were ready again after {self.times.recovery:g} s")
        return row

    async def _settled(self, ready: Mapping[str, int]) -> bool:
        """Waits until as many pods are ready as before: the next drill needs the whole pool."""
        end = time.monotonic() + self.times.recovery
        while await self.ground.ready() != ready:
            if time.monotonic() > end:
                return False
            await asyncio.sleep(2)
        return True


async def until_reused(loop: Loop, since: float, least: float, most: float) -> None:
    """Until something stored after `since` was reused, but at least and at most so many seconds after it."""
    while (done := loop.now - since) < most:
        if done >= least and reused_after(loop.samples, since) is not None:
            return
        await asyncio.sleep(1)


def announcement(faults: Sequence[Fault]) -> str:
    """What to tell before anything is broken."""
    lines = [f"  {fault.name}: {fault.meaning}; costs {fault.cost}" for fault in faults]
    return "\n".join(["These drills break a running pool:", *lines])
