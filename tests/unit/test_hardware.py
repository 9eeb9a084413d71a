"""Pools against nodes: which fit, what is chosen, what is said, and that what runs stays."""

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

import pytest

from kvcachepool import constants
from kvcachepool.compat.tables import BUILT_IN, Tables
from kvcachepool.facts import NodeFacts, Observed, PodFacts
from kvcachepool.observe.pods import workload_facts
from kvcachepool.plan import make_plan
from kvcachepool.plan_types import Plan
from kvcachepool.settings import Settings
from tests.nodes import A100, GPU, H100, L4, node
from tests.pools import merged, pool

MASTER = PodFacts("demo-master-1", "u", constants.MASTER, "", ready=True)
NEW_SCHEMA = {"schema": {"blockSize": 32}}
RDMA = {"transport": {"protocol": "RDMA", "rdma": {"resourceName": "rdma/hca_b"}}}


def planned(
    spec: dict[str, Any] | None = None,
    *nodes: NodeFacts,
    live: Plan | None = None,
    tables: Tables = BUILT_IN,
    pods: tuple[PodFacts, ...] = (),
) -> Plan:
    children = {(o["kind"], o["metadata"]["name"]): deepcopy(dict(o)) for o in live.objects} if live else {}
    workloads = {name: workload_facts(o) for (kind, name), o in children.items() if kind == "Deployment"}
    observed = Observed(pods=(MASTER, *pods), nodes=nodes, children=children, workloads=workloads, tables=tables)
    return make_plan(pool(spec), observed, Settings())


def engine(plan: Plan) -> dict[str, Any]:
    """The engines' Deployment of the plan's schema, which must be there."""
    return next(dict(o) for o in engines(plan) if o["metadata"]["name"] == f"demo-engine-{digest(plan)}")


def has_engine(plan: Plan) -> bool:
    return any(engines(plan))


def engines(plan: Plan) -> list[Mapping[str, Any]]:
    """The Deployments of all generations."""
    workloads = (o for o in plan.objects if o["kind"] == "Deployment")
    return [o for o in workloads if o["metadata"]["labels"][constants.LABEL_COMPONENT] == constants.ENGINE]


def digest(plan: Plan) -> str:
    assert plan.schema is not None
    return plan.schema.digest


def serving(plan: Plan, where: str = "a") -> tuple[PodFacts, ...]:
    """Two engines of that plan's schema, which are ready."""
    return tuple(
        PodFacts(f"e{n}", f"u{n}", constants.ENGINE, digest(plan), node=where, ready=True, phase="Running")
        for n in range(2)
    )


def image(plan: Plan) -> str:
    name: str = engine(plan)["spec"]["template"]["spec"]["containers"][0]["image"]
    return name


def fitting(plan: Plan) -> list[str]:
    assert plan.hardware is not None
    assert plan.hardware.engine.fit is not None
    return [n.name for n in plan.hardware.engine.fit.fitting]


def reason(plan: Plan) -> str:
    assert plan.hardware is not None
    assert plan.hardware.engine.fit is not None
    return plan.hardware.engine.fit.reason


# which build


def test_the_newest_build_that_all_nodes_can_run() -> None:
    assert image(planned(None, node("a"), node("b"))).endswith("0.33.0-cu13")
    assert image(planned(None, node("a"), node("b", driver="550.54"))).endswith("0.33.0-cu12")
    assert image(planned(None, node("a", driver="535.104", old_labels=True))).endswith("0.33.0-cu12")


def test_a_gpu_that_cuda_13_dropped_gets_cuda_12() -> None:
    v100 = node("a", product="Tesla-V100-SXM2-32GB")
    assert image(planned(None, v100)).endswith("0.33.0-cu12")
    plan = planned({"cuda": {"version": "13"}}, v100)
    assert (has_engine(plan), reason(plan)) == (False, "NoCompatibleDriver")


def test_a_node_without_driver_labels_is_no_reason_to_refuse() -> None:
    """Without GPU feature discovery nothing is known, and the preflight tells."""
    assert image(planned(None, node("a", driver=""))).endswith("0.33.0-cu13")


