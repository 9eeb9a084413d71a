"""Users' own engines behind the pool's Service: an EndpointSlice beside those of the Service's selector.

The Service selects the operator's engines, so that these come and go without the operator. A user's pod cannot be
left out by a selector, since nothing is ever written to it; so those that may serve are listed one by one. Proxies
merge all slices with the Service's name in `kubernetes.io/service-name`, whoever manages them.
"""

from collections.abc import Iterable, Sequence
from ipaddress import ip_address
from typing import Any, Final

from kvcachepool import constants, names
from kvcachepool.api import KVCachePool
from kvcachepool.facts import PodFacts
from kvcachepool.render import metadata

Json = dict[str, Any]
ENGINES_SERVICE: Final = "engines"
_MOST: Final = 1000
"""Endpoints of a slice; the API server takes no more."""
_FAMILIES: Final = {4: ("IPv4", "members"), 6: ("IPv6", "members-v6")}


def member_slices(pool: KVCachePool, pods: Iterable[PodFacts]) -> list[Json]:
    """One slice for each family of addresses and each port among the pods; none without pods."""
    groups: dict[tuple[int, int], list[PodFacts]] = {}
    for pod in pods:
        groups.setdefault((ip_address(pod.ip).version, pod.port), []).append(pod)
    return [_slice(pool, version, port, found) for (version, port), found in sorted(groups.items())]


def listed(slices: Iterable[Any]) -> frozenset[str]:
    """Uids of pods in slices as the API server has them."""
    return frozenset(
        str((endpoint.get("targetRef") or {}).get("uid", ""))
        for item in slices
        for endpoint in item.get("endpoints") or ()
    )


def _slice(pool: KVCachePool, version: int, port: int, pods: Sequence[PodFacts]) -> Json:
    family, suffix = _FAMILIES[version]
    suffix = f"{suffix}-{port}" if port else suffix
    namespace, service = pool.metadata.namespace, names.child(pool.metadata.name, ENGINES_SERVICE)
    meta = metadata.metadata(pool, constants.ENGINE, names.child(pool.metadata.name, f"{ENGINES_SERVICE}-{suffix}"))
    meta["labels"] |= {
        "kubernetes.io/service-name": service,
        # no controller of Kubernetes touches a slice that names another manager
        "endpointslice.kubernetes.io/managed-by": constants.FIELD_MANAGER,
    }
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": meta,
        "addressType": family,
        "endpoints": [
            {
                "addresses": [pod.ip],
                "conditions": {"ready": True, "serving": True, "terminating": False},
                **({"nodeName": pod.node} if pod.node else {}),
                "targetRef": {"kind": "Pod", "namespace": namespace, "name": pod.name, "uid": pod.uid},
            }
            for pod in pods[:_MOST]
        ],
        "ports": [{"name": "http", "port": port or constants.ENGINE_PORT, "protocol": "TCP"}],
    }
