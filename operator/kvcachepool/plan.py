"""From a pool and what is seen of it to the objects to apply. Pure.

The algorithm:
1. Check the spec. Any finding means: apply nothing, the user must act.
2. Render the store's workloads and services, and the engines' service.
3. Render the engines once everything the spec refers to exists and the master's RPC port answers (its pod is ready).
   Engines that exist stay, whatever the master does: a dead master means recompute, not fewer engines.
4. For each workload keep the running template unless the user's spec asks for another (`render.rollout`).
5. Engines of a former schema move to the present one step by step (`generations`).
6. Users' own pods that have the schema stand behind the Service, too (`membership`).
7. Children that are no longer wanted go once the engines have moved on from them.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

from kvcachepool import constants
from kvcachepool.api import KVCachePool
from kvcachepool.backends.base import Backend, EngineParts
from kvcachepool.backends.registry import backend_of
from kvcachepool.checks.engine_flags import check_env, check_extra_args
from kvcachepool.checks.engine_resources import check_engine_resources
from kvcachepool.checks.lora import check_lora
from kvcachepool.facts import Observed, PodFacts
from kvcachepool.findings import Finding
from kvcachepool.generations import Generation, Step, generations, next_step
from kvcachepool.membership import Expected, Member, members
from kvcachepool.plan_types import Plan
from kvcachepool.render.deployment import deployment, workload_name
from kvcachepool.render.engine import engine_env, engine_memory, engine_workload
from kvcachepool.render.members import ENGINES_SERVICE, listed, member_slices
from kvcachepool.render.rollout import as_it_runs, keep_running, other_template
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
    findings = tuple(_findings(pool, backend, schema, parts))
    if findings:
        return Plan(schema, findings=findings)

    current, formers = generations(observed, workload_name(pool, constants.ENGINE, schema.digest))
    waiting = _waiting(parts, observed, current)
    workloads = list(backend.workloads(pool, settings))
    if waiting is None:
        workloads.append(engine_workload(pool, settings, schema, parts))
    deployments: list[Json] = []
    outdated = []
    for workload in workloads:
        desired = deployment(pool, workload)
        live = observed.children.get(("Deployment", desired["metadata"]["name"]))
        final, kept = keep_running(desired, live)
        if workload.component == constants.ENGINE:
            replaces = live is not None and other_template(final, live)
            deployments += _moved(final, observed, formers, _step(pool, current, formers, replaces=replaces))
        else:
            deployments.append(final)
        if kept:
            outdated.append(workload.component)
    settings_reported = _engine_settings(schema)
    name = pool.spec.model.served_name or pool.spec.model.id
    joined = members(Expected(schema, settings_reported, name), observed)
    routed = _routed(joined, observed)
    services = [
        *backend.services(pool),
        service(pool, constants.ENGINE, ENGINES_SERVICE, {"http": constants.ENGINE_PORT}),
        *member_slices(pool, routed),
    ]
    objects = (*services, *deployments)
    drained = {former.name for former in formers if former.drained}
    moved_on = waiting is None and len(drained) == len(formers) and _settled(observed, current)
    return Plan(
        schema,
        objects=tuple(obj for obj in objects if obj["metadata"]["name"] not in drained),
        prune=tuple(_unwanted(objects, observed, drained, all_of_them=moved_on)),
        waiting=waiting,
        outdated=tuple(outdated),
        expected_segments=segments,
        segment_bytes=segment_bytes,
        members=joined,
        routed=frozenset(pod.uid for pod in routed),
        expected_engine_settings=settings_reported,
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


def _step(pool: KVCachePool, current: Generation, formers: Sequence[Generation], *, replaces: bool) -> Step:
    """How many engines each generation gets. A pass that replaces pods of the current one moves none."""
    engines = pool.spec.engines
    if replaces and formers:
        return Step(min(current.replicas, engines.replicas), {former.name: former.replicas for former in formers})
    return next_step(engines.replicas, engines.max_surge, current, formers)


def _moved(desired: Json, observed: Observed, formers: Sequence[Generation], step: Step) -> list[Json]:
    """The engines' Deployments with as many engines as the step says, former ones first: they make room."""
    found = [(former.name, observed.children.get(("Deployment", former.name))) for former in formers]
    rest = [as_it_runs(live, step.formers[name]) for name, live in found if live is not None]
    return [*rest, desired | {"spec": desired["spec"] | {"replicas": step.current}}]


def _waiting(parts: EngineParts, observed: Observed, current: Generation) -> Finding | None:
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
    host, port = parts.wait_for
    return Finding("WaitingForMaster", f"engines start once {host}:{port} accepts connections")


def _settled(observed: Observed, current: Generation) -> bool:
    workload = observed.workloads.get(current.name)
    return workload is not None and workload.settled


def _unwanted(
    objects: Sequence[Mapping[str, Any]], observed: Observed, drained: Collection[str], *, all_of_them: bool
) -> Iterator[tuple[str, str]]:
    """Former generations without engines and lists of members without members, and the rest once engines have moved on
    from it."""
    wanted = {(obj["kind"], obj["metadata"]["name"]) for obj in objects}
    for kind, name in sorted(observed.children):
        empty = kind == "Deployment" and name in drained
        if empty or ((all_of_them or kind == "EndpointSlice") and (kind, name) not in wanted):
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