def test_forward_compatibility_is_opt_in_and_for_data_centre_gpus() -> None:
    old = node("a", product=A100, driver="550.54")
    asked = {"cuda": {"version": "13"}, "engines": {"gpu": {"product": A100}}}
    assert reason(planned(asked, old)) == "NoCompatibleDriver"
    allowed = {**asked, "cuda": {"version": "13", "allowForwardCompat": True}}
    plan = planned(allowed, old)
    env = {e["name"]: e.get("value") for e in engine(plan)["spec"]["template"]["spec"]["containers"][0]["env"]}
    assert (image(plan).rpartition("-")[2], env["VLLM_ENABLE_CUDA_COMPATIBILITY"]) == ("cu13", "1")
    assert reason(planned(allowed, node("a", product=A100, driver="470.10"))) == "NoCompatibleDriver"
    gamer = {**allowed, "engines": {"gpu": {"product": "NVIDIA-GeForce-RTX-4090"}}}
    assert [f.reason for f in planned(gamer, old).findings] == ["CUDABuildMismatch"]


# what contradicts itself: vllm#42511, Mooncake#1298


@pytest.mark.parametrize(
    ("version", "image_name", "found"),
    [
        ("12", "vllm/vllm-openai:v0.33.0", ("found 12", "CUDA 13.0")),
        ("12.9", "registry.internal:5000/vllm/vllm-openai:v0.33.0", ("found 12.9", "CUDA 13.0")),
        ("13.0", "registry.internal/vllm:v1-cu12", ("found 13.0", "CUDA 12")),
        ("12.4", "vllm/vllm-openai:v0.33.0-cu129", ("found 12.4", "CUDA 12.9")),
        ("auto", "registry.internal/vllm@sha256:0a1b", ("found auto", "no tag", "such as 13.0")),
        ("auto", "registry.internal:5000/vllm:prod", ("found auto", "tag prod", "such as 13.0")),
        ("12.4", None, ("found 12.4", "13.0, 12.9")),
        ("14", "registry.internal/vllm:prod", ("CUDA 14", "no compatibility table")),
    ],
)
def test_a_build_that_contradicts_itself_is_refused_with_both_values(
    version: str, image_name: str | None, found: tuple[str, ...]
) -> None:
    plan = planned({"cuda": {"version": version}, "engines": {"image": image_name}}, node("a"))
    assert [f.reason for f in plan.findings] == ["CUDABuildMismatch"]
    assert plan.objects == ()
    for text in found:
        assert text in plan.findings[0].message


@pytest.mark.parametrize(
    ("version", "image_name", "cuda"),
    [
        ("12", "vllm/vllm-openai:v0.33.0-cu129", "12"),
        ("13", "registry.internal/vllm@sha256:0a1b", "13"),
        ("auto", "registry.internal:5000/mirror/vllm/vllm-openai:v0.33.0", "13"),
        ("auto", "registry.internal/vllm:nightly-cu130@sha256:0a1b", "13"),
        ("12.9", None, "12"),
    ],
)
def test_a_build_that_agrees_is_taken(version: str, image_name: str | None, cuda: str) -> None:
    plan = planned({"cuda": {"version": version}, "engines": {"image": image_name}}, node("a"))
    assert engine(plan)["metadata"]["annotations"][constants.ANNOTATION_CUDA] == cuda
    assert image_name is None or image(plan) == image_name


@pytest.mark.parametrize("resource", ["", "amd.com/gpu"])
def test_engines_without_nvidia_gpus_need_none_of_it(resource: str) -> None:
    where = node("a", gpus=0, offers={"amd.com/gpu": "8"})
    plan = planned({"engines": {"image": "registry.internal/vllm:prod", "gpu": {"resourceName": resource}}}, where)
    template = engine(plan)["spec"]["template"]["spec"]
    assert not plan.findings
    assert constants.ANNOTATION_CUDA not in engine(plan)["metadata"]["annotations"]
    assert "affinity" not in template


