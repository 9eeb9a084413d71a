"""A user's mistake, or a part that hangs: the right condition, no retry loop, and recovery once it is mended."""

import time
from typing import Any

import pytest

from e2e.cluster.errors import ClusterError
from e2e.harness import operator, processes
from e2e.harness.kube import Json, Kube
from e2e.harness.pools import ENGINE_ARGS, engine_deployments, native_pool, tiny_pool
from e2e.harness.store_only import store_only
from e2e.tests.conftest import Running


def labelled(kube: Kube, namespace: str, pool: str) -> list[Json]:
    return kube.items("deployments,services,pods", "-n", namespace, "-l", f"kvcachepool.io/pool={pool}")


def patch(kube: Kube, namespace: str, pool: str, change: str) -> None:
    kube.run("patch", "kvpool", "-n", namespace, pool, "--type=merge", f"-p={change}")


def test_a_contradicting_flag_makes_nothing_and_is_mended_by_an_edit(
    kube: Kube, namespace: str, images: dict[str, str]
) -> None:
    kube.create(store_only(images, "wrong", namespace, engines={"extraArgs": ["--tensor-parallel-size=4"]}))
    condition = kube.wait_condition(namespace, "wrong", "Accepted", "False", reason="InvalidSpec", timeout=30)
    assert "spec.engines.extraArgs: --tensor-parallel-size is not allowed" in condition["message"]
    assert kube.condition(namespace, "wrong", "Ready")["status"] == "False"
    assert labelled(kube, namespace, "wrong") == []
    version = kube.pool(namespace, "wrong")["metadata"]["resourceVersion"]
    writes = operator.writes(kube)
    time.sleep(20)
    assert kube.pool(namespace, "wrong")["metadata"]["resourceVersion"] == version, "no retry loop"
    assert {k: v for k, v in operator.writes(kube).items() if "KVCachePool" not in k and "Event" not in k} == {
        k: v for k, v in writes.items() if "KVCachePool" not in k and "Event" not in k
    }
    patch(kube, namespace, "wrong", '{"spec":{"engines":{"extraArgs":["--enforce-eager"]}}}')
    kube.wait_condition(namespace, "wrong", "Accepted", "True", timeout=30)
    kube.wait_condition(namespace, "wrong", "StoreReady", "True", timeout=180)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"schema": {"hashAlgorithm": "builtin"}}, "hashAlgorithm"),
        ({"backend": {"native": {}, "mooncake": {}}}, "exactly one of native and mooncake"),
        ({"tolerationz": []}, "tolerationz"),
    ],
)
def test_the_api_server_refuses_what_it_can(
    kube: Kube, images: dict[str, str], change: dict[str, Any], message: str
) -> None:
    with pytest.raises(ClusterError, match=message):
        kube.create(store_only(images, "refused", "default", **change))


def test_a_missing_secret_is_named_and_found_later(kube: Kube, namespace: str, images: dict[str, str]) -> None:
    env = [{"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "hub-token", "key": "token"}}}]
    kube.create(store_only(images, "secretive", namespace, engines={"env": env}))
    condition = kube.wait_condition(namespace, "secretive", "Accepted", "False", reason="SecretNotFound", timeout=30)
    assert "hub-token" in condition["message"]
    kube.run("create", "secret", "generic", "hub-token", "-n", namespace, "--from-literal=token=canary-3141")
    kube.wait_condition(namespace, "secretive", "Accepted", "True", timeout=120)
    kube.wait_condition(namespace, "secretive", "StoreReady", "True", timeout=180)
    everything = kube.run("get", "kvpool,deployments,events,configmaps", "-n", namespace, "-o", "yaml")
    assert "canary-3141" not in everything


def test_a_quota_is_quoted_and_its_end_is_noticed(kube: Kube, namespace: str, images: dict[str, str]) -> None:
    quota = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "small", "namespace": namespace},
        "spec": {"hard": {"pods": "2"}},
    }
    kube.create(quota)
    kube.create(
        store_only(
            images,
            "squeezed",
            namespace,
            engines={"replicas": 1, "gpu": {"resourceName": "no.such/gpu"}, "whenNoNodeFits": "Create"},
        )
    )
    condition = kube.wait_condition(namespace, "squeezed", "EnginesReady", "False", reason="QuotaExceeded", timeout=180)
    assert "exceeded quota" in condition["message"]
    kube.run("delete", "resourcequota", "small", "-n", namespace)
    condition = kube.wait_condition(namespace, "squeezed", "EnginesReady", "False", reason="Unschedulable", timeout=240)
    assert "no.such/gpu" in condition["message"], "the scheduler's own words"


