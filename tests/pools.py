"""Pools for tests, as a user writes them."""

from copy import deepcopy
from typing import Any

from kvcachepool.api import KVCachePool
from kvcachepool.api.parse import Invalid, parse_pool

MOONCAKE: dict[str, Any] = {
    "apiVersion": "kvcachepool.io/v1alpha1",
    "kind": "KVCachePool",
    "metadata": {"name": "demo", "namespace": "team-a", "uid": "0f8e", "generation": 1},
    "spec": {"model": {"id": "org/model", "revision": "r1"}, "backend": {"mooncake": {"version": "0.3.13.post1"}}},
}
NATIVE: dict[str, Any] = {
    "apiVersion": "kvcachepool.io/v1alpha1",
    "kind": "KVCachePool",
    "metadata": {"name": "solo", "namespace": "team-a", "uid": "77aa", "generation": 1},
    "spec": {"model": {"id": "org/model"}, "backend": {"native": {}}, "engines": {"replicas": 1}},
}


def merged(base: dict[str, Any], change: dict[str, Any]) -> dict[str, Any]:
    """`base` with `change` laid over it, recursively; a None removes."""
    result = deepcopy(base)
    for key, value in change.items():
        if value is None:
            result.pop(key, None)
        elif isinstance(value, dict) and isinstance(result.get(key), dict):
            result[key] = merged(result[key], value)
        else:
            result[key] = deepcopy(value)
    return result


def raw(spec: dict[str, Any] | None = None, *, base: dict[str, Any] = MOONCAKE, **metadata: Any) -> dict[str, Any]:
    """The object with changes to its spec and metadata."""
    return merged(base, {"spec": spec or {}, "metadata": metadata})


def pool(spec: dict[str, Any] | None = None, *, base: dict[str, Any] = MOONCAKE, **metadata: Any) -> KVCachePool:
    """The parsed pool; fails when it is invalid."""
    parsed = parse_pool(raw(spec, base=base, **metadata))
    assert isinstance(parsed, KVCachePool), parsed
    return parsed


def invalid(spec: dict[str, Any], *, base: dict[str, Any] = MOONCAKE) -> list[str]:
    """The messages for a spec that must not parse."""
    parsed = parse_pool(raw(spec, base=base))
    assert isinstance(parsed, Invalid), "parsed, but should be refused"
    assert {finding.reason for finding in parsed.findings} == {"InvalidSpec"}
    return [finding.message for finding in parsed.findings]
