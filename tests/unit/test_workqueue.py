"""The work queue in virtual time."""

import asyncio
from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from kvcachepool.workqueue import BackoffError, Key, WorkQueue
from tests.virtual_time import run

A, B, C = ("ns", "a"), ("ns", "b"), ("ns", "c")


def now() -> float:
    return asyncio.get_running_loop().time()


class Recorder:
    """Work that takes some time, may fail, and notes what happened."""

    def __init__(self, seconds: float = 0.1, delay: float | None = None) -> None:
        self.seconds = seconds
        self.delay = delay
        self.fail: set[Key] = set()
        self.running: Counter[Key] = Counter()
        self.twice = False
        self.starts: dict[Key, list[float]] = {}

    async def __call__(self, key: Key) -> float | None:
        self.starts.setdefault(key, []).append(now())
        self.running[key] += 1
        self.twice |= self.running[key] > 1
        try:
            await asyncio.sleep(self.seconds)
            if key in self.fail:
                raise BackoffError("expected")
        finally:
            self.running[key] -= 1
        return self.delay


def queue_of(work: Recorder, **options: object) -> WorkQueue:
    return WorkQueue(work, spread=lambda: 1.0, **options)  # type: ignore[arg-type]


@settings(deadline=None)  # real time says nothing here
@given(
    adds=st.lists(st.tuples(st.floats(0, 5), st.sampled_from([A, B, C])), min_size=1, max_size=40),
    seconds=st.floats(0, 2),
    delay=st.none() | st.floats(0.01, 3),
    workers=st.integers(1, 3),
    failing=st.sets(st.sampled_from([A, B, C])),
)
def test_no_key_is_worked_twice_at_once_and_no_key_is_lost(adds, seconds, delay, workers, failing):
    work = Recorder(seconds, delay)
    work.fail = failing

    async def scenario() -> None:
        queue = queue_of(work, workers=workers)
        queue.resume()
        begin = now()
        added: list[tuple[float, Key]] = []
        for at, key in sorted(adds):
            await asyncio.sleep(begin + at - now() if begin + at > now() else 0)
            queue.add(key)
            added.append((now(), key))
        await asyncio.sleep(120)
        await queue.pause()
        assert not work.twice
        for at, key in added:
            assert max(work.starts[key]) >= at, f"{key} added at {at} was never looked at again"

    run(scenario())


@settings(deadline=None)
@given(gap=st.floats(0, 0.1), seconds=st.floats(0, 0.3))
def test_the_last_of_two_edits_wins(gap, seconds):
    async def scenario() -> None:
        spec, seen = "old", []

        async def work(_key: Key) -> None:
            seen.append(spec)
            await asyncio.sleep(seconds)

        queue = WorkQueue(work)
        queue.resume()
        for edit in ("first", "second"):
            spec = edit
            queue.add(A)
            await asyncio.sleep(gap)
        await asyncio.sleep(5)
        await queue.pause()
        assert seen[-1] == "second"
        assert len(seen) <= 2

    run(scenario())


def test_a_burst_of_events_is_few_passes():
    work = Recorder(0.01)

    async def scenario() -> None:
        queue = queue_of(work)
        queue.resume()
        for _ in range(100):
            queue.add(A)
            await asyncio.sleep(0.001)
        await asyncio.sleep(5)
        await queue.pause()

    run(scenario())
    assert len(work.starts[A]) == 2


def test_pauses_grow_with_failures_and_an_edit_cuts_them_short():
    work = Recorder(0.0, delay=None)
    work.fail = {A}

    async def scenario() -> None:
        queue = queue_of(work, base_delay=1.0, max_delay=8.0)
        queue.resume()
        queue.add(A)
        await asyncio.sleep(40)
        gaps = [round(b - a) for a, b in zip(work.starts[A], work.starts[A][1:], strict=False)]
        assert gaps[:5] == [1, 2, 4, 8, 8]
        work.fail.clear()
        queue.add(A)
        await asyncio.sleep(0.5)
        passes = len(work.starts[A])
        await asyncio.sleep(60)
        assert len(work.starts[A]) == passes, "a success ends the retries"
        work.fail = {A}
        queue.add(A)
        await asyncio.sleep(1.5)
        assert round(work.starts[A][-1] - work.starts[A][-2]) == 1, "and the pauses start small again"
        await queue.pause()

    run(scenario())


def test_an_unexpected_error_is_retried_and_logged(caplog):
    calls = []

    async def scenario() -> None:
        async def work(_key: Key) -> None:
            calls.append(now())
            if len(calls) == 1:
                raise ZeroDivisionError("broken")

        queue = WorkQueue(work)
        queue.resume()
        queue.add(A)
        await asyncio.sleep(10)
        await queue.pause()

    run(scenario())
    assert len(calls) == 2
    assert "ZeroDivisionError" in caplog.text


def test_a_hanging_pass_holds_up_no_other_key_and_ends_at_its_deadline():
    results = []

    async def scenario() -> None:
        others = Recorder(0.1)

        async def work(key: Key) -> float | None:
            if key == A:
                await asyncio.Event().wait()
            return await others(key)

        queue = WorkQueue(work, workers=2, deadline=30.0, on_pass=lambda key, _s, result: results.append((key, result)))
        queue.resume()
        queue.add(A)
        begin = now()
        for _ in range(20):
            queue.add(B)
            queue.add(C)
            await asyncio.sleep(1)
        assert len(others.starts[B]) == len(others.starts[C]) == 20
        assert queue.longest_wait() == 0
        await asyncio.sleep(15)
        assert (A, "timeout") in results
        assert now() - begin < 60
        await queue.pause()

    run(scenario())


def test_pause_cancels_passes_at_once_and_resume_starts_afresh():
    work = Recorder(100.0)
    results = []

    async def scenario() -> None:
        queue = queue_of(work, workers=1, on_pass=lambda key, _s, result: results.append((key, result)))
        queue.resume()
        queue.add(A)
        queue.add(B)
        queue.add_after(C, 5)
        await asyncio.sleep(1)
        before = now()
        await queue.pause()
        assert now() == before
        assert results == [(A, "cancelled")]
        assert queue.depth == 0
        queue.add(C)
        await asyncio.sleep(200)
        assert set(work.starts) == {A}, "a follower takes no keys"
        work.seconds = 0.1
        queue.resume()
        queue.add(B)
        await asyncio.sleep(1)
        assert set(work.starts) == {A, B}
        await queue.pause()

    run(scenario())


def test_a_full_queue_shows_how_long_keys_wait():
    work = Recorder(50.0)

    async def scenario() -> None:
        queue = queue_of(work, workers=1)
        queue.resume()
        queue.add(A)
        queue.add(B)
        await asyncio.sleep(20)
        assert queue.depth == 1
        assert queue.longest_wait() == 20
        await queue.pause()

    run(scenario())
