"""What a condition and a reason are, as data."""

from dataclasses import dataclass
from typing import Final

from kvcachepool.api.status import ConditionStatus


@dataclass(frozen=True, slots=True)
class Reason:
    """One reason of one condition."""

    name: str
    status: ConditionStatus
    meaning: str
    remedy: str = ""
    """What to do about it; empty where nothing is to be done."""
    passing: bool = False
    """It passes without anybody's doing, as while things start: its event is Normal, not a Warning."""
    harmless: bool = False
    """Unknown, but Ready does not wait for it."""


@dataclass(frozen=True, slots=True)
class ConditionInfo:
    """One condition."""

    type: str
    meaning: str
    """What True means."""
    reasons: tuple[Reason, ...]
    needed: bool = False
    """Ready needs it True."""


NOT_ACCEPTED: Final = Reason(
    "NotAccepted",
    "Unknown",
    "The spec was not accepted and nothing runs that could be judged.",
    "See Accepted.",
)
