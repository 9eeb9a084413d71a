"""The affinity of the engines' pods says of a node what the match says of it."""

import itertools
from collections.abc import Mapping
from copy import deepcopy
from typing import Any

import pytest

from kvcachepool import constants
from kvcachepool.api.pods import Scheduling
from kvcachepool.compat.tables import BUILT_IN, CudaRow
from kvcachepool.facts import NodeFacts, Observed, PodFacts
from kvcachepool.hardware.affinity import with_affinity
from kvcachepool.hardware.need import Need
from kvcachepool.hardware.placement import mismatch
from kvcachepool.hardware.stages import objection
from kvcachepool.observe.pods import workload_facts
from kvcachepool.plan import make_plan
from kvcachepool.plan_types import Plan
from kvcachepool.settings import Settings
from tests.nodes import A100, H100, node
from tests.pools import pool

NEW, OLD = "nvidia.com/cuda.driver-version.major", "nvidia.com/cuda.driver.major"
MAJOR, MINOR = "nvidia.com/gpu.compute.major", "nvidia.com/gpu.compute.minor"
PRODUCT, RUNTIME = "nvidia.com/gpu.product", "nvidia.com/cuda.runtime.major"
VALUES: Mapping[str, tuple[str | None, ...]] = {
    NEW: (None, "534", "580", "unknown"),
    OLD: (None, "570", "580", "unknown"),
    RUNTIME: (None, "12", "13"),
    MAJOR: (None, "4", "7", "8", "10", "unknown"),
    MINOR: (None, "0", "5", "9", "unknown"),
    PRODUCT: (None, A100, H100),
}
MASTER = PodFacts("demo-master-1", "u", constants.MASTER, "", ready=True)


def row(capability: str) -> CudaRow:
    twelve = BUILT_IN.cuda(12)
    assert twelve is not None
    return twelve.model_copy(update={"min_capability": capability})


def planned(
    spec: dict[str, Any] | None, *nodes: NodeFacts, children: Mapping[tuple[str, str], Any] | None = None
) -> Plan:
    given = dict(children or {})
    workloads = {name: workload_facts(o) for (kind, name), o in given.items() if kind == "Deployment"}
    return make_plan(pool(spec), Observed((MASTER,), nodes=nodes, children=given, workloads=workloads), Settings())


def engine(plan: Plan) -> dict[str, Any]:
    found = (o for o in plan.objects if o["kind"] == "Deployment" and o["metadata"]["name"].startswith("demo-engine"))
    return deepcopy(dict(next(found)))


def terms(scheduling: Mapping[str, Any]) -> list[dict[str, Any]]:
    required = scheduling["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    found: list[dict[str, Any]] = required["nodeSelectorTerms"]
    return found


@pytest.mark.parametrize("product", ["", H100])
@pytest.mark.parametrize(
    ("cuda", "forward"),
    [(BUILT_IN.cuda(13), False), (BUILT_IN.cuda(13), True), (BUILT_IN.cuda(12), False), (row("7.0"), False)],
    ids=["13", "13 on older drivers", "12", "from 7.0 on"],
)
def test_match_and_affinity_agree_about_every_node(cuda: CudaRow, forward: bool, product: str) -> None:
    need = Need("engine", {}, product=product, cuda=cuda, forward_compat=forward)
    asked = with_affinity(Scheduling(), need)
    fits = 0
    for values in itertools.product(*VALUES.values()):
        labels = {name: value for name, value in zip(VALUES, values, strict=True) if value is not None}
        there = NodeFacts("n", labels=labels, ready=True)
        matched = objection(need, there) is None
        assert (not mismatch(asked, there)) == matched, labels
        fits += matched
    assert 0 < fits < len(list(itertools.product(*VALUES.values())))


def test_the_terms_are_few() -> None:
    """They multiply with each other and with the user's."""
    assert len(terms(with_affinity(Scheduling(), Need("e", {}, cuda=BUILT_IN.cuda(13))).model_dump())) == 6
    assert len(terms(with_affinity(Scheduling(), Need("e", {}, cuda=BUILT_IN.cuda(12))).model_dump())) == 3


def test_a_gpu_that_the_build_dropped_is_left_out_by_both() -> None:
    """With a pinned backend no product is fixed, so that only the capability tells the two apart."""
    spec = {"cuda": {"version": "13"}, "schema": {"attentionBackend": "TRITON_ATTN"}}
    a100, v100 = node("a", product=A100), node("v", product="Tesla-V100-SXM2-32GB")
    plan = planned(spec, a100, v100)
    assert plan.hardware is not None
    assert plan.hardware.engine.fit is not None
    assert [n.name for n in plan.hardware.engine.fit.fitting] == ["a"]
    rendered = engine(plan)["spec"]["template"]["spec"]
    scheduling = Scheduling(affinity=rendered["affinity"])
    assert [bool(mismatch(scheduling, n)) for n in (a100, v100)] == [False, True]


def test_another_affinity_of_a_newer_operator_replaces_no_pod() -> None:
    live = engine(planned(None, node("a")))
    template = live["spec"]["template"]["spec"]
    terms(template)[:] = terms(template)[:1]
    live["metadata"]["annotations"][constants.ANNOTATION_TEMPLATE] = "of an older operator"
    found = planned(None, node("a"), children={("Deployment", live["metadata"]["name"]): live})
    assert engine(found)["spec"]["template"] == live["spec"]["template"]
    assert found.outdated == (constants.ENGINE,)


def test_what_the_user_requires_of_nodes_holds_in_every_term() -> None:
    zones = [{"matchExpressions": [{"key": "zone", "operator": "In", "values": [z]}]} for z in ("a", "b")]
    preferred = [{"weight": 1, "preference": zones[0]}]
    affinity = {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": zones},
            "preferredDuringSchedulingIgnoredDuringExecution": preferred,
        },
        "podAntiAffinity": {"x": "y"},
    }
    there = node("a", labels={"zone": "b"})
    spec = engine(planned({"engines": {"scheduling": {"affinity": affinity}}}, there))["spec"]["template"]["spec"]
    found = spec["affinity"]["nodeAffinity"]
    assert [t["matchExpressions"][0]["values"] for t in terms(spec)] == [["a"]] * 6 + [["b"]] * 6
    assert all(len(t["matchExpressions"]) > 1 for t in terms(spec))
    assert found["preferredDuringSchedulingIgnoredDuringExecution"] == preferred
    assert spec["affinity"]["podAntiAffinity"] == {"x": "y"}
