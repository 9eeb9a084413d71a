"""Pools and statuses for tests against the API server."""

from typing import Any, get_args, get_origin

from pydantic import BaseModel

from kvcachepool import constants
from kvcachepool.api import KVCachePool
from kvcachepool.api.crd import models_in
from kvcachepool.api.status import Condition, PoolStatus

TIME = "2026-01-02T03:04:05Z"


def pool(name: str, namespace: str, **spec: Any) -> dict[str, Any]:
    """The smallest pool with a shared backend."""
    return {
        "apiVersion": "kvcachepool.io/v1alpha1",
        "kind": "KVCachePool",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"model": {"id": "org/model", "revision": "r1"}, "backend": {"mooncake": {}}} | spec,
    }


def manifest_of(pool: KVCachePool) -> dict[str, Any]:
    """What a user would have written for that pool."""
    return {
        "apiVersion": constants.API_VERSION,
        "kind": constants.KIND,
        "metadata": {"name": pool.metadata.name, "namespace": pool.metadata.namespace},
        "spec": pool.spec.model_dump(mode="json", by_alias=True, exclude_unset=True, exclude_none=True),
    }


def full(model: type[BaseModel]) -> dict[str, Any]:
    """An instance of a status model in which no field is empty, as it goes over the wire."""
    values: dict[str, Any] = {}
    for name, field in model.model_fields.items():
        nested = list(models_in(field.annotation))
        kinds = {field.annotation, *get_args(field.annotation)}
        if nested == [Condition]:
            value: Any = [full(Condition) | {"type": kind} for kind in ("Ready", "ReuseVerified")]
        elif nested:
            value = full(nested[0])
            if get_origin(field.annotation) is list:
                value = [value]
        elif get_origin(field.annotation) is dict:
            value = {"some": "text"}
        elif list[str] in kinds:
            value = [f"some {name}"]
        elif bool in kinds:
            value = True
        elif int in kinds:
            value = 2**33 + 7 if "bytes" in name else 7
        elif "Unknown" in kinds:
            value = "Unknown"
        else:
            value = TIME if name.endswith(("time", "start")) else f"some {name}"
        values[name] = value
    return model(**values).model_dump(by_alias=True, mode="json")


def full_status() -> dict[str, Any]:
    """Every field of a status that there is."""
    return full(PoolStatus)
