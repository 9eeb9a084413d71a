"""From the object as the API server sent it to a typed pool, or to what is wrong with it.

The CRD refuses most of this already; it is checked again because an object may be older than its CRD.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from kvcachepool.api.pool import KVCachePool, Metadata
from kvcachepool.api.status import PoolStatus
from kvcachepool.findings import Finding

_MAX_SHOWN = 80
_MAX_FINDINGS = 10
_MAX_MESSAGE = 1000
_MAX_PATH = 200


@dataclass(frozen=True, slots=True)
class Invalid:
    """A pool whose spec cannot be understood; its children are left as they are."""

    metadata: Metadata
    status: PoolStatus
    findings: tuple[Finding, ...]


def parse_pool(raw: Mapping[str, Any]) -> KVCachePool | Invalid:
    """Never raises for anything a user can write in spec or an older operator wrote in status."""
    metadata = Metadata.model_validate(raw["metadata"])
    status = parse_status(raw.get("status"))
    try:
        return KVCachePool.model_validate({"metadata": metadata, "spec": raw.get("spec") or {}, "status": status})
    except ValidationError as error:
        return Invalid(metadata, status, _findings(error))


def parse_status(raw: Any) -> PoolStatus:
    """An unreadable status is of no use to anybody; it is made anew from what is seen."""
    try:
        return PoolStatus.model_validate(raw or {})
    except ValidationError:
        return PoolStatus()


def _findings(error: ValidationError) -> tuple[Finding, ...]:
    details = sorted(error.errors(include_url=False), key=lambda d: ".".join(str(part) for part in d["loc"]))
    return tuple(_finding(detail) for detail in details[:_MAX_FINDINGS])


def _finding(detail: ErrorDetails) -> Finding:
    path = _path(detail["loc"])
    found = detail["input"]
    if detail["type"] == "missing":
        message = f"{path} is required, found none"
    elif detail["type"] == "extra_forbidden":
        message = f"{path} is not a field of this API version; remove it or correct its name"
    elif detail["type"] == "value_error":
        message = f"{path}: {detail['msg'].removeprefix('Value error, ')}"
    else:
        message = f"{path}: found {_show(found, path)}; {detail['msg'][:1].lower()}{detail['msg'][1:]}"
    return Finding("InvalidSpec", message if len(message) <= _MAX_MESSAGE else f"{message[:_MAX_MESSAGE]}…", path)


def _path(location: tuple[int | str, ...]) -> str:
    path = ""
    for part in location:
        path += f"[{part}]" if isinstance(part, int) else f".{part}"
    path = path.lstrip(".") or "spec"
    return path if len(path) <= _MAX_PATH else f"{path[:_MAX_PATH]}…"


def _show(value: Any, path: str) -> str:
    """The value for a message; never where a secret may have been pasted: values of variables, flags, and in place of
    the name of a Secret."""
    if any(part in path.lower() for part in (".env[", ".extraargs", "secret")) or isinstance(value, Mapping | list):
        return f"a value of type {type(value).__name__}"
    text = repr(value)
    return text if len(text) <= _MAX_SHOWN else text[:_MAX_SHOWN] + "…"
