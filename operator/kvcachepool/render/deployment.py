"""The Deployment of one component."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kvcachepool import constants, names
from kvcachepool.api import KVCachePool
from kvcachepool.render import metadata
from kvcachepool.render.hashing import content_hash

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Workload:
    """What a backend wants to run as one component."""

    component: str
    replicas: int
    strategy: Json
    pod_spec: Json
    inputs: Any
    """Everything of the user's spec that `pod_spec` was rendered from. While it stays the same, running pods are
    left alone, whatever a newer operator would render."""
    pod_annotations: Mapping[str, str] = field(default_factory=dict)
    """Configuration files of the pod (through the downward API), so that a changed file is a changed template."""
    annotations: Mapping[str, str] = field(default_factory=dict)
    """Of the Deployment itself; they replace no pod."""
    progress_seconds: int = 600
    apart_seconds: int = 0
    """How long a new pod must be ready before the next one is replaced."""
    digest: str = ""
    """Schema label of the pods; only for components that serve one schema."""


RECREATE: Json = {"type": "Recreate"}


def one_by_one(surge: int = 0) -> Json:
    """Replace pods one at a time. Without surge no spare device is needed; the default would wait for one for ever."""
    return {
        "type": "RollingUpdate",
        "rollingUpdate": {"maxSurge": surge, "maxUnavailable": 0 if surge else 1},
    }


def workload_name(pool: KVCachePool, component: str, digest: str = "") -> str:
    """The Deployment's name: with a digest it is one generation's, so that a former schema has its Deployment again."""
    return names.child(pool.metadata.name, f"{component}-{digest}" if digest else component)


def deployment(pool: KVCachePool, workload: Workload) -> Json:
    """The Deployment, with the two hashes that `rollout.keep_running` compares."""
    template = {
        "metadata": {
            "labels": metadata.labels(pool, workload.component, workload.digest),
            "annotations": dict(workload.pod_annotations),
        },
        "spec": workload.pod_spec,
    }
    if not workload.pod_annotations:
        del template["metadata"]["annotations"]
    hashes = {
        constants.ANNOTATION_INPUTS: content_hash(workload.inputs),
        constants.ANNOTATION_TEMPLATE: content_hash([template["spec"], dict(workload.pod_annotations)]),
    }
    apart = {"minReadySeconds": workload.apart_seconds} if workload.apart_seconds else {}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": metadata.metadata(
            pool,
            workload.component,
            workload_name(pool, workload.component, workload.digest),
            digest=workload.digest,
            annotations=hashes | dict(workload.annotations),
        ),
        "spec": {
            "replicas": workload.replicas,
            **apart,
            "revisionHistoryLimit": 3,
            "progressDeadlineSeconds": workload.progress_seconds,
            "selector": {"matchLabels": metadata.selector(pool, workload.component, workload.digest)},
            "strategy": workload.strategy,
            "template": template,
        },
    }
