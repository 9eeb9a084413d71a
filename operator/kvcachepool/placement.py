"""The pods of a pool against the nodes of the cluster, before any engine is made. Pure.

Which build the engines get, whether a node fits them, and whether one fits the store's pods.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from kvcachepool import constants
from kvcachepool.api import KVCachePool
from kvcachepool.api.pods import Scheduling
from kvcachepool.backends.base import EngineParts
from kvcachepool.facts import Observed
from kvcachepool.hardware.build import Build, builds, needs_cuda
from kvcachepool.hardware.match import Candidate, Choice, EngineMatch, HardwareMatch, fit, match_engines
from kvcachepool.hardware.need import Need, pod_requests
from kvcachepool.render.deployment import Workload, workload_name
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
    digest: str,
) -> HardwareMatch:
    """`digest` is that of the engines' schema. Expects a pool without findings about its build."""
    base = engine_need(pool, parts)
    candidates = [_candidate(pool, base, build, observed, settings) for build in builds(pool, observed.tables)]
    engine = _match_generation(pool, digest, candidates, observed)
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


def _match_generation(
    pool: KVCachePool, digest: str, candidates: Sequence[Candidate], observed: Observed
) -> EngineMatch:
    """A generation that exists keeps its build and product. One that is new shares no block with a former one, so it
    takes the build and product of that where they fit, and any other where not."""
    own = _choice(observed, workload_name(pool, constants.ENGINE, digest))
    tried = [own] if own is not None else [*_former_choices(observed), None]
    hosting = _hosts(observed, constants.ENGINE, digest)
    one_product = needs_cuda(pool) and pool.spec.schema_.attention_backend is None
    for running in tried:
        found = match_engines(
            candidates,
            observed.nodes,
            running=running,
            hosting=hosting,
            one_product=one_product,
            pods=pool.spec.engines.nodes_per_engine,
        )
        if found.placeable:
            break
    return found


def _candidate(pool: KVCachePool, base: Need, build: Build, observed: Observed, settings: Settings) -> Candidate:
    need = replace(
        base,
        cuda=observed.tables.cuda(build.cuda.major) if build.cuda is not None else None,
        forward_compat=pool.spec.cuda.allow_forward_compat,
    )
    image = from_registry(settings, build.image) if build.own else build.image
    return Candidate(need, image, str(build.cuda.major) if build.cuda is not None else "")


def _choice(observed: Observed, name: str) -> Choice | None:
    """What an earlier pass chose for the engines of that workload; None where there is none."""
    found = (observed.children.get((kind, name)) for kind in constants.ENGINE_KINDS)
    live = next((workload for workload in found if workload is not None), None)
    if live is None:
        return None
    annotations: Mapping[str, Any] = live["metadata"].get("annotations") or {}
    return Choice("", annotations.get(constants.ANNOTATION_CUDA, ""), annotations.get(constants.ANNOTATION_PRODUCT, ""))


def _former_choices(observed: Observed) -> Iterator[Choice]:
    """What was chosen for the youngest former generation."""
    for former in observed.workloads_of(constants.ENGINE)[-1:]:
        choice = _choice(observed, former.name)
        if choice is not None:
            yield choice


def _hosts(observed: Observed, component: str, digest: str = "") -> frozenset[str]:
    """Nodes that run such a pod; of engines those of that generation, since a new one's have to be placed yet."""
    pods = observed.members(component)
    return frozenset(pod.node for pod in pods if pod.node and digest in ("", pod.digest))


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
