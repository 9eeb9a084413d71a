"""Node selectors, affinity, tolerations and taints, as the scheduler reads them."""

from typing import Any

import pytest

from kvcachepool.api.pods import Scheduling, Toleration
from kvcachepool.hardware.affinity import with_affinity, with_tolerations
from kvcachepool.hardware.need import Need, pod_requests
from kvcachepool.hardware.placement import mismatch, untolerated
from kvcachepool.observe.nodes import node_facts
from tests.nodes import node, raw_node

LABELS = {"zone": "a", "size": "12", "word": "big"}


def required(*terms: dict[str, Any]) -> Scheduling:
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": list(terms)}}}
    return Scheduling(affinity=affinity)


def term(key: str, operator: str, *values: str) -> dict[str, Any]:
    return {"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}


@pytest.mark.parametrize(
    ("scheduling", "found"),
    [
        (Scheduling(), ""),
        (Scheduling(node_selector={"zone": "a", "size": "12"}), ""),
        (Scheduling(node_selector={"zone": "b"}), "zone=a"),
        (Scheduling(node_selector={"gone": "b"}), "no label gone"),
        (required(term("zone", "In", "b", "a")), ""),
        (required(term("zone", "In", "b")), "zone=a"),
        (required(term("zone", "NotIn", "b")), ""),
        (required(term("zone", "NotIn", "a")), "zone=a"),
        (required(term("gone", "NotIn", "a")), ""),
        (required(term("zone", "Exists")), ""),
        (required(term("gone", "Exists")), "no label gone"),
        (required(term("gone", "DoesNotExist")), ""),
        (required(term("zone", "DoesNotExist")), "zone=a"),
        (required(term("size", "Gt", "11")), ""),
        (required(term("size", "Gt", "12")), "size=12"),
        (required(term("size", "Lt", "13")), ""),
        (required(term("word", "Gt", "11")), "word=big"),
        (required(term("gone", "Lt", "11")), "no label gone"),
        (required(term("zone", "In", "b"), term("size", "Exists")), ""),
        (required({}), "no term of the required node affinity"),
        (required({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["gpu-1"]}]}), ""),
        (required({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["x"]}]}), "no term"),
        (Scheduling(affinity={"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}}), ""),
        (Scheduling(affinity={"podAffinity": {}}), ""),
    ],
)
def test_labels(scheduling: Scheduling, found: str) -> None:
    told = mismatch(scheduling, node(labels=LABELS))
    assert told.startswith(found)
    assert bool(told) is bool(found)


@pytest.mark.parametrize(
    ("toleration", "tolerated"),
    [
        ({}, False),
        ({"operator": "Exists"}, True),
        ({"key": "k", "operator": "Exists"}, True),
        ({"key": "k", "value": "v"}, True),
        ({"key": "k", "value": "w"}, False),
        ({"key": "other", "operator": "Exists"}, False),
        ({"key": "k", "operator": "Exists", "effect": "NoExecute"}, False),
        ({"key": "k", "operator": "Exists", "effect": "NoSchedule"}, True),
    ],
)
def test_tolerations(toleration: dict[str, Any], tolerated: bool) -> None:
    found = untolerated([Toleration(**toleration)], node(taints=("k=v:NoSchedule",)))
    assert (found is None) is tolerated
    assert tolerated or str(found) == "k=v:NoSchedule"


def test_a_device_brings_its_toleration_once() -> None:
    own = Toleration(key="nvidia.com/gpu", operator="Exists", effect="NoSchedule")
    assert with_tolerations(Scheduling(tolerations=[own]), ["nvidia.com/gpu"]).tolerations == [own]
    assert with_tolerations(Scheduling(), []).tolerations is None


def test_a_term_without_requirements_never_begins_to_hold() -> None:
    """It matches no node; with one of our requirements in it, it would."""
    merged = with_affinity(required({}, term("zone", "In", "a")), Need("engine", {}, product="L4"))
    assert merged.affinity is not None
    terms = merged.affinity["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert [[e["key"] for e in t["matchExpressions"]] for t in terms] == [["zone", "nvidia.com/gpu.product"]]


def test_requests_are_what_the_scheduler_counts() -> None:
    spec = {
        "containers": [
            {"resources": {"requests": {"cpu": "500m", "memory": "1Gi"}}},
            {"resources": {"limits": {"cpu": "2", "nvidia.com/gpu": "1"}}},
        ],
        "initContainers": [{"resources": {"requests": {"cpu": "10m", "memory": "3Gi"}}}],
    }
    assert {name: float(amount) for name, amount in pod_requests(spec).items()} == {
        "cpu": 2.5, "memory": 3 * 2**30, "nvidia.com/gpu": 1,
    }  # fmt: skip


@pytest.mark.parametrize(
    "raw",
    [
        {},
        {"metadata": None, "spec": None, "status": None},
        {"metadata": {"name": "n", "labels": []}, "spec": {"taints": "x"}, "status": {"allocatable": {"cpu": "?"}}},
        {"spec": {"taints": [None, {}]}, "status": {"conditions": [{}], "allocatable": None}},
    ],
)
def test_a_malformed_node_reads_as_one_that_offers_nothing(raw: dict[str, Any]) -> None:
    found = node_facts(raw)
    assert (found.ready, dict(found.allocatable), found.taints) == (False, {}, ())


def test_taints_of_a_nodes_state_are_not_its_own() -> None:
    raw = raw_node(taints=("node.kubernetes.io/not-ready:NoExecute", "k=v:PreferNoSchedule", "own:NoExecute"))
    assert [str(taint) for taint in node_facts(raw).taints] == ["own:NoExecute"]
