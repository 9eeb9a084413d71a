"""Node selectors and affinities that the API server would refuse, named before anything is made of them."""

from collections.abc import Iterable

from kvcachepool.api import KVCachePool
from kvcachepool.findings import Finding
from kvcachepool.hardware.selectors import faults


def check_scheduling(pool: KVCachePool) -> Iterable[Finding]:
    """Of the pool and of each component, as written: what a component does not say comes from the pool."""
    places = {
        "spec.scheduling": pool.spec.scheduling,
        "spec.engines.scheduling": pool.spec.engines.scheduling,
        "spec.store.scheduling": pool.store.scheduling,
        "spec.store.master.scheduling": pool.store.master.scheduling,
    }
    for path, given in places.items():
        for where, text in faults(given):
            yield Finding("InvalidSpec", f"{path}.{where}: {text}", f"{path}.{where}")
