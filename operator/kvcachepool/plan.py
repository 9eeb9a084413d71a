"""From a pool and what is seen of it to the objects to apply. Pure.

The algorithm:
1. Check the spec. Any finding means: apply nothing, the user must act.
2. Render the store's workloads and services, and the engines' service.
3. Render the engines once everything the spec refers to exists and the master's RPC port answers (its pod is ready).
   Engines that exist stay, whatever the master does: a dead master means recompute, not fewer engines.
4. For each workload keep the running template unless the user's spec asks for another (`render.rollout`).
5. Children that are no longer wanted go once the engines have moved on from them.
"""

from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Any

from kvcachepool import constants
from kvcachepool.api import KVCachePool
from kvcachepool.backends.base import Backend, EngineParts
from kvcachepool.backends.registry import backend_of
from kvcachepool.checks.engine_flags import check_env, check_extra_args
from kvcachepool.checks.engine_resources import check_engine_resources
from kvcachepool.checks.lora import check_lora
from kvcachepool.facts import Observed
from kvcachepool.findings import Finding
from kvcachepool.plan_types import Plan
from kvcachepool.render.deployment import deployment
from kvcachepool.render.engine import engine_env, engine_memory, engine_workload
from kvcachepool.render.rollout import keep_running
from kvcachepool.render.service import service
from kvcachepool.schema import CacheSchema
from kvcachepool.settings import Settings


def make_plan(pool: KVCachePool, observed: Observed, settings: Settings) -> Plan:
    """The plan of one pass."""
    backend = backend_of(pool)
    schema = backend.schema(pool)
    parts = backend.engine(pool, schema.digest)
    segments, segment_bytes = backend.segments(pool)
    findings = tuple(_findings(pool, backend, schema, parts))
    if findings:
        return Plan(schema, findings=findings)

    waiting = _waiting(parts, observed)
    workloads = list(backend.workloads(pool, settings))
    if waiting is None:
        workloads.append(engine_workload(pool, settings, schema, parts))
    deployments, outdated = [], []
    for workload in workloads:
        desired = deployment(pool, workload)
        final, kept = keep_running(desired, observed.children.get(("Deployment", desired["metadata"]["name"])))
        deployments.append(final)
        if kept:
            outdated.append(workload.component)
    services = [
        *backend.services(pool),
        service(pool, constants.ENGINE, "engines", {"http": constants.ENGINE_PORT}),
    ]
    objects = (*services, *deployments)
    return Plan(
        schema,
        objects=objects,
        prune=tuple(_unwanted(objects, observed)) if waiting is None and _engines_settled(observed) else (),
        waiting=waiting,
        outdated=tuple(outdated),
        expected_segments=segments,
        segment_bytes=segment_bytes,
        expected_engine_settings=_engine_settings(schema),
    )


def _findings(pool: KVCachePool, backend: Backend, schema: CacheSchema, parts: EngineParts) -> Iterator[Finding]:
    rendered = {
        variable["name"]: variable.get("value")
        for variable in engine_env(pool.model_copy(update={"spec": _without_env(pool)}), schema, parts)
    }
    yield from chain(
        backend.check(pool),
        check_extra_args(pool),
        check_lora(pool.spec.schema_.lora, schema.get("connector")),
        check_env(pool, rendered),
        check_engine_resources(pool, engine_memory(pool, parts)),
    )


def _without_env(pool: KVCachePool) -> Any:
    return pool.spec.model_copy(update={"engines": pool.spec.engines.model_copy(update={"env": []})})


def _waiting(parts: EngineParts, observed: Observed) -> Finding | None:
    """Why engines are not made yet. No device is held while the store starts, or for a Secret that is not there."""
    if constants.ENGINE in observed.workloads:
        return None
    if observed.missing:
        names = ", ".join(sorted(f"{kind} {name}" for _, kind, name in observed.missing))
        return Finding("NotAccepted", f"engines start once {names} can be found")
    if parts.wait_for is None:
        return None
    if any(pod.ready for pod in observed.members(constants.MASTER)):
        return None
    host, port = parts.wait_for
    return Finding("WaitingForMaster", f"engines start once {host}:{port} accepts connections")


def _engines_settled(observed: Observed) -> bool:
    workload = observed.workloads.get(constants.ENGINE)
    return workload is not None and workload.settled


def _unwanted(objects: tuple[Mapping[str, Any], ...], observed: Observed) -> Iterator[tuple[str, str]]:
    wanted = {(obj["kind"], obj["metadata"]["name"]) for obj in objects}
    return (key for key in sorted(observed.children) if key not in wanted)


def _engine_settings(schema: CacheSchema) -> dict[str, str]:
    """Labels of `vllm:cache_config_info` that must read so. `auto` is resolved by the engine and not compared here."""
    settings = {
        "block_size": str(schema.get("blockSize")),
        "prefix_caching_hash_algo": str(schema.get("hashAlgorithm")),
        "enable_prefix_caching": "True",
    }
    if schema.get("kvCacheDtype") != "auto":
        settings["cache_dtype"] = str(schema.get("kvCacheDtype"))
    return settings
