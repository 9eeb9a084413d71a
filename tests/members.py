"""Pods as a pool's workloads and its users make them, for tests of admission and injection."""

from copy import deepcopy
from typing import Any

from kvcachepool import constants
from kvcachepool.api import KVCachePool
from kvcachepool.backends.registry import backend_of
from kvcachepool.facts import Observed, PodFacts
from kvcachepool.plan import make_plan
from kvcachepool.schema import CacheSchema
from kvcachepool.settings import Settings

Json = dict[str, Any]

MASTER_READY = Observed(
    pods=(PodFacts(name="m", uid="m", component=constants.MASTER, digest="", ready=True),), leader_worker_sets=True
)


def schema_of(pool: KVCachePool) -> CacheSchema:
    """The pool's declared schema."""
    return backend_of(pool).schema(pool)


def status_of(*pools: KVCachePool) -> Json:
    """A status in which the schemas of these pools (of one name, at different times) are admitted."""
    schemas = [schema_of(pool) for pool in pools]
    return {
        "label": pools[0].metadata.name,
        "schema": {
            "digest": schemas[0].digest,
            "canonical": schemas[0].canonical,
            "admitted": [{"digest": s.digest, "fields": s.texts} for s in schemas],
        },
    }


def pods_of(pool: KVCachePool) -> dict[str, Json]:
    """One pod of each workload, by component, as its controller would make it."""
    plan = make_plan(pool, MASTER_READY, Settings())
    assert not plan.findings, plan.findings
    pods = []
    for obj in plan.objects:
        name = obj["metadata"]["name"]
        if obj["kind"] == "Deployment":
            pods.append(
                _controlled(obj["spec"]["template"], "ReplicaSet", f"{name}-5d4f", {"pod-template-hash": "5d4f"})
            )
        elif obj["kind"] == "LeaderWorkerSet":
            group, label = obj["spec"]["leaderWorkerTemplate"], {"leaderworkerset.sigs.k8s.io/name": name}
            pods.append(_controlled(group["leaderTemplate"], "StatefulSet", name, label))
            pods.append(_controlled(group["workerTemplate"], "StatefulSet", f"{name}-0", label))
    return {
        (component := pod["metadata"]["labels"][constants.LABEL_COMPONENT]): {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {**pod["metadata"], "name": component, "namespace": pool.metadata.namespace},
            "spec": pod["spec"],
        }
        for pod in pods
    }


def _controlled(template: Json, kind: str, name: str, labels: Json) -> Json:
    """A pod of the template with what its controller adds."""
    pod = deepcopy(dict(template))
    owner = {"apiVersion": "apps/v1", "kind": kind, "name": name, "uid": "u", "controller": True}
    pod["metadata"] |= {"labels": pod["metadata"]["labels"] | labels, "ownerReferences": [owner]}
    return pod


def member_of(pool: KVCachePool, *more_args: str, **env: str | None) -> Json:
    """The same as a user's own pod: nobody controls it, and no Service selects it."""
    pod = engine_of(pool, *more_args, **env)
    del pod["metadata"]["labels"][constants.LABEL_COMPONENT], pod["metadata"]["ownerReferences"]
    return pod


def engine_of(pool: KVCachePool, *more_args: str, **env: str | None) -> Json:
    """An engine pod of the pool with further words on its command line, and variables set (or with None removed)."""
    pod = pods_of(pool)[constants.ENGINE]
    container = pod["spec"]["containers"][0]
    container["args"] += more_args
    container["env"] = [v for v in container["env"] if v["name"] not in env]
    container["env"] += [{"name": name, "value": value} for name, value in env.items() if value is not None]
    return pod
