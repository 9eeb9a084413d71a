"""How a pool's members find its master: one behind a Service, the leader in etcd, or somebody else's.

With etcd, masters write the leader's address to `mooncake-store/CLUSTERID/master_view` and clients read it there, so
that a Service in between would only be one more thing that lags behind. The id is `--cluster_id` of the masters and
MC_STORE_CLUSTER_ID of the clients; their defaults differ (mooncake_cluster, mooncake), so it is always given.

Source: mooncake_master 0.3.13.post1 (`--helpfull`, and tried with etcd 3.6), etcd_leader_coordinator.cpp.
"""

from typing import Any, Final

from kvcachepool import constants, names
from kvcachepool.api import KVCachePool
from kvcachepool.api.master import ETCD
from kvcachepool.render.pod import env, env_field

Json = dict[str, Any]
_CLUSTER_ID: Final = "MC_STORE_CLUSTER_ID"
_HOSTNAME: Final = "kubernetes.io/hostname"


def wait_address(pool: KVCachePool) -> tuple[str, int]:
    """(host, port) that accepts a connection once a master serves. A name, never a pod's IP: clients must find a
    restarted master again."""
    external = pool.store.master.external
    if external is not None:
        return external.rpc or external.http
    return (
        f"{names.child(pool.metadata.name, constants.MASTER)}.{pool.metadata.namespace}.svc",
        constants.MASTER_RPC_PORT,
    )


def client_address(pool: KVCachePool) -> str:
    """`master_server_address` of every client."""
    master = pool.store.master
    if master.external is not None:
        return master.external.address
    if master.ha is not None:
        return ETCD + _endpoints(pool)
    host, port = wait_address(pool)
    return f"{host}:{port}"


def client_env(pool: KVCachePool) -> tuple[Json, ...]:
    """What a client needs beside the address; nothing for one master."""
    found = _cluster_id(pool)
    return (env(_CLUSTER_ID, found),) if found else ()


def client_inputs(pool: KVCachePool) -> Json:
    """For the hash of what a pod was made from; empty for the plain case, so that this changed no pool."""
    master = pool.store.master
    if master.ha is None and master.external is None:
        return {}
    return {"master": client_address(pool), "clusterId": _cluster_id(pool)}


def election_args(pool: KVCachePool) -> list[str]:
    """Flags of a master of the pool's own. With an election the address is not only bound but published."""
    if pool.store.master.ha is None:
        return ["--rpc_address=0.0.0.0"]
    return [
        "--rpc_address=$(POD_IP)",
        "--enable_ha=true",
        f"--etcd_endpoints={_endpoints(pool)}",
        f"--cluster_id={_cluster_id(pool)}",
    ]


def election_parts(pool: KVCachePool) -> Json:
    """Fields of the master's container. Readiness follows leadership: a standby refuses its segments with 503, and
    does so too as long as a new leader warms up; `/health` is 200 in both cases."""
    if pool.store.master.ha is None:
        return {"readinessProbe": {"tcpSocket": {"port": "rpc"}, "periodSeconds": 2, "timeoutSeconds": 2}}
    return {
        "env": [env_field("POD_IP", "status.podIP")],
        "readinessProbe": {
            "httpGet": {"path": "/get_all_segments", "port": "http"},
            "periodSeconds": 2,
            "timeoutSeconds": 2,
        },
    }


def spread(pool: KVCachePool, selector: Json) -> Json:
    """Pod fields that put masters on different nodes where that is possible; scheduling of the spec goes before."""
    if pool.store.master.ha is None:
        return {}
    constraint = {
        "maxSkew": 1,
        "topologyKey": _HOSTNAME,
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": selector},
    }
    return {"topologySpreadConstraints": [constraint]}


def _endpoints(pool: KVCachePool) -> str:
    ha = pool.store.master.ha
    return ";".join(ha.etcd.endpoints) if ha is not None else ""


def _cluster_id(pool: KVCachePool) -> str:
    master = pool.store.master
    if master.external is not None:
        return master.external.cluster_id or ""
    return (master.ha.etcd.cluster_id or "/".join(pool.key)) if master.ha is not None else ""
