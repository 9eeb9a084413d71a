"""From a pool and what is seen of it to the objects to apply. Pure.

The algorithm:
1. Check the spec. Any finding means: apply nothing, the user must act.
2. Render the store's workloads and services, and the engines' service.
3. Choose the engines' build and product by the nodes (`placement`). Without a node that fits, engines are not made,
   and those that exist are not moved to a template that could run nowhere.
4. Render the engines once everything the spec refers to exists and the master's RPC port answers (its pod is ready).
   Engines that exist stay, whatever the master does: a dead master means recompute, not fewer engines.
5. For each workload keep the running template unless the user's spec asks for another (`render.rollout`).
6. A restart of the master waits for approval, and with it what must not happen without it (`approval`).
7. Members with a segment go one at a time, by what the master has seen (`leaving`).
8. Engines of a former schema move to the present one step by step (`generations`).
9. Users' own pods that have the schema stand behind the Service, too (`membership`).
10. Children that are no longer wanted go once the engines have moved on from them.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Final

from kvcachepool import constants
from kvcachepool.api import KVCachePool
from kvcachepool.approval import eviction_approved, index_lives, restart_by_edit, restart_by_eviction
from kvcachepool.backends.base import Backend, EngineParts
from kvcachepool.backends.registry import backend_of
from kvcachepool.checks.engine_flags import check_env, check_extra_args
from kvcachepool.checks.engine_resources import check_engine_resources
from kvcachepool.checks.hugepages import check_hugepages
from kvcachepool.checks.lora import check_lora
from kvcachepool.checks.scheduling import check_scheduling
from kvcachepool.facts import Observed, PodFacts
from kvcachepool.findings import Finding
from kvcachepool.generations import Generation, Step, generations, next_step, resized
from kvcachepool.hardware.build import check_build
from kvcachepool.hardware.match import HardwareMatch
from kvcachepool.leaving import obstacle, rolled, scaled
from kvcachepool.membership import Expected, Member, members
from kvcachepool.placement import match_hardware
from kvcachepool.plan_types import MasterRestart, Plan
from kvcachepool.ports import engine_port
from kvcachepool.render.deployment import Workload, deployment, workload_name
from kvcachepool.render.disruption import disruption_budget
from kvcachepool.render.engine import engine_env, engine_memory, engine_workload
from kvcachepool.render.leader_worker_set import leader_worker_set
from kvcachepool.render.members import ENGINES_SERVICE, listed, member_slices
from kvcachepool.render.network_policy import KIND as NETWORK_POLICY
from kvcachepool.render.network_policy import network_policies
from kvcachepool.render.rollout import as_it_runs, keep_running, other_template
from kvcachepool.render.service import service
from kvcachepool.schema import CacheSchema
from kvcachepool.schema.declared import schema_from_texts
from kvcachepool.settings import Settings
from kvcachepool.stranded import next_to_restart

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
    workloads = list(backend.workloads(pool, settings))
    beside = _beside(pool, workloads, observed)
    waiting = _waiting(parts, observed, current, external=pool.store.master.external is not None)
    hardware = match_hardware(pool, parts, workloads, observed, settings, digest=schema.digest)
    deployments, outdated, steps = list(beside.deployments), list(beside.outdated), list(beside.steps)
    live: Mapping[str, Any] | None = None
    if waiting is None:
        workload = engine_workload(pool, settings, schema, parts, need=hardware.need, choice=hardware.engine.choice)
        final, live, kept = _kept(pool, workload, observed)
        replaces = live is not None and other_template(final, live)
        if _waits_for_master(beside.held, replaces=replaces, moves=live is None and bool(formers)):
            waiting = Finding(
                "PendingMasterRestart", "engines change once the restart of the master is approved (see StoreReady)"
            )
        elif _held(pool, hardware, new=live is None or replaces or (current.drained and not formers)):
            mixed = hardware.engine.mixed
            until = "it is said which of the GPUs they get (see HardwareMatched)" if mixed else "a node fits them"
            waiting = Finding("WaitingForNodes", f"engines are made, or changed, once {until}")
        else:
            waits = _engine_obstacle(pool, observed)
            steps += [waits] if waits else []
            step = _one_at_a_time(_step(pool, current, formers, replaces=replaces), current, formers, waits)
            deployments += [*_formers(observed, formers, step), _engines(final, live, observed, step, waits)]
            outdated += [constants.ENGINE] if kept else []
    if waiting is not None:
        deployments += _as_they_run(pool, observed, current, formers)
    settings_reported = _engine_settings(schema)
    name = pool.spec.model.served_name or pool.spec.model.id
    in_force = _in_force(pool, schema, current, formers) if waiting is not None else schema
    joined = members(Expected(in_force, _engine_settings(in_force), name), observed)
    routed = _routed(joined, observed)
    services = [*backend.services(pool), _engine_service(pool), *member_slices(pool, routed)]
    policies = network_policies(pool, settings, [workload.component for workload in workloads])
    objects = (*policies, *services, *_budgets(pool, workloads, observed), *deployments)
    drained = {former.name for former in formers if former.drained}
    settled = live is not None and _settled(observed, current)  # a workload of the wanted kind: both have one name
    moved_on = waiting is None and len(drained) == len(formers) and settled
    return Plan(
        schema,
        objects=tuple(obj for obj in objects if obj["metadata"]["name"] not in drained),
        prune=tuple(_unwanted(objects, observed, drained, all_of_them=moved_on)),
        waiting=waiting,
        hardware=hardware,
        held=beside.held or (restart_by_eviction(pool, observed) if workloads else None),
        steps=tuple(steps),
        evict=_to_evict(pool, observed) if waiting is None and not formers and not steps else (),
        outdated=tuple(outdated),
        expected_segments=segments,
        segment_bytes=segment_bytes,
        members=joined,
        routed=frozenset(pod.uid for pod in routed),
        expected_engine_settings=settings_reported,
    )


@dataclass(slots=True)
class _Beside:
    """Master and store: what to apply of them now."""

    deployments: list[Json] = field(default_factory=list)
    outdated: list[str] = field(default_factory=list)
    held: MasterRestart | None = None
    steps: list[str] = field(default_factory=list)


def _beside(pool: KVCachePool, workloads: Sequence[Workload], observed: Observed) -> _Beside:
    """The master comes first among `workloads`: what of the others changes together with it waits for it, too, so that
    the cache is lost once and versions never differ."""
    result = _Beside()
    for workload in workloads:
        final, live, kept = _kept(pool, workload, observed)
        if workload.component == constants.MASTER:
            result.held = restart_by_edit(pool, observed, final, live)
        stays = result.held is not None and live is not None and other_template(final, live)
        applied = as_it_runs(final["kind"], live, final["spec"]["replicas"]) if stays and live is not None else final
        if workload.component == constants.STORE:
            pods = observed.members(constants.STORE)
            waits = obstacle(observed, pods) if index_lives(pool, observed) else ""
            result.steps += [waits] if waits else []
            applied = _stepped(applied, live, observed, final["spec"]["replicas"], waits)
        result.deployments.append(applied)
        result.outdated += [workload.component] if kept else []
    return result


def _stepped(desired: Json, live: Mapping[str, Any] | None, observed: Observed, wanted: int, waits: str) -> Json:
    """A Deployment whose pods have segments, with what may happen to it now."""
    name, digest = desired["metadata"]["name"], desired["metadata"]["labels"].get(constants.LABEL_SCHEMA, "")
    component = desired["metadata"]["labels"][constants.LABEL_COMPONENT]
    present = sum(pod.owned and pod.digest == digest for pod in observed.members(component))
    replicas = scaled(wanted, live, present, waits)
    workload = observed.workloads.get(name)
    replaces = live is not None and (
        other_template(desired, live) or (workload is not None and workload.updated < workload.replicas)
    )
    full = live is not None and present >= live["spec"].get("replicas", 1)
    spec = {name: value for name, value in desired["spec"].items() if name != "paused"}
    desired = desired | {"spec": spec | {"replicas": replicas}}
    return rolled(desired, replaces=replaces, full=full, waits=waits)


def _kept(pool: KVCachePool, workload: Workload, observed: Observed) -> tuple[Json, Mapping[str, Any] | None, bool]:
    """(what to apply, the live one, whether an older operator's template is kept)."""
    desired = _rendered(pool, workload)
    live = observed.children.get((desired["kind"], desired["metadata"]["name"]))
    final, kept = keep_running(desired, live)
    return final, live, kept


def _waits_for_master(held: MasterRestart | None, *, replaces: bool, moves: bool) -> bool:
    """Engines of another store version than the master's, or that look for it elsewhere, would find no store."""
    return held is not None and held.clients and (replaces or moves)


def _to_evict(pool: KVCachePool, observed: Observed) -> tuple[tuple[str, str], ...]:
    pod = next_to_restart(pool, observed)
    return () if pod is None else ((pod.name, pod.uid),)


def _engine_obstacle(pool: KVCachePool, observed: Observed) -> str:
    """Engines that lend memory themselves go one at a time, too."""
    if pool.spec.backend.mooncake is None or pool.store.mode != "Embedded" or not index_lives(pool, observed):
        return ""
    return obstacle(observed, (*observed.members(constants.ENGINE), *observed.members(constants.WORKER)))


def _one_at_a_time(step: Step, current: Generation, formers: Sequence[Generation], waits: str) -> Step:
    """`step` without fewer engines anywhere, while one that left is still in the master's list."""
    if not waits:
        return step
    kept = {f.name: max(step.formers.get(f.name, 0), min(f.replicas, f.present)) for f in formers}
    return Step(max(step.current, current.replicas) if formers else step.current, kept)


def _budgets(pool: KVCachePool, workloads: Sequence[Workload], observed: Observed) -> list[Json]:
    """The master leaves its node when that was approved; others one at a time. Masters that stand by are not ready and
    so may always go, but count as unavailable: the one that leads may only go when all may."""
    may_go = {workload.component: 1 for workload in workloads} | {constants.ENGINE: 1}
    for workload in workloads:
        if workload.component == constants.MASTER:
            may_go[constants.MASTER] = workload.replicas if eviction_approved(pool, observed) else 0
    return [disruption_budget(pool, component, unavailable=count) for component, count in may_go.items()]


def _engine_service(pool: KVCachePool) -> Json:
    return service(pool, constants.ENGINE, ENGINES_SERVICE, {"http": (constants.ENGINE_PORT, engine_port(pool))})


def _held(pool: KVCachePool, hardware: HardwareMatch, *, new: bool) -> bool:
    """Whether engines must wait for a node; all generations stay as they are then. A change that makes or replaces no
    pod of the current one, such as of replicas or of the move's next step, need not wait. Which of several GPUs to
    take is no question to an autoscaler."""
    engines = pool.spec.engines
    waits = engines.when_no_node_fits == "Wait" or bool(hardware.engine.mixed)
    return new and engines.replicas > 0 and not hardware.engine.placeable and waits


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
        check_scheduling(pool),
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


def _as_they_run(
    pool: KVCachePool, observed: Observed, current: Generation, formers: Sequence[Generation]
) -> list[Json]:
    """Engines of all generations while something is waited for: their templates stay, their number may change."""
    engines, waits = pool.spec.engines, _engine_obstacle(pool, observed)
    step = _one_at_a_time(resized(engines.replicas, engines.max_surge, current, formers), current, formers, waits)
    here = [
        _engines(as_it_runs(kind, live, step.current), live, observed, step, waits)
        for kind in constants.ENGINE_KINDS
        if (live := observed.children.get((kind, current.name))) is not None
    ]
    return [*_formers(observed, formers, step), *here]


def _in_force(
    pool: KVCachePool, schema: CacheSchema, current: Generation, formers: Sequence[Generation]
) -> CacheSchema:
    """The schema that members have while engines wait to move to `schema`: that of the engines there are."""
    serving = {former.digest for former in formers if not former.drained}
    if current.replicas or not serving:
        return schema
    known = (schema_from_texts(entry.fields) for entry in pool.status.schema_.admitted if entry.digest in serving)
    return next((former for former in known if former.digest in serving), schema)


def _formers(observed: Observed, formers: Sequence[Generation], step: Step) -> list[Json]:
    """Workloads of former generations with as many engines as the step says; they come first and make room."""
    return [
        as_it_runs(kind, observed.children[kind, former.name], step.formers[former.name])
        for former in formers
        for kind in constants.ENGINE_KINDS
        if (kind, former.name) in observed.children
    ]


def _engines(desired: Json, live: Mapping[str, Any] | None, observed: Observed, step: Step, waits: str) -> Json:
    """The current generation's; those that lend memory go one at a time."""
    if desired["kind"] != "Deployment" or not desired["spec"].get("minReadySeconds"):
        return desired | {"spec": desired["spec"] | {"replicas": step.current}}
    return _stepped(desired, live, observed, step.current, waits)


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
