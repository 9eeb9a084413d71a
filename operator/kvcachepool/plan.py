"""From a pool and what is seen of it to the objects to apply. Pure.

The algorithm:
1. Check the spec. Any finding means: apply nothing, the user must act.
2. Render the store's workloads and services, and the engines' service.
3. Choose the engines' build and product by the nodes (`placement`). Without a node that fits, engines are not made,
   and those that exist are not moved to a template that could run nowhere.
4. Render the engines once everything the spec refers to exists and the master's RPC port answers (its pod is ready).
   Engines that exist stay, whatever the master does: a dead master means recompute, not fewer engines.
5. For each workload keep the running template unless the user's spec asks for another (`render.rollout`).
6. Engines of a former schema move to the present one step by step (`generations`).
7. Users' own pods that have the schema stand behind the Service, too (`membership`).
8. Children that are no longer wanted go once the engines have moved on from them.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, Final

from kvcachepool import constants
from kvcachepool.api import KVCachePool
from kvcachepool.backends.base import Backend, EngineParts
from kvcachepool.backends.registry import backend_of
from kvcachepool.checks.engine_flags import check_env, check_extra_args
from kvcachepool.checks.engine_resources import check_engine_resources
from kvcachepool.checks.hugepages import check_hugepages
from kvcachepool.checks.lora import check_lora
from kvcachepool.facts import Observed, PodFacts
from kvcachepool.findings import Finding
from kvcachepool.generations import Generation, Step, generations, next_step
from kvcachepool.hardware.build import check_build
from kvcachepool.hardware.match import HardwareMatch
from kvcachepool.membership import Expected, Member, members
from kvcachepool.placement import match_hardware
from kvcachepool.plan_types import Plan
from kvcachepool.ports import engine_port
from kvcachepool.render.deployment import Workload, deployment, workload_name
from kvcachepool.render.engine import engine_env, engine_memory, engine_workload
from kvcachepool.render.leader_worker_set import leader_worker_set
from kvcachepool.render.members import ENGINES_SERVICE, listed, member_slices
from kvcachepool.render.network_policy import KIND as NETWORK_POLICY
from kvcachepool.render.network_policy import network_policies
from kvcachepool.render.rollout import as_it_runs, keep_running, other_template
from kvcachepool.render.service import service
from kvcachepool.schema import CacheSchema
from kvcachepool.settings import Settings

Json = dict[str, Any]
_FOLLOWS_AT_ONCE: Final = frozenset({"EndpointSlice", NETWORK_POLICY})
"""Kinds that no pod needs to go on: an unwanted one is deleted also while engines move."""


def make_plan(pool: KVCachePool, observed: Observed, settings: Settings) -> Plan:
    """The plan of one pass."""
    backend = backend_of(pool)
    schema = backend.schema(pool)
    parts = backend.engine(pool, schema.digest)
    segments, segment_bytes = backend.segments(pool)
    findings = tuple(_findings(pool, backend, schema, parts, observed))
    if findings:
        return Plan(schema, findings=findings)

    current, formers = generations(observed, workload_name(pool, constants.ENGINE, schema.digest))
    waiting = _waiting(parts, observed, current, external=pool.store.master.external is not None)
    workloads = list(backend.workloads(pool, settings))
    hardware = match_hardware(pool, parts, workloads, observed, settings, digest=schema.digest)
    if waiting is None:
        workloads.append(
            engine_workload(pool, settings, schema, parts, need=hardware.need, choice=hardware.engine.choice)
        )
    deployments: list[Json] = []
    outdated = []
    for workload in workloads:
        desired = _rendered(pool, workload)
        live = observed.children.get((desired["kind"], desired["metadata"]["name"]))
        final, kept = keep_running(desired, live)
        replaces = live is not None and other_template(final, live)
        if workload.component != constants.ENGINE:
            deployments.append(final)
        elif _held(pool, hardware, new=live is None or replaces):
            waiting = Finding("WaitingForNodes", "engines are made, or changed, once a node fits them")
            continue
        else:
            deployments += _moved(final, observed, formers, _step(pool, current, formers, replaces=replaces))
        if kept:
            outdated.append(workload.component)
    settings_reported = _engine_settings(schema)
    name = pool.spec.model.served_name or pool.spec.model.id
    joined = members(Expected(schema, settings_reported, name), observed)
    routed = _routed(joined, observed)
    services = [*backend.services(pool), _engine_service(pool), *member_slices(pool, routed)]
    beside = [workload.component for workload in workloads if workload.component != constants.ENGINE]
    objects = (*network_policies(pool, settings, beside), *services, *deployments)
    drained = {former.name for former in formers if former.drained}
    moved_on = waiting is None and len(drained) == len(formers) and _settled(observed, current)
    return Plan(
        schema,
        objects=tuple(obj for obj in objects if obj["metadata"]["name"] not in drained),
        prune=tuple(_unwanted(objects, observed, drained, all_of_them=moved_on)),
        waiting=waiting,
        hardware=hardware,
        outdated=tuple(outdated),
        expected_segments=segments,
        segment_bytes=segment_bytes,
        members=joined,
        routed=frozenset(pod.uid for pod in routed),
        expected_engine_settings=settings_reported,
    )


def _engine_service(pool: KVCachePool) -> Json:
    return service(pool, constants.ENGINE, ENGINES_SERVICE, {"http": (constants.ENGINE_PORT, engine_port(pool))})


def _held(pool: KVCachePool, hardware: HardwareMatch, *, new: bool) -> bool:
    """Whether engines must wait for a node; all generations stay as they are then. A change that makes or replaces no
    pod of the current one, such as of replicas or of the move's next step, need not wait."""
    return new and not hardware.engine.placeable and pool.spec.engines.when_no_node_fits == "Wait"


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


