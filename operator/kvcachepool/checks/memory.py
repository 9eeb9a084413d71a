"""A memory limit below what a pod needs is refused with the sum, instead of an OOM kill once the cache fills."""

from collections.abc import Iterable

from kvcachepool.api.pods import Resources
from kvcachepool.findings import Finding
from kvcachepool.quantity import format_bytes, parse_amount
from kvcachepool.render.memory import MemoryNeed


def check_limit(path: str, given: Resources, need: MemoryNeed) -> Iterable[Finding]:
    """Limit and request of `memory` under `path` against the need."""
    for kind, values in (("limits", given.limits), ("requests", given.requests)):
        text = values.get("memory")
        if text is None:
            continue
        field = f"{path}.{kind}.memory"
        value = parse_amount(text)
        if value < 0:
            yield Finding("InvalidSpec", f"{field}: found {text}, expected a size of at least 0 such as 80Gi", field)
        elif kind == "limits" and value < need.total:
            yield Finding(
                "InvalidSpec",
                f"{field}: found {text}, expected at least {format_bytes(need.total)}: {need}",
                field,
            )
