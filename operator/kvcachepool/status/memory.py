"""The arithmetic behind an OOM kill."""

from kvcachepool import constants
from kvcachepool.backends.registry import backend_of
from kvcachepool.quantity import human_bytes
from kvcachepool.render.engine import engine_memory
from kvcachepool.render.rollout import templates
from kvcachepool.status.context import Context


def oom_arithmetic(context: Context, component: str) -> str:
    """Limit, need and what to change, as one or two sentences."""
    pool, limit = context.pool, _limit(context, component)
    against = f"Its memory limit is {limit}" if limit else "It has no memory limit of its own, so the node ran out"
    if component == constants.ENGINE:
        need = engine_memory(pool, backend_of(pool).engine(pool, context.digest))
        return (
            f"{against}; it needs at least {need}. "
            "Raise spec.engines.resources.limits.memory, or spec.engines.engineMemory if the engine itself takes more."
        )
    blocks = human_bytes(context.plan.segment_bytes * context.plan.expected_segments)
    if component == constants.MASTER:
        return (
            f"The index is lost, and with it the pool's content. {against}; its need grows with the blocks, here "
            f"of {pool.spec.schema_.block_size} tokens in {context.plan.expected_segments} segments, {blocks} in all. "
            "Raise spec.store.master.resources.limits.memory, or spec.schema.blockSize."
        )
    segment, buffer = human_bytes(context.plan.segment_bytes), pool.store.local_buffer_size
    return (
        f"The blocks in its segment are lost. {against}; it needs more than segment {segment} + buffer {buffer}. "
        "Raise spec.store.resources.limits.memory, or lower spec.store.segmentSize."
    )


def _limit(context: Context, component: str) -> str:
    """The memory limit of the component's main container, as it is applied."""
    planned = context.planned(component)
    if planned is None:
        return ""
    containers = next(iter(templates(planned).values()))["spec"]["containers"]
    limits = (containers[0].get("resources") or {}).get("limits") or {}
    return str(limits.get("memory", ""))
