"""Pods are replaced because the user's spec asks for it, and for no other reason."""

from collections.abc import Iterator
from copy import deepcopy
from typing import Any

import pytest

from kvcachepool import constants
from kvcachepool.facts import Observed, PodFacts, WorkloadFacts
from kvcachepool.plan import make_plan
from kvcachepool.plan_types import Plan
from kvcachepool.render.rollout import edited_by_hand, keep_running
from kvcachepool.settings import Settings
from kvcachepool.watchcache import slim
from tests.pools import merged, pool

READY_MASTER = (PodFacts("demo-master-1", "u1", constants.MASTER, "", ready=True),)


def plan_for(
    spec: dict[str, Any] | None = None, live: dict[str, Any] | None = None, settings: Settings | None = None
) -> Plan:
    """The plan of an edit; where it restarts the master, the user has approved of that."""
    observed = Observed(
        pods=READY_MASTER, children={("Deployment", d["metadata"]["name"]): d for d in (live or {}).values()}
    )
    plan = make_plan(pool(spec), observed, settings or Settings())
    if plan.held is None:
        return plan
    approved = {constants.ANNOTATION_APPROVE: plan.held.approval}
    return make_plan(pool(spec, annotations=approved), observed, settings or Settings())


def deployments(plan: Plan) -> dict[str, Any]:
    return {
        obj["metadata"]["labels"][constants.LABEL_COMPONENT]: deepcopy(dict(obj))
        for obj in plan.objects
        if obj["kind"] == "Deployment"
    }


def rolls(before: dict[str, Any], after: dict[str, Any]) -> set[str]:
    """Components whose pod template differs: exactly those that a Deployment controller would replace."""
    return {name for name in before if before[name]["spec"]["template"] != after[name]["spec"]["template"]}


RDMA: dict[str, Any] = {"transport": {"protocol": "RDMA", "rdma": {"resourceName": "rdma/hca"}}}
ROLLS: list[tuple[dict[str, Any], set[str]]] = [
    ({}, set()),
    ({"engines": {"replicas": 5}}, set()),
    ({"engines": {"maxSurge": 1}}, set()),
    ({"verification": {"enabled": False}}, set()),
    ({"schema": {"blockSize": 64, "dtype": "auto"}}, set()),
    ({"store": {"replicas": 4}}, set()),
    ({"schema": {"blockSize": 32}}, {"engine"}),
    ({"model": {"revision": "r2"}}, {"engine"}),
    ({"model": {"servedName": "chat"}}, {"engine"}),
    ({"engines": {"image": "registry.internal/vllm:0.33.0-cu13@sha256:abc"}}, {"engine"}),
    ({"cuda": {"version": "13"}}, set()),
    ({"cuda": {"version": "12"}}, {"engine"}),
    ({"engines": {"whenNoNodeFits": "Create"}}, set()),
    ({"transport": {"rdma": {"resourceName": "rdma/hca"}}}, set()),
    (RDMA, {"engine", "store"}),
    (merged(RDMA, {"transport": {"rdma": {"hostNetwork": True}}}), {"engine", "store"}),
    ({"engines": {"env": [{"name": "A", "value": "1"}]}}, {"engine"}),
    ({"engines": {"scheduling": {"nodeSelector": {"a": "b"}}}}, {"engine"}),
    ({"store": {"segmentSize": "1Gi"}}, {"store"}),
    ({"store": {"localBufferSize": "2Gi"}}, {"store", "engine"}),
    ({"store": {"master": {"evictionRatio": "0.1"}}}, {"master"}),
    ({"store": {"master": {"resources": {"limits": {"memory": "4Gi"}}}}}, {"master"}),
    ({"store": {"image": "registry.internal/mooncake:1"}}, {"master", "store"}),
    ({"store": {"scheduling": {"nodeSelector": {"a": "b"}}}}, {"store"}),
    ({"scheduling": {"tolerations": [{"operator": "Exists"}]}}, {"engine", "master", "store"}),
    ({"imagePullSecrets": [{"name": "regcred"}]}, {"engine", "master", "store"}),
    ({"rolloutToken": "now"}, set()),
    ({"schema": {"hashSeed": "7"}}, {"engine"}),
]


