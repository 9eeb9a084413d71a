"""One member with a segment at a time, by what the master lists (Mooncake#889, Mooncake#3688)."""

from dataclasses import replace
from typing import Any

import pytest

from kvcachepool import constants
from kvcachepool.facts import MasterFacts, Observed, PodFacts, Segment, WorkloadFacts
from kvcachepool.leaving import ARRIVES_WITHIN, obstacle, rolled, scaled
from kvcachepool.observe.presence import Presence
from kvcachepool.plan import make_plan
from kvcachepool.settings import Settings
from tests.pools import pool

MASTER = PodFacts("demo-master-1", "m", constants.MASTER, "", ready=True)


def stores(count: int) -> tuple[PodFacts, ...]:
    return tuple(
        PodFacts(f"demo-store-{n}", f"s{n}", constants.STORE, "", ip=f"10.0.0.{n}", phase="Running", ready=True)
        for n in range(count)
    )


def lists(*pods: PodFacts, **more: Any) -> MasterFacts:
    hosts = [pod.ip for pod in pods]
    return MasterFacts(True, segments=tuple(Segment(f"{h}:1", f"{h}:2", "tcp", 1, "OK", h) for h in hosts), **more)


def test_a_pod_that_leaves_blocks_the_next_one() -> None:
    first, second = stores(2)
    observed = Observed(pods=(replace(first, deleting=True), second), master=lists(first, second))
    assert obstacle(observed, [second]) == "demo-store-0 is still leaving"
    lost = replace(observed, master=lists(second))
    assert obstacle(lost, [second]) == "", "of a lost node a pod stays for ever, but the master has dropped it"


def test_so_does_a_segment_that_the_master_still_lists() -> None:
    _, second = stores(2)
    observed = Observed(pods=(second,), master=lists(second), departed={"10.0.0.0": "demo-store-0"})
    assert "still lists the segment of demo-store-0" in obstacle(observed, [second])


def test_and_one_that_it_does_not_list_yet_but_not_for_ever() -> None:
    (pod,) = stores(1)
    observed = Observed(pods=(pod,), master=lists(), absent={pod.name: 3})
    assert "does not list the segment of demo-store-0 yet" in obstacle(observed, [pod])
    assert obstacle(replace(observed, absent={pod.name: ARRIVES_WITHIN}), [pod]) == ""


@pytest.mark.parametrize("master", [None, MasterFacts(True), MasterFacts(False, "refused")])
def test_and_a_master_that_does_not_say(master: MasterFacts | None) -> None:
    (pod,) = stores(1)
    assert obstacle(Observed(pods=(pod,), master=master), [pod]) == "the master cannot be asked for its segments"


def test_nothing_blocks_when_pods_and_master_agree() -> None:
    assert obstacle(Observed(pods=stores(2), master=lists(*stores(2))), stores(2)) == ""


def test_scale_in_is_made_in_steps_of_one() -> None:
    live = {"spec": {"replicas": 4}}
    assert scaled(2, live, 4, "") == 3
    assert scaled(2, live, 4, "x is still leaving") == 4
    assert scaled(2, live, 5, "") == 4, "the last step is not made yet"
    assert scaled(6, live, 4, "x is still leaving") == 6
    assert scaled(2, None, 0, "") == 2


def test_a_roll_is_paused_only_when_every_pod_exists() -> None:
    desired: dict[str, Any] = {"spec": {"replicas": 2}}
    assert rolled(desired, replaces=True, full=True, waits="x")["spec"]["paused"] is True
    for replaces, full, waits in ((False, True, "x"), (True, False, "x"), (True, True, "")):
        assert "paused" not in rolled(desired, replaces=replaces, full=full, waits=waits)["spec"]


class Cluster:
    """A pool's store Deployment and its pods, moved by hand as a controller would."""

    def __init__(self, count: int) -> None:
        self.pods, self.presence, self.now = list(stores(count)), Presence(), 0.0
        self.listed = list(self.pods)
        self.children: dict[tuple[str, str], Any] = {}
        self.updated = count

    def replicas(self, wanted: int, **spec: Any) -> tuple[int, bool]:
        """(replicas, paused) after a pass for a pool with so many wanted."""
        self.now += 1
        master = lists(*self.listed)
        departed, absent = self.presence.look(self.pods, master, self.now)
        live = self.children.get(("Deployment", "demo-store"))
        count = live["spec"]["replicas"] if live else len(self.pods)
        workload = WorkloadFacts("demo-store", constants.STORE, count, self.updated, len(self.pods), 1, 1)
        observed = Observed(
            pods=(MASTER, *self.pods), master=master, departed=departed, absent=absent, children=self.children,
            workloads={"demo-store": workload},
        )  # fmt: skip
        plan = make_plan(pool({"store": {"replicas": wanted} | spec}), observed, Settings())
        for obj in plan.objects:
            self.children[obj["kind"], obj["metadata"]["name"]] = obj
        made = self.children["Deployment", "demo-store"]["spec"]
        return made["replicas"], made.get("paused", False)


