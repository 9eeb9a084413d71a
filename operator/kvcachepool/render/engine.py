"""The engine pods: vLLM's API server with the cache schema as flags."""

import json
from typing import Any, Final

from kvcachepool import constants
from kvcachepool.api import KVCachePool
from kvcachepool.backends.base import CONFIG_DIR, EngineParts
from kvcachepool.compat.pins import PINS
from kvcachepool.quantity import format_bytes, parse_bytes
from kvcachepool.render.deployment import Workload, one_by_one
from kvcachepool.render.files import file_annotations, files_volume
from kvcachepool.render.memory import MemoryNeed, Term
from kvcachepool.render.pod import (
    CONTAINER_SECURITY,
    SCRATCH_MOUNT,
    env,
    image,
    pod_spec,
    resources,
)
from kvcachepool.render.wait import wait_container
from kvcachepool.schema import CacheSchema
from kvcachepool.schema.flags import SCHEMA_ENV, SCHEMA_FLAGS
from kvcachepool.settings import Settings

Json = dict[str, Any]
_MODEL_MOUNT: Final = "/models/pool"
_LEAVE_SECONDS: Final = 5
"""Between leaving the Service and SIGTERM."""
_GRACE_MARGIN: Final = 30
"""On top of the engine's own shutdown time: leaving the Service, unmounting a segment, closing connections."""


def engine_memory(pool: KVCachePool, parts: EngineParts) -> MemoryNeed:
    """Host memory of one engine container."""
    engines = pool.spec.engines
    return MemoryNeed(
        (
            *parts.memory,
            Term("engine", parse_bytes(engines.engine_memory)),
            Term("/dev/shm", parse_bytes(engines.shm_size)),  # noqa: S108 - the name of the mount
        )
    )


def engine_args(pool: KVCachePool, schema: CacheSchema, parts: EngineParts) -> list[str]:
    """The whole command line; the schema's flags are given even where they equal the engine's default, since a
    default may change between versions."""
    spec, connector = pool.spec, parts.kv_transfer_config
    args = [f"--model={_model_path(pool)}", f"--served-model-name={spec.model.served_name or spec.model.id}"]
    for flag in SCHEMA_FLAGS:
        value = schema.get(flag.field)
        if value is None or (flag.field == "modelRevision" and spec.model.source.hub is None):
            continue
        if flag.field == "interleave" and value == 1:
            continue  # an engine without context parallelism warns of it
        args += flag.render(value)
    if spec.schema_.lora:
        args.append("--enable-lora")
    return [
        *args,
        "--enable-prefix-caching",
        "--enable-prompt-tokens-details",
        f"--port={constants.ENGINE_PORT}",
        f"--shutdown-timeout={spec.engines.shutdown_seconds}",
        *([f"--kv-transfer-config={json.dumps(connector, sort_keys=True)}"] if connector else []),
        *spec.engines.extra_args,
    ]


