"""The figures of the status, rounded so that a steady pool's status does not change."""

from collections import Counter
from typing import Final

from kvcachepool import constants, names
from kvcachepool.api.status import (
    EnginesStatus,
    GenerationStatus,
    HitRateStatus,
    MembersStatus,
    MismatchStatus,
    SchemaStatus,
    StoreStatus,
)
from kvcachepool.facts import RATE_WINDOW_SECONDS
from kvcachepool.quantity import format_bytes, human_bytes
from kvcachepool.status.admitted import admitted
from kvcachepool.status.context import Context
from kvcachepool.status.master_memory import estimate
from kvcachepool.status.masters import master_start
from kvcachepool.status.text import shorten

_MOST_NAMED: Final = 32
"""Pods that the status names one by one, and that get an Event."""
_LONGEST: Final = 400


def schema_status(context: Context) -> SchemaStatus:
    """The schema in force: while a spec is refused, the former one."""
    planned = context.plan.schema
    if planned is None or planned.digest != context.digest:
        return context.pool.status.schema_
    former = context.previous_digest
    counted = context.observed.keys_by_prefix
    return SchemaStatus(
        digest=planned.digest,
        canonical=planned.canonical,
        previous_digest=former,
        previous_keys=_two_digits(counted.get(former, 0)) if former and counted is not None else None,
        admitted=admitted(context.pool, context.plan, context.observed),
    )


def store_status(context: Context) -> StoreStatus | None:
    """None without a shared store; a figure that the master did not tell is left out."""
    if not context.shared:
        return None
    master = context.observed.master
    capacity = _capacity(context)
    allocated = master.allocated if master is not None else None
    full, former = estimate(context), context.pool.status.store
    return StoreStatus(
        capacity=format_bytes(capacity) if capacity else "",
        used_percent=min(round(100 * allocated / capacity), 100) if capacity and allocated is not None else None,
        keys=_two_digits(master.keys) if master is not None and master.keys is not None else None,
        segments=len(context.segments) if context.segments is not None else None,
        members=context.plan.expected_segments or None,
        segment_bytes=context.plan.segment_bytes or None,
        expected_keys=full.keys if full is not None else None,
        master_memory=human_bytes(full.memory) if full is not None else "",
        pending_restart=context.plan.held.approval if context.plan.held is not None else "",
        master_start=master_start(context) or (former.master_start if former is not None else None),
    )


def _capacity(context: Context) -> int | None:
    """Without segments that are being left: a member that goes counts no more at once, not only when the master has
    noticed."""
    master, segments = context.observed.master, context.segments
    if master is None or segments is None:
        return master.capacity if master is not None else None
    leaving = {pod.ip for pod in context.observed.pods if pod.deleting} | set(context.observed.departed)
    return sum(segment.size for segment in segments if segment.host not in leaving)


def engines_status(context: Context) -> EnginesStatus:
    """Engine pods, counted one by one; `updated` as their Deployment counts it."""
    workload, ready = context.workload(constants.ENGINE), context.ready_engines
    selector = {
        constants.LABEL_COMPONENT: constants.ENGINE,
        constants.LABEL_POOL: names.pool_label(context.pool.metadata.name),
    }
    return EnginesStatus(
        desired=context.desired,
        updated=workload.updated if workload is not None else 0,
        ready=len(ready),
        serving=sum(p.digest == context.digest for p in ready),
        summary=f"{len(ready)}/{context.desired}",
        selector=",".join(f"{label}={value}" for label, value in sorted(selector.items())),
        template_outdated=bool(context.plan.outdated),
        generations=_generations(context),
    )


def _generations(context: Context) -> list[GenerationStatus]:
    if not context.formers:
        return []
    ready = Counter(pod.digest for pod in context.ready_engines)
    here = context.workload(constants.ENGINE)
    desired = {context.digest: here.replicas if here is not None else 0}
    desired |= {former.digest: former.replicas for former in reversed(context.formers)}
    return [GenerationStatus(digest=digest, desired=count, ready=ready[digest]) for digest, count in desired.items()]


def members_status(context: Context) -> MembersStatus | None:
    """None when no user has a pod in the pool; while a spec is refused, as it was."""
    if context.refused:
        return context.pool.status.members
    found = context.plan.members
    if not found:
        return None
    apart = [m for m in found if m.problems]
    return MembersStatus(
        joined=len(found) - len(apart),
        serving=sum(m.pod.uid in context.plan.routed for m in found),
        mismatched=len(apart),
        mismatches=[
            MismatchStatus(name=m.pod.name, difference=shorten("; ".join(m.problems), _LONGEST))
            for m in apart[:_MOST_NAMED]
        ],
    )


def hit_rate_status(context: Context) -> HitRateStatus:
    """Empty, never zero, without traffic or without the metric; the former ones while a window begins without any."""
    rates = context.observed.rates
    if not rates.tokens or rates.local is None or rates.pool is None:
        return context.pool.status.hit_rate if context.rates_begin and not rates.tokens else HitRateStatus()
    return HitRateStatus(
        local=round(100 * rates.local),
        pool=round(100 * rates.pool),
        total=round(100 * (rates.local + rates.pool)),
        window_seconds=RATE_WINDOW_SECONDS,
    )


def _two_digits(value: int) -> int:
    unit = 10 ** max(len(str(value)) - 2, 0)
    return int(round(value / unit) * unit)
