"""Master and dedicated store pods of a Mooncake pool."""

from typing import Any, Final

from kvcachepool import constants
from kvcachepool.api import KVCachePool
from kvcachepool.backends.mooncake_master import (
    client_address,
    client_env,
    client_inputs,
    election_args,
    election_parts,
    spread,
    wait_address,
)
from kvcachepool.backends.mooncake_transport import device_names, protocol, transport_env
from kvcachepool.compat.pins import PINS
from kvcachepool.hardware.affinity import with_tolerations
from kvcachepool.leaving import SETTLE_SECONDS
from kvcachepool.podscripts import source
from kvcachepool.ports import store_port
from kvcachepool.quantity import parse_bytes
from kvcachepool.render import metadata
from kvcachepool.render.deployment import RECREATE, Workload, one_by_one
from kvcachepool.render.memory import MemoryNeed, Term
from kvcachepool.render.network import (
    container_security,
    host_network,
    network_annotations,
    network_devices,
    transport_inputs,
)
from kvcachepool.render.pod import (
    CONTAINER_SECURITY,
    SCRATCH_MOUNT,
    env,
    env_field,
    image,
    pod_spec,
    resources,
)
from kvcachepool.settings import Settings

_STORE_OVERHEAD: Final = 512 * 2**20
"""Python and the transfer engine of a store pod: 100 MiB measured, the rest for connections of many engines."""
_MASTER_GRACE: Final = 10
_STORE_GRACE: Final = 30
"""On top of draining. A store pod unmounts its segment in about a second; peers then stop reading it at once."""


def _image(pool: KVCachePool, settings: Settings, version: str) -> dict[str, Any]:
    result = {"image": pool.store.image or image(settings, PINS.images.mooncake, version)}
    if pool.store.image_pull_policy:
        result["imagePullPolicy"] = pool.store.image_pull_policy
    return result


def _common_inputs(pool: KVCachePool, version: str) -> dict[str, Any]:
    """Parts of the spec that both pods depend on. Defaults are left out, so that one added later changes nothing."""
    spec = pool.spec.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    store = pool.store.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    return {
        "version": version,
        "image": pool.store.image,
        "imagePullPolicy": pool.store.image_pull_policy,
        "identity": store.get("identity"),
        "pullSecrets": spec.get("imagePullSecrets"),
        "scheduling": spec.get("scheduling"),
        "rolloutToken": pool.spec.rollout_token,
    }


def master_workload(pool: KVCachePool, settings: Settings, version: str) -> Workload:
    """One master, replaced in place: two at once would be two indexes. With an election all of them are replaced
    together: masters and members must be of one version, and each takeover would empty the index once more.

    Only flags of the stable subset are given, all of them explicitly; a later Mooncake renames others, and an
    unknown flag aborts the master.
    """
    master = pool.store.master
    container = {
        "name": constants.MASTER,
        **_image(pool, settings, version),
        "command": ["mooncake_master"],
        "args": [
            *election_args(pool),
            f"--rpc_port={constants.MASTER_RPC_PORT}",
            f"--metrics_port={constants.MASTER_HTTP_PORT}",
            f"--default_kv_lease_ttl={master.lease_ttl_milliseconds}",
            f"--eviction_high_watermark_ratio={master.eviction_high_watermark}",
            f"--eviction_ratio={master.eviction_ratio}",
            f"--client_ttl={master.client_ttl_seconds}",
            "--logtostderr=true",
        ],
        "ports": [
            {"name": "rpc", "containerPort": constants.MASTER_RPC_PORT, "protocol": "TCP"},
            {"name": "http", "containerPort": constants.MASTER_HTTP_PORT, "protocol": "TCP"},
        ],
        **election_parts(pool),
        "livenessProbe": {
            # A hung master has lost its members after clientTtl anyway; a restart brings them back, empty.
            "httpGet": {"path": "/health", "port": "http"},
            "initialDelaySeconds": 10,
            "periodSeconds": 10,
            "timeoutSeconds": 5,
            "failureThreshold": 6,
        },
        "resources": master.resources.model_dump(by_alias=True, exclude_defaults=False),
        "securityContext": CONTAINER_SECURITY,
        "volumeMounts": [SCRATCH_MOUNT],
    }
    settings_given = master.model_dump(mode="json", by_alias=True, exclude_defaults=True, exclude={"replicas"})
    return Workload(
        component=constants.MASTER,
        replicas=master.count,
        strategy=RECREATE,
        pod_spec=pod_spec(
            pool,
            settings,
            containers=[container],
            identity=pool.store.identity,
            scheduling=master.scheduling,
            grace_seconds=_MASTER_GRACE,
            extra=spread(pool, metadata.selector(pool, constants.MASTER)),
        ),
        inputs=_common_inputs(pool, version) | {"master": settings_given},
    )


def apart_seconds(pool: KVCachePool) -> int:
    """Longer than the master keeps a member that left without a word."""
    return pool.store.master.client_ttl_seconds + SETTLE_SECONDS


