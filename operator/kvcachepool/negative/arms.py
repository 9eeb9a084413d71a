"""The requests of one case. A is the writer, B the reader that differs; P is a prompt never sent before.

1. *B: P with a salt of its own.* The salt is in every block's hash, so this is B's answer without any cache.
2. *A: P*, twice: computed, then from its own cache. Until its saves are done, B must not be asked.
3. *B: P.* What it reuses came from A. Each request has a deadline: a mismatch can make an engine retry for ever.
"""

import asyncio
import random
import time
from dataclasses import dataclass, replace
from typing import Final

from kvcachepool import constants
from kvcachepool.negative.verdict import Seen
from kvcachepool.observe.engine import engine_facts, read_models
from kvcachepool.observe.http import Answer, HttpReader
from kvcachepool.probe.client import Prompt, Reply, RequestError, complete
from kvcachepool.probe.sequence import prompt_length

_FIRST_TOKEN: Final = 16
_LAST_TOKEN: Final = 479
"""As in the probe: ordinary tokens in every vocabulary of 512 and more."""
_SAVE_SECONDS: Final = 15.0
_POLL_SECONDS: Final = 0.5
_TIMED_OUT: Final = "timed out"


@dataclass(frozen=True, slots=True)
class Engine:
    """An engine that can be asked."""

    name: str
    host: str
    port: int = 0
    """0 for the well-known one."""


@dataclass(frozen=True, slots=True)
class Asker:
    """How engines are asked."""

    http: HttpReader
    model: str
    prompt_tokens: int
    """As wanted; cut to whole blocks and to what the model allows."""
    block_size: int
    deadline: float
    """Seconds of one request."""
    rng: random.Random
    save_seconds: float = _SAVE_SECONDS
    poll_seconds: float = _POLL_SECONDS

    async def ask(self, engine: Engine, prompt: Prompt) -> Reply:
        """One request. Raises RequestError."""
        session = self.http.session
        return await complete(session, engine.host, self.model, prompt, self.deadline, port=engine.port)

    async def length(self, engine: Engine) -> int:
        """Length of the prompt. Raises RequestError."""
        models, error = await read_models(self.http, engine.host, engine.port)
        if error or self.model not in models:
            raise RequestError(f"{engine.name}: {error or f'does not serve {self.model}, but {sorted(models)}'}")
        return prompt_length(self.prompt_tokens, models[self.model], self.block_size)

    async def saved_keys(self, engine: Engine) -> float | None:
        """Blocks that the engine has stored since its start; None when it does not count them."""
        facts = engine_facts(
            Answer(), await self.http.get(engine.host, engine.port or constants.ENGINE_PORT, "/metrics")
        )
        operation = (facts.operations or {}).get("save_put")
        return operation.keys - operation.failed_keys if operation is not None else None


async def try_case(asker: Asker, writer: Engine, reader: Engine) -> Seen:
    """What the reader does. Raises RequestError where writer or reader does not work by itself."""
    length = await asker.length(writer)
    prompt = Prompt([asker.rng.randint(_FIRST_TOKEN, _LAST_TOKEN) for _ in range(length)])
    cold = await asker.ask(reader, _salted(asker, prompt))
    before = await asker.saved_keys(writer)
    await asker.ask(writer, prompt)
    await asker.ask(writer, prompt)
    if not await _saved(asker, writer, before):
        return Seen(length, stored=False)
    try:
        reply = await asker.ask(reader, prompt)
    except RequestError as error:
        return Seen(length, error=str(error), timed_out=str(error).startswith(_TIMED_OUT))
    equal = reply.answer == cold.answer
    if not equal and not reply.cached_tokens:
        # on a GPU another chunking of one prompt may change the numbers: two answers without a cache are allowed
        equal = reply.answer == (await asker.ask(reader, _salted(asker, prompt))).answer
    return Seen(length, reply.cached_tokens, equal)


def _salted(asker: Asker, prompt: Prompt) -> Prompt:
    return replace(prompt, salt=f"kvcachepool-negative-{asker.rng.getrandbits(64):016x}")


async def _saved(asker: Asker, writer: Engine, before: float | None) -> bool:
    """Waits until the writer has stored something more and stores no more; at most some seconds, also where it does not
    count. False where it counts and has stored nothing: then there is nothing that could be read."""
    end, last = time.monotonic() + asker.save_seconds, before
    while time.monotonic() < end:
        await asyncio.sleep(asker.poll_seconds)
        now = await asker.saved_keys(writer)
        if now is not None and now == last and now > (before or 0):
            return True
        last = now
    return last is None or last > (before or 0)
