"""Values that the CRD lets pass: each is computed as Kubernetes does, or named; none may end a pass."""

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest

from kvcachepool.facts import MasterFacts, Observed
from kvcachepool.hardware import labels
from kvcachepool.hardware.selectors import faults
from kvcachepool.observe.engine import served_models
from kvcachepool.observe.http import Answer
from kvcachepool.observe.pods import pod_facts
from kvcachepool.plan import make_plan
from kvcachepool.preview import STARTED
from kvcachepool.quantity import parse_amount
from kvcachepool.settings import Settings
from kvcachepool.status import make_status
from tests.nodes import node
from tests.pools import invalid, pool

NODE = "affinity.nodeAffinity"
TERMS = f"{NODE}.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms"
PREFERRED = f"{NODE}.preferredDuringSchedulingIgnoredDuringExecution"
FULL = MasterFacts(reachable=True, keys=100_000, allocated=100_000 * 2**16)
SEEN = Observed(
    **{name: getattr(STARTED, name) for name in ("pods", "leader_worker_sets")}, nodes=(node(),), master=FULL
)


def accepted(spec: dict[str, Any]) -> tuple[str, str, str]:
    """What a whole pass says."""
    asked = pool(spec)
    plan = make_plan(asked, SEEN, Settings())
    found = make_status(asked, plan, SEEN, datetime(2026, 3, 1, tzinfo=UTC)).condition("Accepted")
    assert found is not None
    assert (found.status == "False") == bool(plan.findings)
    return found.status, found.reason, found.message


def terms(*given: Any) -> dict[str, Any]:
    return {
        "affinity": {
            "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": list(given)}}
        }
    }


def label(**requirement: Any) -> dict[str, Any]:
    return terms({"matchExpressions": [{"key": "k", **requirement}]})


def node_field(**requirement: Any) -> dict[str, Any]:
    return terms({"matchFields": [{"key": "metadata.name", **requirement}]})


def preferred(*items: Any) -> dict[str, Any]:
    return {"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": list(items)}}}


LABEL, FIELD = f"{TERMS}[0].matchExpressions[0]", f"{TERMS}[0].matchFields[0]"
BAD = [
    ({"nodeSelector": {"a b": "v"}}, "nodeSelector: found the key 'a b', expected the key of a label"),
    ({"nodeSelector": {"k": "a b"}}, "nodeSelector.k: found 'a b', expected the value of a label"),
    ({"nodeSelector": {"UPPER/k": "v"}}, "nodeSelector: found the key 'UPPER/k', expected the key of a label"),
    ({"affinity": {"nodeAffinity": "x"}}, f"{NODE}: found 'x', expected an object"),
    ({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": []}}}, f"{TERMS.rpartition('.')[0]}: found a value of type list, expected an object"),
    ({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {}}}}, f"{TERMS}: found none, expected at least one term"),
    (terms(), f"{TERMS}: found none, expected at least one term"),
    (terms({"matchExpressions": 5}), f"{TERMS}[0].matchExpressions: found 5, expected a list of objects"),
    (terms({"matchExpressions": [5]}), f"{LABEL}: found 5, expected an object"),
    (terms({"matchLabels": {}}), f"{TERMS}[0]: found the field 'matchLabels', expected matchExpressions and matchFields only"),
    (label(operator="In", values=True), f"{LABEL}.values: found True, expected a list of texts"),
    (label(operator="In", values=5), f"{LABEL}.values: found 5, expected a list of texts"),
    (label(operator="In", values=[5]), f"{LABEL}.values: found a value of type list, expected a list of texts"),
    (label(operator="In", values=["a b"]), f"{LABEL}.values: found 'a b', expected the value of a label"),
    (label(operator="In", values=[]), f"{LABEL}.values: found none, expected at least one value with operator In"),
    (label(operator="Exists", values=["v"]), f"{LABEL}.values: found 1, expected no value with operator Exists"),
    (label(operator="Gt", values=["1", "2"]), f"{LABEL}.values: found 2, expected exactly one value with operator Gt"),
    (label(operator="in", values=["v"]), f"{LABEL}.operator: found 'in', expected one of In, NotIn, Exists, DoesNotExist, Gt, Lt"),
    (label(operator=["In"], values=["v"]), f"{LABEL}.operator: found a value of type list, expected one of In,"),
    (label(operator="Exists", key=None), f"{LABEL}.key: found none, expected the key of a label"),
    (label(operator="Exists", extra=1), f"{LABEL}: found the field 'extra', expected key and operator and values only"),
    (node_field(operator="Exists"), f"{FIELD}.operator: found 'Exists', expected one of In, NotIn"),
    (node_field(operator="In", values=["A"]), f"{FIELD}.values: found 'A', expected the name of a node"),
    (node_field(operator="In", values=["a"], key="k"), f"{FIELD}.key: found 'k', expected metadata.name"),
    (preferred(5), f"{PREFERRED}[0]: found 5, expected an object"),
    (preferred({"weight": 1, "preference": {"matchExpressions": {}}}), f"{PREFERRED}[0].preference.matchExpressions: found a value of type dict"),
    ({"affinity": {"podAffinity": 5}}, "affinity.podAffinity: found 5, expected an object"),
    ({"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {}}}}, "affinity.podAntiAffinity.requiredDuringSchedulingIgnoredDuringExecution: found a value of type dict, expected a list"),
]  # fmt: skip


@pytest.mark.parametrize(("scheduling", "message"), BAD)
@pytest.mark.parametrize("path", ["scheduling", "engines.scheduling", "store.scheduling", "store.master.scheduling"])
def test_a_placement_that_no_api_server_takes_is_named(path: str, scheduling: dict[str, Any], message: str) -> None:
    spec = scheduling
    for part in reversed(path.split(".")):
        spec = {part: spec}
    status, reason, found = accepted(spec)
    assert (status, reason) == ("False", "InvalidSpec")
    assert found.startswith(f"spec.{path}.{message}")


@pytest.mark.parametrize(
    "scheduling",
    [
        {"affinity": {}},
        {"affinity": {"nodeAffinity": None, "podAffinity": {}}},
        {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": None}}},
        {"nodeSelector": {"k": "", "example.com/a_b.C": "x" * 63}},
        terms({}),
        terms({"matchExpressions": None, "matchFields": []}),
        label(operator="Exists", values=None),
        label(operator="NotIn", values=["a", ""]),
        label(operator="Lt", values=["word"]),
        node_field(operator="NotIn", values=["ip-10-0-0-1.ec2.internal"]),
        preferred(
            {"weight": 1, "preference": {"matchExpressions": [{"key": "k", "operator": "In", "values": ["a b"]}]}}
        ),
        preferred({"weight": 1}),
    ],
)
def test_a_placement_that_kubernetes_takes_is_taken(scheduling: dict[str, Any]) -> None:
    assert accepted({"scheduling": scheduling}) == (
        "True",
        "Valid",
        "The spec is valid and everything it refers to exists.",
    )


def test_a_key_of_any_length_is_looked_at_in_no_time() -> None:
    found = list(faults(pool({"scheduling": {"nodeSelector": {"a-" * 100_000 + "!": "v"}}}).spec.scheduling))
    assert [path for path, _ in found] == ["nodeSelector"]
    assert len(found[0][1]) < 200


@pytest.mark.parametrize("limit", ["2147483648000m", ".5Gi", "2147483648", "+2Gi", "2.Gi"])
@pytest.mark.parametrize("path", ["store.master", "store", "engines"])
def test_any_size_that_kubernetes_takes_is_one(path: str, limit: str) -> None:
    """The master's limit is compared once the pool has 1000 keys."""
    spec: dict[str, Any] = {"resources": {"requests": {"memory": limit}}}
    if path == "store.master":
        spec = {"resources": {"limits": {"memory": limit}}}
    for part in reversed(path.split(".")):
        spec = {part: spec}
    assert accepted(spec)[0] == "True"


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"engines": {"resources": {"limits": {"memory": "2147483648000m"}}}}, "spec.engines.resources.limits.memory: found 2147483648000m, expected at least"),
        ({"store": {"resources": {"requests": {"memory": "-1Gi"}}}}, "spec.store.resources.requests.memory: found -1Gi, expected a size of at least 0"),
        ({"engines": {"resources": {"limits": {"hugepages-0Mi": "1Gi"}}}}, "spec.engines.resources.limits.hugepages-0Mi: found hugepages-0Mi, expected a page size such as hugepages-2Mi"),
        ({"engines": {"resources": {"limits": {f"hugepages-{'9' * 300}Mi": "1Gi"}}}}, f"spec.engines.resources.limits.hugepages-{'9' * 300}Mi: found"),
    ],
)  # fmt: skip
def test_amounts_that_cannot_be_are_named(spec: dict[str, Any], message: str) -> None:
    status, reason, found = accepted(spec)
    assert (status, reason) == ("False", "InvalidSpec")
    assert found.startswith(message)


