"""The main job: a pool that is Ready, and whose reuse was seen."""

import re

from e2e.harness.kube import Kube
from e2e.tests.conftest import Running


def test_the_pool_is_ready_and_the_table_says_so(kube: Kube, shared_pool: Running) -> None:
    row = kube.run("get", "kvpool", "-n", shared_pool.namespace, shared_pool.name, "--no-headers").split()
    assert row[0] == shared_pool.name
    assert row[1] == "True"
    assert "2/2" in row
    assert "mooncake" in row
    kube.run("wait", "--for=condition=Ready", f"kvpool/{shared_pool.name}", "-n", shared_pool.namespace, "--timeout=5s")


def test_one_engine_reused_what_the_other_computed(kube: Kube, shared_pool: Running) -> None:
    status = kube.pool(shared_pool.namespace, shared_pool.name)["status"]
    seen = status["verification"]
    condition = kube.condition(shared_pool.namespace, shared_pool.name, "ReuseVerified")
    assert condition["status"] == "True"
    assert seen["writer"] != seen["reader"]
    assert seen["promptTokens"] >= 8000
    assert seen["reusedTokens"] >= seen["promptTokens"] - 64
    assert seen["negativeReusedTokens"] == 0
    assert re.search(rf"\b{seen['reusedTokens']:,}|{seen['reusedTokens']}\b", condition["message"])


def test_worth_is_judged_by_both_times(kube: Kube, shared_pool: Running) -> None:
    seen = kube.pool(shared_pool.namespace, shared_pool.name)["status"]["verification"]
    worth = kube.condition(shared_pool.namespace, shared_pool.name, "ReuseWorthwhile")
    faster = seen["ttftReuseMs"] < seen["ttftRecomputeMs"]
    assert worth["status"] == ("True" if faster else "False")
    assert str(seen["ttftReuseMs"]) in worth["message"].replace(",", "")
    assert str(seen["ttftRecomputeMs"]) in worth["message"].replace(",", "")
    assert seen["loadedBytes"] > 0


def test_every_condition_is_there_with_a_reason(kube: Kube, shared_pool: Running) -> None:
    pool = kube.pool(shared_pool.namespace, shared_pool.name)
    conditions = {c["type"]: c for c in pool["status"]["conditions"]}
    needed = ["Accepted", "HardwareMatched", "StoreReady", "EnginesReady", "SchemaHomogeneous", "TransportMatched"]
    judged = ["ReuseVerified", "ReuseWorthwhile", "CacheEffective", "Available", "Ready"]
    assert set(conditions) == {*needed, *judged}
    assert all(c["reason"] and c["lastTransitionTime"] for c in conditions.values())
    assert {c["observedGeneration"] for c in conditions.values()} == {pool["metadata"]["generation"]}
    for kind in (*needed, "Available", "Ready"):
        assert conditions[kind]["status"] == "True", conditions[kind]


def test_every_engine_has_the_digest_as_label_and_prefix_and_the_same_seed(kube: Kube, shared_pool: Running) -> None:
    digest = kube.pool(shared_pool.namespace, shared_pool.name)["status"]["schema"]["digest"]
    pods = kube.items("pods", "-n", shared_pool.namespace, "-l", "kvcachepool.io/component=engine")
    assert len(pods) == 2
    for pod in pods:
        assert pod["metadata"]["labels"]["kvcachepool.io/schema"] == digest
        (engine,) = pod["spec"]["containers"]
        assert any(f'"cache_prefix": "{digest}"' in argument for argument in engine["args"])
        assert [v["value"] for v in engine["env"] if v["name"] == "PYTHONHASHSEED"] == ["0"]


def test_events_tell_the_story(kube: Kube, shared_pool: Running) -> None:
    events = kube.items("events", "-n", shared_pool.namespace, "--field-selector", "involvedObject.kind=KVCachePool")
    assert len(events) < 40, "transitions only"
    assert any("reus" in event["message"].lower() for event in events)


def test_a_single_native_engine_cannot_prove_sharing_and_says_so(kube: Kube, solo_pool: Running) -> None:
    verified = kube.condition(solo_pool.namespace, solo_pool.name, "ReuseVerified")
    assert (verified["status"], verified["reason"]) == ("Unknown", "SinglePod")
    row = kube.run("get", "kvpool", "-n", solo_pool.namespace, solo_pool.name, "--no-headers").split()
    assert row[1] == "True"
    assert "native" in row
    assert "1/1" in row
