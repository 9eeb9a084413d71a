"""The bounded loop of requests that runs under a drill.

A few prompts are computed once without any cache; these answers are the references. From then on every request is one
of these prompts with a salt that was never used before. The salt is in every block's hash and not in the answer, so
each request is new to every cache, while its right answer is known. One engine computes such a prompt and so stores
it, another one reads it from the pool. In a pool that shares nothing, an engine reads what it computed itself.

One request at a time runs at each engine. Every request has a deadline, the loop has one, too.
"""

import asyncio
import random
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Final

import aiohttp

from kvcachepool.cluster import ApiError
from kvcachepool.drill.verdict import Sample
from kvcachepool.probe.client import Prompt, Reply, RequestError, complete

_KEPT: Final = 64
"""Prompts that wait to be read; older ones are forgotten."""
_READS_IN_A_ROW: Final = 2
"""Before an engine computes one again: what was stored before the fault is read soon, and saves go on."""


@dataclass(frozen=True, slots=True)
class Engine:
    """An engine that can be asked."""

    name: str
    uid: str
    host: str
    port: int = 0
    """0 for the well-known one."""
    leaving: bool = False
    """It was told to end."""
    ready: bool = True


@dataclass(frozen=True, slots=True)
class Reference:
    """A prompt and its right answers: computed without a cache, and from the engine's own cache."""

    prompt: Prompt
    answers: frozenset[tuple[int, ...] | str]


@dataclass(frozen=True, slots=True)
class Pace:
    """Seconds."""

    pause: float = 0.25
    """Between two requests at an engine."""
    retry: float = 1.0
    """After one that failed."""
    settle: float = 1.0
    """A prompt is stored so long after its answer at the latest."""
    look: float = 2.0
    """Between two looks at which engines there are."""


@dataclass(frozen=True, slots=True)
class Asker:
    """How engines are asked."""

    session: aiohttp.ClientSession
    model: str
    rng: random.Random
    deadline: float

    async def ask(self, engine: Engine, prompt: Prompt) -> Reply:
        """One request. Raises RequestError."""
        return await complete(self.session, engine.host, self.model, prompt, self.deadline, port=engine.port)

    def salted(self, prompt: Prompt) -> Prompt:
        """The prompt under a salt that nobody has used."""
        return replace(prompt, salt=f"kvcachepool-drill-{self.rng.getrandbits(64):016x}")


@dataclass(frozen=True, slots=True)
class _Stored:
    writer: str
    reference: Reference
    prompt: Prompt
    at: float


