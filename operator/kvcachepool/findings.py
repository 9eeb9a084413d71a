"""What a check reports: a reason and a sentence, as data."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Finding:
    """Something the user must change. `reason` is a condition reason; `message` names the field, what was
    found and what is expected."""

    reason: str
    message: str
    field: str = ""
