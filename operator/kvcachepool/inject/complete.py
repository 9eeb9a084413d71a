"""One pod, completed. What is there already stays, so that completing it again changes nothing."""

import json
from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import Any, Final

from kvcachepool import constants
from kvcachepool.api import KVCachePool
from kvcachepool.backends.base import CONFIG_DIR, EngineParts
from kvcachepool.backends.registry import backend_of
from kvcachepool.inject.command import missing_flags
from kvcachepool.inject.environment import missing_variables
from kvcachepool.inject.refusal import InjectionRefusedError
from kvcachepool.inject.resources import join_networks, with_devices, with_memory
from kvcachepool.render.engine import shared_memory
from kvcachepool.render.files import file_annotations, files_volume
from kvcachepool.render.wait import wait_container
from kvcachepool.schema import CacheSchema
from kvcachepool.schema.member import Object, engine_containers

Json = dict[str, Any]
_VOLUME: Final = "kvcachepool-config"
_SHM_VOLUME: Final = "kvcachepool-shm"
_SHM: Final = "/dev/shm"  # noqa: S108 - the name of the mount


def complete(pod: Object, pool: KVCachePool) -> Json:
    """The pod as a member of the pool. Raises InjectionRefusedError."""
    backend = backend_of(pool)
    schema = backend.schema(pool)
    _check_ready(pool, schema)
    parts = backend.engine(pool, schema.digest)
    result: Json = deepcopy(dict(pod))
    metadata, spec = result["metadata"], result["spec"]
    container = _engine(result)
    record = _record(metadata)

    args = missing_flags(container, schema, parts)
    variables = missing_variables(container, schema, parts)
    if args:
        container["args"] = [*(container.get("args") or ()), *args]
    if variables:
        container["env"] = [*(container.get("env") or ()), *variables]
    _label(metadata, schema.digest)
    join_networks(metadata, spec, container, pool)
    if parts.files:
        _mount(metadata, spec, container, parts.files)
    if parts.wait_for is not None:
        _wait(spec, container, parts.wait_for)
    if parts.shared_memory:
        _shared_memory(spec, container, pool, parts)
    memory, devices = _resources(container, pool, parts, record)
    injected = {
        "pool": pool.metadata.name,
        "schema": schema.digest,
        "container": container["name"],
        "args": [*record.get("args", ()), *args],
        "env": [*record.get("env", ()), *(variable["name"] for variable in variables)],
        "memory": memory,
        "devices": devices,
    }
    metadata.setdefault("annotations", {})[constants.ANNOTATION_INJECTED] = json.dumps(injected, sort_keys=True)
    return result


def _check_ready(pool: KVCachePool, schema: CacheSchema) -> None:
    accepted = pool.status.condition("Accepted")
    name = pool.metadata.name
    # a pass that failed says nothing against the schema that is in force: pods go on to join
    if accepted is None or (accepted.status != "True" and accepted.reason != "InternalError"):
        why = f" ({accepted.reason}: {accepted.message})" if accepted is not None else ""
        raise InjectionRefusedError(f"pool {name} takes no members yet: its condition Accepted is not True{why}")
    if all(entry.digest != schema.digest for entry in pool.status.schema_.admitted):
        raise InjectionRefusedError(
            f"pool {name} takes no members yet: its schema {schema.digest} is not in force. It will be once the pool's "
            "engines are made; try again then"
        )


def _engine(pod: Json) -> Json:
    """The container to complete, of the copy that may be changed."""
    found: Sequence[Any] = engine_containers(pod)
    if len(found) == 1:
        container: Json = found[0]
        return container
    names = ", ".join(c["name"] for c in found or pod["spec"]["containers"])
    named = (pod["metadata"].get("annotations") or {}).get(constants.ANNOTATION_CONTAINER)
    what = (
        f"there is no container {named}"
        if named
        else "more than one container looks like an engine"
        if found
        else "none of the containers looks like an engine"
    )
    raise InjectionRefusedError(
        f"{what} (found {names}). Name the engine's container in the annotation {constants.ANNOTATION_CONTAINER}"
    )


