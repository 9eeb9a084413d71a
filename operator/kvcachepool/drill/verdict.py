"""From the requests of one drill to one row of the report. Pure. Times are seconds since the loop began."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

PASSED: Final = "passed"
FAILED: Final = "failed"
NOT_RUN: Final = "not run"


@dataclass(frozen=True, slots=True)
class Sample:
    """One request."""

    uid: str
    """The engine's."""
    at: float
    seconds: float
    right: bool | None
    """Whether the answer is the recomputed one; None: no answer."""
    reused: int
    """Prompt tokens from a cache."""
    stored: float | None
    """When the prompt was computed and so stored; None: this request computed it."""
    error: str = ""

    @property
    def end(self) -> float:
        """When the answer was complete, or given up."""
        return self.at + self.seconds


@dataclass(frozen=True, slots=True)
class Course:
    """What happened in one drill."""

    drill: str
    samples: Sequence[Sample]
    kills: Sequence[tuple[str, float]]
    """(engine's uid, when it was killed)."""
    began: float
    """When the fault began; requests that ended before are the comparison."""
    ended: float
    """When it was over; a kill is over at once."""
    keys_before: int | None = None
    keys_lost: int | None = None
    """None: the store was not asked, or did not answer."""
    evictions: int | None = None
    """That the master made meanwhile; None when it does not tell."""


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the report. Times in seconds."""

    drill: str
    verdict: str
    requests: int = 0
    """During and after the fault."""
    failed: int = 0
    """Without an answer, on engines that were not killed."""
    wrong: int = 0
    excepted: int = 0
    """Without an answer, on an engine that was killed, until it answered again."""
    held: float = 0.0
    """How long the fault lasted."""
    usual: float | None = None
    """The longest request without a fault."""
    longest: float | None = None
    """The longest request during and after the fault."""
    reuse_after: float | None = None
    """From the fault's end until a prompt that was stored after it was reused; None: it was not."""
    keys_before: int | None = None
    keys_lost: int | None = None
    """Stored before the fault and gone at the end, evicted ones included."""
    evictions: int | None = None
    """That the master made meanwhile; negative when its count began anew."""
    detail: str = ""

    @property
    def stall(self) -> float | None:
        """How much longer than usual the longest request took."""
        if self.longest is None or self.usual is None:
            return None
        return max(0.0, self.longest - self.usual)

    def dump(self) -> dict[str, Any]:
        """For JSON."""
        return {
            key: round(value, 2) if isinstance(value, float) else value
            for key, value in (asdict(self) | {"stall": self.stall}).items()
        }


def judge(course: Course) -> Row:
    """The row of a drill that was run."""
    after = [sample for sample in course.samples if sample.end >= course.began]
    before = [sample for sample in course.samples if sample.end < course.began]
    gone = excepted(after, course.kills)
    counted = [sample for sample in after if sample not in gone]
    failures = [sample for sample in counted if sample.right is None]
    wrong = sum(sample.right is False for sample in course.samples)
    reuse = reused_after(after, course.ended)
    problems = [
        *(sample.error for sample in failures[:3]),
        *([f"{wrong} answers differ from the recomputed ones"] if wrong else []),
        *(["nothing stored afterwards was reused"] if reuse is None else []),
    ]
    return Row(
        drill=course.drill,
        verdict=FAILED if problems else PASSED,
        requests=len(after),
        failed=len(failures),
        wrong=wrong,
        excepted=len(gone),
        held=course.ended - course.began,
        usual=max((sample.seconds for sample in before if sample.right is not None), default=None),
        longest=max((sample.seconds for sample in counted), default=None),
        reuse_after=reuse,
        keys_before=course.keys_before,
        keys_lost=course.keys_lost,
        evictions=course.evictions,
        detail="; ".join(problems),
    )


def excepted(samples: Iterable[Sample], kills: Sequence[tuple[str, float]]) -> list[Sample]:
    """Requests without an answer at an engine that was killed, from the kill until that engine has answered a request
    made after it. A wrong answer is never excepted."""
    ordered = sorted(samples, key=lambda sample: sample.at)
    found = []
    for sample in ordered:
        if sample.right is not None:
            continue
        for uid, when in kills:
            back = next((s.end for s in ordered if s.uid == uid and s.at > when and s.right is not None), None)
            if sample.uid == uid and sample.end >= when and (back is None or sample.at < back):
                found.append(sample)
                break
    return found


def reused_after(samples: Iterable[Sample], ended: float) -> float | None:
    """Seconds from `ended` to the first answer that took a prompt stored after it from a cache."""
    ends = [s.end for s in samples if s.stored is not None and s.stored >= ended and s.reused > 0 and s.right]
    return min(ends) - ended if ends else None