@pytest.mark.parametrize("amount", ["1e1.5", "1e.5", "1e1000", "1" * 300, "1 ", "two", ""])
def test_what_is_no_quantity_is_named(amount: str) -> None:
    (message,) = invalid({"engines": {"resources": {"limits": {"cpu": amount}}}})
    assert message == (
        f"spec.engines.resources.limits.cpu: found {amount[:64]!r}, expected a quantity such as 500m, 2 or 1Gi"
    )


@pytest.mark.parametrize("amount", ["1e-100", "1e-10", "1n", "0.0000000000001", "1e999", "1e3", 2, 1e22])
@pytest.mark.parametrize("name", ["cpu", "example.com/device", "ephemeral-storage", "memory"])
def test_any_amount_is_matched_with_the_nodes(name: str, amount: Any) -> None:
    assert accepted({"engines": {"resources": {"requests": {name: amount}}}})[0] == "True"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1e-100", "1e-9"),
        ("-1e-100", "-1e-9"),
        ("1.5n", "2e-9"),
        ("0e-100", "0"),
        ("500m", "0.5"),
        (".5Gi", str(2**29)),
    ],
)
def test_the_least_amount_is_a_billionth_as_for_the_api_machinery(text: str, expected: str) -> None:
    assert parse_amount(text) == Decimal(expected)


def test_what_others_write_of_any_form_is_read() -> None:
    """Found by fuzzing: a driver's version of 5,000 digits, an owner whose name is a list, half of a surrogate pair."""
    digits = "9" * 5000
    assert labels.driver({labels.DRIVER_MAJOR[0]: digits}) is None
    assert labels.unreadable_driver({labels.DRIVER_MAJOR[0]: digits}) is not None
    owner = {"kind": "ReplicaSet", "name": [], "controller": True}
    assert not pod_facts({"metadata": {"name": "x", "ownerReferences": [owner]}}, ("demo-engine",)).owned
    answer = Answer(text='{"data": [{"id": "\\ud800", "max_model_len": 8}]}')
    assert served_models(answer) == ({"?": 8}, "")