def _record(metadata: Object) -> Mapping[str, Any]:
    """What an earlier call injected into this pod."""
    try:
        found = json.loads((metadata.get("annotations") or {}).get(constants.ANNOTATION_INJECTED, "{}"))
    except (ValueError, RecursionError):
        return {}
    found = found if isinstance(found, dict) else {}
    kinds = {"args": list, "env": list, "memory": int, "devices": dict}
    return {name: found[name] for name, kind in kinds.items() if isinstance(found.get(name), kind)}


def _label(metadata: Json, digest: str) -> None:
    labels = metadata.setdefault("labels", {})
    component = labels.get(constants.LABEL_COMPONENT)
    if component is not None:
        raise InjectionRefusedError(
            f"label {constants.LABEL_COMPONENT} is {component}, which only pods of the operator's own workloads have: "
            "the pool's Services would send requests to the pod, whatever it serves. Remove the label"
        )
    there = labels.get(constants.LABEL_SCHEMA, digest)
    if there != digest:
        raise InjectionRefusedError(
            f"label {constants.LABEL_SCHEMA} is {there}, the pool has {digest}. Remove the label, it is added"
        )
    labels[constants.LABEL_SCHEMA] = digest


def _mount(metadata: Json, spec: Json, container: Json, files: Mapping[str, str]) -> None:
    annotations = metadata.setdefault("annotations", {})
    annotations |= file_annotations(files)
    volume = files_volume(_VOLUME, files)
    mount = {"name": _VOLUME, "mountPath": CONFIG_DIR, "readOnly": True}
    mounts = container.setdefault("volumeMounts", [])
    taken = next((m for m in mounts if m["mountPath"].rstrip("/") == CONFIG_DIR and m["name"] != _VOLUME), None)
    if taken is not None:
        raise InjectionRefusedError(
            f"container {container['name']} mounts {taken['name']} at {CONFIG_DIR}, where the pool's configuration "
            "goes. Mount it elsewhere"
        )
    spec["volumes"] = [v for v in spec.get("volumes") or () if v["name"] != _VOLUME] + [volume]
    container["volumeMounts"] = [m for m in mounts if m["name"] != _VOLUME] + [mount]


def _shared_memory(spec: Json, container: Json, pool: KVCachePool, parts: EngineParts) -> None:
    """The runtime's own /dev/shm has 64 MiB. A mount that is there is the user's to size."""
    mounts = [m for m in container.get("volumeMounts") or () if m["name"] != _SHM_VOLUME]
    if any(m["mountPath"].rstrip("/") == _SHM for m in mounts):
        return
    container["volumeMounts"] = [*mounts, {"name": _SHM_VOLUME, "mountPath": _SHM}]
    volumes = [v for v in spec.get("volumes") or () if v["name"] != _SHM_VOLUME]
    spec["volumes"] = [*volumes, shared_memory(_SHM_VOLUME, pool, parts)]


def _wait(spec: Json, container: Json, address: tuple[str, int]) -> None:
    image: Json = {key: container[key] for key in ("image", "imagePullPolicy") if key in container}
    waiting = wait_container(image, *address)
    before = [c for c in spec.get("initContainers") or () if c["name"] != waiting["name"]]
    spec["initContainers"] = [*before, waiting]


def _resources(
    container: Json, pool: KVCachePool, parts: EngineParts, record: Mapping[str, Any]
) -> tuple[int, Mapping[str, str]]:
    """Memory is added once: an earlier call has recorded how much."""
    resources: Json = dict(container.get("resources") or {})
    memory = record.get("memory")
    if not isinstance(memory, int):
        resources, memory = with_memory(resources, parts)
    resources, devices = with_devices(resources, pool)
    if resources:
        container["resources"] = resources
    return memory, devices or record.get("devices", {})
