"""Order and decisions of a pass, with parts that only note that they were called."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from kvcachepool.api import Condition, PoolStatus
from kvcachepool.api.parse import parse_pool
from kvcachepool.children import Outcome
from kvcachepool.cluster import ApiError, NotLeaderError
from kvcachepool.facts import Observed
from kvcachepool.metrics import Metrics
from kvcachepool.plan_types import Plan
from kvcachepool.reconcile import Reconciler, Steps
from kvcachepool.workqueue import BackoffError

KEY = ("ns", "demo")
RAW = {
    "metadata": {"namespace": "ns", "name": "demo", "uid": "u", "generation": 3},
    "spec": {"model": {"id": "m"}, "backend": {"native": {"cpuBytes": "1Gi"}}},
}


class Rig:
    """Every part is this object; `calls` has the order."""

    def __init__(self, raw=RAW) -> None:
        self.calls: list[str] = []
        self.raw = raw
        self.owner = ""
        self.pools = 1
        self.outcome = Outcome()
        self.pruned = Outcome()
        self.status = PoolStatus(observed_generation=3)
        self.seen: Observed | None = None
        self.planned = Plan(None)
        self.evicts = True
        self.evict_error: ApiError | None = None
        self.write_error: Exception | None = None

        async def observe(_pool):
            self.calls.append("observe")
            return Observed()

        def status(_pool, _plan, observed, _now):
            self.calls.append("status")
            self.seen = observed
            return self.status

        steps = Steps(
            parse=parse_pool,
            observe=observe,
            plan=lambda _pool, _observed: self.calls.append("plan") or self.planned,
            announce=lambda _pool, _plan: None,
            status=status,
            invalid_status=lambda *_: self.calls.append("refuse") or self.status,
            failed_status=self.failed,
            transitions=lambda _before, _after: [SimpleNamespace(type="Normal", reason="R", message="m")],
            pod_transitions=lambda *_: [],
            verify=lambda *_: self.calls.append("verify"),
            forget=lambda key: self.calls.append("forget"),
        )
        self.reconciler = Reconciler(
            steps,
            cache=SimpleNamespace(pool=lambda _key: self.raw, put=self.put, pools=lambda: [KEY] * self.pools),
            cluster=SimpleNamespace(
                apply_status=self.apply_status,
                post_event=self.post_event,
                undeclared=self.undeclared,
                evict=self.evict,
            ),
            children=SimpleNamespace(apply=self.apply, prune=self.prune, forget=lambda _key=None: None),
            claims=SimpleNamespace(other_owner=self.other_owner),
            metrics=Metrics(),
            resync_seconds=30.0,
        )

    def failed(self, before, generation, error, _now):
        self.calls.append("fail")
        told = Condition(type="Accepted", status="False", reason="InternalError", message=str(error))
        return before.model_copy(update={"conditions": [told], "replicas": before.replicas})

    def put(self, written):
        self.raw = written

    async def other_owner(self, _namespace):
        return self.owner

    async def apply(self, _key, uid, _objects):
        assert uid == "u"
        self.calls.append("apply")
        return self.outcome

    async def prune(self, _key, _uid, _children):
        self.calls.append("prune")
        return self.pruned

    async def evict(self, namespace, pod, uid):
        self.calls.append(f"evict {namespace}/{pod} {uid}")
        if self.evict_error is not None:
            raise self.evict_error
        return self.evicts

    def undeclared(self):
        return ()

    async def apply_status(self, _namespace, _name, uid, status):
        assert uid == "u"
        if self.write_error is not None:
            raise self.write_error
        self.calls.append("write status")
        return self.raw | {"status": status}

    async def post_event(self, *_, **__):
        self.calls.append("event")


async def test_the_order_of_a_pass():
    rig = Rig()
    assert await rig.reconciler.run(KEY) == 30.0
    assert rig.calls == ["observe", "plan", "apply", "prune", "status", "write status", "event", "verify"]


async def test_a_pool_made_again_during_the_pass_keeps_its_own_status():
    rig = Rig()
    former = rig.raw

    async def again(*_):
        rig.raw = former | {"metadata": former["metadata"] | {"uid": "another"}}
        return Outcome()

    rig.reconciler._children.apply = again
    await rig.reconciler.run(KEY)
    assert "write status" not in rig.calls
    assert "event" not in rig.calls


async def test_a_stranded_engine_is_evicted_and_that_is_told():
    rig = Rig()
    await rig.reconciler.run(KEY)
    rig.calls.clear()
    rig.planned = Plan(None, evict=(("engine-1", "u1"),))
    await rig.reconciler.run(KEY)
    assert rig.calls == ["observe", "plan", "apply", "prune", "evict ns/engine-1 u1", "event", "status", "verify"]
    rig.evicts = False
    rig.calls.clear()
    await rig.reconciler.run(KEY)
    assert "event" not in rig.calls, "its budget keeps it for now"


async def test_a_refused_eviction_hides_no_status_and_is_in_it():
    """Two budgets over one pod: the API server answers 500 for ever."""
    rig = Rig()
    rig.planned = Plan(None, evict=(("engine-1", "u1"),))
    rig.evict_error = ApiError(500, "This pod has more than one PodDisruptionBudget", retry=True)
    await rig.reconciler.run(KEY)
    assert rig.calls[-4:] == ["status", "write status", "event", "verify"]
    assert rig.seen.eviction_refused == "This pod has more than one PodDisruptionBudget"
    assert rig.seen.apply_errors == ()


async def test_a_refused_deletion_hides_no_status_and_is_in_it():
    rig = Rig()
    rig.planned = Plan(None, evict=(("engine-1", "u1"),))
    rig.pruned = Outcome(failed="Deployment/old", error=ApiError(403, "not allowed", retry=False))
    with pytest.raises(BackoffError, match="Deployment/old"):
        await rig.reconciler.run(KEY)
    assert "write status" in rig.calls
    assert "evict ns/engine-1 u1" not in rig.calls
    assert rig.seen.apply_errors == (("Deployment/old", 403, "not allowed"),)


@pytest.mark.parametrize(("pools", "pause"), [(1, 30.0), (300, 30.0), (1000, 100.0)])
async def test_many_pools_are_looked_at_less_often(pools, pause):
    rig = Rig()
    rig.pools = pools
    assert await rig.reconciler.run(KEY) == pause


async def test_an_equal_status_is_not_written():
    rig = Rig()
    await rig.reconciler.run(KEY)
    rig.calls.clear()
    await rig.reconciler.run(KEY)
    assert rig.calls == ["observe", "plan", "apply", "prune", "status", "verify"]


async def test_a_change_is_looked_at_again_soon():
    rig = Rig()
    rig.outcome = Outcome(changed=["Deployment/x"])
    assert await rig.reconciler.run(KEY) == 1.0


async def test_a_failed_apply_is_in_the_status_before_the_pass_backs_off():
    rig = Rig()
    rig.outcome = Outcome(failed="Deployment/x", error=ApiError(403, "exceeded quota"))
    with pytest.raises(BackoffError, match="exceeded quota"):
        await rig.reconciler.run(KEY)
    assert rig.seen.apply_errors == (("Deployment/x", 403, "exceeded quota"),)
    assert rig.calls == ["observe", "plan", "apply", "status", "write status", "event", "verify"]


@pytest.mark.parametrize("error", [ApiError(503, "away"), NotLeaderError("no lease")])
async def test_trouble_with_the_status_is_an_expected_failure(error):
    rig = Rig()
    rig.write_error = error
    with pytest.raises(BackoffError):
        await rig.reconciler.run(KEY)
    assert "event" not in rig.calls, "nobody is told of what was not written"


async def test_an_invalid_spec_waits_for_its_edit():
    rig = Rig(RAW | {"spec": {}})
    assert await rig.reconciler.run(KEY) is None
    assert rig.calls == ["refuse", "write status", "event"]


async def test_another_installations_pool_is_left_alone():
    rig = Rig()
    rig.owner = "op/other"
    assert await rig.reconciler.run(KEY) == 30.0
    assert rig.calls == []


@pytest.mark.parametrize("raw", [None, RAW | {"metadata": RAW["metadata"] | {"deletionTimestamp": "now"}}])
async def test_a_pool_that_goes_is_forgotten(raw):
    rig = Rig()
    rig.raw = raw
    assert await rig.reconciler.run(KEY) is None
    assert rig.calls == ["forget"]


def unforeseen(*_):
    raise TypeError("'int' object is not iterable")


async def unforeseen_later(*_):
    unforeseen()


BROKEN = {
    "parse": unforeseen,
    "observe": unforeseen_later,
    "plan": unforeseen,
    "announce": unforeseen,
    "status": unforeseen,
}


@pytest.mark.parametrize("step", BROKEN)
async def test_what_nobody_thought_of_is_shown_once_and_the_rest_of_the_status_stays(step):
    rig = Rig(RAW | {"status": PoolStatus(replicas=2).dump()})
    rig.reconciler._steps = replace(rig.reconciler._steps, **{step: BROKEN[step]})
    with pytest.raises(TypeError, match="'int' object"):
        await rig.reconciler.run(KEY)
    assert rig.calls[-3:] == ["fail", "write status", "event"]
    assert rig.raw["status"]["conditions"][0]["reason"] == "InternalError"
    assert rig.raw["status"]["replicas"] == 2
    rig.calls.clear()
    with pytest.raises(TypeError, match="'int' object"):
        await rig.reconciler.run(KEY)
    assert rig.calls[-1] == "fail", "the same is not written again"


async def test_what_was_written_during_the_failed_pass_stays():
    """The schema that was announced: pods may have it by now."""
    rig = Rig()
    announced = PoolStatus(label="demo")
    rig.reconciler._steps = replace(rig.reconciler._steps, announce=lambda *_: announced, status=unforeseen)
    with pytest.raises(TypeError):
        await rig.reconciler.run(KEY)
    assert rig.raw["status"]["label"] == "demo"


@pytest.mark.parametrize("error", [ApiError(503, "away"), NotLeaderError("no lease")])
async def test_expected_trouble_is_no_internal_error(error):
    async def observe(_pool):
        raise error

    rig = Rig()
    rig.reconciler._steps = replace(rig.reconciler._steps, observe=observe)
    with pytest.raises(BackoffError):
        await rig.reconciler.run(KEY)
    assert rig.calls == []


@pytest.mark.parametrize("second", [ApiError(503, "away"), NotLeaderError("no lease"), ValueError("no status")])
async def test_a_failure_that_cannot_be_shown_is_raised_all_the_same(second):
    rig = Rig()
    rig.write_error = second
    rig.reconciler._steps = replace(rig.reconciler._steps, plan=unforeseen)
    with pytest.raises(TypeError, match="'int' object"):
        await rig.reconciler.run(KEY)
    assert rig.calls == ["observe", "fail"]


async def test_what_fails_after_the_status_is_written_says_nothing_against_it():
    """It would be written twice in every pass."""
    rig = Rig()
    rig.reconciler._steps = replace(rig.reconciler._steps, verify=unforeseen)
    with pytest.raises(TypeError):
        await rig.reconciler.run(KEY)
    assert rig.calls[-2:] == ["write status", "event"]


async def test_no_word_about_a_pool_that_has_gone_meanwhile():
    rig = Rig()

    async def observe(_pool):
        rig.raw = None
        unforeseen()

    rig.reconciler._steps = replace(rig.reconciler._steps, observe=observe)
    with pytest.raises(TypeError):
        await rig.reconciler.run(KEY)
    assert rig.calls == []
