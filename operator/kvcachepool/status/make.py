"""From what was planned and seen to the pool's status. Pure: the clock is an argument.

Each condition is a chain of checks; the first that has something to say decides. The previous status matters for
`lastTransitionTime`, and while a spec is refused for what is still in force.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Final

from kvcachepool import constants, names
from kvcachepool.api import Condition, KVCachePool, PoolStatus
from kvcachepool.api.status import VerificationStatus
from kvcachepool.facts import Observed
from kvcachepool.findings import Finding
from kvcachepool.plan_types import Plan
from kvcachepool.status import accepted, effective, engines, hardware, homogeneous, reuse, store, summary, transport
from kvcachepool.status.advice import advice
from kvcachepool.status.context import Context
from kvcachepool.status.figures import engines_status, hit_rate_status, members_status, schema_status, store_status
from kvcachepool.status.reasons import CONDITIONS
from kvcachepool.status.verdict import Check, Verdict, first, speaker

CHAINS: Final[Mapping[str, Sequence[Check]]] = {
    "Accepted": accepted.CHECKS,
    "HardwareMatched": hardware.CHECKS,
    "StoreReady": store.CHECKS,
    "EnginesReady": engines.CHECKS,
    "SchemaHomogeneous": homogeneous.CHECKS,
    "TransportMatched": transport.CHECKS,
    "ReuseVerified": reuse.VERIFIED,
    "ReuseWorthwhile": reuse.WORTHWHILE,
    "CacheEffective": effective.CHECKS,
    "Available": summary.AVAILABLE,
}
"""Every condition but Ready, which follows from the others."""


def make_status(pool: KVCachePool, plan: Plan, observed: Observed, now: datetime) -> PoolStatus:
    """The whole status of a pool whose spec could be parsed; `pool.status` is the previous one."""
    context = Context(pool, plan, observed, now)
    verdicts = {kind: first(checks, context) for kind, checks in CHAINS.items()}
    return PoolStatus(
        observed_generation=pool.metadata.generation,
        replicas=len(context.members(constants.ENGINE)),
        backend=pool.spec.backend.name,
        label=names.pool_label(pool.metadata.name),
        conditions=_conditions(pool.status, verdicts, pool.metadata.generation, now),
        schema_=schema_status(context),
        store=store_status(context),
        engines=engines_status(context),
        members=members_status(context),
        hit_rate=hit_rate_status(context),
        verification=context.verification or VerificationStatus(),
        transport=transport.protocols(context),
        hardware=hardware.hardware_status(context),
        advice=advice(context),
    )


def invalid_status(previous: PoolStatus, generation: int, findings: Sequence[Finding], now: datetime) -> PoolStatus:
    """The status of a pool whose spec cannot be parsed. Nothing is judged; figures stay as they were last seen, since
    whatever runs goes on running."""
    verdicts = {kind: _not_judged(kind) for kind in CHAINS if kind != "Accepted"}
    verdicts["Accepted"] = accepted.refusal(findings)
    return previous.model_copy(
        update={
            "observed_generation": generation,
            "conditions": _conditions(previous, verdicts, generation, now),
        }
    )


def failed_status(previous: PoolStatus, generation: int, error: Exception, now: datetime) -> PoolStatus:
    """The previous status after a pass that ended in an unexpected error: Accepted and, by it, Ready say so. All else
    stays as it was last seen; a condition that was never judged is Unknown."""
    failure = accepted.failure(error)
    changed = {
        "Accepted": failure,
        "Ready": Verdict(failure.status, failure.reason, f"Accepted: {failure.message}"),
    }
    conditions = []
    for info in CONDITIONS:
        kept = previous.condition(info.type)
        if kept is None or info.type in changed:
            verdict = changed.get(info.type) or _not_judged(info.type)
            kept = _condition(info.type, verdict, previous, generation, now)
        conditions.append(kept)
    return previous.model_copy(update={"conditions": conditions})


def _not_judged(kind: str) -> Verdict:
    return speaker(kind)("NotAccepted", "The spec was not accepted; see condition Accepted.")


def _conditions(
    previous: PoolStatus, verdicts: Mapping[str, Verdict], generation: int, now: datetime
) -> list[Condition]:
    everything = {**verdicts, "Ready": summary.ready(verdicts)}
    return [_condition(info.type, everything[info.type], previous, generation, now) for info in CONDITIONS]


def _condition(kind: str, verdict: Verdict, previous: PoolStatus, generation: int, now: datetime) -> Condition:
    before = previous.condition(kind)
    kept = before.last_transition_time if before is not None and before.status == verdict.status else ""
    return Condition(
        type=kind,
        status=verdict.status,
        reason=verdict.reason,
        message=verdict.message,
        observed_generation=generation,
        last_transition_time=kept or now.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
    )
