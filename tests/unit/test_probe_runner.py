"""Probes as background tasks."""

import asyncio
import random
from contextlib import asynccontextmanager

import pytest

from kvcachepool.api.status import VerificationStatus
from kvcachepool.observe.http import HttpReader
from kvcachepool.observe.memory import PoolMemory
from kvcachepool.probe import runner as runner_module
from kvcachepool.probe.runner import ProbeRunner
from kvcachepool.settings import Settings
from tests.pools import pool
from tests.unit.probe_fakes import FakeEngine, FakeStore, engines, free_ports  # noqa: F401
from tests.unit.test_probe_schedule import DIGEST, NOW, engine_pod, seen

SPEC = {"schema": {"blockSize": 32}, "verification": {"promptTokens": 320}}


class Bench:
    """A runner over two engines, and who was told of results."""

    def __init__(self, runner: ProbeRunner, a: FakeEngine, b: FakeEngine, done: asyncio.Queue) -> None:
        self.runner, self.a, self.b, self.done = runner, a, b, done
        self.observed = seen(engine_pod("a", ip=a.host), engine_pod("b", ip=b.host))

    def consider(self, memory: PoolMemory, observed=None, *, now=NOW, changed=False, **metadata):
        spec = metadata.pop("spec", SPEC)
        found = pool(spec, **metadata)
        return self.runner.consider(found, observed or self.observed, memory, DIGEST, now, changed=changed)


async def ended() -> None:
    """Wait for probes that were cancelled."""
    probes = [task for task in asyncio.all_tasks() if task.get_name().startswith("probe ")]
    await asyncio.gather(*probes, return_exceptions=True)


@asynccontextmanager
async def bench(*, concurrent: int = 4, **faults):
    store = FakeStore()
    a, b = FakeEngine(store, **faults), FakeEngine(store, **faults)
    done: asyncio.Queue = asyncio.Queue()
    async with engines(a, b), HttpReader(timeout=30) as http:
        runner = ProbeRunner(
            http,
            Settings(probe_timeout_seconds=60),
            done.put_nowait,
            concurrent=concurrent,
            rng=lambda: random.Random(3),
        )
        try:
            yield Bench(runner, a, b, done)
        finally:
            await runner.close()


async def test_a_result_is_kept_and_told():
    async with bench() as found:
        memory = PoolMemory()
        decision = found.consider(memory)
        assert decision.why == "never probed"
        assert found.runner.running(("team-a", "demo"))
        assert await found.done.get() == ("team-a", "demo")
        assert not found.runner.running(("team-a", "demo"))
        assert memory.probe.result is not None
        assert memory.probe.result.outcome == "Verified"
        assert memory.probe.failures == 0
        assert memory.probe.probed_members == memory.probe.members
        assert memory.probe.finished is not None
        assert found.consider(memory, now=memory.probe.finished + 30).why == "not yet"


async def test_one_probe_a_pool():
    async with bench(hang_on_hit=True) as found:
        memory = PoolMemory()
        found.consider(memory)
        assert found.consider(memory).why == "a probe is running"
        assert len(found.runner) == 1


async def test_few_probes_in_all():
    async with bench(hang_on_hit=True, concurrent=2) as found:
        for name in ("p1", "p2", "p3"):
            decision = found.consider(PoolMemory(), name=name)
        assert decision.why == "other pools are being probed"
        assert len(found.runner) == 2


@pytest.mark.parametrize(
    "change",
    [
        {"changed": True},
        {"observed": seen(engine_pod("a"), engine_pod("b", deleting=True))},
        {"uid": "another"},
        {"spec": {"verification": {"enabled": False}}},
    ],
)
async def test_a_probe_stops_when_its_ground_goes(change):
    async with bench(hang_on_hit=True) as found:
        memory = PoolMemory()
        found.consider(memory)
        await found.b.hit.wait()
        assert "stopped" in found.consider(memory, **change).why
        assert len(found.runner) == 0
        await ended()
        assert memory.probe.result is None
        assert memory.traffic.probes == 0
        assert found.done.empty()


async def test_metrics_that_cannot_be_read_for_a_moment_do_not_stop_it():
    async with bench(hang_on_hit=True) as found:
        memory = PoolMemory()
        found.consider(memory)
        unreadable = seen(*found.observed.pods, unreadable="b")
        assert found.consider(memory, unreadable).why == "a probe is running"


async def test_none_starts_in_a_pass_that_changed_something():
    async with bench() as found:
        assert found.consider(PoolMemory(), changed=True).pair is None
        assert len(found.runner) == 0


async def test_a_pool_that_goes_takes_its_probe_along():
    async with bench(hang_on_hit=True) as found:
        memory = PoolMemory()
        found.consider(memory)
        await found.b.hit.wait()
        found.runner.cancel(("team-a", "demo"))
        found.runner.cancel(("team-a", "no-such-pool"))
        await ended()
        assert memory.probe.result is None
        assert memory.traffic.probes == 0


async def test_a_failure_is_kept_and_counted():
    async with bench(status=500) as found:
        memory = PoolMemory()
        for failures in (1, 2):
            found.consider(memory, now=NOW + 10_000_000_000 * failures)
            await found.done.get()
            assert memory.probe.failures == failures
        assert memory.probe.result is not None
        assert memory.probe.result.outcome == "ProbeFailed"


async def test_a_bug_is_a_failed_probe_and_no_loop(monkeypatch):
    class Broken(runner_module.Prober):
        async def run(self, writer, reader) -> VerificationStatus:
            raise ZeroDivisionError

    monkeypatch.setattr(runner_module, "Prober", Broken)
    async with bench() as found:
        memory = PoolMemory()
        found.consider(memory)
        await found.done.get()
        assert memory.probe.result is not None
        assert memory.probe.result.detail == "the operator failed; see its log"
        assert memory.probe.failures == 1


async def test_closing_ends_all():
    async with bench(hang_on_hit=True) as found:
        memories = [PoolMemory(), PoolMemory()]
        for number, memory in enumerate(memories):
            found.consider(memory, name=f"p{number}")
        await found.b.hit.wait()
        await found.runner.close()
        assert len(found.runner) == 0
        assert [memory.traffic.probes for memory in memories] == [0, 0]
        assert found.done.empty()
