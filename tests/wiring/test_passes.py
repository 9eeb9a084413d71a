"""One pass against a mocked API server: what is read and written, and what an error leads to."""

from typing import Any

import pytest

from kvcachepool.children import Children
from kvcachepool.claims import Claims
from kvcachepool.cluster import Cluster
from kvcachepool.metrics import Metrics
from kvcachepool.plan_types import Plan
from kvcachepool.reconcile import Reconciler
from kvcachepool.watchcache import WatchCache
from kvcachepool.workqueue import BackoffError
from tests.wiring import conftest as parts
from tests.wiring.conftest import child, pool, steps

KEY = ("ns", "demo")
BASE = "/apis/kvcachepool.io/v1alpha1/namespaces/ns/kvcachepools/demo"
SERVICE = "/api/v1/namespaces/ns/services/demo-engines"
DEPLOYMENT = "/apis/apps/v1/namespaces/ns/deployments/demo-engines"


class Rig:
    """A reconciler whose cache is filled from the fake server, as watches would."""

    def __init__(self, api: Any, client: Any, **changes: Any) -> None:
        self.api = api
        self.cache = WatchCache()
        self.cluster = Cluster(client)
        self.metrics = Metrics()
        self.reconciler = Reconciler(
            steps(**changes),
            cache=self.cache,
            cluster=self.cluster,
            children=Children(self.cluster, self.cache),
            claims=Claims(self.cluster, installation="", claiming=False),
            metrics=self.metrics,
            resync_seconds=30.0,
        )

    def look(self) -> None:
        for plural in ("kvcachepools", "pods", "deployments", "services", "configmaps"):
            kind = {"kvcachepools": "KVCachePool", "pods": "Pod", "deployments": "Deployment", "services": "Service"}
            objects = [o for (p, _, _), o in self.api.objects.items() if p == plural]
            labelled = [
                o
                for o in objects
                if plural == "kvcachepools" or "kvcachepool.io/pool" in o["metadata"].get("labels", {})
            ]
            self.cache.replace(kind.get(plural, "ConfigMap"), None, labelled, str(self.api.version))

    async def run(self) -> float | None:
        self.look()
        return await self.reconciler.run(KEY)


@pytest.fixture
def rig(api, client):
    return Rig(api, client)


async def test_the_first_pass_applies_everything_and_writes_one_status(rig, api):
    api.put(pool())
    assert await rig.run() == 1.0
    assert api.writes() == [
        ("PATCH", SERVICE),
        ("PATCH", DEPLOYMENT),
        ("PATCH", f"{BASE}/status"),
        ("POST", "/api/v1/namespaces/ns/events"),
    ]
    written = api.get("kvcachepools", *KEY)
    assert written["status"]["observedGeneration"] == 1
    assert "finalizers" not in written["metadata"]
    assert "annotations" not in written["metadata"]
    event = next(obj for (plural, _, _), obj in api.objects.items() if plural == "events")
    assert event["involvedObject"]["uid"] == written["metadata"]["uid"]
    assert event["reason"] == "Fine"


async def test_a_steady_pool_is_never_called_about_again(rig, api):
    api.put(pool())
    await rig.run()
    before = len(api.requests)
    for _ in range(20):
        assert await rig.run() == 30.0
    assert len(api.requests) == before


async def test_status_changes_of_a_child_cause_no_apply(rig, api):
    api.put(pool())
    await rig.run()
    before = len(api.writes())
    deployment = api.get("deployments", "ns", "demo-engines")
    annotations = {"deployment.kubernetes.io/revision": "1"}
    api.put(
        deployment | {"metadata": deployment["metadata"] | {"annotations": annotations}, "status": {"readyReplicas": 1}}
    )
    await rig.run()
    assert len(api.writes()) == before


async def test_a_change_by_another_hand_is_put_right(rig, api):
    api.put(pool())
    await rig.run()
    deployment = api.get("deployments", "ns", "demo-engines")
    wanted = deployment["spec"]
    api.put(deployment | {"spec": {"replicas": 77}})
    api.delete("services", "ns", "demo-engines")
    await rig.run()
    assert api.get("deployments", "ns", "demo-engines")["spec"] == wanted
    assert ("services", "ns", "demo-engines") in api.objects


async def test_a_new_process_applies_once_and_changes_nothing(api, client):
    api.put(pool())
    await Rig(api, client).run()
    version = api.version
    again = Rig(api, client)
    assert await again.run() == 30.0
    assert api.version == version
    before = len(api.requests)
    await again.run()
    assert len(api.requests) == before


