"""Labels, owner and names that every child carries."""

from collections.abc import Mapping
from typing import Any

from kvcachepool import constants, names
from kvcachepool.api import KVCachePool


def selector(pool: KVCachePool, component: str, digest: str = "") -> dict[str, str]:
    """Labels that find the pods of one component, with a digest those of one generation; never changes, since a
    Deployment's selector cannot."""
    result = {
        constants.LABEL_POOL: names.pool_label(pool.metadata.name),
        constants.LABEL_COMPONENT: component,
    }
    if digest:
        result[constants.LABEL_SCHEMA] = digest
    return result


def labels(pool: KVCachePool, component: str, digest: str = "") -> dict[str, str]:
    """Labels of a child or its pods."""
    result = {
        "app.kubernetes.io/name": "kvcachepool",
        "app.kubernetes.io/instance": names.pool_label(pool.metadata.name),
        "app.kubernetes.io/component": component,
        "app.kubernetes.io/managed-by": "kvcachepool-operator",
    }
    return result | selector(pool, component, digest)


def metadata(
    pool: KVCachePool,
    component: str,
    name: str,
    *,
    digest: str = "",
    annotations: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Metadata of a child, owned by the pool so that it goes with it."""
    result: dict[str, Any] = {
        "name": name,
        "namespace": pool.metadata.namespace,
        "labels": labels(pool, component, digest),
        "ownerReferences": [pool.owner_reference()],
    }
    if annotations:
        result["annotations"] = dict(annotations)
    return result
