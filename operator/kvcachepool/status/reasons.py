"""Every condition and every reason it can have, as data. `docs/reference/conditions.md` is generated from it.

All conditions are positive: True is good. A reason has one status, so that a reason says all. A reason that is
not here cannot be produced (`verdict.speaker`).
"""

from collections.abc import Mapping
from typing import Final

from kvcachepool.status import reasons_cache, reasons_hardware, reasons_running
from kvcachepool.status.reason import ConditionInfo, Reason

CONDITIONS: Final = (
    reasons_running.ACCEPTED,
    reasons_hardware.HARDWARE_MATCHED,
    reasons_running.STORE_READY,
    reasons_running.ENGINES_READY,
    reasons_cache.SCHEMA_HOMOGENEOUS,
    reasons_cache.TRANSPORT_MATCHED,
    reasons_cache.REUSE_VERIFIED,
    reasons_cache.REUSE_WORTHWHILE,
    reasons_cache.CACHE_EFFECTIVE,
    reasons_running.AVAILABLE,
    reasons_running.READY,
)
"""In the order in which they stand in a status."""

BY_TYPE: Final[Mapping[str, ConditionInfo]] = {info.type: info for info in CONDITIONS}
NEEDED: Final = tuple(info.type for info in CONDITIONS if info.needed)
"""What Ready needs, in the order in which the first that fails is reported."""


def reasons_of(condition: str) -> Mapping[str, Reason]:
    """All reasons that the condition can have, by name; Ready has also those of the conditions it needs.

    Where two needed conditions share a reason's name, the former of them stands in Ready's table.
    """
    found = {reason.name: reason for reason in BY_TYPE[condition].reasons}
    if condition == "Ready":
        for needed in NEEDED:
            for reason in BY_TYPE[needed].reasons:
                if reason.status != "True":
                    found.setdefault(reason.name, reason)
    return found