def test_a_forbidden_pod_is_explained_by_the_api_servers_sentence(
    kube: Kube, namespace: str, images: dict[str, str]
) -> None:
    """bank-vaults#706: only an event of a controller tells."""
    kube.namespace(namespace, enforce="restricted")
    transport = {"protocol": "RDMA", "rdma": {"resourceName": "rdma/none"}}
    kube.create(store_only(images, "locked", namespace, transport=transport))
    condition = kube.wait_condition(
        namespace, "locked", "StoreReady", "False", reason="PodSecurityForbidden", timeout=120
    )
    assert 'violates PodSecurity "restricted' in condition["message"]
    assert "IPC_LOCK" in condition["message"]
    version = kube.pool(namespace, "locked")["metadata"]["resourceVersion"]
    time.sleep(20)
    assert kube.pool(namespace, "locked")["metadata"]["resourceVersion"] == version, "no retry loop"
    patch(kube, namespace, "locked", '{"spec":{"transport":{"protocol":"TCP","rdma":null}}}')
    kube.wait_condition(namespace, "locked", "StoreReady", "True", timeout=240)


def test_a_pool_over_tcp_passes_the_strictest_profile(kube: Kube, namespace: str, images: dict[str, str]) -> None:
    kube.namespace(namespace, enforce="restricted")
    kube.create(store_only(images, "strict", namespace))
    kube.wait_condition(namespace, "strict", "StoreReady", "True", timeout=180)
    for pod in labelled(kube, namespace, "strict"):
        if pod["kind"] == "Pod":
            assert pod["spec"]["securityContext"]["runAsNonRoot"] is True


def test_an_image_that_cannot_start_is_named(kube: Kube, namespace: str, images: dict[str, str]) -> None:
    pool = store_only(images, "imageless", namespace)
    pool["spec"]["store"]["image"] = "localhost/kvcachepool/no-such-image:1"
    kube.create(pool)
    condition = kube.wait_condition(
        namespace, "imageless", "StoreReady", "False", reason="MasterImageBroken", timeout=90
    )
    assert "localhost/kvcachepool/no-such-image:1" in condition["message"]
    engines = kube.condition(namespace, "imageless", "EnginesReady")
    assert (engines["status"], engines["reason"]) == ("False", "WaitingForMaster")
    assert engine_deployments(kube, namespace, "imageless") == [], "no device is held meanwhile"
    patch(kube, namespace, "imageless", f'{{"spec":{{"store":{{"image":"{images["mooncake"]}"}}}}}}')
    kube.wait_condition(namespace, "imageless", "StoreReady", "True", timeout=180)


def test_a_crashing_engine_is_explained_by_its_first_actionable_line(
    kube: Kube, namespace: str, images: dict[str, str]
) -> None:
    pool = native_pool(images, "crashing", namespace, extraArgs=[*ENGINE_ARGS, "--no-such-flag"])
    kube.create(pool)
    condition = kube.wait_condition(
        namespace, "crashing", "EnginesReady", "False", reason="EngineCrashLoop", timeout=400
    )
    assert "--no-such-flag" in condition["message"]
    assert kube.condition(namespace, "crashing", "Available")["status"] == "False"


def test_a_master_that_hangs_slows_no_other_pool(
    kube: Kube, namespace: str, images: dict[str, str], shared_pool: Running
) -> None:
    kube.create(store_only(images, "hanging", namespace))
    kube.wait_condition(namespace, "hanging", "StoreReady", "True", timeout=180)
    (master,) = kube.items("pods", "-n", namespace, "-l", "kvcachepool.io/component=master")
    with processes.frozen(master, "master"):
        seen = kube.wait(
            "the master's silence shows",
            lambda: [
                c for c in (kube.condition(namespace, "hanging", "StoreReady"),)
                if c["status"] != "True" and c["reason"] != "StoreNotReady"
            ],
            timeout=60,
        )  # fmt: skip
        assert seen[0]["reason"] in {"MasterUnreachable", "MasterNotReady"}, seen
        before = kube.pool(shared_pool.namespace, shared_pool.name)["status"]["observedGeneration"]
        tokens = 8000 + int(time.time()) % 180
        patch(
            kube, shared_pool.namespace, shared_pool.name, f'{{"spec":{{"verification":{{"promptTokens":{tokens}}}}}}}'
        )
        kube.wait(
            "another pool is worked on meanwhile",
            lambda: kube.pool(shared_pool.namespace, shared_pool.name)["status"]["observedGeneration"] > before,
            timeout=20,
        )
    kube.wait_condition(namespace, "hanging", "StoreReady", "True", timeout=180)


def test_engines_wait_for_a_master_that_is_not_there(kube: Kube, namespace: str, images: dict[str, str]) -> None:
    """Mooncake#1198, sglang PR#10510: engines that start first die at store set-up."""
    pool = tiny_pool(images, "early", namespace)
    pool["spec"]["store"]["master"]["scheduling"] = {"nodeSelector": {"no": "node"}}
    kube.create(pool)
    condition = kube.wait_condition(namespace, "early", "EnginesReady", "False", reason="WaitingForMaster", timeout=60)
    assert "early-master" in condition["message"]
    assert engine_deployments(kube, namespace, "early") == []
