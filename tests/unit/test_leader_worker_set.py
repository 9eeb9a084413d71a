"""Engines over several nodes."""

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

import pytest

from kvcachepool import constants
from kvcachepool.facts import Observed, PodFacts
from kvcachepool.observe.pods import pod_facts, workload_facts
from kvcachepool.plan import make_plan
from kvcachepool.plan_types import Plan
from kvcachepool.ports import ranks_port
from kvcachepool.settings import Settings
from tests.nodes import node
from tests.pools import merged, pool

MASTER = PodFacts("demo-master-1", "u", constants.MASTER, "", ready=True)
SPEC: dict[str, Any] = {"schema": {"parallelism": {"tensor": 8, "pipeline": 2}}, "engines": {"nodesPerEngine": 2}}


def planned(spec: dict[str, Any] = SPEC, live: dict[str, Any] | None = None, **facts: Any) -> Plan:
    children = {("LeaderWorkerSet", live["metadata"]["name"]): live} if live else {}
    return make_plan(
        pool(spec), Observed(pods=(MASTER,), children=children, leader_worker_sets=True, **facts), Settings()
    )


def group(plan: Plan) -> dict[str, Any]:
    return deepcopy(next(dict(o) for o in plan.objects if o["kind"] == "LeaderWorkerSet"))


def members(plan: Plan) -> tuple[dict[str, Any], dict[str, Any]]:
    template = group(plan)["spec"]["leaderWorkerTemplate"]
    return template["leaderTemplate"], template["workerTemplate"]


def test_devices_and_ranks_are_shared_out() -> None:
    leader, worker = members(planned())
    for member in (leader, worker):
        main = member["spec"]["containers"][0]
        assert main["resources"]["limits"]["nvidia.com/gpu"] == "8"
        for flag in ("--nnodes=2", "--node-rank=$(LWS_WORKER_INDEX)", "--master-addr=$(LWS_LEADER_ADDRESS)"):
            assert flag in main["args"]
        assert "--tensor-parallel-size=8" in main["args"]
        assert "--pipeline-parallel-size=2" in main["args"]


def test_only_the_leader_serves() -> None:
    leader, worker = members(planned())
    assert leader["spec"]["containers"][0]["command"][-1] == "vllm.entrypoints.openai.api_server"
    main = worker["spec"]["containers"][0]
    assert main["command"] == ["vllm", "serve", "--headless"]
    assert main["args"][0] == "org/model"
    assert not {"ports", "readinessProbe", "livenessProbe", "startupProbe"} & main.keys()
    assert worker["metadata"]["labels"][constants.LABEL_COMPONENT] == constants.WORKER
    assert worker["metadata"]["labels"][constants.LABEL_SCHEMA] == leader["metadata"]["labels"][constants.LABEL_SCHEMA]
    service = next(o for o in planned().objects if o["metadata"]["name"] == "demo-engines")
    assert service["spec"]["selector"].items() <= leader["metadata"]["labels"].items()
    assert not service["spec"]["selector"].items() <= worker["metadata"]["labels"].items()


def test_on_the_nodes_network_each_pool_has_a_port_for_its_ranks_too() -> None:
    """Leaders of two pools on one node would otherwise listen on the same one."""
    leader, worker = members(planned())
    assert "--master-port=29501" in leader["spec"]["containers"][0]["args"]
    rdma = {"resourceName": "rdma/hca", "hostNetwork": True}
    spec = merged(SPEC, {"transport": {"protocol": "RDMA", "rdma": rdma}})
    leader, worker = members(planned(spec))
    (main,) = leader["spec"]["containers"]
    ports = {port["name"]: port["containerPort"] for port in main["ports"]}
    assert 17100 <= ports["ranks"] < 19900
    for member in (leader, worker):
        assert f"--master-port={ports['ranks']}" in member["spec"]["containers"][0]["args"]
    assert "ports" not in worker["spec"]["containers"][0]
    found = {ranks_port(pool(spec, name=f"p{n}")) for n in range(20)}
    assert len(found) > 15


def test_a_deployment_is_kept_until_groups_are_there() -> None:
    """Both have one name: the settled Deployment is no sign that the groups run."""
    alone = merged(SPEC, {"engines": {"nodesPerEngine": 1}})
    before = next(
        dict(o) for o in planned(alone).objects if o["kind"] == "Deployment" and "engine" in str(o["metadata"])
    )
    name = before["metadata"]["name"]
    live = before | {"status": {"updatedReplicas": 2, "readyReplicas": 2}}
    facts = workload_facts(live)
    observed = Observed(
        pods=(MASTER,), children={("Deployment", name): live}, workloads={name: facts}, leader_worker_sets=True
    )
    assert facts.settled
    assert make_plan(pool(SPEC), observed, Settings()).prune == ()


