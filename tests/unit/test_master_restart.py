"""A restart of the master waits for the user, and happens once."""

from copy import deepcopy
from dataclasses import replace
from typing import Any

import pytest

from kvcachepool import constants
from kvcachepool.facts import ContainerFacts, Observed, PodFacts
from kvcachepool.plan import make_plan
from kvcachepool.plan_types import Plan
from kvcachepool.render.difference import differences
from kvcachepool.settings import Settings
from tests.nodes import node
from tests.pools import merged, pool

MASTER = PodFacts("demo-master-1", "m1", constants.MASTER, "", node="gpu-1", ready=True)
TTL: dict[str, Any] = {"store": {"master": {"clientTtlSeconds": 20}}}
MEMORY: dict[str, Any] = {
    "store": {"master": {"resources": {"requests": {"cpu": "500m", "memory": "1Gi"}, "limits": {"memory": "8Gi"}}}}
}
IMAGES: dict[str, Any] = {
    "backend": {"mooncake": {"version": "0.3.14"}},
    "store": {"image": "m:2"},
    "engines": {"image": "e:2-cu13"},
}


class World:
    """A pool, its children as they were applied, and the user's annotation."""

    def __init__(self, *pods: PodFacts) -> None:
        self.pods, self.approval = pods or (MASTER,), ""
        self.children: dict[tuple[str, str], dict[str, Any]] = {}

    def plan(self, spec: dict[str, Any] | None = None, **facts: Any) -> Plan:
        annotations = {constants.ANNOTATION_APPROVE: self.approval} if self.approval else {}
        observed = Observed(pods=self.pods, children=self.children, **facts)
        return make_plan(pool(spec, annotations=annotations), observed, Settings())

    def apply(self, plan: Plan) -> None:
        """As the API server does: a changed spec is another generation."""
        for obj in plan.objects:
            key = (obj["kind"], obj["metadata"]["name"])
            before = self.children.get(key)
            changed = before is None or before["spec"] != obj.get("spec")
            generation = (before["metadata"]["generation"] if before else 0) + changed
            self.children[key] = merged(dict(obj), {"metadata": {"uid": f"u-{key[1]}", "generation": generation}})

    def step(self, spec: dict[str, Any] | None = None) -> Plan:
        plan = self.plan(spec)
        self.apply(plan)
        return plan

    def flags(self) -> list[str]:
        """Of the master as it was applied last."""
        spec = self.children["Deployment", "demo-master"]["spec"]["template"]["spec"]
        return list(spec["containers"][0]["args"])


@pytest.fixture
def world() -> World:
    world = World()
    world.step()
    return world


def held(plan: Plan) -> str:
    assert plan.held is not None
    return plan.held.approval


def test_an_edit_of_the_master_waits_and_the_running_one_stays(world: World) -> None:
    before = deepcopy(world.children)
    plan = world.step(TTL)
    assert plan.held is not None
    assert plan.held.differences == ("--client_ttl: 10 → 20",)
    assert world.children["Deployment", "demo-master"] == before["Deployment", "demo-master"]
    assert held(world.step(TTL)) == plan.held.approval, "the name of what waits stays the same"


def test_an_approved_restart_happens_and_the_approval_is_used_up(world: World) -> None:
    world.approval = held(world.step(TTL))
    assert world.step(TTL).held is None
    assert "--client_ttl=20" in world.flags()
    assert world.step(TTL).held is None
    again = world.step()
    assert held(again) != world.approval, "going back is another restart"
    assert "--client_ttl=20" in world.flags()


def test_an_approval_does_not_fit_the_same_edit_later(world: World) -> None:
    first = world.approval = held(world.step(TTL))
    world.step(TTL)
    world.pods = ()  # the master is down: an edit is applied at once
    world.step()
    world.pods = (MASTER,)
    assert "--client_ttl=10" in world.flags()
    assert held(world.step(TTL)) != first