@pytest.mark.parametrize(("change", "expected"), ROLLS)
def test_an_edit_replaces_just_the_pods_it_concerns(change: dict[str, Any], expected: set[str]) -> None:
    live = deployments(plan_for())
    after = plan_for(change, live)
    assert rolls(live, deployments(after)) == expected
    assert after.outdated == ()


def newer(live: dict[str, Any], *, spec: bool) -> dict[str, Any]:
    """What an older operator left behind: other labels, and with `spec` another rendering, too."""
    old = deepcopy(live)
    for deployment in old.values():
        template = deployment["spec"]["template"]
        template["metadata"]["labels"]["app.kubernetes.io/version"] = "0.0.9"
        if spec:
            template["spec"]["containers"][0].setdefault("env", []).append({"name": "OLD_DEFAULT", "value": "1"})
            deployment["metadata"]["annotations"][constants.ANNOTATION_TEMPLATE] = "of-an-older-operator"
    return old


def test_an_upgrade_that_changes_only_a_label_replaces_nothing() -> None:
    old = newer(deployments(plan_for()), spec=False)
    plan = plan_for(live=old)
    assert rolls(old, deployments(plan)) == set()
    assert plan.outdated == ()


def test_an_upgrade_that_renders_something_else_replaces_nothing_and_says_so() -> None:
    old = newer(deployments(plan_for()), spec=True)
    plan = plan_for(live=old)
    assert rolls(old, deployments(plan)) == set()
    assert set(plan.outdated) == {"engine", "master", "store"}
    again = plan_for(live=deployments(plan))
    assert rolls(old, deployments(again)) == set(), "and not at the pass after that"


def test_after_an_upgrade_an_edit_takes_the_new_rendering_only_where_it_concerns() -> None:
    old = newer(deployments(plan_for()), spec=True)
    plan = plan_for({"model": {"servedName": "chat"}}, old)
    assert rolls(old, deployments(plan)) == {"engine"}
    assert set(plan.outdated) == {"master", "store"}


def test_after_an_upgrade_the_rollout_token_moves_everything() -> None:
    old = newer(deployments(plan_for()), spec=True)
    plan = plan_for({"rolloutToken": "now"}, old)
    assert rolls(old, deployments(plan)) == {"engine", "master", "store"}
    assert plan.outdated == ()


def test_another_registry_of_the_installation_replaces_nothing() -> None:
    live = deployments(plan_for())
    plan = plan_for(
        live=live, settings=Settings(image_registry="registry.internal:5000", image_pull_secrets=("regcred",))
    )
    assert rolls(live, deployments(plan)) == set()


def owned_by(manager: str, *, spec: bool = True) -> dict[str, Any]:
    fields = {"f:spec": {"f:template": {"f:spec": {"f:containers": {}}} if spec else {"f:metadata": {}}}}
    return {"manager": manager, "operation": "Update", "fieldsV1": fields}


def test_a_template_edited_by_hand_is_put_back() -> None:
    rendered = deployments(plan_for())
    edited = deepcopy(rendered)
    edited["engine"]["spec"]["template"]["spec"]["containers"][0]["args"].append("--dtype=float16")
    plan = plan_for(live=edited)
    assert deployments(plan)["engine"]["spec"]["template"] == rendered["engine"]["spec"]["template"]


def test_a_template_edited_by_hand_after_an_upgrade_takes_the_new_rendering() -> None:
    old = newer(deployments(plan_for()), spec=True)["engine"]
    old["metadata"]["managedFields"] = [owned_by("kubectl-edit")]
    desired = deployments(plan_for())["engine"]
    final, outdated = keep_running(desired, old)
    assert (final, outdated) == (desired, False)
    old["metadata"]["managedFields"].append({"manager": constants.FIELD_MANAGER, "operation": "Apply"})
    cached = slim(old)  # passes see nothing else
    assert cached["metadata"]["managedFields"] == [owned_by("kubectl-edit")]
    assert keep_running(desired, cached) == (desired, False)