def _store_liveness(pool: KVCachePool) -> dict[str, Any]:
    """Ends a member that hangs, but with the default of clientTtlSeconds only when the master has written its segment
    off already: nothing more is lost by it.

    A hung process keeps its connections, so whoever reads from it waits for up to 60 s, and its memory never comes back
    by itself; killed, its peers fail at once and recompute. The kernel accepts connections for a hung process, so a
    port probe sees nothing; the service has no page that needs neither the master nor a key, so any answer will do.
    """
    ask = (
        f"import socket; s = socket.create_connection(('127.0.0.1', {store_port(pool)}), 3); s.settimeout(3); "
        "s.sendall(b'GET / HTTP/1.0\\r\\n\\r\\n'); assert s.recv(1)"
    )
    return {
        "exec": {"command": ["python3", "-S", "-c", ask]},
        "periodSeconds": 5,
        "timeoutSeconds": 4,
        "failureThreshold": 4,  # a change of clientTtlSeconds must not restart store pods, so this is no part of it
        "terminationGracePeriodSeconds": 2,  # a process that hangs does not end by being asked
    }


def store_memory(pool: KVCachePool, segment: int) -> MemoryNeed:
    """What a store pod needs."""
    return MemoryNeed(
        (
            Term("segment", segment),
            Term("transfer buffer", parse_bytes(pool.store.local_buffer_size)),
            Term("overhead", _STORE_OVERHEAD),
        )
    )


def _drain(pool: KVCachePool) -> dict[str, Any]:
    """Whatever makes a store pod leave (scale-in, a roll, a drained node), it first moves its blocks to the others."""
    if not pool.store.drain_seconds:
        return {}
    external = pool.store.master.external
    host, port = external.http if external is not None else (wait_address(pool)[0], constants.MASTER_HTTP_PORT)
    command = ["python3", "-c", source("drain"), f"{host}:{port}", str(pool.store.drain_seconds)]
    return {"lifecycle": {"preStop": {"exec": {"command": command}}}}


def store_workload(pool: KVCachePool, settings: Settings, version: str, *, segment: int) -> Workload:
    """Store members that outlive engines, replaced one at a time.

    They carry nothing of the schema, neither label nor seed: they hash nothing and keep the blocks of every generation,
    each under its own prefix. A changed schema must not restart them.
    """
    container = {
        "name": constants.STORE,
        **_image(pool, settings, version),
        "command": ["python3", "-m", "mooncake.mooncake_store_service"],
        "args": [f"--port={store_port(pool)}", "--max-wait-time=300"],
        "ports": [{"name": "http", "containerPort": store_port(pool), "protocol": "TCP"}],
        "env": [
            env("MOONCAKE_MASTER", client_address(pool)),
            *client_env(pool),
            env("MOONCAKE_TE_META_DATA_SERVER", "P2PHANDSHAKE"),
            env("MOONCAKE_PROTOCOL", protocol(pool)),
            env("MOONCAKE_DEVICE", device_names(pool)),
            env("MOONCAKE_GLOBAL_SEGMENT_SIZE", str(segment)),
            env("MOONCAKE_LOCAL_BUFFER_SIZE", str(parse_bytes(pool.store.local_buffer_size))),
            env_field("MOONCAKE_LOCAL_HOSTNAME", "status.podIP"),
            *transport_env(pool),
        ],
        # The service opens its port only after the segment is mounted.
        "startupProbe": {"tcpSocket": {"port": "http"}, "periodSeconds": 2, "failureThreshold": 180},
        "readinessProbe": {"tcpSocket": {"port": "http"}, "periodSeconds": 5, "timeoutSeconds": 3},
        "livenessProbe": _store_liveness(pool),
        "resources": resources(pool.store.resources, store_memory(pool, segment), network_devices(pool)),
        "securityContext": container_security(pool),
        "volumeMounts": [SCRATCH_MOUNT],
        **_drain(pool),
    }
    store = pool.store.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    return Workload(
        component=constants.STORE,
        replicas=pool.store.replicas,
        strategy=one_by_one(),
        apart_seconds=apart_seconds(pool),
        pod_spec=pod_spec(
            pool,
            settings,
            containers=[container],
            identity=pool.store.identity,
            scheduling=with_tolerations(pool.store.scheduling.over(pool.spec.scheduling), network_devices(pool)),
            grace_seconds=pool.store.drain_seconds + _STORE_GRACE,
            extra=host_network(pool),
        ),
        pod_annotations=network_annotations(pool),
        inputs=_common_inputs(pool, version)
        | {
            "segment": segment,
            "buffer": parse_bytes(pool.store.local_buffer_size),
            "resources": store.get("resources"),
            "placement": store.get("scheduling"),
            "transport": transport_inputs(pool),
            **client_inputs(pool),
        }
        | {name: store[name] for name in ("drainSeconds",) if name in store},
    )
