"""From what the arms saw to one outcome, and the figures of worth. Pure."""

from dataclasses import dataclass
from typing import Final

from kvcachepool.api.status import VerificationStatus
from kvcachepool.facts import StoreOperation
from kvcachepool.probe.client import Reply

VERIFIED: Final = "Verified"
ZERO_HITS: Final = "ZeroCrossInstanceHits"
OUTPUT_MISMATCH: Final = "OutputMismatch"
NEGATIVE_HIT: Final = "NegativeArmHit"
SAVES_FAILING: Final = "SavesFailing"
LOADS_FAILING: Final = "LoadsFailing"
FAILED: Final = "ProbeFailed"
RETRIED: Final = frozenset({ZERO_HITS, OUTPUT_MISMATCH, NEGATIVE_HIT})
"""Called only after a second try on a fresh prompt: a load may be late, an eviction may come between."""
_SHORTEST: Final = 0.0005
"""Seconds; a difference of two times to first token below this is noise."""


@dataclass(frozen=True, slots=True)
class Arms:
    """What the requests of one try gave, in the order they were made (see `sequence`)."""

    writer: str
    reader: str
    cold: Reply
    writer_local: Reply
    negative: Reply
    negative_again: Reply | None
    """A second cold run at the reader, made only when the first differs from the writer's."""
    pool: Reply
    reader_local: Reply
    saved: StoreOperation
    """What `save_put` counted at the writer meanwhile."""
    loaded: StoreOperation
    """What `load_get` counted at the reader during the pool hit."""
    external_tokens: float | None
    """Tokens that all requests at the reader took from the pool during the pool hit; None when not counted."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """An outcome (a reason of ReuseVerified) and the sentence that explains it."""

    outcome: str
    detail: str


def judge(arms: Arms) -> Verdict:
    """The first thing that is wrong, the most dangerous first."""
    return next((Verdict(outcome, detail) for wrong, outcome, detail in _checks(arms) if wrong), _verified(arms))


def _checks(arms: Arms) -> tuple[tuple[bool, str, str], ...]:
    """(whether it is so, outcome, what to say then)."""
    a, b, pool = arms.writer, arms.reader, arms.pool
    total = pool.prompt_tokens
    reused = _reused(arms)
    return (
        (
            arms.cold.cached_tokens > 0,
            NEGATIVE_HIT,
            f"{a} took {arms.cold.cached_tokens} of {total} tokens of a prompt that was never sent before from a cache",
        ),
        (
            arms.negative.cached_tokens > 0,
            NEGATIVE_HIT,
            f"{b} took {arms.negative.cached_tokens} of {total} prompt tokens from a cache although their salt was new",
        ),
        (
            not _negative_sound(arms),
            OUTPUT_MISMATCH,
            f"{b} answers a prompt without any cached tokens neither as {a} does nor as itself a second time",
        ),
        (
            not arms.writer_local.cached_tokens,
            FAILED,
            f"{a} does not reuse its own prompt: its prefix cache is off or too small for {total} tokens",
        ),
        (
            not pool.cached_tokens,
            ZERO_HITS,
            f"{b} reused 0 of {total} prompt tokens that {a} had computed; {_evidence(arms)}",
        ),
        (
            pool.answer != arms.writer_local.answer,
            OUTPUT_MISMATCH,
            f"{reused}, but answered otherwise than {a} does from its own cache",
        ),
        (arms.saved.failed_keys > 0, SAVES_FAILING, f"{reused}, but {_evidence(arms)}"),
        (arms.loaded.failed_keys > 0, LOADS_FAILING, f"{reused}, but {_evidence(arms)}"),
    )


def _verified(arms: Arms) -> Verdict:
    return Verdict(VERIFIED, f"{_reused(arms)}, with the same answer; {_times(arms)}")


def _reused(arms: Arms) -> str:
    pool = arms.pool
    return (
        f"{arms.reader} reused {pool.cached_tokens} of {pool.prompt_tokens} prompt tokens that {arms.writer} computed"
    )


def _negative_sound(arms: Arms) -> bool:
    """Whether the reader's cold answer is one that a cold run gives: the writer's, or its own once more.

    The second comparison is for GPUs, where another chunking of the same prompt may change the numbers.
    """
    expected = [arms.cold.answer]
    if arms.negative_again is not None and not arms.negative_again.cached_tokens:
        expected.append(arms.negative_again.answer)
    return arms.negative.answer in expected


def _evidence(arms: Arms) -> str:
    saved, not_saved = _blocks(arms.saved)
    loaded, not_loaded = _blocks(arms.loaded)
    return (
        f"{arms.writer} stored {saved} blocks and failed to store {not_saved}, "
        f"{arms.reader} loaded {loaded} and failed to load {not_loaded}"
    )


def _blocks(operation: StoreOperation) -> tuple[int, int]:
    """(done, failed); an engine counts the failed ones among the keys, too."""
    return max(0, int(operation.keys - operation.failed_keys)), int(operation.failed_keys)


def _times(arms: Arms) -> str:
    return (
        f"first token after {_ms(arms.pool.ttft)} ms by reuse, {_ms(arms.negative.ttft)} ms by recompute, "
        f"{_ms(arms.reader_local.ttft)} ms from its own cache"
    )


def _ms(seconds: float) -> int:
    return max(1, round(seconds * 1000))


def loaded_bytes(arms: Arms) -> int | None:
    """Bytes of the pool hit alone: where users loaded at the same time, the probe's share by tokens."""
    share = 1.0
    if arms.external_tokens is not None and arms.external_tokens > arms.pool.cached_tokens:
        share = arms.pool.cached_tokens / arms.external_tokens
    return round(arms.loaded.bytes * share) or None


def report(arms: Arms, verdict: Verdict, finished: str) -> VerificationStatus:
    """The status of a probe that came to an end. Recompute, reuse and local are all of the reader.

    Rate: what the load added to a local hit. Break-even: the rate at which reuse takes as long as recompute.
    """
    size = loaded_bytes(arms)
    recompute, reuse, local = arms.negative.ttft, arms.pool.ttft, arms.reader_local.ttft
    hit = bool(arms.pool.cached_tokens)
    return VerificationStatus(
        last_time=finished,
        verified=None if verdict.outcome == FAILED else verdict.outcome == VERIFIED,
        reader=arms.reader,
        writer=arms.writer,
        prompt_tokens=arms.pool.prompt_tokens,
        reused_tokens=arms.pool.cached_tokens,
        negative_reused_tokens=arms.negative.cached_tokens,
        ttft_recompute_ms=_ms(recompute),
        ttft_local_ms=_ms(local) if arms.reader_local.cached_tokens else None,
        ttft_reuse_ms=_ms(reuse) if hit else None,
        loaded_bytes=size if hit else None,
        gigabytes_per_second=_rate(size, reuse - local) if hit else "",
        break_even_gigabytes_per_second=_rate(size, recompute - local) if hit else "",
        outcome=verdict.outcome,
        detail=verdict.detail,
    )


def failure(writer: str, reader: str, why: str, finished: str) -> VerificationStatus:
    """The status of a probe that could not be finished: unknown, not disproved."""
    return VerificationStatus(
        last_time=finished, verified=None, reader=reader, writer=writer, outcome=FAILED, detail=why
    )


def _rate(size: int | None, seconds: float) -> str:
    """GB/s with three digits; empty when there is no time to divide by that could be measured."""
    if not size or seconds < _SHORTEST:
        return ""
    rate = size / seconds / 1e9
    return f"{rate:.3g}" if rate < 100 else f"{rate:.0f}"
