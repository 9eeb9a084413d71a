"""Probes as background tasks: at most one a pool, at most a few in all, none while pods roll."""

import asyncio
import logging
import random
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from kvcachepool.api import KVCachePool
from kvcachepool.api.status import VerificationStatus
from kvcachepool.facts import Observed
from kvcachepool.observe.http import HttpReader
from kvcachepool.observe.memory import PoolMemory
from kvcachepool.probe.schedule import Decision, Member, due, members, note_members, seconds, settled
from kvcachepool.probe.sequence import Prober, timestamp
from kvcachepool.probe.verdict import failure
from kvcachepool.settings import Settings

_LOG = logging.getLogger(__name__)
_CONCURRENT: Final = 4
"""Probes over all pools. A pool that finds no room is looked at again at its next pass."""

Key = tuple[str, str]


@dataclass(slots=True)
class _Running:
    task: asyncio.Task[None]
    uid: str
    pair: tuple[Member, Member]


class ProbeRunner:
    """Starts, keeps and cancels probes; `done(key)` is called when a result is in the pool's memory."""

    def __init__(
        self,
        http: HttpReader,
        settings: Settings,
        done: Callable[[Key], None],
        *,
        concurrent: int = _CONCURRENT,
        rng: Callable[[], random.Random] | None = None,
    ) -> None:
        self._http = http
        self._deadline = settings.probe_timeout_seconds
        self._done = done
        self._concurrent = concurrent
        self._rng = rng or _fresh_rng
        self._running: dict[Key, _Running] = {}

    def __len__(self) -> int:
        return len(self._running)

    def running(self, key: Key) -> bool:
        """Whether the pool is being probed."""
        return key in self._running

    def consider(
        self,
        pool: KVCachePool,
        observed: Observed,
        memory: PoolMemory,
        digest: str,
        now: float,
        *,
        changed: bool = False,
    ) -> Decision:
        """Once a pass, after the children were applied: start a probe if one is due, stop one whose ground has gone.

        `changed`: this pass changed a workload, so that `observed` does not show yet that pods will roll.
        """
        key = pool.key
        present = members(observed, digest)
        note_members(memory.probe, present, now)
        running = self._running.get(key)
        if running is not None:
            well = not changed and settled(observed, digest) and set(running.pair) <= set(present)
            if running.uid == pool.metadata.uid and well and pool.spec.verification.enabled:
                return Decision("a probe is running")
            self.cancel(key)
            return Decision("stopped: pods are being replaced")
        decision = (
            Decision("pods are about to be replaced") if changed else due(pool, observed, memory.probe, digest, now)
        )
        if decision.pair is None:
            return decision
        if len(self._running) >= self._concurrent:
            return Decision("other pools are being probed")
        self._start(pool, memory, decision.pair, decision.why)
        return decision

    def cancel(self, key: Key) -> None:
        """The pool is gone, or its pods roll. No result is kept."""
        running = self._running.pop(key, None)
        if running is not None:
            running.task.cancel()

    async def close(self) -> None:
        """Cancel all and wait for their end: leadership is lost, or the operator stops."""
        tasks = [running.task for running in self._running.values()]
        self._running.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _start(self, pool: KVCachePool, memory: PoolMemory, pair: tuple[Member, Member], why: str) -> None:
        writer, reader = pair
        _LOG.info("probing %s/%s (%s): %s writes, %s reads", *pool.key, why, writer.name, reader.name)
        prober = Prober(
            http=self._http,
            traffic=memory.traffic,
            model=pool.spec.model.served_name or pool.spec.model.id,
            prompt_tokens=pool.spec.verification.prompt_tokens,
            block_size=pool.spec.schema_.block_size,
            deadline=self._deadline,
            rng=self._rng(),
            warm=memory.probe.warm,
        )
        task = asyncio.create_task(self._run(pool.key, prober, memory, pair), name=f"probe {pool.key}")
        self._running[pool.key] = _Running(task, pool.metadata.uid, pair)

    async def _run(self, key: Key, prober: Prober, memory: PoolMemory, pair: tuple[Member, Member]) -> None:
        present = memory.probe.members
        try:
            result = await prober.run(*pair)
        except Exception:  # a bug must not become a probe at every pass: it is a result like any other failure
            _LOG.exception("probe of %s/%s", *key)
            result = failure(pair[0].name, pair[1].name, "the operator failed; see its log", timestamp())
        self._keep(memory, present, result)
        _LOG.info("probed %s/%s: %s: %s", *key, result.outcome, result.detail)
        running = self._running.get(key)
        if running is not None and running.task is asyncio.current_task():
            del self._running[key]
        self._done(key)

    def _keep(self, memory: PoolMemory, present: frozenset[str], result: VerificationStatus) -> None:
        probe = memory.probe
        probe.result, probe.finished = result, seconds(result.last_time)
        probe.probed_members = present
        probe.failures = 0 if result.verified is True else probe.failures + 1


def _fresh_rng() -> random.Random:
    """Unpredictable, so that no prompt was ever sent before, by this process or another."""
    return random.Random(secrets.randbits(128))  # noqa: S311
