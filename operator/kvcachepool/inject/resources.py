"""Memory of the cache and devices of the engine."""

from typing import Any

from kvcachepool.api import KVCachePool
from kvcachepool.backends.base import EngineParts
from kvcachepool.inject.refusal import InjectionRefusedError
from kvcachepool.quantity import format_bytes, parse_bytes
from kvcachepool.render.memory import MemoryNeed
from kvcachepool.schema.member import Object

Json = dict[str, Any]


def with_memory(resources: Object, parts: EngineParts) -> tuple[Json, int]:
    """(resources, bytes added): what the cache needs comes on top of what the user gave the engine. Without a request
    or limit the need becomes the request."""
    need = MemoryNeed(parts.memory).total
    result = {kind: dict(values) for kind, values in resources.items() if kind in ("requests", "limits")}
    if not need:
        return {**resources, **result}, 0
    for kind, values in result.items():
        if "memory" in values:
            try:
                values["memory"] = format_bytes(parse_bytes(str(values["memory"])) + need)
            except ValueError as error:
                raise InjectionRefusedError(f"resources.{kind}.memory: {error}") from error
    if not any("memory" in values for values in result.values()):
        result.setdefault("requests", {})["memory"] = format_bytes(need)
    return {**resources, **result}, need


def with_devices(resources: Object, pool: KVCachePool) -> tuple[Json, dict[str, str]]:
    """(resources, devices added). A container that asks for any device, by resource or by claim, is left as it is: how
    an engine is spread over pods is the user's choice."""
    device = pool.spec.engines.gpu.resource_name
    asked = any("/" in name for kind in ("requests", "limits") for name in resources.get(kind) or ())
    if not device or asked or resources.get("claims"):
        return dict(resources), {}
    added = {device: str(pool.spec.schema_.parallelism.world_size)}
    return {**resources, **{kind: {**(resources.get(kind) or {}), **added} for kind in ("requests", "limits")}}, added
