"""Users' hit rates in a moving window, out of counters that engines keep since their start.

Each reading of a pod is turned into an increment since the pod's last one; increments of all pods of the last ten
minutes are added up. So a pod that is replaced keeps what it did, and a counter that starts anew loses at most what
happened since the last reading: that reading only becomes the new base.

The reuse probe tells what it caused at which pod, and that is taken off exactly. For this no reading may fall into a
running probe (an engine counts a prompt when it is prefilled, the probe knows its share when the answer ends), so
readings that overlap a probe are not used.
"""

from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

from kvcachepool.facts import RATE_WINDOW_SECONDS, EngineFacts, Rates
from kvcachepool.observe.engine import COMPUTED, LOCAL, POOL

_MERGE_SECONDS: Final = 5.0
"""Increments nearer than this share an entry: passes may follow events closely."""
QUERIES: Final = "external_queries"

Counters = dict[str, float]
"""Name to cumulative or incremental value: token sources, `external_queries`, and `operation/field`."""

_OPERATIONS: Final[Mapping[str, tuple[str, str]]] = {
    "saved_keys": ("save_put", "keys"),
    "save_failed_keys": ("save_put", "failed_keys"),
    "load_keys": ("load_get", "keys"),
    "load_failed_keys": ("load_get", "failed_keys"),
}


@dataclass(slots=True)
class _Pod:
    counters: Counters | None = None
    started: float | None = None
    read: float = 0.0
    caused: Counters = field(default_factory=dict)


@dataclass(slots=True)
class _Entry:
    time: float
    sums: Counters


@dataclass(slots=True)
class Traffic:
    """The window of one pool. Times are of one clock; pods go by uid."""

    window: float = RATE_WINDOW_SECONDS
    probes: int = 0
    """Probes that run now."""
    epoch: int = 0
    """Grows when a probe starts and when it ends: a reading is clean if it is the same before and after."""
    _pods: dict[str, _Pod] = field(default_factory=dict)
    _entries: deque[_Entry] = field(default_factory=deque)
    _since: float | None = None

    @contextmanager
    def probe(self) -> Iterator[None]:
        """While this is open, readings are not used."""
        self.probes += 1
        self.epoch += 1
        try:
            yield
        finally:
            self.probes -= 1
            self.epoch += 1

    def caused(self, uid: str, tokens: Mapping[str, float]) -> None:
        """The probe's own share at a pod, by token source and `external_queries`."""
        pod = self._pods.setdefault(uid, _Pod())
        for name, value in tokens.items():
            pod.caused[name] = pod.caused.get(name, 0.0) + value

    def forget(self, uid: str) -> None:
        """A request of the probe ended so that its share is not known: the pod's next reading is a new base."""
        self._pods.pop(uid, None)

    def record(self, readings: Mapping[str, EngineFacts], present: frozenset[str], now: float, epoch: int) -> None:
        """Take in one pass's readings by pod uid. `present` are the uids of all pods that exist; `epoch` is what
        `self.epoch` was before the engines were asked."""
        for uid in self._pods.keys() - present:
            del self._pods[uid]
        if self.probes or epoch != self.epoch:
            return
        sums: Counters = {}
        for uid, facts in readings.items():
            counters = _counters(facts)
            if counters is None:
                continue
            for name, value in self._increment(uid, counters, facts.started, now).items():
                sums[name] = sums.get(name, 0.0) + value
        if self._since is None and any(pod.counters is not None for pod in self._pods.values()):
            self._since = now
        self._append(now, sums)

    def rates(self, now: float) -> Rates:
        """Shares in the window that ends now. Nothing is 0 that was not counted."""
        self._expire(now)
        if self._since is None:
            return Rates()
        sums: Counters = {}
        for entry in self._entries:
            for name, value in entry.sums.items():
                sums[name] = sums.get(name, 0.0) + value
        sources = [sums[name] for name in (COMPUTED, LOCAL, POOL) if name in sums]
        tokens = sum(sources) if sources else None
        return Rates(
            window_seconds=int(min(self.window, now - self._since)),
            tokens=tokens,
            local=sums.get(LOCAL, 0.0) / tokens if tokens else None,
            pool=sums.get(POOL, 0.0) / tokens if tokens else None,
            external_queries=sums.get(QUERIES),
            saved_keys=sums.get("saved_keys"),
            save_failed_keys=sums.get("save_failed_keys"),
            load_keys=sums.get("load_keys"),
            load_failed_keys=sums.get("load_failed_keys"),
        )

    def _increment(self, uid: str, counters: Counters, started: float | None, now: float) -> Counters:
        pod = self._pods.setdefault(uid, _Pod())
        before, caused = pod.counters, pod.caused
        usable = (
            before is not None
            and started == pod.started
            and now - pod.read <= self.window
            and all(value >= before.get(name, 0.0) for name, value in counters.items())
        )
        pod.counters, pod.started, pod.read, pod.caused = counters, started, now, {}
        if not usable or before is None:
            return {}
        return {
            name: max(0.0, value - before.get(name, 0.0) - caused.get(name, 0.0)) for name, value in counters.items()
        }

    def _append(self, now: float, sums: Counters) -> None:
        if not sums:
            return
        last = self._entries[-1] if self._entries else None
        if last is not None and now - last.time < _MERGE_SECONDS:
            for name, value in sums.items():
                last.sums[name] = last.sums.get(name, 0.0) + value
        else:
            self._entries.append(_Entry(now, sums))

    def _expire(self, now: float) -> None:
        while self._entries and now - self._entries[0].time > self.window:
            self._entries.popleft()


def _counters(facts: EngineFacts) -> Counters | None:
    """None when the engine could not be read. A metric that the page lacks is left out, not zero."""
    if not facts.reachable:
        return None
    found: Counters = dict(facts.tokens) if facts.tokens is not None else {}
    if facts.external_queries is not None:
        found[QUERIES] = facts.external_queries
    if facts.operations is not None:
        for name, (operation, member) in _OPERATIONS.items():
            counted = facts.operations.get(operation)
            found[name] = getattr(counted, member) if counted is not None else 0.0
    return found
