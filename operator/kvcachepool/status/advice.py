"""status.advice: whether another choice would serve this pool better, with its own numbers."""

from collections.abc import Callable, Sequence

from kvcachepool.constants import COMPATIBILITY_CONFIG_MAP
from kvcachepool.status.context import Context
from kvcachepool.status.master_memory import shortage
from kvcachepool.status.masters import no_successor
from kvcachepool.status.reuse import measured


def advice(context: Context) -> str:
    """The first advice that applies; "" when there is none."""
    return next((text for give in _ADVICE if (text := give(context))), "")


def _one_engine(context: Context) -> str:
    if not context.shared or context.desired != 1:
        return ""
    return (
        "With one engine nothing is shared: spec.backend.native keeps the same blocks in the engine's own memory, "
        "faster and without master and store pods."
    )


def _not_shared(context: Context) -> str:
    if context.shared or context.desired < 2:
        return ""
    return (
        f"Each of {context.desired} engines computes every prefix for itself. If they get the same prefixes, "
        "spec.backend.mooncake shares them."
    )


def _slower(context: Context) -> str:
    result = measured(context)
    if result is None or (result.ttft_reuse_ms or 0) < (result.ttft_recompute_ms or 0):
        return ""
    options = ["longer prompts or a larger model, which cost more to compute than to load"]
    if not str(context.pool.spec.schema_.kv_cache_dtype).startswith("fp8"):
        options.insert(0, "spec.schema.kvCacheDtype fp8, which halves what a load carries")
    nodes = {pod.node for pod in context.ready_engines if pod.node}
    if len(nodes) == 1:
        options.insert(0, "spec.backend.native, since all engines are on one node")
    if context.plan.schema is not None and context.plan.schema.get("kvLayout") is None and _on_gpu(context):
        options.append(
            "spec.schema.attentionBackend (FLASH_ATTN or FLASHINFER, if the model allows): a block is one slice then"
        )
    options.append("a faster network (RDMA)")
    need = result.break_even_gigabytes_per_second
    rate = f" Loads must reach {need} GB/s to pay." if need else ""
    return f"Reuse is slower than recompute here.{rate} What would help: {'; '.join(options)}."


def _known_bad(context: Context) -> str:
    spec = context.pool.spec
    rows = context.observed.tables.bad(
        engine=spec.engines.version,
        mooncake=spec.backend.mooncake.version if spec.backend.mooncake is not None else None,
        backend=spec.backend.name,
        features=context.pool.features,
    )
    found = next((row for row in rows if row.effect == "warn"), None)
    return f"These versions are known for a fault: {found}." if found is not None else ""


def _ignored_rows(context: Context) -> str:
    error = context.observed.tables_error
    return (
        f"The cluster's own compatibility rows (ConfigMap {COMPATIBILITY_CONFIG_MAP}) are ignored: {error}."
        if error
        else ""
    )


def _device_plugin(context: Context) -> str:
    return context.observed.device_plugin_trouble


def _on_gpu(context: Context) -> bool:
    return context.pool.spec.engines.gpu.resource_name != ""


_ADVICE: Sequence[Callable[[Context], str]] = (
    _known_bad,
    no_successor,
    _device_plugin,
    shortage,
    _one_engine,
    _not_shared,
    _slower,
    _ignored_rows,
)
