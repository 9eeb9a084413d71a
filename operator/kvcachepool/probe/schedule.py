"""When to probe, and between which members. Pure."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from kvcachepool.api import KVCachePool
from kvcachepool.api.status import VerificationStatus
from kvcachepool.constants import ENGINE
from kvcachepool.facts import Observed, PodFacts
from kvcachepool.observe.memory import ProbeMemory

DEBOUNCE_SECONDS: Final = 15.0
"""How long the set of members must have been the same before its change calls for a probe."""
FIRST_RETRY_SECONDS: Final = 60.0
"""Pause after a probe that did not verify; doubled with each further one, up to the interval."""
_JITTER: Final = 0.1


@dataclass(frozen=True, slots=True)
class Member:
    """An engine that can be probed."""

    name: str
    uid: str
    host: str
    identity: str
    """Tells this start of the pod's engine from an earlier one."""
    port: int = 0
    """Of the engine; 0 for the well-known one."""


@dataclass(frozen=True, slots=True)
class Decision:
    """`pair` is (writer, reader) when a probe is due; `why` says in any case why or why not."""

    why: str
    pair: tuple[Member, Member] | None = None


def members(observed: Observed, digest: str) -> tuple[Member, ...]:
    """Ready engines of that schema, by name; the users' own members too."""
    return tuple(
        Member(pod.name, pod.uid, pod.ip, f"{pod.uid}/{pod.main.restarts if pod.main is not None else 0}", pod.port)
        for pod in sorted(_engine_pods(observed), key=lambda pod: pod.name)
        if pod.ready and pod.ip and pod.digest == digest
    )


def settled(observed: Observed, digest: str) -> bool:
    """Whether no pod of the pool is being replaced or belongs to another schema."""
    pods = _engine_pods(observed)
    return all(workload.settled for workload in observed.workloads.values()) and all(
        pod.digest == digest for pod in pods if pod.component == ENGINE
    )


def note_members(memory: ProbeMemory, present: Sequence[Member], now: float) -> None:
    """Remember since when the members are these; forget warmth of those that are gone."""
    identities = frozenset(member.identity for member in present)
    if identities != memory.members:
        memory.members, memory.members_since = identities, now
        memory.warm = {name for name in memory.warm if name.removesuffix("/loads") in identities}


def due(pool: KVCachePool, observed: Observed, memory: ProbeMemory, digest: str, now: float) -> Decision:
    """Whether to probe now (epoch seconds). Expects `note_members` to have been called for this pass.

    A member whose metrics cannot be read just now stays a member, but no probe starts with it.
    """
    present = [member for member in members(observed, digest) if _readable(observed, member)]
    obstacles = (
        (not pool.spec.verification.enabled, "spec.verification.enabled is false"),
        (pool.spec.backend.mooncake is None, f"backend {pool.spec.backend.name} shares nothing"),
        (not settled(observed, digest), "pods are being replaced"),
        (len(present) < 2, f"{len(present)} engines are ready and readable, two are needed"),
        (observed.master is not None and observed.master.service_ready is False, "the master does not serve"),
    )
    obstacle = next((why for stands, why in obstacles if stands), None)
    if obstacle is not None:
        return Decision(obstacle)
    last, when = _last(pool, memory, digest)
    if when is None:
        return Decision("never probed", _pair(present, last))
    if _changed(memory, last, present) and now - memory.members_since >= DEBOUNCE_SECONDS:
        return Decision("members changed", _pair(present, last))
    if now >= when + pause(pool, memory, last, when):
        return Decision("interval is over", _pair(present, last))
    return Decision("not yet")


def pause(pool: KVCachePool, memory: ProbeMemory, last: VerificationStatus, when: float) -> float:
    """Seconds from the last probe to the next: the interval, or less after failures, varied by up to a tenth.

    The variation follows from pool and time, so that it is the same at every pass and differs between pools.
    """
    interval = float(pool.spec.verification.interval_seconds)
    failures = memory.failures or int(last.verified is not True)
    base = min(interval, FIRST_RETRY_SECONDS * 2 ** min(failures - 1, 20)) if failures else interval
    seed = hashlib.sha256(f"{pool.metadata.uid}/{int(when)}".encode()).digest()
    return base * (1 + _JITTER * (2 * int.from_bytes(seed[:4]) / 0xFFFFFFFF - 1))


def _engine_pods(observed: Observed) -> list[PodFacts]:
    return [pod for pod in observed.pods if pod.component in (ENGINE, "") and not pod.deleting]


def _readable(observed: Observed, member: Member) -> bool:
    facts = observed.engines.get(member.name)
    return facts is not None and facts.reachable


def _last(pool: KVCachePool, memory: ProbeMemory, digest: str) -> tuple[VerificationStatus, float | None]:
    """The newest result and its time; from the status after a restart of the operator, if it is of this schema."""
    if memory.result is not None and memory.finished is not None:
        return memory.result, memory.finished
    if pool.status.schema_.digest not in ("", digest):
        return VerificationStatus(), None
    return pool.status.verification, seconds(pool.status.verification.last_time)


def seconds(text: str | None) -> float | None:
    """RFC 3339 as epoch seconds; None for nothing or nonsense."""
    try:
        return datetime.fromisoformat(text).timestamp() if text else None
    except ValueError:
        return None


def _changed(memory: ProbeMemory, last: VerificationStatus, present: Sequence[Member]) -> bool:
    if memory.probed_members is not None:
        return memory.members != memory.probed_members
    names = {member.name for member in present}
    return not {last.writer, last.reader} <= names


def _pair(present: Sequence[Member], last: VerificationStatus) -> tuple[Member, Member]:
    """Each member reads from the one before it, in turns; a pair that failed is tried until it passes.

    So the last reader writes next. Turns go on over a restart of the operator, since the pair is in the status.
    """
    by_name = {member.name: number for number, member in enumerate(present)}
    if last.verified is not True and last.writer in by_name and last.reader in by_name and last.writer != last.reader:
        return present[by_name[last.writer]], present[by_name[last.reader]]
    writer = by_name.get(last.reader, 0)
    return present[writer], present[(writer + 1) % len(present)]