def _step(pool: KVCachePool, current: Generation, formers: Sequence[Generation], *, replaces: bool) -> Step:
    """How many engines each generation gets. A pass that replaces pods of the current one moves none."""
    engines = pool.spec.engines
    if replaces and formers:
        return Step(min(current.replicas, engines.replicas), {former.name: former.replicas for former in formers})
    return next_step(engines.replicas, engines.max_surge, current, formers)


def _moved(desired: Json, observed: Observed, formers: Sequence[Generation], step: Step) -> list[Json]:
    """The engines' workloads with as many engines as the step says, former ones first: they make room."""
    rest = [
        as_it_runs(kind, observed.children[kind, former.name], step.formers[former.name])
        for former in formers
        for kind in constants.ENGINE_KINDS
        if (kind, former.name) in observed.children
    ]
    return [*rest, desired | {"spec": desired["spec"] | {"replicas": step.current}}]


def _waiting(parts: EngineParts, observed: Observed, current: Generation, *, external: bool) -> Finding | None:
    """Why engines of this schema are not made yet. No device is held while the store starts, or for a Secret that is
    not there; engines of a former schema stay meanwhile."""
    if current.name in observed.workloads:
        return None
    if observed.missing:
        names = ", ".join(sorted(f"{kind} {name}" for _, kind, name in observed.missing))
        return Finding("NotAccepted", f"engines start once {names} can be found")
    if parts.wait_for is None:
        return None
    if any(pod.ready for pod in observed.members(constants.MASTER)):
        return None
    master = observed.master
    if external and master is not None and master.reachable and master.service_ready is not False:
        return None
    host, port = parts.wait_for
    return Finding("WaitingForMaster", f"engines start once {host}:{port} accepts connections")


def _settled(observed: Observed, current: Generation) -> bool:
    workload = observed.workloads.get(current.name)
    return workload is not None and workload.settled


def _unwanted(
    objects: Sequence[Mapping[str, Any]], observed: Observed, drained: Collection[str], *, all_of_them: bool
) -> Iterator[tuple[str, str]]:
    """Former generations without engines, lists of members without members and policies; the rest once engines
    have moved on from it."""
    wanted = {(obj["kind"], obj["metadata"]["name"]) for obj in objects}
    for kind, name in sorted(observed.children):
        empty = kind in constants.ENGINE_KINDS and name in drained
        if empty or ((all_of_them or kind in _FOLLOWS_AT_ONCE) and (kind, name) not in wanted):
            yield kind, name


def _routed(joined: Sequence[Member], observed: Observed) -> list[PodFacts]:
    """Members that get traffic: ready, and found alike. An engine whose settings cannot be read just now keeps its
    traffic, but does not get it so."""
    before = listed(live for (kind, _), live in observed.children.items() if kind == "EndpointSlice")
    return [m.pod for m in joined if m.shares and m.pod.ip and not m.obstacle and (m.reported or m.pod.uid in before)]


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
