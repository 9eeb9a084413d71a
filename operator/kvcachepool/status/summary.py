"""Available, and Ready out of the conditions that it needs."""

from collections.abc import Mapping, Sequence

from kvcachepool import constants
from kvcachepool.status.context import Context
from kvcachepool.status.reasons import NEEDED, reasons_of
from kvcachepool.status.text import plural
from kvcachepool.status.verdict import Check, Verdict, not_accepted, speaker

_say = speaker("Available")
_ready = speaker("Ready")


def _serving(context: Context) -> Verdict | None:
    count = len(context.ready_engines)
    return _say("Serving", f"{plural(count, 'engine')} ready to serve.") if count else None


def _nobody(context: Context) -> Verdict:
    return _say("NoEngineServes", f"0 of {plural(context.desired, 'engine')} ready to serve.")


AVAILABLE: Sequence[Check] = (not_accepted(_say, constants.ENGINE), _serving, _nobody)


def ready(verdicts: Mapping[str, Verdict]) -> Verdict:
    """The first needed condition that is False, or else the first that is Unknown; a known fault says more than what
    was not measured because of it."""
    for status in ("False", "Unknown"):
        for kind in NEEDED:
            verdict = verdicts[kind]
            if verdict.status == status and not reasons_of(kind)[verdict.reason].harmless:
                return Verdict(verdict.status, verdict.reason, f"{kind}: {verdict.message}")
    known = [kind for kind in NEEDED if verdicts[kind].status == "True"]
    return _ready("AllConditionsTrue", f"{', '.join(known)} are True.")