def test_versions_that_the_image_is_known_not_to_hold_are_a_skew() -> None:
    plan = planned({"backend": {"mooncake": {"version": "0.3.14"}}}, node("a"))
    assert [f.reason for f in plan.findings] == ["VersionSkew"]
    assert "found 0.3.14" in plan.findings[0].message
    assert "holds Mooncake 0.3.13.post1" in plan.findings[0].message
    named = {"engines": {"version": "0.32.0", "image": "vllm/vllm-openai:v0.33.0"}}
    assert [f.reason for f in planned(named, node("a")).findings] == ["VersionSkew"]


# which nodes


@pytest.mark.parametrize(
    ("spec", "where", "why"),
    [
        (None, node(gpus=0), "NoMatchingNodes"),
        (None, node(cordoned=True), "NoMatchingNodes"),
        (None, node(ready=False), "NoMatchingNodes"),
        (None, node(taints=("team=x:NoSchedule",)), "NoMatchingNodes"),
        ({"engines": {"gpu": {"product": "L4"}}}, node(product=L4), "NoMatchingNodes"),  # llm-d-planner PR#112
        ({"engines": {"gpu": {"resourceName": "nvidia.com/mig-1g.5gb"}}}, node(), "NoMatchingNodes"),
        ({"engines": {"gpu": {"resourceName": "nvidia.com/gpu.shared"}}}, node(), "NoMatchingNodes"),
        ({"schema": {"parallelism": {"tensor": 16}}}, node(), "NoMatchingNodes"),
        ({"scheduling": {"nodeSelector": {"zone": "a"}}}, node(labels={"zone": "b"}), "NoMatchingNodes"),
        ({"engines": {"resources": {"requests": {"cpu": "200"}}}}, node(), "NoMatchingNodes"),
        ({"engines": {"resources": {"limits": {"example.com/x": "1"}}}}, node(), "NoMatchingNodes"),
        (None, node(driver="470.82"), "NoCompatibleDriver"),
        (RDMA, node(offers={"rdma/hca_a": "63"}), "NoRDMANodes"),  # aibrix#1012
        (RDMA, node(offers={"rdma/hca_b": "0"}), "NoRDMANodes"),
        (None, node(memory="8Gi"), "InsufficientNodeMemory"),
        ({"engines": {"resources": {"limits": {"hugepages-2Mi": "1Gi"}}}}, node(), "InsufficientNodeMemory"),
    ],
)
def test_no_engine_is_made_where_no_node_fits(spec: dict[str, Any] | None, where: NodeFacts, why: str) -> None:
    plan = planned(spec, where)
    assert (fitting(plan), has_engine(plan), reason(plan)) == ([], False, why)
    assert plan.waiting is not None
    assert plan.waiting.reason == "WaitingForNodes"
    assert any(o["kind"] == "Deployment" for o in plan.objects), "the store is made meanwhile"


@pytest.mark.parametrize(
    ("spec", "where"),
    [
        (None, node(taints=("nvidia.com/gpu=present:NoSchedule",))),
        (None, node(taints=("node.kubernetes.io/disk-pressure:NoSchedule", "x=y:PreferNoSchedule"))),
        ({"scheduling": {"tolerations": [{"operator": "Exists"}]}}, node(taints=("team=x:NoExecute",))),
        ({"engines": {"gpu": {"product": L4}}}, node(product=L4)),
        ({"engines": {"gpu": {"resourceName": "nvidia.com/mig-1g.5gb"}}}, node(offers={"nvidia.com/mig-1g.5gb": "7"})),
        (RDMA, node(offers={"rdma/hca_b": "1"}, taints=("rdma/hca_b:NoSchedule",))),
        ({"engines": {"resources": {"limits": {"hugepages-2Mi": "1Gi"}}}}, node(offers={"hugepages-2Mi": "2Gi"})),
    ],
)
def test_an_engine_is_made_where_a_node_fits(spec: dict[str, Any] | None, where: NodeFacts) -> None:
    plan = planned(spec, node("other", gpus=0), where)
    assert (fitting(plan), has_engine(plan)) == ([where.name], True)


