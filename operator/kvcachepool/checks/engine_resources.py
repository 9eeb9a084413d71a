"""Resources of the engine container."""

from collections.abc import Iterable

from kvcachepool.api import KVCachePool
from kvcachepool.checks.memory import check_limit
from kvcachepool.findings import Finding
from kvcachepool.render.memory import MemoryNeed


def check_engine_resources(pool: KVCachePool, need: MemoryNeed) -> Iterable[Finding]:
    """Memory against the need; devices against the schema's parallelism."""
    engines = pool.spec.engines
    yield from check_limit("spec.engines.resources", engines.resources, need)
    device, world = engines.gpu.resource_name, pool.spec.ranks_per_pod
    for kind, values in (("limits", engines.resources.limits), ("requests", engines.resources.requests)):
        if device and device in values and values[device] != str(world):
            field = f"spec.engines.resources.{kind}"
            yield Finding(
                "InvalidSpec",
                f"{field}: found {values[device]} of {device}, expected {world}, the product of tensor, pipeline and "
                "prefillContext in spec.schema.parallelism; remove it, the operator sets it",
                field,
            )
