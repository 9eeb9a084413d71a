"""What changed between two statuses, as Kubernetes events."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

from kvcachepool.api import Condition, PoolStatus
from kvcachepool.api.status import StoreStatus
from kvcachepool.plan_types import Plan
from kvcachepool.quantity import human_bytes, parse_bytes
from kvcachepool.status.reasons import reasons_of
from kvcachepool.status.text import sentence

_SUMMARIES: Final = ("Available", "Ready")
"""Follow from other conditions: False before anything has started is not news."""


@dataclass(frozen=True, slots=True)
class Event:
    """One event on the pool. `reason` is the condition's reason."""

    type: Literal["Normal", "Warning"]
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class PodEvent:
    """One event on a user's pod."""

    pod: str
    uid: str
    type: Literal["Normal", "Warning"]
    reason: str
    message: str


def pod_transitions(previous: PoolStatus, current: PoolStatus, plan: Plan) -> tuple[PodEvent, ...]:
    """Events for users' pods that the status names because they differ, and for those that do so no more."""
    before, after = _mismatches(previous), _mismatches(current)
    uids = {member.pod.name: member.pod.uid for member in plan.members}
    differing = {member.pod.name for member in plan.members if member.problems}
    selected = {member.pod.name for member in plan.members if member.selected}
    events = []
    for name in sorted(before.keys() | after.keys()):
        if name not in uids or before.get(name) == after.get(name):
            continue
        if name in after:
            traffic = "is not probed, but gets requests" if name in selected else "gets no traffic and is not probed"
            message = f"{sentence(after[name])} The pod {traffic}."
            events.append(PodEvent(name, uids[name], "Warning", "SchemaMismatch", message))
        elif name not in differing:
            message = "The pod has the pool's cache schema now."
            events.append(PodEvent(name, uids[name], "Normal", "AllAlike", message))
    return tuple(events)


def _mismatches(status: PoolStatus) -> Mapping[str, str]:
    return {m.name: m.difference for m in status.members.mismatches} if status.members is not None else {}


def transitions(previous: PoolStatus, current: PoolStatus) -> tuple[Event, ...]:
    """Events for conditions that flipped, or that are False for a worse reason than before.

    Conditions that become Unknown are reported only if they were True. What passes by itself, such as a rollout, is
    Normal. Ready repeats another condition's fault and is reported only where that one is not.
    """
    events: list[Event] = []
    for condition in current.conditions:
        event = _event(previous.condition(condition.type), condition)
        repeated = condition.type == "Ready" and any(event and event.reason == e.reason for e in events)
        if event is not None and not repeated:
            events.append(event)
    return (*events, *_shrunk(previous.store, current.store))


def _shrunk(before: StoreStatus | None, after: StoreStatus | None) -> tuple[Event, ...]:
    """What is left when memory of the store has gone."""
    if before is None or after is None or not before.capacity or not after.capacity:
        return ()
    had, has = parse_bytes(before.capacity), parse_bytes(after.capacity)
    if has >= had:
        return ()
    message = (
        f"The store's capacity went from {human_bytes(had)} to {human_bytes(has)}; it had {_count(before.keys)} "
        "blocks, "
        f"now {_count(after.keys)}. What was in the memory that left is computed again, unless it was moved before."
    )
    return (Event("Normal", "CapacityShrunk", message),)


def _count(keys: int | None) -> str:
    return "an unknown number of" if keys is None else f"about {keys}"


def _event(before: Condition | None, after: Condition) -> Event | None:
    if not _is_news(before, after):
        return None
    calm = after.status == "True" or _passing(after)
    return Event("Normal" if calm else "Warning", after.reason, after.message)


def _is_news(before: Condition | None, after: Condition) -> bool:
    if before is None:
        return after.status == "True" or (after.status == "False" and after.type not in _SUMMARIES)
    if after.status == "Unknown":
        return before.status == "True"
    if before.status != after.status:
        return True
    return after.status == "False" and before.reason != after.reason and not _passing(after)


def _passing(condition: Condition) -> bool:
    reason = reasons_of(condition.type).get(condition.reason)
    return reason is not None and reason.passing
