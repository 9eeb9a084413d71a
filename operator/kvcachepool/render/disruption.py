"""PodDisruptionBudgets: how many pods of a component a drain may take at a time."""

from typing import Any

from kvcachepool import names
from kvcachepool.api import KVCachePool
from kvcachepool.render import metadata

Json = dict[str, Any]


def disruption_budget(pool: KVCachePool, component: str, *, unavailable: int = 1) -> Json:
    """Of the component's pods of every generation. A pod that is not ready may always be evicted: it has nothing to
    lose and must not block a drain."""
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": metadata.metadata(pool, component, names.child(pool.metadata.name, component)),
        "spec": {
            "maxUnavailable": unavailable,
            "unhealthyPodEvictionPolicy": "AlwaysAllow",
            "selector": {"matchLabels": metadata.selector(pool, component)},
        },
    }
