"""Accepted: the spec is valid and what it refers to exists."""

from collections.abc import Sequence
from typing import Final

from kvcachepool.findings import Finding
from kvcachepool.status.context import Context
from kvcachepool.status.reasons import reasons_of
from kvcachepool.status.text import describe, sentence
from kvcachepool.status.verdict import Check, Verdict, speaker

_say = speaker("Accepted")
_MISSING: Final = {
    "Secret": "SecretNotFound",
    "PersistentVolumeClaim": "ClaimNotFound",
    "ConfigMap": "ConfigMapNotFound",
}
_SHOWN: Final = 3
"""Findings in one message."""


def refusal(findings: Sequence[Finding]) -> Verdict:
    """What findings say together; the first gives the reason."""
    messages = [finding.message for finding in findings]
    more = f"; and {len(messages) - _SHOWN} more" if len(messages) > _SHOWN else ""
    reason = findings[0].reason
    return _say(reason if reason in reasons_of("Accepted") else "InvalidSpec", "; ".join(messages[:_SHOWN]) + more)


def failure(error: Exception) -> Verdict:
    """What an unexpected error of a pass says."""
    return _say(
        "InternalError",
        f"The operator failed in its pass over this pool: {sentence(describe(error))} What runs is left as it is, and "
        "the other conditions are as last seen; the operator's log has the traceback, and it tries again.",
    )


def _findings(context: Context) -> Verdict | None:
    return refusal(context.plan.findings) if context.plan.findings else None


def _missing(context: Context) -> Verdict | None:
    namespace = context.pool.metadata.namespace
    found = [
        Finding(
            _MISSING.get(kind, "InvalidSpec"),
            f"spec.{field.removeprefix('spec.')}: {kind} {name} does not exist in namespace {namespace}; "
            "create it or name another",
            field,
        )
        for field, kind, name in sorted(context.observed.missing)
    ]
    return refusal(found) if found else None


def _valid(_: Context) -> Verdict:
    return _say("Valid", "The spec is valid and everything it refers to exists.")


CHECKS: Sequence[Check] = (_findings, _missing, _valid)
