"""The init container that looks whether the engine can work in its image and on its node."""

import json
from typing import Any

from kvcachepool import constants
from kvcachepool.api import KVCachePool
from kvcachepool.backends.base import EngineParts
from kvcachepool.compat.tables import BUILT_IN
from kvcachepool.podscripts import source
from kvcachepool.render.network import container_security
from kvcachepool.render.pod import SCRATCH_MOUNT, env

Json = dict[str, Any]


def expectations(pool: KVCachePool, parts: EngineParts, *, cuda: str) -> Json:
    """What the script is told; see its checks. The wheels are the built-in ones: a cluster's own rows must not change
    the pods that run."""
    mooncake, rdma = pool.spec.backend.mooncake, pool.spec.transport.active_rdma
    return {
        "engine": pool.spec.engines.version,
        "connector": parts.kv_transfer_config["kv_connector"] if parts.kv_transfer_config is not None else None,
        "mooncake": mooncake.version if mooncake is not None else None,
        "cuda": int(cuda) if cuda else None,
        "forwardCompat": pool.spec.cuda.allow_forward_compat,
        "devices": pool.spec.ranks_per_pod,
        "wheels": {row.package: row.cuda for row in BUILT_IN.wheels},
        "rdma": None if rdma is None or rdma.provider == "EFA" else rdma.devices,
    }


def preflight_container(pool: KVCachePool, image: Json, devices: Json, expected: Json) -> Json:
    """It asks for the same devices as the engine, which then gets these very ones: no more are held."""
    resources: Json = {"requests": {"cpu": "10m", "memory": "64Mi", **devices}}
    if devices:
        resources["limits"] = devices
    return {
        "name": constants.PREFLIGHT_CONTAINER,
        **image,
        "command": ["python3", "-c", source("preflight"), json.dumps(expected, sort_keys=True)],
        "env": [env("HOME", "/tmp")],  # noqa: S108 - the pod's scratch volume
        "resources": resources,
        "securityContext": container_security(pool),
        "volumeMounts": [SCRATCH_MOUNT],
        "terminationMessagePolicy": "File",
    }
