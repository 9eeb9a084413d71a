"""Pods over their lives: labels, generations, owners, updates."""

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest

from e2e.cluster.kubectl import Kubectl
from e2e.harness.api import Api
from e2e.harness.latency import admission_latency
from kvcachepool import constants
from kvcachepool.api import KVCachePool
from kvcachepool.plan import make_plan
from kvcachepool.settings import Settings
from tests.apiserver.admission.conftest import World
from tests.apiserver.admission.shapes import first
from tests.apiserver.conftest import eventually
from tests.members import MASTER_READY, engine_of, member_of, pods_of, schema_of, status_of
from tests.pools import merged, pool

Json = dict[str, Any]


def test_a_store_pod_needs_neither_seed_nor_schema_label_but_no_other_seed(world: World, demo: KVCachePool) -> None:
    store = pods_of(demo)[constants.STORE]
    assert constants.LABEL_SCHEMA not in store["metadata"]["labels"]
    assert world.api.create_pod(store) == ""
    first(store)["env"].append({"name": "PYTHONHASHSEED", "value": "7"})
    assert "hashSeed (PYTHONHASHSEED) must be 0" in world.api.create_pod(store)


def test_while_engines_move_to_a_new_schema_both_are_let_in_and_each_is_held_to_its_own(world: World) -> None:
    old = world.pool()
    new = pool({"schema": {"blockSize": 16}}, name="demo", namespace=world.namespace)
    world.status("demo", status_of(new, old))
    world.admits(engine_of(new))
    assert world.api.create_pod(engine_of(old)) == ""
    mixed = engine_of(new)
    mixed["metadata"]["labels"][constants.LABEL_SCHEMA] = schema_of(old).digest
    assert "blockSize (--block-size) is 16, the pool has 64" in world.api.create_pod(mixed)
    world.status("demo", status_of(new))
    eventually(lambda: world.api.create_pod(engine_of(old)) != "")
    said = world.api.create_pod(engine_of(old))
    assert f"label kvcachepool.io/schema is {schema_of(old).digest}, pool demo has {schema_of(new).digest}" in said


def test_a_pool_without_a_schema_in_force_lets_no_engine_in_but_its_store(world: World) -> None:
    subject = world.pool(status={"backend": "mooncake"})
    eventually(lambda: "no params found" not in world.api.create_pod(engine_of(subject)))
    assert "pool demo has no schema in force yet: wait until its condition Accepted is True" in world.api.create_pod(
        engine_of(subject)
    )
    pods = pods_of(subject)
    assert [world.api.create_pod(pods[c]) for c in (constants.MASTER, constants.STORE)] == ["", ""]


def test_a_pool_with_a_name_too_long_for_a_label_is_found_by_its_short_one(world: World) -> None:
    name = "x" * 80
    subject = pool(name=name, namespace=world.namespace)
    label = pods_of(subject)[constants.ENGINE]["metadata"]["labels"][constants.LABEL_POOL]
    world.pool(name=name, status=status_of(subject) | {"label": label})
    world.admits(engine_of(subject))
    assert "tensor (--tensor-parallel-size) is 2" in world.api.create_pod(engine_of(subject, "-tp=2"))


def test_each_pod_is_held_to_the_pool_it_names_and_to_no_other(world: World, demo: KVCachePool) -> None:
    other = world.pool({"schema": {"blockSize": 16}}, name="other")
    world.admits(engine_of(other))
    assert world.api.create_pod(engine_of(demo)) == ""


def test_a_labelled_pod_in_a_namespace_without_a_pool_is_refused(api: Api, namespace: str) -> None:
    said = api.create_pod(engine_of(pool(namespace=namespace)))
    assert "no params found for policy binding" in said
    assert "new-pods-need-a-pool-in-their-namespace" in said


def test_pods_without_the_label_are_never_touched(world: World, demo: KVCachePool, api: Api) -> None:
    bad = engine_of(demo, "-tp=4", PYTHONHASHSEED=None)
    for label in (constants.LABEL_POOL, constants.LABEL_SCHEMA, constants.LABEL_COMPONENT):
        bad["metadata"]["labels"].pop(label)
    assert world.api.create_pod(bad) == ""
    assert api.create_pod(merged(bad, {"metadata": {"namespace": "default"}})) == ""


def running(world: World, subject: KVCachePool, name: str) -> None:
    """A stored pod, made while it still fitted."""
    pod = member_of(subject)
    pod["metadata"] |= {"name": name, "finalizers": ["tests.kvcachepool.io/hold"]}
    assert world.api.create_pod(pod, keep=True) == ""


def owned(pod: Json, component: str = constants.ENGINE, **owner: Any) -> Json:
    """With another component label, and other words about its controller."""
    pod["metadata"]["labels"][constants.LABEL_COMPONENT] = component
    pod["metadata"]["ownerReferences"] = [pod["metadata"]["ownerReferences"][0] | owner]
    return pod


COPY = "which only pods of the operator's own workloads have: remove it"


def test_a_copy_of_the_operators_pod_cannot_stand_behind_its_services(world: World, demo: KVCachePool) -> None:
    name = engine_of(demo)["metadata"]["ownerReferences"][0]["name"]
    copies = [
        owned(engine_of(demo), name="copy-5d4f"),
        owned(engine_of(demo), name=name.replace("-5d4f", "-copy-5d4f")),
        owned(engine_of(demo), name=name.replace("demo-", "other-")),
        owned(engine_of(demo), name=name.replace("-5d4f", "-5d4e")),
        owned(engine_of(demo), name=name.replace("-5d4f", ""), kind="StatefulSet"),
        owned(engine_of(demo), kind="Job"),
        owned(engine_of(demo), controller=False),
    ]
    for component in (constants.ENGINE, constants.MASTER):
        copy = member_of(demo)
        copy["metadata"]["labels"][constants.LABEL_COMPONENT] = component
        copies.append(copy)
    for copy in copies:
        component = copy["metadata"]["labels"][constants.LABEL_COMPONENT]
        assert f"label kvcachepool.io/component is {component}, {COPY}" in world.api.create_pod(copy), copy["metadata"]
    assert world.api.create_pod(member_of(demo)) == ""


