"""The requests of one probe, in order, and why each is there. A writes, B reads; P is a prompt never sent before.

0. *Warm up* members that have not served since their start (graph capture, lazy connections): 3 to 30 s that belong
   to no figure. A reader is also warmed by a load.
1. *A: P, cold.* Must reuse nothing, as nobody has ever sent P. Fills A's cache and, through it, the pool.
2. *A: P again.* A local hit. Its answer is the reference: on a GPU a cold answer may differ from a hit by chunking
   alone, so a hit is only compared with a hit. A's hit, not a later one of B: had B loaded wrong bytes, its own cache
   would hold them and agree with itself.
3. *Wait for A's saves.* They run behind the answer; B must not be asked before they are done.
4. *B: P with another salt.* The negative arm. The salt is in every block's hash, so this must reuse nothing, although
   every byte of P is in the pool, and answer as a cold run does. Comes before 5, while B's own cache is without P. Its
   time to first token is B's recompute.
5. *B: P.* The proof: B never computed P, so whatever it reuses came from A through the pool. Must answer as in 2.
6. *B: P again.* A local hit: what reuse would cost if loading were free. From 4, 5 and 6 follow the rate of the load
   and the rate at which it would break even.

One probe writes about two prompts of cache into the pool (P, and P with the salt); eviction takes them as the oldest.
"""

import asyncio
import random
import time
from dataclasses import dataclass, replace
from typing import Final

from kvcachepool import constants
from kvcachepool.api.status import VerificationStatus
from kvcachepool.facts import EngineFacts, StoreOperation
from kvcachepool.observe.engine import COMPUTED, LOCAL, POOL, engine_facts, read_models
from kvcachepool.observe.http import Answer, HttpReader
from kvcachepool.observe.traffic import QUERIES, Traffic
from kvcachepool.probe.client import Prompt, Reply, RequestError, complete
from kvcachepool.probe.schedule import Member
from kvcachepool.probe.verdict import RETRIED, Arms, Verdict, failure, judge, report

_FIRST_TOKEN: Final = 16
_LAST_TOKEN: Final = 479
"""Ids that are ordinary tokens in every vocabulary of 512 and more: special ones lie at the ends."""
_HEADROOM: Final = 64
"""Tokens of the context that are left for the answer."""
_NUDGE_TOKENS: Final = 8
_SAVE_SECONDS: Final = 10.0
_POLL_SECONDS: Final = 0.25
_REQUESTS_IN_ALL: Final = 6
"""Deadlines of one request that a whole probe may take. Only one that hangs comes near it."""


