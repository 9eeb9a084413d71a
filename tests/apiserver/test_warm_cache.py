"""What keeps a warm cache, with a real API server: a held restart, a paused roll, budgets for drains."""

import json
import time
from copy import deepcopy
from datetime import UTC, datetime
from typing import Any

from e2e.cluster.kubectl import Kubectl
from kvcachepool import constants
from kvcachepool.facts import Observed, PodFacts
from kvcachepool.leaving import rolled
from kvcachepool.plan import make_plan
from kvcachepool.plan_types import Plan
from kvcachepool.settings import Settings
from tests.apiserver.conftest import eventually
from tests.apiserver.pools import pool as manifest
from tests.pools import pool

MASTER = PodFacts("demo-master-1", "m1", constants.MASTER, "", ready=True)


def applied(kubectl: Kubectl, plan: Plan) -> dict[tuple[str, str], Any]:
    """The plan's objects as the API server has them after they were applied as the operator does."""
    live = {}
    for obj in plan.objects:
        body = deepcopy(dict(obj))
        body["metadata"].pop("ownerReferences", None)  # the pool is not there, and what it owned would be collected
        kubectl.run(
            "apply", "--server-side", f"--field-manager={constants.FIELD_MANAGER}", "-f", "-", data=json.dumps(body)
        )
        name, namespace = body["metadata"]["name"], body["metadata"]["namespace"]
        live[body["kind"], name] = kubectl.get(body["kind"], name, f"--namespace={namespace}")
    return live


def test_a_held_master_is_applied_as_it_runs_and_keeps_its_generation(kubectl: Kubectl, namespace: str) -> None:
    """The name of what waits is drawn from the Deployment's generation: it must not move while it waits."""
    spec = {"store": {"master": {"clientTtlSeconds": 20}}}

    def planned(live: dict[tuple[str, str], Any], spec: dict[str, Any], **metadata: Any) -> Plan:
        item = pool(spec, namespace=namespace, **metadata)
        return make_plan(item, Observed(pods=(MASTER,), children=live), Settings())

    live = applied(kubectl, planned({}, {}))
    first = planned(live, spec)
    assert first.held is not None
    assert first.held.differences == ("--client_ttl: 10 → 20",), "the API server's defaults are no difference"
    after = applied(kubectl, first)
    key = ("Deployment", "demo-master")
    assert after[key]["metadata"]["generation"] == live[key]["metadata"]["generation"]
    assert after[key]["spec"]["template"] == live[key]["spec"]["template"]
    again = planned(after, spec)
    assert again.held == first.held
    approved = planned(after, spec, annotations={constants.ANNOTATION_APPROVE: first.held.approval})
    assert approved.held is None
    final = applied(kubectl, approved)
    assert "--client_ttl=20" in final[key]["spec"]["template"]["spec"]["containers"][0]["args"]
    assert planned(final, spec).held is None


def test_a_roll_is_paused_and_goes_on(kubectl: Kubectl, namespace: str) -> None:
    plan = make_plan(pool({"store": {"replicas": 2}}, namespace=namespace), Observed(pods=(MASTER,)), Settings())
    live = applied(kubectl, plan)
    store = next(dict(o) for o in plan.objects if o["kind"] == "Deployment" and o["metadata"]["name"] == "demo-store")
    assert live["Deployment", "demo-store"]["spec"]["minReadySeconds"] == 15
    held = rolled(store, replaces=True, full=True, waits="x")
    assert applied(kubectl, Plan(None, objects=(held,)))["Deployment", "demo-store"]["spec"]["paused"] is True
    assert "paused" not in applied(kubectl, Plan(None, objects=(store,)))["Deployment", "demo-store"]["spec"]


def test_budgets_are_taken_and_select_the_pods(kubectl: Kubectl, namespace: str) -> None:
    plan = make_plan(pool(namespace=namespace), Observed(pods=(MASTER,)), Settings())
    live = applied(kubectl, plan)
    found = {name: obj["spec"] for (kind, name), obj in live.items() if kind == "PodDisruptionBudget"}
    assert {name: spec["maxUnavailable"] for name, spec in found.items()} == {
        "demo-master": 0, "demo-store": 1, "demo-engine": 1,
    }  # fmt: skip
    for name, spec in found.items():
        template = next(
            obj["spec"]["template"]
            for (kind, child), obj in live.items()
            if kind == "Deployment" and child.startswith(name)
        )
        assert spec["selector"]["matchLabels"].items() <= template["metadata"]["labels"].items()


def test_an_approval_is_no_new_generation_of_the_pool(kubectl: Kubectl, namespace: str) -> None:
    kubectl.run("apply", "-f", "-", data=json.dumps(manifest("demo", namespace)))
    approval = f"{constants.ANNOTATION_APPROVE}=0123456789abcdef"
    kubectl.run("annotate", "kvpool", "demo", f"--namespace={namespace}", approval)
    assert kubectl.get("kvpool", "demo", f"--namespace={namespace}")["metadata"]["generation"] == 1


def test_the_deployment_controller_stops_between_two_pods(kubectl: Kubectl, namespace: str) -> None:
    """What `leaving.rolled` builds on: paused while every pod exists, it neither goes on nor makes former pods again."""
    plan = make_plan(pool({"store": {"replicas": 3}}, namespace=namespace), Observed(pods=(MASTER,)), Settings())
    store = next(dict(o) for o in plan.objects if o["kind"] == "Deployment" and o["metadata"]["name"] == "demo-store")
    store["spec"] = store["spec"] | {"minReadySeconds": 1}
    template = deepcopy(store["spec"]["template"])
    template["spec"]["containers"][0]["image"] = "m:2"
    rolling = store | {"spec": store["spec"] | {"template": template}}

    def images() -> list[str]:
        """Of all pods; each is made ready, as no kubelet does it here."""
        found = kubectl.get("pods", f"--namespace={namespace}")["items"]
        for pod in found:
            if pod["status"].get("phase") != "Running":
                made_ready(kubectl, namespace, pod["metadata"]["name"])
        return sorted(pod["spec"]["containers"][0]["image"] for pod in found)

    applied(kubectl, Plan(None, objects=(store,)))
    former = store["spec"]["template"]["spec"]["containers"][0]["image"]
    eventually(lambda: images() == [former] * 3)
    eventually(lambda: status(kubectl, namespace).get("availableReplicas") == 3)
    applied(kubectl, Plan(None, objects=(rolling,)))
    eventually(lambda: status(kubectl, namespace).get("updatedReplicas") == 1)
    applied(kubectl, Plan(None, objects=(rolled(rolling, replaces=True, full=True, waits="x"),)))
    half = sorted([former, former, "m:2"])
    eventually(lambda: images() == half and status(kubectl, namespace).get("availableReplicas") == 3)
    time.sleep(5)  # five times minReadySeconds
    assert images() == half
    applied(kubectl, Plan(None, objects=(rolling,)))
    eventually(lambda: images() == ["m:2"] * 3)


def status(kubectl: Kubectl, namespace: str) -> dict[str, Any]:
    """Of the store's Deployment."""
    found: dict[str, Any] = kubectl.get("deployment", "demo-store", f"--namespace={namespace}")["status"]
    return found


def made_ready(kubectl: Kubectl, namespace: str, pod: str) -> None:
    """As a kubelet would."""
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    ready = {"type": "Ready", "status": "True", "lastTransitionTime": now}
    patch = json.dumps({"status": {"phase": "Running", "conditions": [ready]}})
    kubectl.succeeds("patch", "pod", pod, f"--namespace={namespace}", "--subresource=status", f"-p={patch}")
