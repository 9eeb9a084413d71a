"""Network devices of a pod: what RDMA adds to it, and nothing of it over TCP."""

from typing import Any, Final

from kvcachepool.api import KVCachePool

Json = dict[str, Any]
_NETWORKS: Final = "k8s.v1.cni.cncf.io/networks"
"""Annotation that Multus reads."""


def network_devices(pool: KVCachePool) -> dict[str, int]:
    """Resources for each pod that moves blocks."""
    rdma = pool.spec.transport.active_rdma
    return {} if rdma is None else {rdma.resource_name: rdma.count}


def network_annotations(pool: KVCachePool) -> dict[str, str]:
    """Secondary networks."""
    rdma = pool.spec.transport.active_rdma
    return {_NETWORKS: ",".join(rdma.networks)} if rdma is not None and rdma.networks else {}


def transport_inputs(pool: KVCachePool) -> Json:
    """What of `spec.transport` shapes a pod. Defaults are left out, so that one added later changes nothing."""
    rdma = pool.spec.transport.active_rdma
    if rdma is None:
        return {"protocol": "TCP"}
    return {
        "protocol": "RDMA",
        "rdma": rdma.model_dump(mode="json", by_alias=True, exclude_defaults=True, exclude={"device_plugin"}),
    }


def host_network(pool: KVCachePool) -> Json:
    """Pod fields for the node's network; names of Services keep working there."""
    rdma = pool.spec.transport.active_rdma
    return (
        {"hostNetwork": True, "dnsPolicy": "ClusterFirstWithHostNet"} if rdma is not None and rdma.host_network else {}
    )


def container_security(pool: KVCachePool) -> Json:
    """Locked memory is what RDMA needs beyond the rest; never a privileged container, which would see all devices of
    the node."""
    added = {} if pool.spec.transport.active_rdma is None else {"add": ["IPC_LOCK"]}
    return {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"], **added},
    }