def engine_env(pool: KVCachePool, schema: CacheSchema, parts: EngineParts) -> list[Json]:
    """What the operator sets, then what the user adds; a name stands once."""
    variables = [
        env("PYTHONHASHSEED", pool.spec.schema_.hash_seed),
        {"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
        env("HOME", "/tmp"),  # noqa: S108 - the pod's scratch volume
        *parts.env,
    ]
    for name, field in SCHEMA_ENV.items():
        value = schema.get(field)
        if value is not None and field != "hashSeed":
            variables.append(env(name, str(value)))
    hub = pool.spec.model.source.hub
    if hub is None:
        variables.append(env("HF_HUB_OFFLINE", "1"))
    elif hub.token_secret_ref is not None:
        reference = hub.token_secret_ref
        variables.append(
            {
                "name": "HF_TOKEN",
                "valueFrom": {"secretKeyRef": {"name": reference.name, "key": reference.key}},
            }
        )
    ours = {variable["name"] for variable in variables}
    variables += [v.model_dump(by_alias=True, exclude_none=True) for v in pool.spec.engines.env if v.name not in ours]
    return variables


def engine_workload(pool: KVCachePool, settings: Settings, schema: CacheSchema, parts: EngineParts) -> Workload:
    """One pod per engine; it asks for as many devices as the engine has ranks."""
    engines = pool.spec.engines
    device = engines.gpu.resource_name
    main: Json = {
        "name": constants.ENGINE,
        **_image(pool, settings),
        "command": ["python3", "-m", "vllm.entrypoints.openai.api_server"],
        "args": engine_args(pool, schema, parts),
        "env": engine_env(pool, schema, parts),
        "ports": [{"name": "http", "containerPort": constants.ENGINE_PORT, "protocol": "TCP"}],
        "startupProbe": _probe(period=5, failures=-(-engines.startup_seconds // 5)),
        "readinessProbe": _probe(period=5, failures=3),
        # Generous: a long prefill on a busy machine must not look like a dead engine.
        "livenessProbe": _probe(period=15, failures=12),
        # An engine that ends refuses connections at once, while proxies still learn that it has left its Service.
        "lifecycle": {"preStop": {"sleep": {"seconds": _LEAVE_SECONDS}}},
        "resources": resources(
            engines.resources,
            engine_memory(pool, parts),
            {device: pool.spec.schema_.parallelism.world_size} if device else None,
        ),
        "securityContext": CONTAINER_SECURITY,
        "volumeMounts": [SCRATCH_MOUNT, {"name": "shm", "mountPath": "/dev/shm"}],  # noqa: S108
    }
    volumes: list[Json] = [
        {
            "name": "shm",
            "emptyDir": {"medium": "Memory", "sizeLimit": format_bytes(parse_bytes(engines.shm_size))},
        }
    ]
    claim = pool.spec.model.source.pvc
    if claim is not None:
        volumes.append({"name": "model", "persistentVolumeClaim": {"claimName": claim.claim_name, "readOnly": True}})
        main["volumeMounts"].append({"name": "model", "mountPath": _MODEL_MOUNT, "readOnly": True})
    if parts.files:
        volumes.append(files_volume("config", parts.files))
        main["volumeMounts"].append({"name": "config", "mountPath": CONFIG_DIR, "readOnly": True})
    waits = [wait_container(_image(pool, settings), *parts.wait_for)] if parts.wait_for else []
    return Workload(
        component=constants.ENGINE,
        digest=schema.digest,
        replicas=engines.replicas,
        strategy=one_by_one(engines.max_surge),
        pod_spec=pod_spec(
            pool,
            settings,
            containers=[main],
            init_containers=waits,
            volumes=volumes,
            identity=engines.identity,
            scheduling=engines.scheduling,
            grace_seconds=engines.shutdown_seconds + _GRACE_MARGIN,
        ),
        pod_annotations=file_annotations(parts.files),
        inputs=_inputs(pool, schema, parts),
        progress_seconds=engines.startup_seconds + 600,
    )


def _inputs(pool: KVCachePool, schema: CacheSchema, parts: EngineParts) -> Json:
    """The whole spec but what never reaches an engine pod; defaults left out, so that one added later changes
    nothing."""
    spec = pool.spec.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    for name in ("verification", "store", "backend"):
        spec.pop(name, None)
    engines = {k: v for k, v in spec.pop("engines", {}).items() if k not in {"replicas", "maxSurge"}}
    return {"spec": spec, "engines": engines, "schema": schema.digest, "backend": parts.inputs}


def _model_path(pool: KVCachePool) -> str:
    source = pool.spec.model.source
    if source.image is not None:
        return source.image.path
    if source.pvc is not None:
        path = source.pvc.path.strip("/")
        return _MODEL_MOUNT if path in {"", "."} else f"{_MODEL_MOUNT}/{path}"
    return pool.spec.model.id


def _image(pool: KVCachePool, settings: Settings) -> Json:
    engines = pool.spec.engines
    result = {"image": engines.image or image(settings, PINS.images.engine, f"{engines.version}-cu13")}
    if engines.image_pull_policy:
        result["imagePullPolicy"] = engines.image_pull_policy
    return result


def _probe(*, period: int, failures: int) -> Json:
    return {
        "httpGet": {"path": "/health", "port": "http"},
        "periodSeconds": period,
        "timeoutSeconds": 10,
        "failureThreshold": failures,
    }