def test_the_reason_is_that_of_the_nodes_that_got_furthest() -> None:
    plan = planned(RDMA, node("a", gpus=0), node("b", gpus=0), node("c", driver="470.10"), node("d"))
    assert reason(plan) == "NoRDMANodes"


def test_a_node_that_comes_is_picked_up_and_one_that_goes_changes_nothing() -> None:
    assert not has_engine(planned(None, node("a", gpus=0)))
    with_gpu = planned(None, node("a", gpus=0), node("b"))
    assert has_engine(with_gpu)
    gone = planned(None, node("a", gpus=0), live=with_gpu)
    assert engine(gone) == engine(with_gpu)


def test_a_change_that_no_node_fits_leaves_engines_alone() -> None:
    live = planned(None, node("a"))
    plan = planned({"schema": {"blockSize": 32}, "engines": {"gpu": {"product": L4}}}, node("a"), live=live)
    assert [o["spec"] for o in engines(plan)] == [o["spec"] for o in engines(live)]
    assert plan.prune == ()


def test_engines_that_were_scaled_to_none_wait_for_a_node_as_new_ones_do() -> None:
    none = planned({"engines": {"replicas": 0}}, node("a", cordoned=True))
    assert none.waiting is None, "nothing of it needs a node"
    plan = planned(None, node("a", cordoned=True), live=none)
    assert plan.waiting is not None
    assert [o["spec"]["replicas"] for o in engines(plan)] == [0]


def test_a_new_schema_waits_for_a_node_and_the_engines_of_the_former_serve_on() -> None:
    live = planned(None, node("a"))
    cordoned = node("a", cordoned=True)
    plan = planned(NEW_SCHEMA, cordoned, live=live, pods=serving(live))
    assert [o["spec"] for o in engines(plan)] == [o["spec"] for o in engines(live)]
    assert (fitting(plan), plan.prune) == ([], ())
    assert plan.waiting is not None
    assert plan.waiting.reason == "WaitingForNodes"
    for replicas in (0, 1, 5):
        scaled = merged(NEW_SCHEMA, {"engines": {"replicas": replicas}})
        plan = planned(scaled, cordoned, live=live, pods=serving(live))
        assert sum(o["spec"]["replicas"] for o in engines(plan)) == replicas, "they may still be scaled"
    moving = planned(NEW_SCHEMA, node("a"), live=live, pods=serving(live))
    assert [o["spec"]["replicas"] for o in engines(moving)] == [1, 0]


def test_a_move_that_has_begun_goes_on_though_no_node_fits_any_more() -> None:
    live = planned(None, node("a"))
    moving = planned(NEW_SCHEMA, node("a"), live=live, pods=serving(live))
    plan = planned(NEW_SCHEMA, node("a", cordoned=True), live=moving, pods=serving(live)[:1])
    assert plan.waiting is None
    assert [o["spec"]["replicas"] for o in engines(plan)] == [1, 1]
    assert engine(plan)["spec"]["template"] == engine(moving)["spec"]["template"]


def test_a_new_schema_takes_the_former_ones_gpu_and_build_where_they_fit_and_others_where_not() -> None:
    live = planned(None, node("a", driver="550.54"))
    both = (node("a"), node("b", product=L4))
    plan = planned(NEW_SCHEMA, *both, live=live, pods=serving(live))
    chosen = engine(plan)["metadata"]["annotations"]
    assert (chosen[constants.ANNOTATION_CUDA], chosen[constants.ANNOTATION_PRODUCT]) == ("12", H100)
    plan = planned(NEW_SCHEMA, both[1], live=live, pods=serving(live))
    chosen = engine(plan)["metadata"]["annotations"]
    assert (chosen[constants.ANNOTATION_CUDA], chosen[constants.ANNOTATION_PRODUCT]) == ("13", L4)


def test_replicas_follow_the_user_also_when_no_node_fits_any_more() -> None:
    live = planned(None, node("a"))
    plan = planned({"engines": {"replicas": 5}}, node("a", cordoned=True), live=live)
    assert engine(plan)["spec"]["replicas"] == 5


