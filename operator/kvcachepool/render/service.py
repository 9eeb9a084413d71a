"""The Services of a pool: the engines, and the store's master."""

from collections.abc import Mapping
from typing import Any

from kvcachepool import names
from kvcachepool.api import KVCachePool
from kvcachepool.render import metadata

Json = dict[str, Any]


def service(pool: KVCachePool, component: str, suffix: str, ports: Mapping[str, int | tuple[int, int]]) -> Json:
    """A ClusterIP Service in front of the component's ready pods, of whatever generation: while engines move, those of
    the former schema serve too, each right by itself. A port is its number, or that and the pods' own.

    Never a LoadBalancer or NodePort: the master's ports have no authentication.
    """
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata.metadata(pool, component, names.child(pool.metadata.name, suffix)),
        "spec": {
            "type": "ClusterIP",
            "selector": metadata.selector(pool, component),
            "ports": [
                {"name": name, "port": port, "targetPort": target, "protocol": "TCP"}
                for name, numbers in ports.items()
                for port, target in [numbers if isinstance(numbers, tuple) else (numbers, numbers)]
            ],
        },
    }
