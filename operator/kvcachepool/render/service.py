"""The Services of a pool: the engines, and the store's master."""

from collections.abc import Mapping
from typing import Any

from kvcachepool import constants, names
from kvcachepool.api import KVCachePool
from kvcachepool.render import metadata

Json = dict[str, Any]


def service(
    pool: KVCachePool, component: str, suffix: str, ports: Mapping[str, int | tuple[int, int]], *, digest: str = ""
) -> Json:
    """A ClusterIP Service; a port is its number, or that and the pods' own. With a digest it routes only to pods of
    that schema.

    Never a LoadBalancer or NodePort: the master's ports have no authentication.
    """
    chosen = metadata.selector(pool, component)
    if digest:
        chosen[constants.LABEL_SCHEMA] = digest
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata.metadata(pool, component, names.child(pool.metadata.name, suffix)),
        "spec": {
            "type": "ClusterIP",
            "selector": chosen,
            "ports": [
                {"name": name, "port": port, "targetPort": target, "protocol": "TCP"}
                for name, numbers in ports.items()
                for port, target in [numbers if isinstance(numbers, tuple) else (numbers, numbers)]
            ],
        },
    }
