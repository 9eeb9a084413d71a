"""What the status says while engines move from one schema to another."""

from dataclasses import replace
from typing import Any

import pytest

from kvcachepool.api import PoolStatus
from kvcachepool.api.status import SchemaStatus
from kvcachepool.constants import ENGINE
from kvcachepool.facts import Observed
from kvcachepool.status import make_status
from tests.pools import pool
from tests.status_scenes import NOW, Case, container, healthy, planned

NEXT: dict[str, Any] = {"model": {"revision": "r2"}}
FORMER = planned(pool()).schema.digest  # type: ignore[union-attr]
CURRENT = planned(pool(NEXT)).schema.digest  # type: ignore[union-attr]


def moving(*, moved: int = 1, left: int = 1) -> Observed:
    """Engines of both schemas: the first of each scene."""
    before, after = healthy(pool()), healthy(pool(NEXT))
    old, new = _engines(before, left, "old"), _engines(after, moved, "new")
    rest = [p for p in after.pods if p.component != ENGINE]
    workloads = {n: w for n, w in after.workloads.items() if w.component != ENGINE}
    for observed, count in ((before, left), (after, moved)):
        for name, facts in observed.workloads.items():
            if facts.component == ENGINE:
                workloads[name] = replace(facts, replicas=count, updated=count, ready=count)
    children = dict(before.children) | dict(after.children)
    return replace(after, pods=(*rest, *old, *new), workloads=workloads, children=children)


def _engines(observed: Observed, count: int, name: str) -> list[Any]:
    pods = [p for p in observed.pods if p.component == ENGINE][:count]
    return [replace(pod, name=f"{name}-{number}") for number, pod in enumerate(pods)]


def broken(observed: Observed, **changes: object) -> Observed:
    """The new engines crash."""
    state = {"exit_code": 1, "restarts": 5, "waiting_reason": "CrashLoopBackOff"} | changes
    old = [p for p in observed.pods if p.name.startswith("old")]
    crashed = container(ENGINE, **state)(replace(observed, pods=tuple(p for p in observed.pods if p not in old)))
    return replace(crashed, pods=(*crashed.pods, *old))


def test_both_digests_and_the_progress_of_each_are_shown() -> None:
    previous = PoolStatus(schema_=SchemaStatus(digest=FORMER))
    status = Case("EnginesReady", "RollingOut", lambda _: moving(), spec=NEXT, previous=previous).status()
    assert (status.schema_.digest, status.schema_.previous_digest) == (CURRENT, FORMER)
    assert [(g.digest, g.desired, g.ready) for g in status.engines.generations] == [(CURRENT, 1, 1), (FORMER, 1, 1)]
    assert (status.engines.ready, status.engines.serving, status.engines.updated) == (2, 1, 1)
    assert status.engines.summary == "2/2"


def test_a_move_is_told_with_its_counts() -> None:
    case = Case("EnginesReady", "RollingOut", lambda _: moving(), ("1 of 2 engines run schema", CURRENT), spec=NEXT)
    case.check()
    assert f"1 still {FORMER}; 2 ready in all" in case.found().message
    Case(
        "SchemaHomogeneous", "RollingOut", lambda _: moving(), ("1 pod of a former schema", "old-0"), spec=NEXT
    ).check()
    Case("ReuseVerified", "Pending", lambda _: moving(), spec=NEXT).check()


@pytest.mark.parametrize(
    ("reason", "changes"),
    [
        ("EngineCrashLoop", {}),
        ("ImageNotStartable", {"waiting_reason": "ErrImagePull", "exit_code": None, "restarts": 0}),
        ("StartupTimeout", {"exit_code": 137, "ran_seconds": 3610, "restarts": 1, "waiting_reason": ""}),
    ],
)
def test_a_generation_that_fails_says_why_and_who_serves(reason: str, changes: dict[str, object]) -> None:
    case = Case("EnginesReady", reason, lambda _: broken(moving(), **changes), ("new-0",), spec=NEXT)
    case.check()
    assert f"The move to schema {CURRENT} has stopped; 1 engine of schema {FORMER} serve" in case.found().message
    assert case.status().condition("Available").status == "True"  # type: ignore[union-attr]


def test_an_engine_that_comes_and_goes_is_named() -> None:
    observed = moving()
    pods = tuple(
        replace(p, containers=tuple(replace(c, restarts=4) for c in p.containers)) if p.name == "new-0" else p
        for p in observed.pods
    )
    Case(
        "EnginesReady",
        "RollingOut",
        lambda _: replace(observed, pods=pods),
        ("restart again and again: new-0",),
        spec=NEXT,
    ).check()


def test_the_former_digest_stays_in_the_status_and_swaps_on_the_way_back() -> None:
    after = PoolStatus(schema_=SchemaStatus(digest=CURRENT, previous_digest=FORMER))
    steady = Case("EnginesReady", "AllReady", spec=NEXT, previous=after).status()
    assert steady.schema_.previous_digest == FORMER
    assert steady.engines.generations == []
    back = Case("EnginesReady", "AllReady", previous=after).status()
    assert (back.schema_.digest, back.schema_.previous_digest) == (FORMER, CURRENT)


def test_what_the_former_keys_still_hold_is_told_where_it_was_counted() -> None:
    after = PoolStatus(schema_=SchemaStatus(digest=CURRENT, previous_digest=FORMER))
    see = lambda observed: replace(observed, keys_by_prefix={FORMER: 1234, CURRENT: 5})  # noqa: E731
    assert Case("Accepted", "Valid", see, spec=NEXT, previous=after).status().schema_.previous_keys == 1200
    gone = lambda observed: replace(observed, keys_by_prefix={CURRENT: 5})  # noqa: E731
    assert Case("Accepted", "Valid", gone, spec=NEXT, previous=after).status().schema_.previous_keys == 0
    assert Case("Accepted", "Valid", spec=NEXT, previous=after).status().schema_.previous_keys is None
    assert Case("Accepted", "Valid", see, spec=NEXT).status().schema_.previous_keys is None


def test_a_move_that_waits_for_the_master_says_so() -> None:
    before = healthy(pool())
    observed = replace(before, pods=tuple(replace(p, ready=p.component == ENGINE) for p in before.pods), master=None)
    from kvcachepool.plan import make_plan
    from kvcachepool.settings import Settings

    plan = make_plan(pool(NEXT), observed, Settings())
    found = make_status(pool(NEXT), plan, observed, NOW).condition("EnginesReady")
    assert found is not None
    assert (found.reason, found.status) == ("RollingOut", "False")
    assert "The move waits: engines start once demo-master.team-a.svc:50051 accepts connections." in found.message
