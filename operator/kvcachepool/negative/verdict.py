"""From what the requests of one case gave to one row of the report. Pure."""

from dataclasses import asdict, dataclass
from typing import Any, Final

ISOLATED: Final = "isolated"
SHARED: Final = "shared"
WRONG: Final = "wrong answer"
UNSOUND: Final = "another answer without reuse"
HANGS: Final = "hangs"
FAILS: Final = "fails"
NOT_RUN: Final = "not run"

MEANING: Final = {
    ISOLATED: "reused nothing and answered as without a cache",
    SHARED: "reused the other engine's blocks, and the answer was the same",
    WRONG: "reused the other engine's blocks and answered otherwise",
    UNSOUND: "reused nothing, but answered otherwise than before: the engine is not deterministic, or broken",
    HANGS: "did not answer in time",
    FAILS: "answered with an error",
    NOT_RUN: "could not be tried",
}


_NOTHING_STORED: Final = (
    "the writer stored no block, so that nothing could be read: see StoreReady and CacheEffective of the pool"
)


@dataclass(frozen=True, slots=True)
class Seen:
    """What the reader did with a prompt that the writer had computed."""

    prompt_tokens: int = 0
    reused_tokens: int | None = None
    """None: no answer."""
    equal: bool | None = None
    """Whether the answer is the one without a cache; None: no answer."""
    error: str = ""
    timed_out: bool = False
    stored: bool = True
    """Whether the writer has stored anything, as far as it counts."""


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the report."""

    case: str
    field: str
    changed_to: str
    prefix: bool
    """Whether the digest stands in front of every key."""
    verdict: str
    prompt_tokens: int | None = None
    reused_tokens: int | None = None
    answer_equal: bool | None = None
    detail: str = ""

    @property
    def failed(self) -> bool:
        """Whether it disproves the pool: only with the digest must a difference never be read. What could not be tried
        disproves nothing."""
        return self.prefix and self.verdict not in {ISOLATED, NOT_RUN}

    def dump(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self) | {"failed": self.failed}


def judge(case: str, field: str, changed_to: str, seen: Seen, *, prefix: bool) -> Row:
    """The row of a case that was tried."""
    if not seen.stored:
        return Row(case, field, changed_to, prefix, NOT_RUN, seen.prompt_tokens, detail=_NOTHING_STORED)
    if seen.reused_tokens is None or seen.equal is None:
        verdict = HANGS if seen.timed_out else FAILS
    elif seen.reused_tokens:
        verdict = SHARED if seen.equal else WRONG
    else:
        verdict = ISOLATED if seen.equal else UNSOUND
    return Row(
        case, field, changed_to, prefix, verdict, seen.prompt_tokens or None, seen.reused_tokens, seen.equal, seen.error
    )
