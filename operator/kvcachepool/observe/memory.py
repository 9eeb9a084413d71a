"""What the operator remembers of one pool between passes, in RAM only.

Nothing here is needed for correctness: after a restart of the operator it fills again, and what must survive (the last
probe) stands in the pool's status. Dropped when the pool goes. All times are epoch seconds of the passes' clock.
"""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from kvcachepool.api.status import VerificationStatus
from kvcachepool.facts import RATE_WINDOW_SECONDS, MasterFacts, StoreTrend
from kvcachepool.observe.engine_history import EngineHistory
from kvcachepool.observe.presence import Presence
from kvcachepool.observe.traffic import Traffic

RECOUNT_SECONDS: Final = 60.0
_LEAVING_SECONDS: Final = 60.0
"""After a segment went, in which keys that go are its."""
_COUNTERS: Final = ("put_requests", "put_failures", "put_alloc_failures", "evictions_done", "evicted_keys")


@dataclass(frozen=True, slots=True)
class _Look:
    time: float
    process: str
    facts: MasterFacts


@dataclass(slots=True)
class MasterHistory:
    """Looks at the master in the window, and the last loss of its index."""

    window: float = RATE_WINDOW_SECONDS
    _looks: deque[_Look] = field(default_factory=deque)
    _restarted: float | None = None
    _lost: tuple[float, int, int | None] | None = None
    """When, keys, bytes."""
    _left: float | None = None
    """When a member's segment went last."""

    def record(self, process: str, facts: MasterFacts, now: float) -> None:
        """`process` tells one start of the master from the next (pod uid and restart count)."""
        if not facts.reachable:
            return
        last = self._looks[-1] if self._looks else None
        if last is not None:
            self._compare(last, process, facts, now)
            if process != last.process:
                self._looks.clear()
        self._looks.append(_Look(now, process, facts))
        while len(self._looks) > 1 and now - self._looks[0].time > self.window:
            self._looks.popleft()

    def trend(self, now: float) -> StoreTrend:
        """Increments over the looks of the present master process."""
        recent = [look for look in self._looks if now - look.time <= self.window]
        lost = self._lost if self._lost is not None and now - self._lost[0] <= self.window else None
        restarted = self._restarted is not None and now - self._restarted <= self.window
        if not recent:
            return StoreTrend(
                master_restarted=restarted, lost_keys=lost[1] if lost else None, lost_bytes=lost[2] if lost else None
            )
        first, last = recent[0], recent[-1]
        clients = [look.facts.clients for look in recent if look.facts.clients is not None]
        return StoreTrend(
            window_seconds=int(last.time - first.time),
            master_restarted=restarted,
            lost_keys=lost[1] if lost else None,
            lost_bytes=lost[2] if lost else None,
            most_clients=max(clients, default=None),
            **{name: _increment(first.facts, last.facts, name) for name in _COUNTERS},
        )

    def _compare(self, last: _Look, process: str, facts: MasterFacts, now: float) -> None:
        before, after = last.facts.keys, facts.keys
        if process != last.process:
            self._restarted = now
            if before:
                self._lost = (now, before, last.facts.allocated)
            return
        if _hosts(last.facts) - _hosts(facts):
            self._left = now
        if not before or after is None:
            return
        fell = before - after - int(_increment(last.facts, facts, "evicted_keys") or 0)
        left = self._left is not None and now - self._left <= _LEAVING_SECONDS
        if fell > 0 and (left or (after < before / 2 and fell > (before - after) / 2)):
            was, had = last.facts.allocated, facts.allocated
            freed = max(was - had, 0) if was is not None and had is not None else None
            recent = self._lost if self._lost is not None and now - self._lost[0] <= _LEAVING_SECONDS else None
            self._lost = (now, fell + (recent[1] if recent else 0), _sum(freed, recent[2] if recent else 0))


def _hosts(facts: MasterFacts) -> frozenset[str]:
    return frozenset(segment.host for segment in facts.segments or ())


def _sum(first: int | None, second: int | None) -> int | None:
    return None if first is None or second is None else first + second


def _increment(first: MasterFacts, last: MasterFacts, name: str) -> float | None:
    before, after = getattr(first, name), getattr(last, name)
    return float(after - before) if before is not None and after is not None and after >= before else None


@dataclass(slots=True)
class ProbeMemory:
    """What the prober keeps of a pool. Members are named by `probe.schedule.identity`: one start of one pod."""

    result: VerificationStatus | None = None
    """Of the newest probe of this process."""
    finished: float | None = None
    failures: int = 0
    """Probes in a row that did not verify."""
    probed_members: frozenset[str] | None = None
    """Members when the last probe began; None when this process has not probed yet."""
    members: frozenset[str] = frozenset()
    members_since: float = 0.0
    """Since when the set of members is as it is."""
    warm: set[str] = field(default_factory=set)
    """Members that have served a prompt of the probe's length since their start."""


@dataclass(slots=True)
class KeyCount:
    """The last count of the store's keys by schema."""

    counts: Mapping[str, int] | None = None
    when: float = 0.0

    def due(self, former: str, *, moving: bool, now: float) -> bool:
        """Whether to count anew: while engines of the former schema could still write, or some of its keys are left."""
        if self.counts is None:
            return True
        left = self.counts.get(former, 0) > 0
        return (moving or left) and now - self.when >= RECOUNT_SECONDS


@dataclass(frozen=True, slots=True)
class SourceLook:
    """The last look at a ConfigMap or Secret that a user's pod takes environment from."""

    when: float
    keys: set[str]
    """Keys that were looked for."""
    values: Mapping[str, str | None] | None
    """Those that are there, a Secret's without their values; None: no such object, or it could not be read."""


@dataclass(slots=True)
class PoolMemory:
    """Everything remembered of one pool; `uid` tells a pool from a later one of the same name."""

    uid: str = ""
    traffic: Traffic = field(default_factory=Traffic)
    master: MasterHistory = field(default_factory=MasterHistory)
    engines: EngineHistory = field(default_factory=EngineHistory)
    presence: Presence = field(default_factory=Presence)
    keys: KeyCount = field(default_factory=KeyCount)
    probe: ProbeMemory = field(default_factory=ProbeMemory)
    log_lines: dict[tuple[str, str, int], tuple[float, str]] = field(default_factory=dict)
    """(when read, line) by (pod uid, container, restarts)."""
    transports: dict[tuple[str, int], str] = field(default_factory=dict)
    """What a member's log says it has installed, empty where it does not tell, by (pod uid, restarts)."""
    sources: dict[tuple[str, str], SourceLook] = field(default_factory=dict)
    """By (kind, name) of what users' pods take environment from."""
    references: dict[tuple[str, str, str], tuple[float, bool]] = field(default_factory=dict)
    """(when checked, whether there) by (kind, name, key)."""
