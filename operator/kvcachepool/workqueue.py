"""Work queue of pool keys: each key once, one pass per key at a time, back-off per key.

Level-triggered: a key says only "look at this pool"; what happened does not matter. A key that is added while
its pass runs is looked at once more afterwards, so the last edit always wins.
"""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable

logger = logging.getLogger(__name__)

Key = tuple[str, str]
"""(namespace, name) of a KVCachePool."""


class BackoffError(Exception):
    """A pass ended in an expected failure: come back with growing pauses, no traceback."""


class WorkQueue:
    """Runs `work(key)`; it returns seconds until the next pass, or None when nothing is to be done until the
    key is added again."""

    def __init__(
        self,
        work: Callable[[Key], Awaitable[float | None]],
        *,
        workers: int = 8,
        base_delay: float = 1.0,
        max_delay: float = 60.0,
        min_interval: float = 0.2,
        deadline: float = 120.0,
        on_pass: Callable[[Key, float, str], None] = lambda _key, _seconds, _result: None,
        spread: Callable[[], float] = lambda: random.uniform(0.9, 1.1),  # noqa: S311
    ) -> None:
        self._work = work
        self._workers = workers
        self._base_delay = base_delay
        self._max_delay = max_delay
        self._min_interval = min_interval
        """Least pause between two passes of one key, so that a burst of events is one pass."""
        self._deadline = deadline
        """No pass may hold a worker longer than that."""
        self._on_pass = on_pass
        self._spread = spread
        self._tasks: list[asyncio.Task[None]] = []
        self._ready: asyncio.Queue[Key] = asyncio.Queue()
        self._queued: dict[Key, float] = {}
        """Keys in `_ready`, and since when."""
        self._active: dict[Key, float] = {}
        """Keys whose pass runs, and since when."""
        self._dirty: set[Key] = set()
        """Keys that were added while their pass ran."""
        self._timers: dict[Key, asyncio.TimerHandle] = {}
        self._failures: dict[Key, int] = {}
        self._ended: dict[Key, float] = {}

    @property
    def running(self) -> bool:
        """Whether passes are made; a follower's queue is paused and takes no keys."""
        return bool(self._tasks)

    @property
    def depth(self) -> int:
        """Keys that wait for a worker."""
        return len(self._queued)

    def longest_wait(self) -> float:
        """Seconds that the oldest key has waited for a worker; a healthy queue keeps this near zero."""
        now = asyncio.get_running_loop().time()
        return max((now - since for since in self._queued.values()), default=0.0)

    def add(self, key: Key) -> None:
        """Asks for a pass as soon as possible, also during a back-off."""
        if not self.running or key in self._queued:
            return
        if key in self._active:
            self._dirty.add(key)
            return
        wait = self._ended.get(key, float("-inf")) + self._min_interval - asyncio.get_running_loop().time()
        if wait > 0:
            self.add_after(key, wait)
        else:
            self._enqueue(key)

    def add_after(self, key: Key, delay: float) -> None:
        """Asks for a pass in `delay` seconds; of two requests the earlier one counts."""
        if not self.running or key in self._queued:
            return
        loop = asyncio.get_running_loop()
        timer = self._timers.get(key)
        if timer is not None:
            if timer.when() <= loop.time() + delay:
                return
            timer.cancel()
        self._timers[key] = loop.call_later(delay, self._enqueue, key)

    def forget(self, key: Key) -> None:
        """Drops what is kept about a key that is gone. A running pass is not interrupted."""
        self._cancel_timer(key)
        self._failures.pop(key, None)
        self._ended.pop(key, None)

    def resume(self) -> None:
        """Starts the workers. The caller adds every known key afterwards."""
        if not self._tasks:
            self._tasks = [
                asyncio.create_task(self._worker(), name=f"pass-worker-{number}") for number in range(self._workers)
            ]

    async def pause(self) -> None:
        """Cancels all passes at once and forgets every request; returns when no pass runs any more."""
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for key in list(self._timers):
            self._cancel_timer(key)
        self._ready = asyncio.Queue()
        for kept in (self._queued, self._active, self._failures, self._ended):
            kept.clear()
        self._dirty.clear()

    def _enqueue(self, key: Key) -> None:
        self._cancel_timer(key)
        self._queued[key] = asyncio.get_running_loop().time()
        self._ready.put_nowait(key)

    def _cancel_timer(self, key: Key) -> None:
        timer = self._timers.pop(key, None)
        if timer is not None:
            timer.cancel()

    async def _worker(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            key = await self._ready.get()
            del self._queued[key]
            self._active[key] = loop.time()
            try:
                delay = await self._pass(key)
            finally:
                del self._active[key]
            self._ended[key] = loop.time()
            if key in self._dirty:
                self._dirty.discard(key)
                # After a failure not at once: the failing pass itself may have caused the event.
                self.add_after(key, min(delay or 0.0, 1.0) if key in self._failures else self._min_interval)
            elif delay is None:
                self._ended.pop(key, None)
            else:
                self.add_after(key, delay)

    async def _pass(self, key: Key) -> float | None:
        loop = asyncio.get_running_loop()
        started = loop.time()
        result = "error"
        try:
            async with asyncio.timeout(self._deadline) as deadline:
                delay = await self._work(key)
            result = "ok"
            self._failures.pop(key, None)
            return None if delay is None else delay * self._spread()
        except BackoffError as reason:
            result = "backoff"
            pause = self._failed(key)
            logger.info("%s/%s: %s; next try in %.0f s", *key, reason, pause)
            return pause
        except Exception:
            pause = self._failed(key)
            if deadline.expired():
                result = "timeout"
                logger.warning("%s/%s: pass exceeded %.0f s; next try in %.0f s", *key, self._deadline, pause)
            else:
                logger.exception("%s/%s: pass failed; next try in %.0f s", *key, pause)
            return pause
        except asyncio.CancelledError:
            result = "cancelled"
            raise
        finally:
            seconds = loop.time() - started
            logger.debug("%s/%s: pass %s after %.3f s", *key, result, seconds)
            self._on_pass(key, seconds, result)

    def _failed(self, key: Key) -> float:
        """Counts a failure; gives the pause before the next try."""
        failures = self._failures.get(key, 0)
        self._failures[key] = failures + 1
        return float(min(self._max_delay, self._base_delay * 2 ** min(failures, 16)) * self._spread())