def test_without_the_kind_it_is_refused_by_name() -> None:
    plan = make_plan(pool(SPEC), Observed(pods=(MASTER,)), Settings())
    assert [f.field for f in plan.findings] == ["spec.engines.nodesPerEngine"]
    assert "LeaderWorkerSet" in plan.findings[0].message


def test_memory_is_that_of_one_pods_ranks() -> None:
    embedded = merged(SPEC, {"store": {"mode": "Embedded", "segmentSize": "10Gi", "localBufferSize": "1Gi"}})
    leader, _ = members(planned(embedded))
    assert leader["spec"]["containers"][0]["resources"]["requests"]["memory"] == "98Gi"  # 8 × (10 + 1) + 8 + 2
    assert planned(embedded).expected_segments == 2 * 16


def test_groups_of_a_former_schema_make_room_for_those_of_the_new_one() -> None:
    live = group(planned())
    facts = workload_facts(live | {"status": {"replicas": 2, "readyReplicas": 2, "updatedReplicas": 2}})
    pods = tuple(
        PodFacts(f"{facts.name}-{n}", f"e{n}", constants.ENGINE, facts.digest, ready=True, phase="Running")
        for n in range(2)
    )
    changed = merged(SPEC, {"schema": {"blockSize": 32}})
    observed = Observed(
        pods=(MASTER, *pods),
        children={("LeaderWorkerSet", facts.name): live},
        workloads={facts.name: facts},
        leader_worker_sets=True,
    )
    former, current = (o for o in make_plan(pool(changed), observed, Settings()).objects if _is_group(o))
    assert former["apiVersion"] == current["apiVersion"] == "leaderworkerset.x-k8s.io/v1"
    assert (former["metadata"]["name"], former["spec"]) == (facts.name, live["spec"] | {"replicas": 1})
    assert current["metadata"]["name"] != facts.name
    assert current["spec"]["replicas"] == 0


def _is_group(obj: Mapping[str, Any]) -> bool:
    return bool(obj["kind"] == "LeaderWorkerSet")


def test_nodes_are_matched_with_one_pod() -> None:
    fits = planned(nodes=(node("a"), node("b"))).hardware
    assert fits is not None
    assert fits.engine.fit is not None
    assert len(fits.engine.fit.fitting) == 2


@pytest.mark.parametrize(
    ("change", "rolls"),
    [
        ({}, False),
        ({"engines": {"replicas": 4}}, False),
        ({"model": {"servedName": "chat"}}, True),
        ({"engines": {"nodesPerEngine": 4}}, True),
    ],
)
def test_what_replaces_groups(change: dict[str, Any], rolls: bool) -> None:
    live = group(planned())
    after = group(planned(merged(SPEC, change), live))
    assert (after["spec"]["leaderWorkerTemplate"] != live["spec"]["leaderWorkerTemplate"]) is rolls


def test_an_upgrade_keeps_groups_and_a_hand_edit_is_put_back() -> None:
    rendered = group(planned())
    old = deepcopy(rendered)
    old["metadata"]["annotations"][constants.ANNOTATION_TEMPLATE] = "of-an-older-operator"
    worker = old["spec"]["leaderWorkerTemplate"]["workerTemplate"]
    worker["spec"]["containers"][0]["args"].append("--old")
    kept = planned(live=old)
    assert group(kept)["spec"] == old["spec"]
    assert kept.outdated == (constants.ENGINE,)
    edit = {"f:spec": {"f:leaderWorkerTemplate": {"f:workerTemplate": {"f:spec": {}}}}}
    old["metadata"]["managedFields"] = [{"manager": "kubectl-edit", "operation": "Update", "fieldsV1": edit}]
    assert group(planned(live=old))["spec"] == rendered["spec"]


def test_its_state_and_its_pods_are_understood() -> None:
    raw = group(planned()) | {"status": {"replicas": 2, "readyReplicas": 2, "updatedReplicas": 2}}
    raw["metadata"]["generation"] = 7
    facts = workload_facts(raw)
    assert (facts.component, facts.replicas, facts.settled) == (constants.ENGINE, 2, True)
    leader, _ = members(planned())
    metadata = {
        "name": "demo-engine-0",
        "labels": leader["metadata"]["labels"] | {"leaderworkerset.sigs.k8s.io/name": "demo-engine"},
        "ownerReferences": [{"controller": True, "kind": "StatefulSet", "name": "demo-engine"}],
    }
    assert pod_facts({"metadata": metadata, "spec": leader["spec"]}, ["demo-engine"]).owned
    assert not pod_facts({"metadata": metadata, "spec": leader["spec"]}, ["other"]).owned