def test_with_create_engines_are_made_for_an_autoscaler() -> None:
    plan = planned({"engines": {"whenNoNodeFits": "Create"}}, node("a", gpus=0))
    assert has_engine(plan)
    assert plan.waiting is None
    assert reason(plan) == "NoMatchingNodes"


def test_nodes_that_cannot_be_read_keep_nothing_back() -> None:
    plan = make_plan(pool(), Observed(pods=(MASTER,), nodes=None), Settings())
    assert has_engine(plan)
    assert plan.hardware is not None
    assert plan.hardware.engine.fit is None


def test_a_cordoned_node_still_fits_the_engine_that_runs_there() -> None:
    runs = PodFacts("demo-engine-0", "e", constants.ENGINE, digest(planned()), node="a", ready=True)
    drained = node("a", cordoned=True, taints=("drain=now:NoSchedule",))
    assert fitting(planned(None, drained, pods=(runs,))) == ["a"]
    assert fitting(planned(None, drained)) == []


# one kind of GPU, and what runs stays


def test_several_gpus_are_refused_unless_something_says_which() -> None:
    nodes = (node("a"), node("b"), node("c", product=L4))
    plan = planned(None, *nodes)
    assert plan.hardware is not None
    assert (has_engine(plan), plan.hardware.engine.mixed) == (False, ((H100, 2), (L4, 1)))
    assert fitting(planned({"engines": {"gpu": {"product": L4}}}, *nodes)) == ["c"]
    pinned = planned({"schema": {"attentionBackend": "FLASH_ATTN"}}, *nodes)
    assert fitting(pinned) == ["a", "b", "c"]
    assert constants.ANNOTATION_PRODUCT not in engine(pinned)["metadata"]["annotations"]


def test_another_gpu_that_comes_later_is_left_out_and_replaces_nothing() -> None:
    live = planned(None, node("a"))
    plan = planned(None, node("a"), node("b", product=L4), live=live)
    assert engine(plan)["spec"] == engine(live)["spec"]
    assert fitting(plan) == ["a"]
    assert plan.outdated == ()


def test_nodes_that_come_do_not_change_the_build_that_runs() -> None:
    live = planned(None, node("a", driver="550.54"))
    newer = planned(None, node("a", driver="580.10"), node("b"), live=live)
    assert engine(newer)["spec"] == engine(live)["spec"]
    live13 = planned(None, node("a"))
    older = planned(None, node("a"), node("b", driver="550.54"), live=live13)
    assert engine(older)["spec"] == engine(live13)["spec"]
    assert fitting(older) == ["a"]


def test_a_build_that_runs_nowhere_any_more_is_replaced() -> None:
    live = planned(None, node("a"))
    downgraded = planned(None, node("a", driver="550.54"), live=live)
    assert image(downgraded).endswith("-cu12")


def test_writing_down_what_was_chosen_replaces_nothing() -> None:
    live = planned(None, node("a"))
    plan = planned({"cuda": {"version": "13"}, "engines": {"gpu": {"product": H100}}}, node("a"), live=live)
    assert engine(plan)["spec"]["template"] == engine(live)["spec"]["template"]


def test_store_pods_are_matched_too_and_hold_back_nothing() -> None:
    small = node("a", memory="20Gi")
    plan = planned({"store": {"segmentSize": "64Gi"}, "engines": {"engineMemory": "4Gi"}}, small)
    assert has_engine(plan)
    assert plan.hardware is not None
    assert {f.need.component: f.reason for f in plan.hardware.others if not f.fitting} == {
        constants.STORE: "InsufficientNodeMemory"
    }


def test_ranks_are_the_devices_that_are_asked_for() -> None:
    plan = planned({"schema": {"parallelism": {"tensor": 4, "pipeline": 2}}}, node("a"))
    container = engine(plan)["spec"]["template"]["spec"]["containers"][0]
    assert container["resources"]["limits"][GPU] == "8"
