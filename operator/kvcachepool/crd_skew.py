"""An operator that is newer than the CRD: status fields that the API server does not know.

`helm upgrade` without the chart's CRD option leaves the old CRD in place (openvox-operator#555). A server-side apply
with an unknown field is then refused as a whole, so such fields are left out, and it is said what to do.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

_UNDECLARED: Final = re.compile(
    r"\.status((?:\.[A-Za-z][A-Za-z0-9]*)+)(?:\[[^]]*\][^:]*)?: field not declared in schema"
)

REMEDY: Final = (
    "the CRD is older than the operator; apply crds/ of this version or upgrade the chart with crds.install=true"
)

Path = tuple[str, ...]


def undeclared_field(message: str) -> Path | None:
    """The field of `status` that the API server's sentence names, or None when it says something else.

    Of a field inside a list item the whole list is named: half a list would be wrong.
    """
    found = _UNDECLARED.search(message)
    return tuple(found[1].lstrip(".").split(".")) if found else None


def without(status: Mapping[str, Any], paths: Iterable[Path]) -> dict[str, Any]:
    """`status` without those fields."""
    result = dict(status)
    for path in paths:
        head, *rest = path
        if not rest:
            result.pop(head, None)
        elif isinstance(result.get(head), Mapping):
            result[head] = without(result[head], [tuple(rest)])
    return result
