"""From a pool and what is seen of it to the objects to apply. Pure.

The algorithm:
1. Check the spec. Any finding means: apply nothing, the user must act.
2. Render the store's workloads and services, and the engines' service.
3. Choose the engines' build and product by the nodes (`placement`). Without a node that fits, engines are not made,
   and those that exist are not moved to a template that could run nowhere.
4. Render the engines once everything the spec refers to exists and the master's RPC port answers (its pod is ready).
   Engines that exist stay, whatever the master does: a dead master means recompute, not fewer engines.
5. For each workload keep the running template unless the user's spec asks for another (`render.rollout`).
6. Children that are no longer wanted go once the engines have moved on from them.
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
from kvcachepool.checks.hugepages import check_hugepages
from kvcachepool.checks.lora import check_lora
from kvcachepool.facts import Observed
from kvcachepool.findings import Finding
from kvcachepool.hardware.build import check_build
from kvcachepool.hardware.match import HardwareMatch
from kvcachepool.placement import match_hardware
from kvcachepool.plan_types import Plan
from kvcachepool.ports import engine_port
from kvcachepool.render.deployment import Workload, deployment
from kvcachepool.render.engine import engine_env, engine_memory, engine_workload
from kvcachepool.render.leader_worker_set import leader_worker_set
from kvcachepool.render.rollout import keep_running, templates
from kvcachepool.render.service import service
from kvcachepool.schema import CacheSchema
from kvcachepool.settings import Settings

Json = dict[str, Any]


def make_plan(pool: KVCachePool, observed: Observed, settings: Settings) -> Plan:
    """The plan of one pass."""
    backend = backend_of(pool)
    schema = backend.schema(pool)
    parts = backend.engine(pool, schema.digest)
    segments, segment_bytes = backend.segments(pool)
    findings = tuple(_findings(pool, backend, schema, parts, observed))
    if findings:
        return Plan(schema, findings=findings)

    waiting = _waiting(parts, observed)
    workloads = list(backend.workloads(pool, settings))
    hardware = match_hardware(pool, parts, workloads, observed, settings)
    if waiting is None:
        workloads.append(
            engine_workload(pool, settings, schema, parts, need=hardware.need, choice=hardware.engine.choice)
        )
    services = [*backend.services(pool), _engine_service(pool)]
    deployments, outdated = [], []
    for workload in workloads:
        desired = _rendered(pool, workload)
        live = observed.children.get((desired["kind"], desired["metadata"]["name"]))
        final, kept = keep_running(desired, live)
        if workload.component == constants.ENGINE and _held(pool, hardware, final, live):
            waiting = Finding("WaitingForNodes", "engines are made, or changed, once a node fits them")
            continue
        deployments.append(final)
        if kept:
            outdated.append(workload.component)
    objects = (*services, *deployments)
    return Plan(
        schema,
        objects=objects,
        prune=tuple(_unwanted(objects, observed)) if waiting is None and _engines_settled(observed) else (),
        waiting=waiting,
        hardware=hardware,
        outdated=tuple(outdated),
        expected_segments=segments,
        segment_bytes=segment_bytes,
        expected_engine_settings=_engine_settings(schema),
    )


def _engine_service(pool: KVCachePool) -> Json:
    return service(pool, constants.ENGINE, "engines", {"http": (constants.ENGINE_PORT, engine_port(pool))})


def _held(pool: KVCachePool, hardware: HardwareMatch, desired: Json, live: Mapping[str, Any] | None) -> bool:
    """Whether engines must wait for a node. A change that replaces no pod, such as of replicas, need not."""
    if hardware.engine.placeable or pool.spec.engines.when_no_node_fits == "Create":
        return False
    return live is None or templates(desired) != templates(live)


def _rendered(pool: KVCachePool, workload: Workload) -> Json:
    over_nodes = workload.component == constants.ENGINE and pool.spec.engines.nodes_per_engine > 1
    return leader_worker_set(pool, workload) if over_nodes else deployment(pool, workload)


def _findings(
    pool: KVCachePool, backend: Backend, schema: CacheSchema, parts: EngineParts, observed: Observed
) -> Iterator[Finding]:
    rendered = {
        variable["name"]: variable.get("value")
        for variable in engine_env(pool.model_copy(update={"spec": _without_env(pool)}), schema, parts)
    }
    yield from chain(
        backend.check(pool),
        check_build(pool, observed.tables),
        check_hugepages(pool),
        _check_nodes(pool, observed),
        check_extra_args(pool),
        check_lora(pool.spec.schema_.lora, schema.get("connector")),
        check_env(pool, rendered),
        check_engine_resources(pool, engine_memory(pool, parts)),
    )


def _check_nodes(pool: KVCachePool, observed: Observed) -> Iterator[Finding]:
    nodes, field = pool.spec.engines.nodes_per_engine, "spec.engines.nodesPerEngine"
    if nodes > 1 and not observed.leader_worker_sets:
        yield Finding(
            "InvalidSpec",
            f"{field}: found {nodes}, but the cluster does not serve LeaderWorkerSet (leaderworkerset.x-k8s.io/v1), "
            "which an engine over several nodes needs: install it, or keep the engine on one node",
            field,
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
