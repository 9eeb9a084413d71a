"""What an engine is told to do when the store fails, and how long it may take to end and to start."""

import json
from typing import Any

import pytest

from kvcachepool import constants
from kvcachepool.facts import Observed, PodFacts
from kvcachepool.plan import make_plan
from kvcachepool.settings import Settings
from tests.nodes import node
from tests.pools import MOONCAKE, NATIVE, pool

READY = Observed(
    pods=(PodFacts("m", "u", constants.MASTER, "", ready=True),), nodes=(node("gpu-1"),), leader_worker_sets=True
)


def engine(base: dict[str, Any], spec: dict[str, Any] | None = None) -> dict[str, Any]:
    """The engines' pod spec."""
    plan = make_plan(pool(spec, base=base), READY, Settings())
    assert not plan.findings
    (found,) = (
        obj
        for obj in plan.objects
        if obj["kind"] == "Deployment" and obj["metadata"]["labels"][constants.LABEL_COMPONENT] == constants.ENGINE
    )
    result: dict[str, Any] = found["spec"]["template"]["spec"]
    return result


def flag(spec: dict[str, Any], name: str) -> str:
    (found,) = (a.partition("=")[2] for a in spec["containers"][0]["args"] if a.startswith(f"{name}="))
    return found


@pytest.mark.parametrize("base", [MOONCAKE, NATIVE], ids=["mooncake", "native"])
def test_a_failed_load_is_recomputed_whatever_the_engines_default_is(base: dict[str, Any]) -> None:
    """Mooncake#935, vllm#19329: with another policy a dead master makes requests fail."""
    assert json.loads(flag(engine(base), "--kv-transfer-config"))["kv_load_failure_policy"] == "recompute"


@pytest.mark.parametrize("value", ["fail", "abort"])
def test_no_other_policy_gets_in_by_a_flag(value: str) -> None:
    given = [f'--kv-transfer-config={{"kv_load_failure_policy":"{value}"}}']
    plan = make_plan(pool({"engines": {"extraArgs": given}}), READY, Settings())
    (finding,) = plan.findings
    assert "spec.engines.extraArgs: --kv-transfer-config is not allowed" in finding.message
    assert not plan.objects


@pytest.mark.parametrize("base", [MOONCAKE, NATIVE], ids=["mooncake", "native"])
@pytest.mark.parametrize("seconds", [10, 300])
def test_the_kubelet_waits_longer_for_an_engine_than_it_does_for_its_requests(
    base: dict[str, Any], seconds: int
) -> None:
    """Mooncake#889: an engine that is killed before it has closed the store leaves a dead segment."""
    spec = engine(base, {"engines": {"shutdownSeconds": seconds}})
    assert spec["terminationGracePeriodSeconds"] > int(flag(spec, "--shutdown-timeout")) == seconds


def test_a_load_of_thirteen_minutes_is_no_failure() -> None:
    probe = engine(MOONCAKE)["containers"][0]["startupProbe"]
    assert probe["periodSeconds"] * probe["failureThreshold"] > 13 * 60


@pytest.mark.parametrize("seconds", [0, 300])
def test_the_kubelet_waits_longer_for_a_store_pod_than_its_blocks_take(seconds: int) -> None:
    plan = make_plan(pool({"store": {"replicas": 2, "drainSeconds": seconds}}), READY, Settings())
    (store,) = (o for o in plan.objects if o["kind"] == "Deployment" and o["metadata"]["name"] == "demo-store")
    assert store["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] > seconds