async def test_an_invalid_spec_is_said_and_nothing_else_is_done(rig, api):
    api.put(pool(engines={"replicas": -3}))
    assert await rig.run() is None
    assert [method for method, _ in api.writes()] == ["PATCH", "POST"]
    condition = api.get("kvcachepools", *KEY)["status"]["conditions"][0]
    assert condition["reason"] == "InvalidSpec"
    assert "engines.replicas" in condition["message"]
    before = len(api.requests)
    assert await rig.run() is None
    assert len(api.requests) == before


async def test_a_foreign_object_of_the_same_name_is_left_alone(rig, api):
    foreign = api.put(
        {"kind": "Service", "metadata": {"name": "demo-engines", "namespace": "ns"}, "spec": {"mine": True}}
    )
    api.put(pool())
    for _ in range(2):
        with pytest.raises(BackoffError, match="demo-engines"):
            await rig.run()
    assert api.get("services", "ns", "demo-engines") == foreign
    assert ("deployments", "ns", "demo-engines") not in api.objects, "what comes after it may stand on it"
    message = api.get("kvcachepools", *KEY)["status"]["conditions"][0]["message"]
    assert "Service demo-engines exists and is not controlled by this pool" in message
    api.delete("services", "ns", "demo-engines")
    await rig.run()
    assert api.get("kvcachepools", *KEY)["status"]["conditions"][0]["reason"] == "Fine"


async def test_children_of_a_former_pool_of_the_same_name_are_deleted_and_made_again(rig, api):
    """The garbage collector may not know of pools yet."""
    created = api.put(pool())
    await rig.run()
    api.delete("kvcachepools", *KEY)
    api.put(pool())
    uid = api.get("kvcachepools", *KEY)["metadata"]["uid"]
    assert uid != created["metadata"]["uid"]
    with pytest.raises(BackoffError, match="has left: Deployment demo-engines, Service demo-engines"):
        await rig.run()
    await rig.run()
    for plural in ("services", "deployments"):
        assert api.get(plural, "ns", "demo-engines")["metadata"]["ownerReferences"][0]["uid"] == uid


async def test_a_pass_over_a_pool_that_was_replaced_deletes_nothing_of_the_new_one(rig, api):
    """It still sees the former pool, and takes the new one's children for left over ones."""
    former = api.put(pool())
    await rig.run()
    present = api.put(pool() | {"metadata": pool()["metadata"] | {"uid": "of-another-leader"}}, seen=False)
    service = api.get("services", "ns", "demo-engines")
    owner = service["metadata"]["ownerReferences"][0] | {"uid": present["metadata"]["uid"]}
    rig.cache.put(api.put(service | {"metadata": service["metadata"] | {"ownerReferences": [owner]}}))
    assert rig.cache.pool(KEY)["metadata"]["uid"] == former["metadata"]["uid"]
    with pytest.raises(BackoffError, match="was replaced meanwhile"):
        await rig.reconciler.run(KEY)
    assert api.get("services", "ns", "demo-engines")["metadata"]["ownerReferences"] == [owner]


async def test_a_child_of_another_pool_is_waited_for(rig, api):
    other = {"kind": "KVCachePool", "name": "dem", "uid": "u-dem", "controller": True}
    theirs = api.put(
        {"kind": "Service", "metadata": {"name": "demo-engines", "namespace": "ns", "ownerReferences": [other]}}
    )
    api.put(pool())
    with pytest.raises(BackoffError, match="expected to go with it"):
        await rig.run()
    assert api.get("services", "ns", "demo-engines") == theirs


@pytest.mark.parametrize(("code", "shown_after"), [(403, 1), (422, 1), (409, 3), (500, 3), (0, 3)])
async def test_refusals_are_shown_at_once_and_trouble_only_when_it_stays(rig, api, code, shown_after):
    api.put(pool())
    api.answer_instead = lambda method, path: (
        (code, "exceeded quota: pods") if path == DEPLOYMENT and method == "PATCH" else None
    )
    for attempt in range(1, 4):
        with pytest.raises(BackoffError, match="Deployment/demo-engines was not applied"):
            await rig.run()
        condition = api.get("kvcachepools", *KEY)["status"]["conditions"][0]
        assert (condition["reason"] == "ApplyFailed") is (attempt >= shown_after)
    if code:
        assert condition["message"] == "exceeded quota: pods"
    api.answer_instead = lambda _method, _path: None
    await rig.run()
    assert api.get("kvcachepools", *KEY)["status"]["conditions"][0]["reason"] == "Fine"


