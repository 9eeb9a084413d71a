"""What the operator adds to the engines' placement, so that pods made later meet only nodes that fit, too.

It says of product, compute capability and driver what stages.py says of them. It follows from build and product alone,
never from the nodes that exist: a node that comes or goes changes no pod.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from kvcachepool.api.pods import Scheduling, Toleration
from kvcachepool.hardware import labels
from kvcachepool.hardware.need import Need
from kvcachepool.hardware.placement import required_terms

Json = dict[str, Any]
_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"


def with_tolerations(scheduling: Scheduling, devices: Iterable[str]) -> Scheduling:
    """With tolerations of taints that are named after a requested device, as the admission plugin
    ExtendedResourceToleration adds them where it is on."""
    given = list(scheduling.tolerations or ())
    wanted = [Toleration(key=name, operator="Exists", effect="NoSchedule") for name in devices]
    added = [toleration for toleration in wanted if toleration not in given]
    return scheduling.model_copy(update={"tolerations": [*given, *added]}) if added else scheduling


def with_affinity(scheduling: Scheduling, need: Need) -> Scheduling:
    """With a required affinity to nodes of the product, and with a GPU and a driver that are new enough."""
    alternatives = [[*_product(need), *gpu, *driver] for gpu in _capabilities(need) for driver in _drivers(need)]
    if not any(alternatives):
        return scheduling
    return scheduling.model_copy(update={"affinity": _merged(scheduling.affinity, alternatives)})


def _product(need: Need) -> list[Json]:
    return [_expression(labels.PRODUCT, "In", need.product)] if need.product else []


def _capabilities(need: Need) -> list[list[Json]]:
    """Ways in which a GPU may be good: none of the majors that are too old, or new enough within the oldest one. A node
    without the label passes NotIn, so that this makes two alternatives at most, each of which multiplies the terms."""
    major, minor = need.cuda.capability if need.cuda is not None else (0, 0)
    major_label, minor_label = labels.CAPABILITY
    older = [str(number) for number in range(major + 1 if minor else major)]
    ways = [[_expression(major_label, "NotIn", *older)] if older else []]
    if minor:
        within = _expression(minor_label, "Gt", str(minor - 1))
        ways.append([_expression(major_label, "In", str(major)), within])
    return ways


def _drivers(need: Need) -> list[list[Json]]:
    """Ways in which a node may be good: by the new label, by the old one, or by having neither."""
    if not need.min_driver:
        return [[]]
    newer = str(need.min_driver - 1)
    known = [[_expression(name, "Gt", newer)] for name in labels.DRIVER_MAJOR]
    return [*known, [{"key": name, "operator": "DoesNotExist"} for name in labels.DRIVER_MAJOR]]


def _expression(key: str, operator: str, *values: str) -> Json:
    return {"key": key, "operator": operator, "values": list(values)}


def _merged(affinity: Mapping[str, Any] | None, alternatives: list[list[Json]]) -> Json:
    """Every term of the user combined with every alternative, since one of the terms must hold."""
    merged = dict(affinity or {})
    node = dict(merged.get("nodeAffinity") or {})
    terms = required_terms(affinity)
    if terms is not None:
        terms = [term for term in terms if term]  # an empty one holds for no node, and must not begin to
    node[_REQUIRED] = {
        "nodeSelectorTerms": [
            {**term, "matchExpressions": [*(term.get("matchExpressions") or ()), *extra]}
            for term in (({},) if terms is None else terms)
            for extra in alternatives
        ]
    }
    merged["nodeAffinity"] = node
    return merged
