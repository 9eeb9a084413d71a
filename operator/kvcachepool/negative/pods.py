"""The engine pods of the suite: as the pool's own run, but for the changed field and outside the pool. Pure."""

import json
from collections.abc import Mapping
from typing import Any

from kvcachepool import constants, names
from kvcachepool.api import KVCachePool
from kvcachepool.backends.registry import backend_of
from kvcachepool.negative.cases import Variant
from kvcachepool.render.engine import engine_args, engine_env
from kvcachepool.schema import CacheSchema
from kvcachepool.schema.flags import CONFIG_FLAG

Json = dict[str, Any]


def variant_schema(variant: Variant) -> CacheSchema:
    """The schema of the reader, under whose digest it looks for blocks."""
    schema = backend_of(variant.pool).schema(variant.pool)
    if not variant.unset_seed:
        return schema
    return CacheSchema(tuple(field for field in schema.fields if field[0] != "hashSeed"))


def engine_pod(pool: KVCachePool, live: Mapping[str, Any], variant: Variant, name: str, *, prefix: bool) -> Json:
    """A pod made of the running template (image, devices, volumes, placement) and the variant's flags and environment.

    `live` is the pool's own engine Deployment. Without `prefix` its keys carry no digest.
    """
    schema = variant_schema(variant)
    parts = backend_of(variant.pool).engine(variant.pool, schema.digest)
    template = live["spec"]["template"]
    main, *others = template["spec"]["containers"]
    args = engine_args(variant.pool, schema, parts)
    env = engine_env(variant.pool, schema, parts)
    if variant.unset_seed:
        env = [variable for variable in env if variable["name"] != "PYTHONHASHSEED"]
    engine = {key: value for key, value in main.items() if key not in {"lifecycle", "livenessProbe"}}
    engine |= {
        "args": args if prefix else [_without_prefix(argument) for argument in args],
        "env": env,
        "resources": _resources(pool, variant.pool, main.get("resources") or {}),
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": pool.metadata.namespace,
            "labels": {
                "app.kubernetes.io/name": "kvcachepool",
                "app.kubernetes.io/component": "negative",
                constants.LABEL_NEGATIVE: names.pool_label(pool.metadata.name),
            },
            "annotations": dict(template["metadata"].get("annotations") or {}),
            "ownerReferences": [pool.owner_reference() | {"controller": False}],
        },
        "spec": template["spec"]
        | {"containers": [engine, *others], "restartPolicy": "Never", "terminationGracePeriodSeconds": 5},
    }


def _without_prefix(argument: str) -> str:
    flag, _, text = argument.partition("=")
    if flag != CONFIG_FLAG:
        return argument
    config = json.loads(text)
    config.get("kv_connector_extra_config", {}).pop("cache_prefix", None)
    return f"{flag}={json.dumps(config, sort_keys=True)}"


def _resources(pool: KVCachePool, changed: KVCachePool, given: Json) -> Json:
    """As many devices as the changed engine has ranks."""
    device = pool.spec.engines.gpu.resource_name
    ranks = changed.spec.schema_.parallelism.world_size
    result = {kind: dict(amounts) for kind, amounts in given.items() if isinstance(amounts, dict)}
    for amounts in result.values():
        if device in amounts:
            amounts[device] = str(ranks)
    return result
