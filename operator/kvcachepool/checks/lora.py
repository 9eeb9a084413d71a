"""Adapters only with connectors that tell them apart."""

from collections.abc import Iterable, Sequence
from typing import Final

from kvcachepool.api.cache_schema import LoraAdapter
from kvcachepool.findings import Finding

CONNECTORS: Final = ("MooncakeStoreConnector", "OffloadingConnector")
"""Connectors that name blocks by the engine's own block hash, which has the adapter's name and path in it (vLLM 0.32
and 0.33, `v1/core/kv_cache_utils.py`). LMCache hashes tokens itself, without the adapter: adapter B would then hit what
adapter A computed (vllm#44250, LMCache#2961)."""


def check_lora(adapters: Sequence[LoraAdapter], connector: object) -> Iterable[Finding]:
    """Refuses adapters with a connector that is not known to keep them apart."""
    if adapters and connector not in CONNECTORS:
        field = "spec.schema.lora"
        yield Finding(
            "InvalidSpec",
            f"{field}: found {', '.join(a.name for a in adapters)} with the connector {connector}, expected none: its "
            f"keys do not tell adapters apart, so that one would read what another one computed; use one of "
            f"{', '.join(CONNECTORS)}, or serve adapters without a shared cache",
            field,
        )