def test_four_to_two_waits_for_the_master_at_each_step() -> None:
    cluster = Cluster(4)
    assert cluster.replicas(4) == (4, False)
    assert cluster.replicas(2) == (3, False)
    assert cluster.replicas(2) == (3, False), "the controller has not acted yet"
    leaver = cluster.pods.pop()
    cluster.pods.append(replace(leaver, deleting=True))
    assert cluster.replicas(2) == (3, False), "it is draining"
    cluster.pods.pop()
    assert cluster.replicas(2) == (3, False), "it was killed: the master lists it until clientTtl"
    cluster.listed.remove(leaver)
    assert cluster.replicas(2) == (2, False)


def test_a_roll_goes_on_when_the_new_member_is_listed() -> None:
    cluster = Cluster(2)
    cluster.replicas(2)
    edit: dict[str, Any] = {"resources": {"requests": {"memory": "64Gi"}}}
    assert cluster.replicas(2, **edit) == (2, False)
    old, cluster.updated = cluster.pods.pop(), 0
    assert cluster.replicas(2, **edit) == (2, False), "a paused Deployment would make the former pod again"
    new = replace(old, name="demo-store-new", uid="new", ip="10.0.0.9", ready=False)
    cluster.pods.append(new)
    cluster.updated = 1
    assert cluster.replicas(2, **edit) == (2, True), "the master still lists the one that left"
    cluster.listed.remove(old)
    cluster.pods[-1] = replace(new, ready=True)
    assert cluster.replicas(2, **edit) == (2, True), "the new one is ready but not listed"
    cluster.listed.append(cluster.pods[-1])
    assert cluster.replicas(2, **edit) == (2, False)


def test_embedded_engines_go_one_at_a_time_too() -> None:
    spec = {"store": {"mode": "Embedded"}, "engines": {"replicas": 4}}
    plan = make_plan(pool(spec), Observed(pods=(MASTER,)), Settings())
    children = {(o["kind"], o["metadata"]["name"]): o for o in plan.objects}
    name, digest = next(
        (o["metadata"]["name"], o["metadata"]["labels"][constants.LABEL_SCHEMA])
        for o in plan.objects
        if "engine-" in o["metadata"]["name"] and o["kind"] == "Deployment"
    )
    assert children["Deployment", name]["spec"]["minReadySeconds"] == 15
    engines = tuple(
        PodFacts(f"e{n}", f"e{n}", constants.ENGINE, digest, ip=f"10.0.1.{n}", ready=True, phase="Running")
        for n in range(4)
    )
    facts = WorkloadFacts(name, constants.ENGINE, 4, 4, 4, 1, 1, digest=digest)

    def asked(*, departed: dict[str, str]) -> int:
        observed = Observed(
            pods=(MASTER, *engines),
            master=lists(*engines),
            children=children,
            workloads={name: facts},
            departed=departed,
        )
        made = make_plan(pool(spec | {"engines": {"replicas": 2}}), observed, Settings())
        return next(o["spec"]["replicas"] for o in made.objects if o["metadata"]["name"] == name)

    assert asked(departed={}) == 3
    assert asked(departed={"10.0.1.9": "e9"}) == 4


def test_presence_forgets_who_the_master_forgot() -> None:
    presence = Presence()
    first, second = stores(2)
    assert presence.look([first, second], lists(first, second), 0.0) == ({}, {})
    assert presence.look([second], lists(first, second), 1.0) == ({first.ip: first.name}, {})
    assert presence.look([second], None, 2.0) == ({first.ip: first.name}, {}), "unknown is not gone"
    assert presence.look([second], lists(second), 3.0) == ({}, {})
    assert presence.look([second], lists(), 10.0) == ({}, {second.name: 0})
    assert presence.look([second], lists(), 25.0) == ({}, {second.name: 15})
    assert presence.look([second], lists(second), 30.0) == ({}, {})
