"""What would help where no node fits: only what the nodes at hand show to help, each with its field."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Final

from kvcachepool.api import KVCachePool
from kvcachepool.compat.tables import Tables
from kvcachepool.facts import NodeFacts
from kvcachepool.hardware import labels
from kvcachepool.hardware.build import asked_cuda, own_builds
from kvcachepool.hardware.match import Fit
from kvcachepool.hardware.need import Need
from kvcachepool.hardware.stages import STAGES

_COMPATIBLE: Final = tuple(stage for stage in STAGES if stage.reason == "NoCompatibleDriver")
"""The GPU, then its driver."""


def for_driver(pool: KVCachePool, fit: Fit, nodes: Sequence[NodeFacts], tables: Tables) -> Iterator[str]:
    """Of NoCompatibleDriver: half-sentences, the plainest first."""
    need = fit.need
    names = {name for objection, name in fit.excluded if STAGES[objection.stage] in _COMPATIBLE}
    there = [node for node in nodes if node.name in names]
    gpu, _ = _COMPATIBLE
    right_gpu = any(gpu.found(need, node) is None for node in there)
    yield f"update the driver to {need.min_driver} or newer" if right_gpu else "use nodes with newer GPUs"
    older = next(
        (major for major in _older(pool, need, tables) if _helps(replace(need, cuda=tables.cuda(major)), there)), None
    )
    if older is not None and pool.spec.engines.image is not None:
        yield f"use an image for CUDA {older} (spec.engines.image)"
    elif older is not None:
        yield f"choose CUDA {older} ({asked_cuda(pool)[1]})"
    data_center = [node for node in there if tables.data_center(labels.product(node.labels))]
    if not need.forward_compat and _helps(replace(need, forward_compat=True), data_center):
        yield "set spec.cuda.allowForwardCompat, if the image holds the cuda-compat package"


def _older(pool: KVCachePool, need: Need, tables: Tables) -> Iterable[int]:
    """Major versions before that of the build, the newest first: those of the operator's builds, or with an image of
    the user's all that are known."""
    if pool.spec.engines.image is None:
        known = {cuda.major for _, cuda in own_builds(pool, tables)}
    else:
        known = {row.major for row in tables.cuda_versions}
    newest = need.cuda.major if need.cuda is not None else 0
    return sorted((major for major in known if major < newest and tables.cuda(major) is not None), reverse=True)


def _helps(need: Need, nodes: Iterable[NodeFacts]) -> bool:
    return any(all(stage.found(need, node) is None for stage in _COMPATIBLE) for node in nodes)
