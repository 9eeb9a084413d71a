"""What the API server would refuse of a node selector or an affinity, told before it is asked. Pure.

An affinity is anybody's JSON: the CRD leaves its fields alone. Source: Kubernetes 1.36, `pkg/apis/core/validation`
(ValidateNodeSelector, ValidateNodeSelectorRequirement, ValidateNodeFieldSelectorRequirement,
ValidatePreferredSchedulingTerms) and `apimachinery/pkg/api/validate/content`.
"""

import re
from collections.abc import Generator, Iterator, Mapping
from typing import Any, Final

from kvcachepool.api.pods import Scheduling

Json = Mapping[str, Any]
Fault = tuple[str, str]
"""(path below the scheduling, what was found and what is expected)."""

_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"
_AT_LEAST_ONE: Final = "at least one value"
_ONE: Final = "exactly one value"
_NONE: Final = "no value"
_OF_LABELS: Final[Mapping[str, str]] = {
    "In": _AT_LEAST_ONE,
    "NotIn": _AT_LEAST_ONE,
    "Exists": _NONE,
    "DoesNotExist": _NONE,
    "Gt": _ONE,
    "Lt": _ONE,
}
"""Operators, and how many values they take."""
_OF_FIELDS: Final[Mapping[str, str]] = {"In": _ONE, "NotIn": _ONE}
_SHOWN: Final = 64
"""Characters of a value in a message."""

_NAME: Final = r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
_LABEL: Final = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_DOMAIN: Final = rf"{_LABEL}(\.{_LABEL})*"
_KEY: Final = re.compile(rf"((?=[^/]{{1,253}}/){_DOMAIN}/)?{_NAME}")
_VALUE: Final = re.compile(rf"({_NAME})?")
_NODE: Final = re.compile(rf"(?=.{{1,253}}\Z){_DOMAIN}")


def node_faults(scheduling: Scheduling) -> Iterator[Fault]:
    """Of what says on which nodes pods may run: the node selector and the required node affinity."""
    for key, value in (scheduling.node_selector or {}).items():
        if not _KEY.fullmatch(key):
            yield "nodeSelector", f"found the key {_show(key)}, expected the key of a label"
        if not _VALUE.fullmatch(value):
            yield f"nodeSelector.{_cut(key)}", f"found {_show(value)}, expected the value of a label"
    path = "affinity.nodeAffinity"
    node = yield from _object(path, (scheduling.affinity or {}).get("nodeAffinity"))
    path = f"{path}.{_REQUIRED}"
    if node.get(_REQUIRED) is None:
        return
    required = yield from _object(path, node[_REQUIRED])
    path = f"{path}.nodeSelectorTerms"
    if isinstance(node[_REQUIRED], Mapping) and required.get("nodeSelectorTerms") in (None, []):
        yield path, "found none, expected at least one term"
    for where, term in (yield from _objects(path, required.get("nodeSelectorTerms"))):
        yield from _term(where, term)


def faults(scheduling: Scheduling) -> Iterator[Fault]:
    """Of all of it. Of the affinity between pods the shape only: nobody here reads more."""
    yield from node_faults(scheduling)
    affinity = scheduling.affinity or {}
    node = affinity.get("nodeAffinity")
    path = f"affinity.nodeAffinity.{_PREFERRED}"
    preferred = node.get(_PREFERRED) if isinstance(node, Mapping) else None
    for where, weighed in (yield from _objects(path, preferred)):
        term = yield from _object(f"{where}.preference", weighed.get("preference"))
        yield from _term(f"{where}.preference", term, any_value=True)  # as the API server does
    for part in ("podAffinity", "podAntiAffinity"):
        given = yield from _object(f"affinity.{part}", affinity.get(part))
        for kind in (_REQUIRED, _PREFERRED):
            yield from _objects(f"affinity.{part}.{kind}", given.get(kind))


def _term(path: str, term: Json, *, any_value: bool = False) -> Iterator[Fault]:
    yield from _unknown(path, term, ("matchExpressions", "matchFields"))
    for where, found in (yield from _objects(f"{path}.matchExpressions", term.get("matchExpressions"))):
        yield from _requirement(where, found, _OF_LABELS)
        if not (isinstance(found.get("key"), str) and _KEY.fullmatch(found["key"])):
            yield f"{where}.key", f"found {_show(found.get('key'))}, expected the key of a label"
        for value in _texts(found):
            if not any_value and not _VALUE.fullmatch(value):
                yield f"{where}.values", f"found {_show(value)}, expected the value of a label"
    for where, found in (yield from _objects(f"{path}.matchFields", term.get("matchFields"))):
        yield from _requirement(where, found, _OF_FIELDS)
        if found.get("key") != "metadata.name":
            yield f"{where}.key", f"found {_show(found.get('key'))}, expected metadata.name"
        for value in _texts(found):
            if not _NODE.fullmatch(value):
                yield f"{where}.values", f"found {_show(value)}, expected the name of a node"


def _requirement(path: str, found: Json, operators: Mapping[str, str]) -> Iterator[Fault]:
    yield from _unknown(path, found, ("key", "operator", "values"))
    operator, values = found.get("operator"), found.get("values")
    if values is not None and not (isinstance(values, list) and all(isinstance(value, str) for value in values)):
        yield f"{path}.values", f"found {_show(values)}, expected a list of texts"
    if not isinstance(operator, str) or operator not in operators:
        yield f"{path}.operator", f"found {_show(operator)}, expected one of {', '.join(operators)}"
        return
    count, expected = len(values) if isinstance(values, list) else 0, operators[operator]
    if (expected == _ONE and count != 1) or (expected == _NONE and count) or (expected == _AT_LEAST_ONE and not count):
        yield f"{path}.values", f"found {count or 'none'}, expected {expected} with operator {operator}"


def _texts(found: Json) -> list[str]:
    values = found.get("values")
    return [value for value in values if isinstance(value, str)] if isinstance(values, list) else []


def _unknown(path: str, found: Json, known: tuple[str, ...]) -> Iterator[Fault]:
    """The API server takes no object with a field that it does not know."""
    for name in sorted(found.keys() - set(known)):
        yield path, f"found the field {_show(name)}, expected {' and '.join(known)} only"


def _object(path: str, value: Any) -> Generator[Fault, None, Json]:
    """The object that is there; an empty one where there is none."""
    if value is None or isinstance(value, Mapping):
        return value or {}
    yield path, f"found {_show(value)}, expected an object"
    return {}


def _objects(path: str, value: Any) -> Generator[Fault, None, list[tuple[str, Json]]]:
    """The objects of a list, each with its path."""
    if value is not None and not isinstance(value, list):
        yield path, f"found {_show(value)}, expected a list of objects"
        return []
    found = []
    for index, item in enumerate(value or ()):
        where = f"{path}[{index}]"
        if isinstance(item, Mapping):
            found.append((where, item))
        else:
            yield where, f"found {_show(item)}, expected an object"
    return found


def _show(value: Any) -> str:
    if value is None:
        return "none"
    return f"a value of type {type(value).__name__}" if isinstance(value, Mapping | list) else _cut(repr(value))


def _cut(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
