"""ReuseVerified and ReuseWorthwhile: what the newest probe proved, and what it is worth."""

from collections.abc import Sequence
from typing import Final

from kvcachepool import constants
from kvcachepool.api.status import VerificationStatus
from kvcachepool.status.context import Context
from kvcachepool.status.text import quote, sentence
from kvcachepool.status.verdict import Check, Verdict, not_accepted, speaker

_verified = speaker("ReuseVerified")
_worthwhile = speaker("ReuseWorthwhile")
_UNTRUSTED: Final = "Do not trust this pool: change spec.schema.hashSeed to start with an empty one."


def _single(context: Context) -> Verdict | None:
    if context.sharing > 1:
        return None
    return _verified(
        "SinglePod", f"Reuse across engines needs two of them; spec.engines.replicas is {context.desired}."
    )


def _not_shared(context: Context) -> Verdict | None:
    if context.shared:
        return None
    return _verified(
        "NotShared",
        f"Backend {context.pool.spec.backend.name} keeps one cache in each of {context.desired} engines. To share it, "
        "choose spec.backend.mooncake.",
    )


def _disabled(context: Context) -> Verdict | None:
    if context.pool.spec.verification.enabled:
        return None
    return _verified("Disabled", "spec.verification.enabled is false: nothing proves that engines share the cache.")


def _pending(context: Context) -> Verdict | None:
    if context.verification is not None:
        return None
    if context.settled(constants.ENGINE) and len(context.ready_engines) > 1:
        return _verified("Pending", "The first probe of these engines is due.")
    return _verified("Pending", "The probe runs once all engines are ready; none runs while pods are replaced.")


def _outcome(context: Context) -> Verdict:
    result = context.verification
    assert result is not None
    told = sentence(quote(result.detail)) if result.detail else _figures(result)
    match result.outcome:
        case "Verified":
            missed = f" Of a prompt that must miss, {result.negative_reused_tokens or 0} tokens were reused."
            return _verified("Verified", told + missed)
        case "ZeroCrossInstanceHits" | "SavesFailing" | "LoadsFailing" as reason:
            return _verified(reason, told)
        case "OutputMismatch" | "NegativeArmHit" as reason:
            return _verified(reason, f"{told} {_UNTRUSTED}")
        case _:
            return _verified("ProbeFailed", f"The last probe could not be finished: {told}")


def _figures(result: VerificationStatus) -> str:
    """What a probe without an own sentence says."""
    return (
        f"{result.reader} reused {result.reused_tokens or 0} of {result.prompt_tokens or 0} prompt tokens that "
        f"{result.writer} had computed."
    )


VERIFIED: Sequence[Check] = (
    not_accepted(_verified, constants.ENGINE),
    _single,
    _not_shared,
    _disabled,
    _pending,
    _outcome,
)


def _not_measured(context: Context) -> Verdict | None:
    if measured(context) is not None:
        return None
    return _worthwhile("NotMeasured", "There is no verified probe of these engines with both times to first token.")


def measured(context: Context) -> VerificationStatus | None:
    """The newest probe, if reuse was verified and both times were taken."""
    result = context.verification
    if result is None or result.outcome != "Verified" or not context.shared or context.sharing < 2:
        return None
    return result if result.ttft_recompute_ms is not None and result.ttft_reuse_ms is not None else None


def _worth(context: Context) -> Verdict:
    result = measured(context)
    assert result is not None
    assert result.ttft_recompute_ms is not None
    assert result.ttft_reuse_ms is not None
    length = f" at {result.prompt_tokens} prompt tokens" if result.prompt_tokens is not None else ""
    times = (
        f"Time to first token{length}: {result.ttft_reuse_ms} ms by reuse, {result.ttft_recompute_ms} ms by recompute"
    )
    rates = ""
    if result.gigabytes_per_second and result.break_even_gigabytes_per_second:
        rates = (
            f"; loads ran at {result.gigabytes_per_second} GB/s, "
            f"break-even is {result.break_even_gigabytes_per_second} GB/s"
        )
    if result.ttft_reuse_ms < result.ttft_recompute_ms:
        return _worthwhile("ReuseFaster", f"{times}{rates}.")
    return _worthwhile("ReuseSlowerThanRecompute", f"{times}{rates}. See status.advice.")


WORTHWHILE: Sequence[Check] = (not_accepted(_worthwhile, constants.ENGINE), _not_measured, _worth)