def test_by_their_real_controllers_the_operators_pods_are_made_and_copies_are_not(
    world: World, demo: KVCachePool, kubectl: Kubectl
) -> None:
    made = [o for o in make_plan(demo, MASTER_READY, Settings()).objects if o["kind"] == "Deployment"]
    assert {o["metadata"]["labels"][constants.LABEL_COMPONENT] for o in made} == {"engine", "master", "store"}
    base = f"/apis/apps/v1/namespaces/{world.namespace}/deployments"
    for deployment in made:
        for name in (deployment["metadata"]["name"], deployment["metadata"]["name"] + "-copy"):
            manifest = deepcopy(dict(deployment)) | {"metadata": {"name": name}}
            manifest["spec"] |= {"replicas": 1, "selector": {"matchLabels": {"of": name}}}
            manifest["spec"]["template"]["metadata"]["labels"]["of"] = name
            code, answer = world.api.call("POST", base, manifest)
            assert code == 201, answer

    def became() -> dict[str, str]:
        """By Deployment: its pod, or why there is none."""
        found = {}
        for item in world.api.call("GET", base)[1]["items"]:
            name, conditions = item["metadata"]["name"], item.get("status", {}).get("conditions", ())
            pods = kubectl.run("get", "pods", "-n", world.namespace, "-l", f"of={name}", "-o", "name")
            found[name] = pods or " ".join(c["message"] for c in conditions if c["type"] == "ReplicaFailure")
        return found

    eventually(lambda: all(became().values()))
    for name, result in became().items():
        assert (COPY in result) if name.endswith("-copy") else result.startswith("pod/"), (name, result)


def test_a_running_member_cannot_put_the_component_label_on(world: World, demo: KVCachePool) -> None:
    running(world, demo, "climber")
    patch = {"metadata": {"labels": {constants.LABEL_COMPONENT: constants.ENGINE}}}
    assert COPY in world.api.patch_pod(world.namespace, "climber", patch)


def test_a_label_of_a_running_pod_cannot_be_changed_to_what_it_is_not(world: World, demo: KVCachePool) -> None:
    running(world, demo, "member")
    patch = {"metadata": {"labels": {constants.LABEL_SCHEMA: "0123456789ab"}}}
    assert "label kvcachepool.io/schema is 0123456789ab" in world.api.patch_pod(world.namespace, "member", patch)
    gone = {"metadata": {"labels": {constants.LABEL_SCHEMA: None}}}
    assert "label kvcachepool.io/schema is unset" in world.api.patch_pod(world.namespace, "member", gone)
    assert world.api.patch_pod(world.namespace, "member", {"metadata": {"labels": {"team": "a"}}}) == ""
    leave = {"metadata": {"labels": {constants.LABEL_POOL: None}}}
    assert world.api.patch_pod(world.namespace, "member", leave) == ""


def test_a_running_pod_that_never_fitted_cannot_put_the_label_on(world: World, demo: KVCachePool) -> None:
    stranger = member_of(demo, "-tp=4")
    stranger["metadata"] |= {"name": "stranger", "labels": {}}
    assert world.api.create_pod(stranger, keep=True) == ""
    labels = member_of(demo)["metadata"]["labels"]
    said = world.api.patch_pod(world.namespace, "stranger", {"metadata": {"labels": labels}})
    assert "tensor (--tensor-parallel-size) is 4, the pool has 1" in said


def test_status_annotations_finalizers_and_deletion_pass_whatever_became_of_the_pool(
    world: World, demo: KVCachePool, kubectl: Kubectl
) -> None:
    running(world, demo, "late")
    other = pool({"schema": {"blockSize": 16}}, name="demo", namespace=world.namespace)
    world.status("demo", status_of(other))
    eventually(lambda: world.api.create_pod(engine_of(demo)) != "")
    change: Callable[..., str] = world.api.patch_pod
    assert change(world.namespace, "late", {"metadata": {"annotations": {"a": "b"}}}) == ""
    assert change(world.namespace, "late", {"metadata": {"labels": {"team": "b"}}}) == ""
    assert change(world.namespace, "late", {"status": {"phase": "Running"}}, "/status") == ""
    kubectl.run("delete", "kvcachepool", "demo", "-n", world.namespace)
    eventually(lambda: "no params found" in world.api.create_pod(engine_of(demo)))
    assert change(world.namespace, "late", {"metadata": {"labels": {"team": "c"}}}) == ""
    kubectl.run("delete", "pod", "late", "-n", world.namespace, "--wait=false", "--grace-period=0", "--force")
    assert change(world.namespace, "late", {"metadata": {"finalizers": None}}) == ""


def test_the_latency_of_both_kinds_of_pods_can_be_measured(demo: KVCachePool, api: Api) -> None:
    figures = admission_latency(api, engine_of(demo), count=20)
    print(f"labelled {figures.labelled:.1f} ms, unlabelled {figures.unlabelled:.1f} ms")
    assert figures.labelled > 0
    with pytest.raises(ValueError, match="blockSize"):
        admission_latency(api, engine_of(demo, "--block-size=1"), count=1)
