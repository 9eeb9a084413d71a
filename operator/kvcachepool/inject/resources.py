"""Memory of the cache, and devices and networks of the engine."""

from typing import Any

from kvcachepool.api import KVCachePool
from kvcachepool.backends.base import EngineParts
from kvcachepool.inject.refusal import InjectionRefusedError
from kvcachepool.quantity import format_bytes, parse_bytes
from kvcachepool.render.memory import MemoryNeed
from kvcachepool.render.network import host_network, network_annotations, network_devices
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
    """(resources, devices added). A container that asks for a GPU of any kind, by resource or by claim, keeps what it
    asks for: how an engine is spread over pods is the user's choice. Network devices are added where there are none."""
    device, network = pool.spec.engines.gpu.resource_name, network_devices(pool)
    there = {name for kind in ("requests", "limits") for name in resources.get(kind) or ()}
    added = {name: str(count) for name, count in network.items() if name not in there}
    if device and not resources.get("claims") and not any("/" in name for name in there - network.keys()):
        added[device] = str(pool.spec.ranks_per_pod)
    if not added:
        return dict(resources), {}
    return {**resources, **{kind: {**(resources.get(kind) or {}), **added} for kind in ("requests", "limits")}}, added


def join_networks(metadata: Json, spec: Json, container: Json, pool: KVCachePool) -> None:
    """Secondary networks or the node's, and the right to lock memory, for a pool over RDMA. Raises
    InjectionRefusedError."""
    annotations = metadata.setdefault("annotations", {})
    for name, wanted in network_annotations(pool).items():
        if annotations.setdefault(name, wanted) != wanted:
            raise InjectionRefusedError(
                f"annotation {name} is {annotations[name]}, the pool has {wanted}. Remove it, it is added"
            )
    if host_network(pool):
        # an unset policy is ClusterFirst, with which names of Services do not resolve on the node's network
        policy = spec.get("dnsPolicy", "ClusterFirst")
        spec |= host_network(pool) | ({"dnsPolicy": policy} if policy != "ClusterFirst" else {})
    if pool.spec.transport.active_rdma is not None:
        security = container.setdefault("securityContext", {})
        capabilities = security.setdefault("capabilities", {})
        there = capabilities.get("add") or []
        capabilities["add"] = [*there, *(["IPC_LOCK"] if "IPC_LOCK" not in there else [])]
