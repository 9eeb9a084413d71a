"""How a schema value reads: one rule for every alias, wherever the value comes from.

Sources (vLLM 0.32.0 and 0.33.0): `config/cache.py` (`fp8` is `fp8_e4m3` on CUDA, ROCm and CPU; layouts NHD and HND are
older names), `config/model.py` (`half`, `float`), `config/attention.py` (backend names in any case).
"""

from collections.abc import Mapping
from typing import Final

Value = str | int | None

ALIASES: Final[Mapping[str, Mapping[str, str]]] = {
    "dtype": {"half": "float16", "float": "float32"},
    "kvCacheDtype": {"fp8": "fp8_e4m3"},
    "kvLayout": {"NHD": "LBNHC", "HND": "LBHNC"},
}
"""Field to other names of its values."""
UPPER_CASE: Final = frozenset({"attentionBackend"})
"""Fields whose values the engine reads in any case."""
UNORDERED: Final = frozenset({"kvCacheDtypeSkipLayers", "loraModules", "lora"})
"""Lists, joined by commas, whose order says nothing."""


def canonical(field: str, value: Value) -> Value:
    """The one spelling of a field's value."""
    if not isinstance(value, str):
        return value
    if field in UPPER_CASE:
        value = value.upper()
    if field in UNORDERED:
        value = ",".join(sorted(set(value.split(","))))
    return ALIASES.get(field, {}).get(value, value)