async def test_a_status_that_cannot_be_written_is_tried_again(rig, api):
    api.put(pool())
    api.answer_instead = lambda _method, path: (503, "away") if path.endswith("/status") else None
    with pytest.raises(BackoffError, match="away"):
        await rig.run()
    api.answer_instead = lambda _method, _path: None
    await rig.run()
    assert api.get("kvcachepools", *KEY)["status"]["observedGeneration"] == 1


async def test_an_event_that_cannot_be_posted_ends_no_pass(rig, api):
    api.put(pool())
    api.answer_instead = lambda method, path: (403, "no") if path.endswith("/events") else None
    assert await rig.run() == 1.0
    assert api.get("kvcachepools", *KEY)["status"]["observedGeneration"] == 1


@pytest.mark.parametrize("gone", [False, True])
async def test_a_pool_that_goes_is_forgotten_and_nothing_is_touched(api, client, gone):
    forgotten = []
    rig = Rig(api, client, forget=forgotten.append)
    created = api.put(pool())
    await rig.run()
    before = len(api.requests)
    if gone:
        api.delete("kvcachepools", *KEY)
    else:
        metadata = created["metadata"] | {
            "deletionTimestamp": "2026-01-01T00:00:00Z",
            "finalizers": ["foregroundDeletion"],
        }
        api.put(api.get("kvcachepools", *KEY) | {"metadata": metadata})
    assert await rig.run() is None
    assert forgotten == [KEY]
    assert len(api.requests) == before
    assert b'name="demo"' not in _exposition(rig)


async def test_unwanted_children_are_pruned_only_if_they_are_ours(api, client):
    unwanted = (("ConfigMap", "demo-old"), ("ConfigMap", "demo-theirs"), ("ConfigMap", "demo-absent"))
    rig = Rig(api, client, plan=lambda of, seen: Plan(None, objects=parts.plan(of, seen).objects, prune=unwanted))
    created = api.put(pool())
    ours = child(parts.parse_pool(created), "ConfigMap", "old", data={})
    api.put(ours)
    api.put(ours | {"metadata": ours["metadata"] | {"name": "demo-theirs", "ownerReferences": []}})
    await rig.run()
    assert ("configmaps", "ns", "demo-old") not in api.objects
    assert ("configmaps", "ns", "demo-theirs") in api.objects


async def test_nothing_is_pruned_after_a_failed_apply(api, client):
    unwanted = (("ConfigMap", "demo-old"),)
    rig = Rig(api, client, plan=lambda of, seen: Plan(None, objects=parts.plan(of, seen).objects, prune=unwanted))
    created = api.put(pool())
    api.put(child(parts.parse_pool(created), "ConfigMap", "old", data={}))
    api.answer_instead = lambda method, path: (403, "no") if path == DEPLOYMENT and method == "PATCH" else None
    with pytest.raises(BackoffError):
        await rig.run()
    assert ("configmaps", "ns", "demo-old") in api.objects


async def test_a_pass_that_fails_unforeseen_is_shown_once_and_cleared_by_the_next_good_one(api, client):
    rig = Rig(api, client)
    api.put(pool())
    await rig.run()
    before = api.objects["kvcachepools", "ns", "demo"]["status"]
    plan, rig.reconciler._steps = rig.reconciler._steps, steps(plan=lambda *_: {}["hunter2"])
    for _ in range(3):
        with pytest.raises(KeyError):
            await rig.run()
    status = api.objects["kvcachepools", "ns", "demo"]["status"]
    accepted, ready = (next(c for c in status["conditions"] if c["type"] == kind) for kind in ("Accepted", "Ready"))
    assert (accepted["status"], accepted["reason"], ready["reason"]) == ("False", "InternalError", "InternalError")
    assert "KeyError: '…'" in accepted["message"]
    assert [path for _, path in api.writes()].count(f"{BASE}/status") == 2
    rig.reconciler._steps = plan
    await rig.run()
    assert api.objects["kvcachepools", "ns", "demo"]["status"] == before


async def test_without_the_lease_no_write_is_sent(api, client):
    rig = Rig(api, client)
    rig.cluster._write_seconds_left = lambda: 0.0
    api.put(pool())
    with pytest.raises(BackoffError, match="does not hold the Lease"):
        await rig.run()
    assert api.writes() == []


def _exposition(rig: Rig) -> bytes:
    from prometheus_client import generate_latest

    return generate_latest(rig.metrics.registry)
