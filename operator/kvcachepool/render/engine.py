"""The engine pods: vLLM's API server with the cache schema as flags."""

import json
from typing import Any, Final

from kvcachepool import constants
from kvcachepool.api import KVCachePool
from kvcachepool.api.pods import Scheduling
from kvcachepool.backends.base import CONFIG_DIR, EngineParts
from kvcachepool.hardware.affinity import with_affinity, with_tolerations
from kvcachepool.hardware.match import Choice
from kvcachepool.hardware.need import Need, pod_requests
from kvcachepool.ports import engine_port
from kvcachepool.quantity import format_bytes, parse_bytes
from kvcachepool.render.deployment import Workload, one_by_one
from kvcachepool.render.files import file_annotations, files_volume
from kvcachepool.render.memory import MemoryNeed, Term
from kvcachepool.render.network import container_security, host_network, network_annotations, network_devices
from kvcachepool.render.pod import SCRATCH_MOUNT, env, pod_spec, resources
from kvcachepool.render.preflight import expectations, preflight_container
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
        f"--port={engine_port(pool)}",
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
    if pool.spec.cuda.allow_forward_compat:
        variables.append(env("VLLM_ENABLE_CUDA_COMPATIBILITY", "1"))
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


def engine_need(pool: KVCachePool, parts: EngineParts) -> Need:
    """What an engine pod asks of a node, whatever build it gets."""
    engines = pool.spec.engines
    device, rdma = engines.gpu.resource_name, pool.spec.transport.active_rdma
    need = engine_memory(pool, parts)
    return Need(
        constants.ENGINE,
        pod_requests({"containers": [{"resources": _resources(pool, need)}]}),
        _scheduling(pool),
        device=device,
        product=engines.gpu.product or "",
        rdma=rdma.resource_name if rdma is not None else "",
        alone=rdma is not None and rdma.host_network,
        arithmetic=str(need),
    )