def test_several_edits_cost_one_restart(world: World) -> None:
    first = held(world.step(TTL))
    both = merged(TTL, MEMORY)
    plan = world.step(both)
    assert plan.held is not None
    assert set(plan.held.differences) == {"--client_ttl: 10 → 20", "resources.limits.memory: 2Gi → 8Gi"}
    world.approval = first
    assert world.step(both).held is not None, "the user has approved of something else"
    world.approval = plan.held.approval
    assert world.step(both).held is None
    assert world.step(both).held is None


def test_an_edit_taken_back_waits_no_more(world: World) -> None:
    assert world.step(TTL).held is not None
    assert world.step().held is None
    assert "--client_ttl=10" in world.flags()


def test_an_edit_that_replaces_no_pod_does_not_wait(world: World) -> None:
    assert world.step({"store": {"replicas": 3}, "rolloutToken": "x"}).held is None


@pytest.mark.parametrize(
    "pods",
    [
        (),
        (replace(MASTER, deleting=True),),
        (replace(MASTER, ready=False, containers=(ContainerFacts("master", init=False, exit_code=127),)),),
    ],
    ids=["gone", "ending", "broken image"],
)
def test_without_a_running_master_nothing_is_lost_and_nothing_waits(world: World, pods: tuple[PodFacts, ...]) -> None:
    """Mooncake#3314: a master that cannot start recovers by a changed image, without anybody's approval."""
    world.pods = pods
    assert world.step(IMAGES).held is None
    assert world.children["Deployment", "demo-master"]["spec"]["template"]["spec"]["containers"][0]["image"] == "m:2"


def test_a_hung_master_keeps_its_index(world: World) -> None:
    world.pods = (replace(MASTER, ready=False, containers=(ContainerFacts("master", init=False, running=True),)),)
    assert world.step(TTL).held is not None


def test_store_pods_wait_for_the_master_they_change_together_with(world: World) -> None:
    before = deepcopy(world.children["Deployment", "demo-store"]["spec"]["template"])
    change = {"store": {"image": "m:2", "replicas": 2}}
    plan = world.step(change)
    store = world.children["Deployment", "demo-store"]
    assert (store["spec"]["template"], store["spec"]["replicas"]) == (before, 2)
    world.approval = held(plan)
    world.step(change)
    assert world.children["Deployment", "demo-store"]["spec"]["template"]["spec"]["containers"][0]["image"] == "m:2"


def test_engines_of_another_store_version_wait_with_the_master(world: World) -> None:
    from kvcachepool.observe.pods import workload_facts

    live = next(obj for key, obj in world.children.items() if "engine" in key[1] and key[0] == "Deployment")
    facts = {live["metadata"]["name"]: workload_facts(live)}
    plan = world.plan(IMAGES, workloads=facts)
    assert plan.waiting is not None
    assert plan.waiting.reason == "PendingMasterRestart"
    made = {o["metadata"]["name"]: o for o in plan.objects if o["kind"] == "Deployment"}
    assert made.keys() == {"demo-master", "demo-store", live["metadata"]["name"]}
    assert made[live["metadata"]["name"]]["spec"] == live["spec"]
    world.approval = held(plan)
    assert world.plan(IMAGES, workloads=facts).waiting is None
    dtype = merged(TTL, {"schema": {"dtype": "float16"}})
    assert world.plan(dtype, workloads=facts).waiting is None, "an edit of engines alone goes on"