@dataclass(slots=True)
class Prober:
    """One probe between two members of one pool."""

    http: HttpReader
    traffic: Traffic
    model: str
    prompt_tokens: int
    """As wanted; cut to what the model allows."""
    block_size: int
    deadline: float
    """Seconds of one request."""
    rng: random.Random
    warm: set[str]
    """Identities that are warm; this adds to it."""
    save_seconds: float = _SAVE_SECONDS
    poll_seconds: float = _POLL_SECONDS

    async def run(self, writer: Member, reader: Member) -> VerificationStatus:
        """Raises nothing but cancellation: a probe that cannot be finished is a result too."""
        total = _REQUESTS_IN_ALL * self.deadline
        with self.traffic.probe():
            try:
                async with asyncio.timeout(total):
                    arms, verdict = await self._prove(writer, reader)
            except RequestError as error:
                return failure(writer.name, reader.name, str(error), timestamp())
            except TimeoutError:
                return failure(writer.name, reader.name, f"not finished after {total:g} s", timestamp())
        return report(arms, verdict, timestamp())

    async def _prove(self, writer: Member, reader: Member) -> tuple[Arms, Verdict]:
        length = await self._length(writer)
        await self._warm_up(writer, reader, length)
        arms = await self._try(writer, reader, length)
        verdict = judge(arms)
        if verdict.outcome in RETRIED:
            arms = await self._try(writer, reader, length)
            verdict = judge(arms)
            if verdict.outcome in RETRIED:
                verdict = replace(verdict, detail=f"{verdict.detail} (twice, the second time with a fresh prompt)")
        return arms, verdict

    async def _length(self, member: Member) -> int:
        models, error = await read_models(self.http, member.host, member.port)
        if error:
            raise RequestError(f"{member.name} (/v1/models): {error}")
        if self.model not in models:
            served = ", ".join(sorted(models)[:5]) or "none"
            raise RequestError(f"{member.name} does not serve model {self.model}: found {served}")
        return prompt_length(self.prompt_tokens, models[self.model], self.block_size)

    async def _warm_up(self, writer: Member, reader: Member, length: int) -> None:
        loads = f"{reader.identity}/loads"
        shared = self._prompt(length)
        if writer.identity not in self.warm or loads not in self.warm:
            before = await self._save_counter(writer)
            await self._ask(writer, shared, LOCAL, "warming up")
            await self._saved(writer, before, length // self.block_size)
        if reader.identity not in self.warm:
            await self._ask(reader, self._prompt(length), LOCAL, "warming up")
        if loads not in self.warm:
            await self._ask(reader, shared, POOL, "warming up")
        self.warm |= {writer.identity, reader.identity, loads}

    async def _try(self, writer: Member, reader: Member, length: int) -> Arms:
        prompt = self._prompt(length)
        before = await self._save_counter(writer)
        cold = await self._ask(writer, prompt, POOL, "cold")
        local = await self._ask(writer, prompt, LOCAL, "its own prompt again")
        saved = await self._saved(writer, before, length // self.block_size)
        negative = await self._ask(reader, self._salted(prompt), POOL, "the same prompt with another salt")
        again = None
        if negative.answer != cold.answer:
            again = await self._ask(reader, self._salted(prompt), POOL, "the same prompt with a third salt")
        counters = await self._counters(reader)
        pool = await self._ask(reader, prompt, POOL, f"the prompt that {writer.name} computed")
        loaded, external = await self._loaded(reader, counters, expected=pool.cached_tokens > 0)
        reader_local = await self._ask(reader, prompt, LOCAL, "its own prompt again")
        return Arms(
            writer=writer.name,
            reader=reader.name,
            cold=cold,
            writer_local=local,
            negative=negative,
            negative_again=again,
            pool=pool,
            reader_local=reader_local,
            saved=saved,
            loaded=loaded,
            external_tokens=external,
        )

    def _prompt(self, length: int) -> Prompt:
        return Prompt([self.rng.randint(_FIRST_TOKEN, _LAST_TOKEN) for _ in range(length)])

    def _salted(self, prompt: Prompt) -> Prompt:
        return replace(prompt, salt=f"kvcachepool-probe-{self.rng.getrandbits(64):016x}")

    async def _ask(self, member: Member, prompt: Prompt, cached_from: str, what: str) -> Reply:
        """One request, with its tokens booked. `cached_from` is the source of whatever it finds cached."""
        try:
            reply = await complete(self.http.session, member.host, self.model, prompt, self.deadline, port=member.port)
        except BaseException as error:
            self.traffic.forget(member.uid)  # whether the engine has counted it cannot be known
            if isinstance(error, RequestError):
                raise RequestError(f"{member.name} ({what}): {error}") from error
            raise
        found_locally = reply.cached_tokens if cached_from == LOCAL else 0
        self.traffic.caused(
            member.uid,
            {
                COMPUTED: reply.prompt_tokens - reply.cached_tokens,
                cached_from: reply.cached_tokens,
                QUERIES: reply.prompt_tokens - found_locally,
            },
        )
        return reply

    async def _counters(self, member: Member) -> EngineFacts:
        facts = engine_facts(
            Answer(), await self.http.get(member.host, member.port or constants.ENGINE_PORT, "/metrics")
        )
        if not facts.reachable:
            raise RequestError(f"{member.name} ({facts.error})")
        return facts

    async def _saved(self, writer: Member, before: StoreOperation, blocks: int) -> StoreOperation:
        """What `save_put` counted since `before`, once it covers the prompt and is still, or after some seconds.

        The engine shows a counter when it next takes a step. Versions that take none while only saves are under way
        get a few tokens to work on, too few to be cached.
        """
        end = time.monotonic() + self.save_seconds
        last, polls = await self._save_counter(writer), 0
        while time.monotonic() < end:
            await asyncio.sleep(self.poll_seconds)
            now = await self._save_counter(writer)
            if now == last and (now.keys - before.keys) >= blocks:
                break
            last, polls = now, polls + 1
            if polls % 4 == 0:
                nudge = replace(self._prompt(min(_NUDGE_TOKENS, self.block_size - 1)), max_tokens=1)
                if nudge.tokens:
                    await self._ask(writer, nudge, LOCAL, "a few tokens")
        return _difference(writer, before, last)

    async def _save_counter(self, member: Member) -> StoreOperation:
        return _operation(await self._counters(member), "save_put")

    async def _loaded(
        self, reader: Member, before: EngineFacts, *, expected: bool
    ) -> tuple[StoreOperation, float | None]:
        """What `load_get` counted since `before`, and how many tokens came from the pool; `expected` waits for it."""
        for _ in range(8):
            after = await self._counters(reader)
            loaded = _difference(reader, _operation(before, "load_get"), _operation(after, "load_get"))
            if loaded.keys or not expected:
                break
            await asyncio.sleep(self.poll_seconds)
        if before.tokens is None or after.tokens is None:
            return loaded, None
        return loaded, after.tokens.get(POOL, 0.0) - before.tokens.get(POOL, 0.0)


def timestamp() -> str:
    """The present moment in RFC 3339, whole seconds, UTC."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def prompt_length(wanted: int, max_model_len: int, block_size: int) -> int:
    """Whole blocks, at most as wanted and as the model allows with room for the answer.

    Raises RequestError where that leaves less than two blocks: the last block is always computed.
    """
    blocks = min(wanted, max_model_len - _HEADROOM) // block_size
    if blocks < 2:
        raise RequestError(
            f"a context of {max_model_len} tokens and a prompt of {wanted} have no room for two blocks of {block_size}"
        )
    return blocks * block_size


def _operation(facts: EngineFacts, name: str) -> StoreOperation:
    return (facts.operations or {}).get(name, StoreOperation())


def _difference(member: Member, before: StoreOperation, after: StoreOperation) -> StoreOperation:
    if after.keys < before.keys:
        raise RequestError(f"{member.name} started anew during the probe")
    return StoreOperation(
        calls_ok=after.calls_ok - before.calls_ok,
        calls_failed=after.calls_failed - before.calls_failed,
        keys=after.keys - before.keys,
        bytes=after.bytes - before.bytes,
        failed_keys=after.failed_keys - before.failed_keys,
    )