@pytest.mark.parametrize(
    ("entry", "edited"),
    [
        (owned_by("kubectl-edit"), True),
        (owned_by("kubectl-rollout", spec=False), False),
        (owned_by("kube-controller-manager", spec=False), False),
        ({"manager": constants.FIELD_MANAGER, "operation": "Apply", "fieldsV1": owned_by("x")["fieldsV1"]}, False),
        ({"manager": "odd"}, False),
    ],
)
def test_who_edited_is_read_from_the_field_managers(entry: dict[str, Any], edited: bool) -> None:
    assert edited_by_hand({"metadata": {"managedFields": [entry]}}) is edited


def leaves(value: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from leaves(inner, (*path, key))
    else:
        yield path


EVERY_FIELD: dict[str, Any] = {
    "model": {
        "servedName": "x",
        "revision": "r9",
        "id": "o/m",
        "source": {"hub": None, "pvc": {"claimName": "c", "path": "p"}},
    },
    "schema": {
        "dtype": "float16",
        "kvCacheDtype": "fp8",
        "quantization": "awq",
        "blockSize": 16,
        "hashAlgorithm": "sha256",
        "hashSeed": "3",
        "attentionBackend": "FLASH_ATTN",
        "kvLayout": "LBHNC",
        "parallelism": {"tensor": 2, "pipeline": 2, "prefillContext": 2, "interleave": 4, "layerPartition": [1, 3]},
        "kvCacheDtypeSkipLayers": ["0"],
        "prefixMatchUnit": 8,
        "hybrid": {"mambaCacheDtype": "float32"},
        "speculative": {"method": "eagle3", "model": "o/draft", "tokens": 2},
        "lora": [{"name": "a", "version": "v1", "path": "/a"}],
    },
    "backend": {"mooncake": {"version": "0.3.14"}},
    "store": {
        "mode": "Embedded",
        "segmentSize": "1Gi",
        "localBufferSize": "64Mi",
        "drainSeconds": 60,
        "image": "m:1",
        "imagePullPolicy": "Never",
        "resources": {"limits": {"cpu": "2"}},
        "scheduling": {"nodeSelector": {"a": "b"}},
        "identity": {"runAsUser": 1000, "runAsGroup": 1000, "fsGroup": 1000},
        "master": {
            "resources": {"limits": {"memory": "9Gi"}},
            "scheduling": {"nodeSelector": {"a": "b"}},
            "evictionHighWatermark": "0.8",
            "evictionRatio": "0.1",
            "leaseTtlMilliseconds": 20000,
            "clientTtlSeconds": 20,
        },
    },
    "engines": {
        "version": "0.32.0",
        "image": "e:1-cu12",
        "imagePullPolicy": "Never",
        "env": [{"name": "A", "value": "1"}],
        "extraArgs": ["--enforce-eager"],
        "gpu": {"resourceName": "nvidia.com/mig-1g.5gb", "product": "NVIDIA-L4"},
        "resources": {"limits": {"cpu": "4"}},
        "preflight": False,
        "engineMemory": "9Gi",
        "shmSize": "3Gi",
        "scheduling": {"priorityClassName": "high"},
        "identity": {"runAsUser": 1000},
        "startupSeconds": 60,
        "shutdownSeconds": 20,
    },
    "scheduling": {"runtimeClassName": "nvidia"},
    "cuda": {"version": "12"},
    "transport": {
        "protocol": "RDMA",
        "rdma": {
            "resourceName": "rdma/hca",
            "count": 2,
            "provider": "EFA",
            "devices": ["mlx5_0"],
            "gidIndex": 0,
            "networks": ["a"],
        },
    },
    "imagePullSecrets": [{"name": "regcred"}],
    "rolloutToken": "1",
}


ONLY_TOGETHER = ("model", "schema.parallelism", "schema.speculative")
"""Groups whose fields cannot be changed one by one."""
OWN_IMAGES = {"engines": {"image": "e:1-cu13"}, "store": {"image": "m:1"}}
NEEDS: dict[str, dict[str, Any]] = {
    "backend.mooncake.version": OWN_IMAGES,  # the operator's hold another one
    "transport.protocol": RDMA,
    "transport.rdma.provider": merged(RDMA, OWN_IMAGES),  # the operator's have no EFA
}
"""What a field cannot be changed without."""


@pytest.mark.parametrize("path", sorted({".".join(path) for path in leaves(EVERY_FIELD)}))
def test_no_field_that_shapes_a_pod_is_forgotten_in_the_inputs(path: str) -> None:
    """Were a field missing in the inputs of a component, an edit of it would silently change nothing."""
    whole = next((group for group in ONLY_TOGETHER if path.startswith(f"{group}.")), path)
    before: dict[str, Any] = RDMA if path.startswith("transport.rdma.") else {}
    change = merged(NEEDS.get(path, RDMA if before else {}), _pick(EVERY_FIELD, whole.split(".")))
    live = deployments(plan_for(before))
    fresh = deployments(plan_for(change))
    after = deployments(plan_for(change, live))
    assert fresh
    for component, deployment in fresh.items():
        assert after[component]["spec"]["template"] == deployment["spec"]["template"], component


def _pick(tree: dict[str, Any], path: list[str]) -> dict[str, Any]:
    head, *rest = path
    return {head: _pick(tree[head], rest) if rest else tree[head]}


def test_the_changes_above_name_every_field_of_the_api() -> None:
    from kvcachepool.api.pool import PoolSpec

    spec = PoolSpec.model_validate(merged({"model": {"id": "a"}, "backend": {"mooncake": {}}}, EVERY_FIELD))
    covered = {".".join(path[:2]) for path in leaves(EVERY_FIELD)}
    for name, field in PoolSpec.model_fields.items():
        alias = field.alias or name
        model = getattr(spec, name)
        if alias in {"verification", "networkPolicy"} or not hasattr(type(model), "model_fields"):
            continue
        for inner, inner_field in type(model).model_fields.items():
            path = f"{alias}.{inner_field.alias or inner}"
            exempt = {
                "engines.replicas",
                "engines.maxSurge",
                "engines.whenNoNodeFits",
                "engines.restartWhenStranded",
                "engines.nodesPerEngine",
                "cuda.allowForwardCompat",
                "store.replicas",
                "backend.native",
                "scheduling.nodeSelector",
                "scheduling.tolerations",
                "scheduling.affinity",
                "scheduling.topologySpreadConstraints",
                "scheduling.priorityClassName",
            }
            assert path in covered or path in exempt, f"{path} is not in EVERY_FIELD"


def running() -> dict[str, WorkloadFacts]:
    digest = make_plan(pool(), Observed(), Settings()).schema.digest
    name = f"demo-engine-{digest}"
    return {name: WorkloadFacts(name, "engine", 2, 2, 2, 1, 1, digest=digest)}


def test_no_engine_is_made_while_a_reference_is_missing_and_none_is_taken_away() -> None:
    missing = (("engines.env[0]", "Secret", "hub-token"),)
    plan = make_plan(pool(), Observed(pods=READY_MASTER, missing=missing), Settings())
    assert "engine" not in deployments(plan)
    assert plan.waiting is not None
    assert "Secret hub-token" in plan.waiting.message
    plan = make_plan(pool(), Observed(pods=READY_MASTER, missing=missing, workloads=running()), Settings())
    assert "engine" in deployments(plan)


def test_engines_stay_when_the_master_is_gone() -> None:
    """A dead master means recompute, not fewer engines."""
    assert "engine" not in deployments(make_plan(pool(), Observed(), Settings()))
    assert "engine" in deployments(make_plan(pool(), Observed(workloads=running()), Settings()))


def test_forward_compatibility_is_part_of_the_engines() -> None:
    product = {"engines": {"gpu": {"product": "NVIDIA-L4"}}}
    live = deployments(plan_for(product))
    allowed = merged(product, {"cuda": {"allowForwardCompat": True}})
    assert rolls(live, deployments(plan_for(allowed, live))) == {"engine"}


def test_a_device_plugin_is_no_part_of_pods() -> None:
    live = deployments(plan_for(RDMA))
    plugin = {"transport": {"rdma": {"devicePlugin": {"selectors": {"vendors": ["15b3"]}}}}}
    assert rolls(live, deployments(plan_for(merged(RDMA, plugin), live))) == set()