def engine_workload(
    pool: KVCachePool, settings: Settings, schema: CacheSchema, parts: EngineParts, *, need: Need, choice: Choice
) -> Workload:
    """One pod per engine; it asks for as many devices as the engine has ranks. `need` is that of the chosen build."""
    engines = pool.spec.engines
    main: Json = {
        "name": constants.ENGINE,
        **_image(pool, choice),
        "command": ["python3", "-m", "vllm.entrypoints.openai.api_server"],
        "args": engine_args(pool, schema, parts),
        "env": engine_env(pool, schema, parts),
        "ports": [{"name": "http", "containerPort": engine_port(pool), "protocol": "TCP"}],
        "startupProbe": _probe(period=5, failures=-(-engines.startup_seconds // 5)),
        "readinessProbe": _probe(period=5, failures=3),
        # Generous: a long prefill on a busy machine must not look like a dead engine.
        "livenessProbe": _probe(period=15, failures=12),
        # An engine that ends refuses connections at once, while proxies still learn that it has left its Service.
        "lifecycle": {"preStop": {"sleep": {"seconds": _LEAVE_SECONDS}}},
        "resources": _resources(pool, engine_memory(pool, parts)),
        "securityContext": container_security(pool),
        "volumeMounts": [SCRATCH_MOUNT, {"name": "shm", "mountPath": "/dev/shm"}],  # noqa: S108
    }
    volumes: list[Json] = [shared_memory("shm", pool, parts)]
    claim = pool.spec.model.source.pvc
    if claim is not None:
        volumes.append({"name": "model", "persistentVolumeClaim": {"claimName": claim.claim_name, "readOnly": True}})
        main["volumeMounts"].append({"name": "model", "mountPath": _MODEL_MOUNT, "readOnly": True})
    if parts.files:
        volumes.append(files_volume("config", parts.files))
        main["volumeMounts"].append({"name": "config", "mountPath": CONFIG_DIR, "readOnly": True})
    before = []
    if engines.preflight:
        devices = {name: str(count) for name, count in _devices(pool).items()}
        expected = expectations(pool, parts, cuda=choice.cuda)
        before.append(preflight_container(pool, _image(pool, choice), devices, expected))
    if parts.wait_for:
        before.append(wait_container(_image(pool, choice), *parts.wait_for))
    return Workload(
        component=constants.ENGINE,
        digest=schema.digest,
        replicas=engines.replicas,
        strategy=one_by_one(engines.max_surge),
        pod_spec=pod_spec(
            pool,
            settings,
            containers=[main],
            init_containers=before,
            volumes=volumes,
            identity=engines.identity,
            scheduling=with_affinity(_scheduling(pool), need),
            grace_seconds=engines.shutdown_seconds + _GRACE_MARGIN,
            extra=host_network(pool),
        ),
        pod_annotations=file_annotations(parts.files) | network_annotations(pool),
        annotations=remembered(choice),
        inputs=_inputs(pool, schema, parts) | _cuda_inputs(pool, choice),
        progress_seconds=engines.startup_seconds + 600,
        apart_seconds=parts.apart_seconds,
    )


def shared_memory(name: str, pool: KVCachePool, parts: EngineParts) -> Json:
    """The volume for /dev/shm: the engine's own and what the cache keeps there."""
    size = parse_bytes(pool.spec.engines.shm_size) + parts.shared_memory
    return {"name": name, "emptyDir": {"medium": "Memory", "sizeLimit": format_bytes(size)}}


def remembered(choice: Choice) -> dict[str, str]:
    """Annotations by which a later pass knows what it once chose."""
    values = {constants.ANNOTATION_CUDA: choice.cuda, constants.ANNOTATION_PRODUCT: choice.product}
    return {name: value for name, value in values.items() if value}


def _scheduling(pool: KVCachePool) -> Scheduling:
    return with_tolerations(pool.spec.engines.scheduling.over(pool.spec.scheduling), _devices(pool))


def _devices(pool: KVCachePool) -> dict[str, int]:
    """One GPU a rank, and the network devices."""
    device = pool.spec.engines.gpu.resource_name
    return ({device: pool.spec.ranks_per_pod} if device else {}) | network_devices(pool)


def _resources(pool: KVCachePool, need: MemoryNeed) -> Json:
    return resources(pool.spec.engines.resources, need, _devices(pool))


_WITHOUT_PODS: Final = frozenset({"replicas", "maxSurge", "whenNoNodeFits", "restartWhenStranded"})
"""Fields of `spec.engines` that no pod is rendered from."""


def _inputs(pool: KVCachePool, schema: CacheSchema, parts: EngineParts) -> Json:
    """The whole spec but what never reaches an engine pod; defaults left out, so that one added later changes
    nothing."""
    spec = pool.spec.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    for name in ("verification", "networkPolicy", "store", "backend", "cuda", "transport"):
        spec.pop(name, None)
    engines = {k: v for k, v in spec.pop("engines", {}).items() if k not in _WITHOUT_PODS}
    return {"spec": spec, "engines": engines, "schema": schema.digest, "backend": parts.inputs}


def _cuda_inputs(pool: KVCachePool, choice: Choice) -> Json:
    """The build that was chosen, not what was written about it: `auto` and its outcome are the same pod."""
    compat = {"forwardCompat": True} if pool.spec.cuda.allow_forward_compat else {}
    return compat | ({"cuda": choice.cuda} if choice.cuda else {})


def _model_path(pool: KVCachePool) -> str:
    source = pool.spec.model.source
    if source.image is not None:
        return source.image.path
    if source.pvc is not None:
        path = source.pvc.path.strip("/")
        return _MODEL_MOUNT if path in {"", "."} else f"{_MODEL_MOUNT}/{path}"
    return pool.spec.model.id


def _image(pool: KVCachePool, choice: Choice) -> Json:
    engines = pool.spec.engines
    result = {"image": choice.image}
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
