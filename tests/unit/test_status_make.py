"""The status as a whole: generations, times, Ready, refused specs, and that nothing written is lost."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from kvcachepool.api import PoolStatus
from kvcachepool.api.crd import crd
from kvcachepool.constants import ENGINE, MASTER
from kvcachepool.findings import Finding
from kvcachepool.plan import make_plan
from kvcachepool.settings import Settings
from kvcachepool.status import failed_status, invalid_status, make_status, transitions
from kvcachepool.status.reasons import CONDITIONS, NEEDED
from tests.pools import NATIVE
from tests.status_scenes import NOW, Case, both, container, gone, healthy, master, probed, seen

WELL = Case("Ready", "AllConditionsTrue")
TYPES = [info.type for info in CONDITIONS]
LATER = NOW + timedelta(hours=1)
REFUSAL = (
    Finding("InvalidSpec", "spec.store: found it with backend.native"),
    Finding("InvalidSpec", "spec.x: found 1"),
)


def states(status: PoolStatus) -> dict[str, str]:
    return {c.type: c.status for c in status.conditions}


def again(case: Case, previous: PoolStatus, generation: int = 1) -> PoolStatus:
    """The same scene an hour later."""
    item = case.pool()
    item = item.model_copy(
        update={"status": previous, "metadata": item.metadata.model_copy(update={"generation": generation})}
    )
    observed = case.see(healthy(item))
    return make_status(item, make_plan(item, observed, Settings()), observed, LATER)


def test_all_conditions_are_true_of_a_pool_that_is_well() -> None:
    assert states(WELL.status()) == dict.fromkeys(TYPES, "True")


def test_all_conditions_are_there_on_the_first_pass_in_order() -> None:
    status = Case("Ready", "x", gone(MASTER, "store", ENGINE)).status()
    assert [c.type for c in status.conditions] == TYPES
    assert all(
        c.reason and c.message and c.last_transition_time and c.observed_generation == 1 for c in status.conditions
    )


def test_a_single_native_engine_is_ready_and_cannot_be_verified() -> None:
    status = Case("Ready", "x", base=NATIVE).status()
    assert states(status) == dict.fromkeys(TYPES, "True") | {"ReuseVerified": "Unknown", "ReuseWorthwhile": "Unknown"}


def test_ready_tells_the_first_fault_before_what_was_not_measured() -> None:
    broken = both(master(reachable=False, error="timed out"), container(ENGINE, exit_code=1, restarts=4))
    found = Case("Ready", "EngineCrashLoop", broken).found()
    assert (found.status, found.reason) == ("False", "EngineCrashLoop")
    assert found.message.startswith("EnginesReady: Pods demo-engine-0")


def test_ready_is_unknown_while_only_something_unmeasured_is_in_its_way() -> None:
    found = Case("Ready", "x", master(reachable=False, error="timed out")).found()
    assert (found.status, found.reason) == ("Unknown", "MasterUnreachable")


def test_ready_does_not_need_reuse_or_traffic() -> None:
    assert not {"ReuseVerified", "ReuseWorthwhile", "CacheEffective", "Available"} & set(NEEDED)
    found = Case(
        "Ready", "x", both(probed(outcome="OutputMismatch"), seen(rates=replace(healthy(WELL.pool()).rates, pool=0)))
    ).found()
    assert found.status == "True"


def test_transition_time_moves_only_with_the_status() -> None:
    first = WELL.status()
    same = again(WELL, first)
    assert [c.last_transition_time for c in same.conditions] == ["2026-03-01T12:00:00Z"] * len(TYPES)
    changed = again(Case("Ready", "x", container(ENGINE)), first)
    moved = {c.type for c in changed.conditions if c.last_transition_time == "2026-03-01T13:00:00Z"}
    assert moved == {"EnginesReady", "SchemaHomogeneous", "Available", "Ready"}
    # another reason with the same status is no transition
    other = again(Case("Ready", "x", container(ENGINE, exit_code=1, restarts=3)), changed)
    engines = other.condition("EnginesReady")
    assert engines is not None
    assert (engines.reason, engines.last_transition_time) == ("EngineCrashLoop", "2026-03-01T13:00:00Z")


def test_generation_follows_the_pass() -> None:
    status = again(WELL, WELL.status(), generation=4)
    assert {status.observed_generation, *(c.observed_generation for c in status.conditions)} == {4}


def test_a_second_pass_changes_nothing() -> None:
    first = WELL.status()
    assert again(WELL, first).dump() == first.dump()


def test_a_spec_that_cannot_be_parsed() -> None:
    before = WELL.status()
    status = invalid_status(before, 7, REFUSAL, LATER)
    assert states(status) == dict.fromkeys(TYPES, "Unknown") | {"Accepted": "False", "Ready": "False"}
    accepted, ready = status.condition("Accepted"), status.condition("Ready")
    assert accepted is not None
    assert ready is not None
    assert accepted.message == "spec.store: found it with backend.native; spec.x: found 1"
    assert ready.message == f"Accepted: {accepted.message}"
    assert {status.observed_generation, *(c.observed_generation for c in status.conditions)} == {7}
    # engines go on running, and the scale subresource must not read 0
    assert (status.replicas, status.engines, status.schema_) == (before.replicas, before.engines, before.schema_)
    assert invalid_status(status, 7, REFUSAL, LATER + timedelta(hours=1)).dump() == status.dump()


def test_a_spec_that_cannot_be_parsed_from_the_start() -> None:
    status = invalid_status(PoolStatus(), 1, REFUSAL[:1], NOW)
    assert [c.type for c in status.conditions] == TYPES
    assert status.dump()["observedGeneration"] == 1


def test_a_pass_that_failed_changes_accepted_and_ready_only() -> None:
    before = again(Case("Ready", "x", master(reachable=False, error="timed out")), WELL.status())
    error = TypeError("'int' object is not iterable\nand more")
    status = failed_status(before, 7, error, LATER + timedelta(hours=1))
    accepted, ready = status.condition("Accepted"), status.condition("Ready")
    assert accepted is not None
    assert ready is not None
    assert (accepted.status, accepted.reason, accepted.observed_generation) == ("False", "InternalError", 7)
    assert "in its pass over this pool: TypeError: 'int' object is not iterable. What runs" in accepted.message
    assert (ready.status, ready.reason, ready.message) == ("False", "InternalError", f"Accepted: {accepted.message}")
    assert accepted.last_transition_time == ready.last_transition_time == "2026-03-01T14:00:00Z"
    kept = [kind for kind in TYPES if kind not in ("Accepted", "Ready")]
    assert [c.type for c in status.conditions] == TYPES
    assert [status.condition(kind) for kind in kept] == [before.condition(kind) for kind in kept]
    assert status.model_copy(update={"conditions": before.conditions}) == before
    assert failed_status(status, 7, error, LATER + timedelta(hours=2)).dump() == status.dump(), "written once"
    assert [(event.type, event.reason) for event in transitions(before, status)] == [("Warning", "InternalError")]
    assert again(WELL, status).condition("Accepted") == replace_time(WELL.status().condition("Accepted"), LATER)


def replace_time(condition: Any, when: Any) -> Any:
    return condition.model_copy(update={"last_transition_time": when.strftime("%Y-%m-%dT%H:%M:%SZ")})


def test_a_first_pass_that_failed_has_all_conditions() -> None:
    status = failed_status(PoolStatus(), 1, RuntimeError(), NOW)
    assert states(status) == dict.fromkeys(TYPES, "Unknown") | {"Accepted": "False", "Ready": "False"}
    assert all(c.reason and c.message and c.last_transition_time for c in status.conditions)
    assert [event.reason for event in transitions(PoolStatus(), status)] == ["InternalError"]


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (ValueError("invalid literal for int() with base 10: 'hunter2'"), "ValueError: invalid literal for int() with base 10: '…'."),
        (KeyError("hunter2"), "KeyError: '…'."),
        (KeyError("it's hunter2"), "KeyError: '…'."),
        (RuntimeError("token=hunter2hunter2"), "RuntimeError: token=***."),
        (RuntimeError("at 0x7f00deadbeef"), "RuntimeError: at 0x…"),
        (AttributeError("'list' object has no attribute 'get'"), "AttributeError: 'list' object has no attribute 'get'."),
        (AssertionError(), "AssertionError."),
    ],
)  # fmt: skip
def test_an_error_is_told_without_what_may_be_a_secret_and_the_same_each_time(error: Exception, told: str) -> None:
    found = failed_status(PoolStatus(), 1, error, NOW).condition("Accepted")
    assert found is not None
    assert f"in its pass over this pool: {told} What runs is left" in found.message
    assert "hunter2" not in found.message


def test_an_error_of_any_length_is_cut() -> None:
    found = failed_status(PoolStatus(), 1, RuntimeError("x" * 10_000), NOW).condition("Accepted")
    assert found is not None
    assert len(found.message) < 700


def test_what_is_written_is_read_back() -> None:
    dumped = WELL.status().dump()
    assert PoolStatus.model_validate(dumped).dump() == dumped


def test_the_crd_prunes_nothing_of_a_status() -> None:
    """kopf#574: a structural schema silently drops what it does not know."""
    schema = crd()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["status"]
    assert not list(_unknown(WELL.status().dump(), schema, "status"))


def _unknown(value: Any, schema: dict[str, Any], path: str) -> list[str]:
    if isinstance(value, dict):
        if "additionalProperties" in schema:
            return []
        known = schema.get("properties", {})
        return [
            found
            for key, item in value.items()
            for found in (_unknown(item, known[key], f"{path}.{key}") if key in known else [f"{path}.{key}"])
        ]
    if isinstance(value, list):
        return [found for item in value for found in _unknown(item, schema["items"], f"{path}[]")]
    return []
