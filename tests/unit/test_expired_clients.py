"""A master that stalls longer than the client TTL drops every member at once, mostly when many start together
(Mooncake#3937, Mooncake#1753): it is told, and no engine that is well is touched."""

from dataclasses import replace

import pytest

from kvcachepool.api import KVCachePool, PoolStatus
from kvcachepool.facts import MasterFacts
from kvcachepool.observe.memory import MasterHistory
from kvcachepool.plan import make_plan
from kvcachepool.settings import Settings
from kvcachepool.status import make_status, transitions
from tests.pools import invalid, pool
from tests.status_scenes import NOW, healthy

ENGINES = 12
EMBEDDED = {"store": {"mode": "Embedded", "segmentSize": "1Gi"}, "engines": {"replicas": ENGINES}}


@pytest.mark.parametrize(
    ("given", "rendered"), [({}, "10"), ({"clientTtlSeconds": 300}, "300"), ({"clientTtlSeconds": 5}, "5")]
)
def test_the_time_is_always_rendered(given: dict[str, int], rendered: str) -> None:
    item = pool({"store": {"master": given}})
    plan = make_plan(item, healthy(item), Settings())
    (master,) = (o for o in plan.objects if o["kind"] == "Deployment" and o["metadata"]["name"] == "demo-master")
    assert f"--client_ttl={rendered}" in master["spec"]["template"]["spec"]["containers"][0]["args"]


@pytest.mark.parametrize("seconds", [0, 1, 4, 601])
def test_a_time_that_expires_healthy_members_is_refused(seconds: int) -> None:
    (message,) = invalid({"store": {"master": {"clientTtlSeconds": seconds}}})
    assert "spec.store.master.clientTtlSeconds" in message


def test_all_clients_expire_and_come_back() -> None:
    item = pool(EMBEDDED)
    well, history = healthy(item), MasterHistory()
    assert well.master is not None
    assert len(well.master.segments or ()) == ENGINES
    rendered = make_plan(item, well, Settings()).objects
    told: list[tuple[str, str]] = []
    status = PoolStatus()

    def look(item: KVCachePool, clients: int, now: float) -> PoolStatus:
        nonlocal status
        segments = (well.master or MasterFacts(True)).segments or ()
        facts = replace(well.master or MasterFacts(True), clients=clients, segments=segments[:clients], keys=5000)
        history.record("master", facts, now)
        observed = replace(well, master=facts, store_trend=history.trend(now))
        plan = make_plan(item, observed, Settings())
        assert plan.objects == rendered, "nothing is changed, and no engine is restarted"
        before = item.model_copy(update={"status": status})
        after = make_status(before, plan, observed, NOW)
        told.extend((event.type, event.reason) for event in transitions(status, after))
        status = after
        return after

    def store(found: PoolStatus) -> tuple[str, str]:
        condition = found.condition("StoreReady")
        assert condition is not None
        return condition.status, condition.reason

    assert store(look(item, ENGINES, 0.0)) == ("True", "Serving")
    told.clear()
    expired = look(item, 3, 15.0)
    assert store(expired) == ("False", "ClientsExpired")
    condition = expired.condition("StoreReady")
    assert condition is not None
    assert "It knows 3 clients, there were 12" in condition.message
    assert ("Warning", "ClientsExpired") in told
    engines = expired.condition("EnginesReady")
    assert engines is not None
    assert engines.status == "True"
    assert expired.engines.ready == ENGINES
    assert store(look(item, ENGINES, 30.0)) == ("True", "Serving")
    assert ("Normal", "Serving") in told
