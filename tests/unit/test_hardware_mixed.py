"""Several kinds of GPU stay a fault until one is fixed, whatever runs meanwhile; and what runs stays."""

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

import pytest

from kvcachepool import constants
from kvcachepool.facts import NodeFacts, Observed, PodFacts
from kvcachepool.observe.pods import workload_facts
from kvcachepool.plan import make_plan
from kvcachepool.plan_types import Plan
from kvcachepool.settings import Settings
from tests.nodes import A100, H100, node
from tests.pools import pool

CREATE = {"engines": {"whenNoNodeFits": "Create"}}
BOTH = (node("a", product=A100), node("h"))
MIXED = ((A100, 1), (H100, 1))
UNLABELLED = tuple(node(name, product="", driver="") for name in ("a", "h"))


def planned(
    spec: dict[str, Any] | None, nodes: tuple[NodeFacts, ...] | None, live: Mapping[tuple[str, str], Any] | None = None
) -> Plan:
    children = dict(live or {})
    workloads = {name: workload_facts(o) for (kind, name), o in children.items() if kind == "Deployment"}
    master = PodFacts("demo-master-1", "u", constants.MASTER, "", ready=True)
    return make_plan(pool(spec), Observed((master,), nodes=nodes, children=children, workloads=workloads), Settings())


def running(plan: Plan) -> dict[tuple[str, str], Any]:
    """What the API server has once a plan is applied."""
    return {(o["kind"], o["metadata"]["name"]): deepcopy(dict(o)) for o in plan.objects}


def engines(plan: Plan) -> list[Mapping[str, Any]]:
    return [
        o
        for o in plan.objects
        if o["kind"] == "Deployment" and o["metadata"]["labels"][constants.LABEL_COMPONENT] == constants.ENGINE
    ]


def mixed(plan: Plan) -> tuple[tuple[str, int], ...]:
    assert plan.hardware is not None
    return plan.hardware.engine.mixed


@pytest.mark.parametrize("before", [UNLABELLED, None], ids=["labels come later", "nodes can be read later"])
@pytest.mark.parametrize("spec", [None, CREATE], ids=["Wait", "Create"])
def test_engines_made_before_the_kinds_were_known_stay_and_the_kinds_are_a_fault(
    before: tuple[NodeFacts, ...] | None, spec: dict[str, Any] | None
) -> None:
    first = planned(spec, before)
    live = running(first)
    plan = planned(spec, BOTH, live)
    assert mixed(plan) == MIXED
    assert engines(plan) == engines(first)
    assert (plan.waiting, plan.prune, plan.evict) == (None, (), ())
    assert mixed(planned(spec, BOTH, running(plan))) == MIXED, "and stay one"


def test_which_of_several_kinds_is_no_question_to_an_autoscaler() -> None:
    plan = planned(CREATE, BOTH)
    assert (mixed(plan), engines(plan)) == (MIXED, [])
    assert plan.waiting is not None
    assert (plan.waiting.reason, "which of the GPUs" in plan.waiting.message) == ("WaitingForNodes", True)
    assert engines(planned({"engines": {**CREATE["engines"], "gpu": {"product": A100}}}, BOTH))


@pytest.mark.parametrize("change", [{"engines": {"shmSize": "4Gi"}}, {"schema": {"blockSize": 32}}])
def test_a_change_that_would_make_pods_waits_for_the_kind(change: dict[str, Any]) -> None:
    first = planned(None, UNLABELLED)
    live = running(first)
    plan = planned(change, BOTH, live)
    assert (mixed(plan), plan.prune) == (MIXED, ())
    assert [(o["metadata"]["name"], o["spec"]["template"]) for o in engines(plan)] == [
        (o["metadata"]["name"], o["spec"]["template"]) for o in engines(first)
    ]
    assert plan.waiting is not None
    assert planned({"engines": {"replicas": 3}}, BOTH, live).waiting is None, "no pod is replaced"


@pytest.mark.parametrize(
    "spec", [{"engines": {"gpu": {"product": H100}}}, {"schema": {"attentionBackend": "FLASH_ATTN"}}]
)
def test_a_kind_or_a_backend_that_is_said_ends_it(spec: dict[str, Any]) -> None:
    plan = planned(spec, BOTH, running(planned(None, UNLABELLED)))
    assert (mixed(plan), plan.waiting) == ((), None)


def test_what_the_running_engines_chose_is_said_too() -> None:
    first = planned(None, BOTH[1:])
    plan = planned(None, BOTH, running(first))
    assert (mixed(plan), plan.waiting, engines(plan)) == ((), None, engines(first))


def test_one_kind_that_becomes_known_is_not_claimed_of_engines_that_are_not_bound_to_it() -> None:
    plan = planned(None, BOTH[1:], running(planned(None, UNLABELLED)))
    assert plan.hardware is not None
    assert (mixed(plan), plan.hardware.engine.choice.product) == ((), "")
    assert constants.ANNOTATION_PRODUCT not in engines(plan)[0]["metadata"]["annotations"]
