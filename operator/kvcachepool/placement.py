"""The pods of a pool against the nodes of the cluster, before any engine is made. Pure.

Which build the engines get, whether a node fits them, and whether one fits the store's pods.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from kvcachepool import constants
from kvcachepool.api import KVCachePool
from kvcachepool.api.pods import Scheduling
from kvcachepool.backends.base import EngineParts
from kvcachepool.facts import Observed
from kvcachepool.hardware.build import Build, builds, needs_cuda
from kvcachepool.hardware.match import Candidate, Choice, HardwareMatch, fit, match_engines
from kvcachepool.hardware.need import Need, pod_requests
from kvcachepool.render.deployment import Workload
from kvcachepool.render.engine import engine_need
from kvcachepool.render.pod import from_registry
from kvcachepool.settings import Settings

_PLACED = tuple(field.alias for field in Scheduling.model_fields.values())


def match_hardware(
    pool: KVCachePool,
    parts: EngineParts,
    workloads: Sequence[Workload],
    observed: Observed,
    settings: Settings,
    *,
    current: str,
) -> HardwareMatch:
    """Expects a pool without findings about its build. `current` is the name of the engines' workload."""
    base = engine_need(pool, parts)
    candidates = [_candidate(pool, base, build, observed, settings) for build in builds(pool, observed.tables)]
    engine = match_engines(
        candidates,
        observed.nodes,
        running=_running(current, observed),
        hosting=_hosts(observed, constants.ENGINE),
        one_product=needs_cuda(pool) and pool.spec.schema_.attention_backend is None,
    )
    chosen = next(c for c in candidates if c.cuda == engine.choice.cuda)
    others = () if observed.nodes is None else tuple(
        fit(_need_of(pool, workload), observed.nodes, _hosts(observed, workload.component)) for workload in workloads
    )  # fmt: skip
    return HardwareMatch(
        engine,
        replace(chosen.need, product=engine.choice.product or chosen.need.product),
        others,
        None if observed.nodes is None else len(observed.nodes),
    )


def _candidate(pool: KVCachePool, base: Need, build: Build, observed: Observed, settings: Settings) -> Candidate:
    need = replace(
        base,
        cuda=observed.tables.cuda(build.cuda.major) if build.cuda is not None else None,
        forward_compat=pool.spec.cuda.allow_forward_compat,
    )
    image = from_registry(settings, build.image) if build.own else build.image
    return Candidate(need, image, str(build.cuda.major) if build.cuda is not None else "")


def _running(current: str, observed: Observed) -> Choice | None:
    """What an earlier pass chose for the engines that exist; for those of a new schema, what the former ones have."""
    engines = [w.name for w in observed.workloads_of(constants.ENGINE)]
    wanted = (current, *reversed(engines))
    found = (observed.children.get((kind, name)) for name in wanted for kind in ("Deployment", "LeaderWorkerSet"))
    live = next((workload for workload in found if workload is not None), None)
    if live is None:
        return None
    annotations: Mapping[str, Any] = live["metadata"].get("annotations") or {}
    return Choice("", annotations.get(constants.ANNOTATION_CUDA, ""), annotations.get(constants.ANNOTATION_PRODUCT, ""))


def _hosts(observed: Observed, component: str) -> frozenset[str]:
    return frozenset(pod.node for pod in observed.members(component) if pod.node)


def _need_of(pool: KVCachePool, workload: Workload) -> Need:
    """Read off the rendered pod; RDMA is told apart from other devices by its name."""
    rdma = pool.spec.transport.active_rdma
    requests = pod_requests(workload.pod_spec)
    return Need(
        workload.component,
        requests,
        Scheduling.model_validate({name: workload.pod_spec[name] for name in _PLACED if name in workload.pod_spec}),
        rdma=rdma.resource_name if rdma is not None and rdma.resource_name in requests else "",
    )