@dataclass(slots=True)
class Loop:
    """One run of the loop. Times are seconds since it was made."""

    asker: Asker
    references: Sequence[Reference]
    shared: bool
    """Whether engines read each other's blocks."""
    engines: Callable[[], Awaitable[Sequence[Engine]]]
    """Those that there are now."""
    pace: Pace = Pace()
    samples: list[Sample] = field(default_factory=list)
    kills: list[tuple[str, float]] = field(default_factory=list)
    """(uid of the engine, when): from then on until it answers again, its failures are nobody's."""
    _stored: deque[_Stored] = field(default_factory=lambda: deque(maxlen=_KEPT))
    _kept_back: list[_Stored] = field(default_factory=list)
    _workers: dict[str, asyncio.Task[None]] = field(default_factory=dict)
    _start: float = field(default_factory=time.monotonic)

    @property
    def now(self) -> float:
        """Seconds since the loop was made."""
        return time.monotonic() - self._start

    def killed(self, uid: str) -> None:
        """An engine is being killed now."""
        self.kills.append((uid, self.now))

    async def stock(self, engine: Engine) -> None:
        """One prompt computed at an engine and kept back until `release`; no request of the report."""
        item = await self._compute(engine)
        self.samples.clear()
        if item is not None:
            self._kept_back.append(item)

    def release(self) -> None:
        """From now on the stock is read, before anything else."""
        self._stored.extendleft(reversed(self._kept_back))
        self._kept_back.clear()

    async def _compute(self, engine: Engine) -> _Stored | None:
        reference = self.asker.rng.choice(self.references)
        prompt = self.asker.salted(reference.prompt)
        if not await self._request(engine, reference, prompt, None):
            return None
        return _Stored(engine.uid, reference, prompt, self.now)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Requests run while this is open; engines that come are asked, too."""
        look = asyncio.create_task(self._look())
        try:
            yield
        finally:
            tasks = [look, *self._workers.values()]
            for task in tasks:
                task.cancel()
            ends = await asyncio.gather(*tasks, return_exceptions=True)
            self._workers.clear()
        broken = next((end for end in ends if isinstance(end, Exception)), None)
        if broken is not None:
            raise broken

    async def _look(self) -> None:
        while True:
            await self._see()
            await asyncio.sleep(self.pace.look)

    async def _see(self) -> None:
        try:
            found = {engine.uid: engine for engine in await self.engines()}
        except ApiError:
            return  # the API server is not what is tried here
        for uid in self._workers.keys() - found.keys():
            self._leave(uid)
        for uid, engine in found.items():
            if engine.leaving and uid in self._workers:
                self._leave(uid)
            elif engine.ready and not engine.leaving and uid not in self._workers:
                self._workers[uid] = asyncio.create_task(self._work(engine))

    def _leave(self, uid: str) -> None:
        """It may have been told to end at any time since the last look."""
        self.kills.append((uid, self.now - 2 * self.pace.look))
        self._workers.pop(uid).cancel()

    async def _work(self, engine: Engine) -> None:
        reads = 0
        while True:
            item = self._next(engine) if reads < _READS_IN_A_ROW else None
            if item is None:
                reads = 0
                computed = await self._compute(engine)
                self._stored.extend([computed] if computed is not None else [])
            else:
                reads += 1
                await self._request(engine, item.reference, item.prompt, item.at)
            failed = self.samples[-1].right is None
            await asyncio.sleep(self.pace.retry if failed else self.pace.pause)

    def _next(self, engine: Engine) -> _Stored | None:
        """The oldest prompt that this engine can find in a cache only."""
        for item in self._stored:
            if (item.writer != engine.uid) == self.shared and self.now - item.at >= self.pace.settle:
                self._stored.remove(item)
                return item
        return None

    async def _request(self, engine: Engine, reference: Reference, prompt: Prompt, stored: float | None) -> bool:
        began = self.now
        try:
            reply = await self.asker.ask(engine, prompt)
            seconds = self.now - began
            right = reply.answer in reference.answers or await self._recomputes(engine, reference, reply)
        except RequestError as error:  # or one that answered otherwise and cannot be asked again: nobody knows
            self.samples.append(Sample(engine.uid, began, self.now - began, None, 0, stored, f"{engine.name}: {error}"))
            return False
        self.samples.append(Sample(engine.uid, began, seconds, right, reply.cached_tokens, stored))
        return True

    async def _recomputes(self, engine: Engine, reference: Reference, reply: Reply) -> bool:
        """Whether the engine gives that answer without any cache, too: on a GPU another batch can change numbers.
        Raises RequestError."""
        return (await self.asker.ask(engine, self.asker.salted(reference.prompt))).answer == reply.answer


async def make_references(asker: Asker, engines: Sequence[Engine], length: int, count: int) -> list[Reference]:
    """Prompts whose answer is one and the same at every engine, computed and from its own cache.

    A prompt whose answers differ without any fault proves nothing, so others are tried, three times as many in all.
    Raises RequestError where an engine does not answer; the list may be empty.
    """
    found: list[Reference] = []
    for _ in range(3 * count):
        prompt = Prompt([asker.rng.randint(_FIRST_TOKEN, _LAST_TOKEN) for _ in range(length)])
        answers = set()
        for engine in engines:
            salted = asker.salted(prompt)
            for _ in range(2):
                answers.add((await asker.ask(engine, salted)).answer)
        if len(answers) == 1:
            found.append(Reference(prompt, frozenset(answers)))
        if len(found) == count:
            break
    return found


_FIRST_TOKEN: Final = 16
_LAST_TOKEN: Final = 479
"""As in the probe: ordinary tokens in every vocabulary of 512 and more."""