def test_members_that_would_look_for_the_master_elsewhere_wait_with_it(world: World) -> None:
    from kvcachepool.observe.pods import workload_facts

    live = next(obj for key, obj in world.children.items() if "engine" in key[1] and key[0] == "Deployment")
    facts = {live["metadata"]["name"]: workload_facts(live)}
    etcd = {"store": {"master": {"replicas": 2, "ha": {"etcd": {"endpoints": ["etcd.infra:2379"]}}}}}
    plan = world.plan(etcd, workloads=facts)
    assert plan.held is not None
    assert plan.held.clients
    assert plan.waiting is not None
    assert plan.waiting.reason == "PendingMasterRestart"
    made = {o["metadata"]["name"]: o for o in plan.objects if o["kind"] == "Deployment"}
    assert made[live["metadata"]["name"]]["spec"] == live["spec"]
    for name, obj in made.items():
        assert "etcd://" not in str(obj["spec"]["template"]), name
    world.approval = plan.held.approval
    assert "etcd://" in str(world.plan(etcd, workloads=facts).objects)


def test_of_several_masters_the_one_that_leads_stays_until_that_was_approved(world: World) -> None:
    """Those that stand by are not ready: they may always be evicted, but the budget counts them as unavailable."""
    spec = {"store": {"master": {"replicas": 2, "ha": {"etcd": {"endpoints": ["etcd.infra:2379"]}}}}}
    standby = replace(MASTER, name="demo-master-2", uid="m2", node="gpu-2", ready=False)
    nodes = (replace(node("gpu-1"), cordoned=True), node("gpu-2"))

    def planned(**metadata: Any) -> tuple[Plan, int]:
        plan = make_plan(pool(spec, **metadata), Observed(pods=(MASTER, standby), nodes=nodes), Settings())
        budgets = [
            o["spec"] for o in plan.objects if o["kind"] == "PodDisruptionBudget" and "master" in str(o["metadata"])
        ]
        return plan, budgets[0]["maxUnavailable"]

    plan, unavailable = planned()
    assert unavailable == 0
    assert plan.held is not None
    assert plan.held.evicted_from == "gpu-1"
    assert planned(annotations={constants.ANNOTATION_APPROVE: plan.held.approval})[1] == 2


def test_the_master_leaves_a_node_only_when_that_was_approved(world: World) -> None:
    def budget(plan: Plan) -> int:
        found = next(
            o for o in plan.objects if o["kind"] == "PodDisruptionBudget" and "master" in o["metadata"]["name"]
        )
        return int(found["spec"]["maxUnavailable"])

    plan = world.plan(nodes=(node("gpu-1"),))
    assert (budget(plan), plan.held) == (0, None)
    plan = world.plan(nodes=(replace(node("gpu-1"), cordoned=True),))
    assert plan.held is not None
    assert plan.held.evicted_from == "gpu-1"
    world.approval = plan.held.approval
    assert budget(world.plan()) == 1
    world.pods = (replace(MASTER, name="demo-master-2", uid="m2"),)
    assert budget(world.plan()) == 0, "the approval was for the former pod"


def test_differences_leave_defaults_out_and_hide_values() -> None:
    desired = {
        "nodeSelector": {"a": "b"},
        "containers": [
            {
                "name": "master",
                "image": "m:2",
                "args": ["--a=1", "--b=2", "--new=3"],
                "env": [{"name": "TOKEN", "value": "hunter2"}],
                "resources": {"requests": {"cpu": "1000m"}},
            }
        ],
    }
    live = {
        "dnsPolicy": "ClusterFirst",
        "tolerations": [{"operator": "Exists"}],
        "containers": [
            {
                "name": "master",
                "image": "m:1",
                "imagePullPolicy": "IfNotPresent",
                "args": ["--a=1", "--b=1", "--old=0"],
                "env": [{"name": "TOKEN", "value": "old"}],
                "resources": {"requests": {"cpu": "1"}, "limits": {"memory": "1Gi"}},
            }
        ],
    }
    assert differences(desired, live) == (
        "nodeSelector.a",
        "image: m:1 → m:2",
        "--b: 1 → 2",
        "--new: unset → 3",
        "--old: 0 → unset",
        "env[TOKEN].value",
        "tolerations: removed",
    )
    assert differences({}, {}) == ("the pod template",)
