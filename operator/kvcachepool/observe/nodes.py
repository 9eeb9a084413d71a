"""Raw nodes as facts. Pure, and tolerant of any missing or malformed part."""

from collections.abc import Mapping
from decimal import Decimal
from typing import Any, Final

from kvcachepool.facts import NodeFacts, Object, Taint
from kvcachepool.quantity import parse_amount

_KEEPS_AWAY: Final = frozenset({"NoSchedule", "NoExecute"})
_LIFECYCLE: Final = "node.kubernetes.io/"
"""Taints of this prefix follow from the node's state (cordoned, not ready, under pressure) and come and go with it."""


def node_facts(raw: Object) -> NodeFacts:
    """A node. One without a Ready condition counts as not ready, as for the scheduler's taints."""
    metadata, spec, status = _dict(raw, "metadata"), _dict(raw, "spec"), _dict(raw, "status")
    ready = next((c.get("status") for c in _dicts(status, "conditions") if c.get("type") == "Ready"), "")
    return NodeFacts(
        name=str(metadata.get("name", "")),
        labels={str(k): v for k, v in _dict(metadata, "labels").items() if isinstance(v, str)},
        taints=tuple(
            Taint(str(t.get("key", "")), str(t.get("value") or ""), str(t["effect"]))
            for t in _dicts(spec, "taints")
            if t.get("effect") in _KEEPS_AWAY and not str(t.get("key", "")).startswith(_LIFECYCLE)
        ),
        allocatable=_amounts(_dict(status, "allocatable")),
        ready=ready == "True",
        cordoned=spec.get("unschedulable") is True,
    )


def _amounts(values: Mapping[str, Any]) -> Mapping[str, Decimal]:
    amounts = {}
    for name, value in values.items():
        try:
            amounts[str(name)] = parse_amount(value)
        except ValueError:
            continue  # a resource whose amount cannot be read is as good as not there
    return amounts


def _dict(raw: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = raw.get(key)
    return value if isinstance(value, Mapping) else {}


def _dicts(raw: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
    value = raw.get(key)
    return [item for item in value if isinstance(item, Mapping)] if isinstance(value, list | tuple) else []
