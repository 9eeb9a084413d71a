"""The Services of a pool: the engines, and the store's master."""

from typing import Any

from kvcachepool import constants, names
from kvcachepool.api import KVCachePool
from kvcachepool.render import metadata

Json = dict[str, Any]


def service(pool: KVCachePool, component: str, suffix: str, ports: dict[str, int], *, digest: str = "") -> Json:
    """A ClusterIP Service. With a digest it routes only to pods of that schema.

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
                {"name": name, "port": port, "targetPort": port, "protocol": "TCP"} for name, port in ports.items()
            ],
        },
    }
