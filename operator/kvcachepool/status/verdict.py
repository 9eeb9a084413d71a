"""What a check says, and how a chain of checks is run."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kvcachepool.api.status import ConditionStatus
from kvcachepool.status.context import Context
from kvcachepool.status.reasons import reasons_of
from kvcachepool.status.text import shorten

_LONGEST = 700
"""Characters of a message: two or three sentences, so that `kubectl describe` stays readable."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """Status, reason and message of one condition. Made by a `speaker` only."""

    status: ConditionStatus
    reason: str
    message: str


Check = Callable[[Context], Verdict | None]
"""Says something, or None: nothing to say, go on to the next check."""
Say = Callable[[str, str], Verdict]
"""(reason, message) -> Verdict."""


def speaker(condition: str) -> Say:
    """A function that makes verdicts of that condition; status comes from the table of reasons.

    It raises KeyError for a reason that the table does not have.
    """
    known = reasons_of(condition)

    def say(reason: str, message: str) -> Verdict:
        return Verdict(known[reason].status, reason, shorten(message, _LONGEST))

    return say


def first(checks: Sequence[Check], context: Context) -> Verdict:
    """What the first check that has something to say says. The last check of a chain always has."""
    for check in checks:
        verdict = check(context)
        if verdict is not None:
            return verdict
    raise AssertionError(f"no check of {checks} had a verdict")


def not_accepted(say: Say, *components: str) -> Check:
    """The check that most chains start with: without an accepted spec, only what runs is judged."""

    def check(context: Context) -> Verdict | None:
        if context.accepted or any(context.members(component) for component in components):
            return None
        return say("NotAccepted", "The spec was not accepted and nothing runs; see condition Accepted.")

    return check
