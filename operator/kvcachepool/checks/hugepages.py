"""Rules of huge pages that the API server would only tell once a pod is made."""

import re
from collections.abc import Iterable
from typing import Final

from kvcachepool.api import KVCachePool
from kvcachepool.api.pods import Resources
from kvcachepool.findings import Finding
from kvcachepool.quantity import format_bytes, parse_amount, parse_bytes

_PREFIX: Final = "hugepages-"
_NAME: Final = re.compile(r"hugepages-[1-9][0-9]{0,9}(Ki|Mi|Gi)")


def check_hugepages(pool: KVCachePool) -> Iterable[Finding]:
    """Whole pages, and request and limit alike (the operator fills in the one that is left out)."""
    places = {
        "spec.engines.resources": pool.spec.engines.resources,
        "spec.store.resources": pool.store.resources,
        "spec.store.master.resources": pool.store.master.resources,
    }
    for path, given in places.items():
        for name in sorted({n for n in (*given.requests, *given.limits) if n.startswith(_PREFIX)}):
            yield from _check(path, name, given)


def _check(path: str, name: str, given: Resources) -> Iterable[Finding]:
    values = [values[name] for values in (given.requests, given.limits) if name in values]
    field = f"{path}.{'limits' if name in given.limits else 'requests'}.{name}"
    if not _NAME.fullmatch(name):
        yield Finding("InvalidSpec", f"{field}: found {name}, expected a page size such as hugepages-2Mi", field)
        return
    amounts = {parse_amount(value) for value in values}
    if len(amounts) > 1:
        yield Finding(
            "InvalidSpec",
            f"{field}: found request {given.requests[name]} and limit {given.limits[name]}, expected the same amount; "
            "one of them is enough",
            field,
        )
    page = parse_bytes(name.removeprefix(_PREFIX))
    if any(amount % page for amount in amounts):
        yield Finding(
            "InvalidSpec",
            f"{field}: found {values[0]}, expected a multiple of the page size {format_bytes(page)}",
            field,
        )
