"""Node selectors, node affinity and taints, as the scheduler reads them.

Source: kubernetes.io, "Assigning Pods to Nodes" and "Taints and Tolerations"; k8s.io/component-helpers
scheduling/corev1/nodeaffinity.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from kvcachepool.api.pods import Scheduling, Toleration
from kvcachepool.facts import NodeFacts, Taint

Terms = Sequence[Mapping[str, Any]]


def mismatch(scheduling: Scheduling, node: NodeFacts) -> str:
    """What of the node's labels does not fit the selector or the required affinity; "" when all does."""
    for key, value in (scheduling.node_selector or {}).items():
        if node.labels.get(key) != value:
            return f"{key}={node.labels[key]}" if key in node.labels else f"no label {key}"
    terms = required_terms(scheduling.affinity)
    if terms is None or any(_term(term, node) for term in terms):
        return ""
    keys = sorted({str(e.get("key", "")) for term in terms for e in _list(term, "matchExpressions")})
    found = ", ".join(f"{key}={node.labels[key]}" if key in node.labels else f"no label {key}" for key in keys)
    return found or "no term of the required node affinity"


def required_terms(affinity: Mapping[str, Any] | None) -> Terms | None:
    """The terms of the required node affinity, of which one must hold; None when nothing is required."""
    node_affinity = (affinity or {}).get("nodeAffinity")
    if not isinstance(node_affinity, Mapping):
        return None
    required = node_affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    return _list(required, "nodeSelectorTerms") if isinstance(required, Mapping) else None


def untolerated(tolerations: Sequence[Toleration], node: NodeFacts) -> Taint | None:
    """The first taint that no toleration covers."""
    return next((taint for taint in node.taints if not any(_tolerates(t, taint) for t in tolerations)), None)


def _term(term: Mapping[str, Any], node: NodeFacts) -> bool:
    """A term without any requirement matches nothing."""
    labels, fields = _list(term, "matchExpressions"), _list(term, "matchFields")
    if not labels and not fields:
        return False
    return all(_requirement(e, node.labels) for e in labels) and all(
        _requirement(e, {"metadata.name": node.name}) for e in fields
    )


def _requirement(expression: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    found = labels.get(str(expression.get("key", "")))
    given = expression.get("values")
    values = [str(value) for value in given] if isinstance(given, list) else []
    holds = _OPERATORS.get(str(expression.get("operator")))
    return holds is not None and holds(found, values)  # the API server refuses any other operator


def _more(found: str | None, values: Sequence[str], sign: int = 1) -> bool:
    try:
        return found is not None and len(values) == 1 and sign * (int(found) - int(values[0])) > 0
    except ValueError:
        return False


_OPERATORS: Final[Mapping[str, Callable[[str | None, Sequence[str]], bool]]] = {
    "In": lambda found, values: found in values,
    "NotIn": lambda found, values: found not in values,
    "Exists": lambda found, _: found is not None,
    "DoesNotExist": lambda found, _: found is None,
    "Gt": _more,
    "Lt": lambda found, values: _more(found, values, -1),
}


def _tolerates(toleration: Toleration, taint: Taint) -> bool:
    if toleration.effect not in (None, taint.effect):
        return False
    if toleration.key not in (None, "", taint.key):
        return False
    operator, value = toleration.operator or "Equal", toleration.value or ""
    if operator == "Exists":
        return True
    if operator == "Equal":
        return bool(toleration.key) and value == taint.value
    return _OPERATORS[operator](taint.value, [value])  # Gt, Lt: of the taint's value against the toleration's


def _list(raw: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
    value = raw.get(key)
    return [item for item in value if isinstance(item, Mapping)] if isinstance(value, list) else []
