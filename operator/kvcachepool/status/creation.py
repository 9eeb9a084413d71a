"""Why objects or pods could not be created: the API server's own sentence, sorted into reasons."""

from typing import Final

from kvcachepool import constants, names
from kvcachepool.render.deployment import workload_name
from kvcachepool.status.context import Context
from kvcachepool.status.text import quote, sentence
from kvcachepool.status.verdict import Check, Say, Verdict

_RETRIED: Final = frozenset({408, 409, 429})
"""HTTP statuses that say: not now."""


def creation_check(say: Say, *components: str, rest: bool = False) -> Check:
    """A check of what could not be applied or created for these components.

    With `rest` it also answers for children of no component, such as Services and ConfigMaps.
    """

    def check(context: Context) -> Verdict | None:
        for child, status, told in sorted(context.observed.apply_errors):
            owner = _component(context, child)
            if owner in components or (rest and not owner):
                return _refused(say, child, status, told)
        for component in components:
            for workload in context.observed.workloads_of(component):
                failure = workload.create_failure
                if failure and not context.settled(component):
                    return say(_reason(failure), _message(failure, f"Pods of {workload.name} are"))
        return None

    return check


def _component(context: Context, child: str) -> str:
    """The component of a child that is named `Kind/name` or `name`; empty for the engines' Service and the like."""
    name = child.rpartition("/")[2]
    for component in (constants.MASTER, constants.STORE):
        if name == names.child(context.pool.metadata.name, component):
            return component
    engines = {w.name for w in context.observed.workloads_of(constants.ENGINE)}
    current = workload_name(context.pool, constants.ENGINE, context.digest)
    return constants.ENGINE if name in engines | {current} else ""


def _refused(say: Say, child: str, status: int, told: str) -> Verdict:
    if "not controlled by this pool" in told:
        return say("NameTaken", sentence(quote(told)))
    if status in _RETRIED or not 400 <= status < 500:
        code = f" (HTTP {status})" if status else ""
        return say("ApplyFailed", f"{child} could not be applied{code}: {sentence(quote(told))}")
    return say(_reason(told), _message(told, f"{child} is"))


def _reason(told: str) -> str:
    if "exceeded quota" in told:
        return "QuotaExceeded"
    if "violates PodSecurity" in told or "security context constraint" in told:
        return "PodSecurityForbidden"
    return "AdmissionDenied"


def _message(told: str, what: str) -> str:
    return f"{what} refused. The API server says: {sentence(quote(told, 450))}"
