"""What every pod of a pool has in common: identity, confinement, placement, scratch space."""

from collections.abc import Sequence
from typing import Any

from kvcachepool.api import KVCachePool
from kvcachepool.api.pods import PodIdentity, Resources, Scheduling
from kvcachepool.quantity import format_bytes
from kvcachepool.render.memory import MemoryNeed
from kvcachepool.settings import Settings

Json = dict[str, Any]

CONTAINER_SECURITY: Json = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
}
"""Passes the `restricted` Pod Security profile together with the pod's own context."""

SCRATCH_VOLUME: Json = {"name": "tmp", "emptyDir": {}}
SCRATCH_MOUNT: Json = {"name": "tmp", "mountPath": "/tmp"}  # noqa: S108 - the container's own


def pod_spec(
    pool: KVCachePool,
    settings: Settings,
    *,
    containers: Sequence[Json],
    init_containers: Sequence[Json] = (),
    volumes: Sequence[Json] = (),
    identity: PodIdentity,
    scheduling: Scheduling,
    grace_seconds: int,
    extra: Json | None = None,
) -> Json:
    """A pod spec; `extra` has more fields of it. Service links are off: a Service called `vllm` would set
    VLLM_PORT=tcp://… and kill the engine (vllm#34199)."""
    placed = scheduling.over(pool.spec.scheduling)
    secrets = dict.fromkeys((*(s.name for s in pool.spec.image_pull_secrets), *settings.image_pull_secrets))
    security: Json = {
        "runAsNonRoot": identity.run_as_user != 0,
        "runAsUser": identity.run_as_user,
        "runAsGroup": identity.run_as_group,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    if identity.fs_group is not None:
        security["fsGroup"] = identity.fs_group
    spec: Json = {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": grace_seconds,
        "securityContext": security,
        "volumes": [SCRATCH_VOLUME, *volumes],
        "containers": list(containers),
    }
    if init_containers:
        spec["initContainers"] = list(init_containers)
    if secrets:
        spec["imagePullSecrets"] = [{"name": name} for name in secrets]
    return spec | (extra or {}) | placed.model_dump(by_alias=True, exclude_none=True)


def resources(given: Resources, need: MemoryNeed, devices: dict[str, int] | None = None) -> Json:
    """The user's resources, with the computed memory request where none was given, and the devices."""
    requests: Json = dict(given.requests)
    limits: Json = dict(given.limits)
    if "memory" not in requests:
        requests["memory"] = limits.get("memory", format_bytes(need.total))
    for name in [name for name in (requests | limits) if name.startswith("hugepages-")]:
        requests[name] = limits[name] = limits.get(name, requests.get(name))  # Kubernetes wants them equal
    for name, count in (devices or {}).items():
        requests[name] = limits[name] = str(count)
    result: Json = {"requests": requests}
    if limits:
        result["limits"] = limits
    return result


def env(name: str, value: str) -> Json:
    """A literal environment variable."""
    return {"name": name, "value": value}


def env_field(name: str, path: str) -> Json:
    """An environment variable from the pod's own fields (downward API)."""
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}


def image(settings: Settings, repository: str, tag: str) -> str:
    """A default image; the installation's registry goes in front."""
    return from_registry(settings, f"{repository}:{tag}")


def from_registry(settings: Settings, name: str) -> str:
    """One of the operator's own images with the installation's registry in front."""
    prefix = f"{settings.image_registry.rstrip('/')}/" if settings.image_registry else ""
    return f"{prefix}{name}"
