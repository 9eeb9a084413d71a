"""Which schemas the admission policy lets in, over the life of a pool."""

from dataclasses import replace
from typing import Any

from kvcachepool import constants
from kvcachepool.api import KVCachePool, PoolStatus
from kvcachepool.facts import Observed, PodFacts
from kvcachepool.observe.pods import pod_facts, workload_facts
from kvcachepool.plan import make_plan
from kvcachepool.settings import Settings
from kvcachepool.status.admitted import MOST, admitted, announcement
from tests.members import MASTER_READY, engine_of, schema_of
from tests.pools import pool


def engine(digest: str, *, owned: bool = True) -> PodFacts:
    return PodFacts(name=f"e-{digest}", uid=digest, component=constants.ENGINE, digest=digest, owned=owned)


def seen(*pods: PodFacts) -> Observed:
    return replace(MASTER_READY, pods=(*MASTER_READY.pods, *pods))


def at(subject: KVCachePool, status: PoolStatus) -> KVCachePool:
    return subject.model_copy(update={"status": status})


def digests(entries: Any) -> list[str]:
    return [entry.digest for entry in entries]


def test_a_new_schema_is_announced_before_its_objects_are_applied_and_only_then() -> None:
    subject = pool()
    plan = make_plan(subject, MASTER_READY, Settings())
    status = announcement(subject, plan)
    assert status is not None
    assert digests(status.schema_.admitted) == [schema_of(subject).digest]
    assert status.schema_.admitted[0].fields["hashSeed"] == "0"
    assert status.label == "demo"
    assert announcement(at(subject, status), plan) is None


def test_nothing_is_announced_while_nothing_carries_the_schema() -> None:
    subject = pool()
    waiting = make_plan(subject, Observed(), Settings())
    plan = replace(waiting, objects=tuple(o for o in waiting.objects if o["kind"] != "Service"))
    assert announcement(subject, plan) is None
    refused = pool({"engines": {"extraArgs": ["-tp=2"]}})
    assert announcement(refused, make_plan(refused, MASTER_READY, Settings())) is None


def test_the_former_schema_stays_while_something_of_the_operators_has_it() -> None:
    before, after = pool(), pool({"schema": {"blockSize": 16}})
    old, new = schema_of(before).digest, schema_of(after).digest
    first = announcement(before, make_plan(before, MASTER_READY, Settings()))
    assert first is not None
    changed = at(after, first)
    plan = make_plan(changed, MASTER_READY, Settings())
    second = announcement(changed, plan)
    assert second is not None
    assert digests(second.schema_.admitted) == [new, old]
    moving = at(after, second)
    assert digests(admitted(moving, plan, seen(engine(old), engine(new)))) == [new, old]
    assert digests(admitted(moving, plan, seen(engine(old, owned=False)))) == [new]
    deployment = next(o for o in make_plan(before, MASTER_READY, Settings()).objects if o["kind"] == "Deployment"
                      and constants.LABEL_SCHEMA in o["metadata"]["labels"])  # fmt: skip
    children = {("Deployment", "x"): deployment}
    assert digests(admitted(moving, plan, replace(seen(), children=children))) == [new, old]


def test_a_schema_that_waits_is_not_in_force_and_the_former_one_is() -> None:
    """Members of the new one would meet a store of another version, and those of the old one would lose traffic while
    the engines that they share with serve on."""
    before, after = pool(), pool({"schema": {"blockSize": 16}})
    old = schema_of(before)
    first = announcement(before, make_plan(before, MASTER_READY, Settings()))
    assert first is not None
    (deployment,) = (o for o in make_plan(before, MASTER_READY, Settings()).objects
                     if o["kind"] == "Deployment" and constants.LABEL_SCHEMA in o["metadata"]["labels"])  # fmt: skip
    name = deployment["metadata"]["name"]
    user = pod_facts(engine_of(before))
    user = replace(
        user,
        owned=False,
        component="",
        ready=True,
        ip="10.0.0.9",
        labels={**user.labels, "kvcachepool.io/component": ""},
    )
    observed = replace(
        seen(engine(old.digest), user),
        children={("Deployment", name): deployment},
        workloads={name: workload_facts(deployment)},
        nodes=(),
    )
    changed = at(after, first)
    plan = make_plan(changed, observed, Settings())
    assert plan.waiting is not None
    assert plan.waiting.reason == "WaitingForNodes"
    assert announcement(changed, plan) is None
    assert digests(admitted(changed, plan, observed)) == [old.digest]
    assert [member.problems for member in plan.members] == [()]


def test_while_a_spec_is_refused_what_was_admitted_stays() -> None:
    before = pool()
    first = announcement(before, make_plan(before, MASTER_READY, Settings()))
    assert first is not None
    refused = at(pool({"engines": {"extraArgs": ["-tp=2"]}}), first)
    plan = make_plan(refused, MASTER_READY, Settings())
    assert admitted(refused, plan, seen()) == first.schema_.admitted


def test_many_quick_edits_do_not_fill_the_status() -> None:
    status, pods = PoolStatus(), []
    for seed in range(3 * MOST):
        subject = at(pool({"schema": {"hashSeed": str(seed)}}), status)
        plan = make_plan(subject, MASTER_READY, Settings())
        announced = announcement(subject, plan)
        assert announced is not None
        pods.append(engine(schema_of(subject).digest))
        kept = admitted(at(subject, announced), plan, seen(*pods))
        assert kept[0].digest == schema_of(subject).digest
        assert len(kept) <= MOST
        status = announced
