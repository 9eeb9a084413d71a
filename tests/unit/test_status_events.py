"""Events tell transitions once, with the condition's reason."""

import pytest

from kvcachepool.api import Condition, PoolStatus
from kvcachepool.constants import ENGINE, MASTER, STORE
from kvcachepool.findings import Finding
from kvcachepool.status import Event, invalid_status, transitions
from tests.status_scenes import NOW, Case, both, container, gone, master, probed, rates, seen

WELL = Case("Ready", "AllConditionsTrue").status()
START = Case("Ready", "x", both(gone(MASTER, STORE, ENGINE), seen(verification=None), rates(tokens=None))).status()


def told(before: PoolStatus, after: PoolStatus) -> list[tuple[str, str]]:
    return [(e.type, e.reason) for e in transitions(before, after)]


def status(*conditions: tuple[str, str, str]) -> PoolStatus:
    return PoolStatus(conditions=[Condition(type=t, status=s, reason=r) for t, s, r in conditions])  # type: ignore[arg-type]


def test_the_first_pass_warns_of_nothing_that_passes() -> None:
    assert told(PoolStatus(), START) == [
        ("Normal", "Valid"),
        ("Normal", "NodesFit"),
        ("Normal", "MasterNotReady"),
        ("Normal", "WaitingForMaster"),
    ]


def test_nothing_is_told_twice() -> None:
    assert told(START, START) == []
    assert told(WELL, WELL) == []


def test_becoming_well() -> None:
    events = transitions(START, WELL)
    assert {e.type for e in events} == {"Normal"}
    assert [e.reason for e in events][-1] == "AllConditionsTrue"
    assert (
        Event(
            "Normal",
            "Verified",
            (WELL.condition("ReuseVerified") or Condition(type="", status="True", reason="")).message,
        )
        in events
    )


def test_a_fault_is_told_once_although_ready_repeats_it() -> None:
    broken = Case("Ready", "x", container(ENGINE, exit_code=1, restarts=4)).status()
    assert told(WELL, broken) == [
        ("Warning", "EngineCrashLoop"),
        ("Normal", "NoMembers"),
        ("Warning", "NoEngineServes"),
    ]


def test_a_refused_spec_is_told_once() -> None:
    refused = invalid_status(WELL, 2, [Finding("InvalidSpec", "spec.x: found 1")], NOW)
    events = told(WELL, refused)
    assert ("Warning", "InvalidSpec") in events
    assert len([e for e in events if e[1] == "InvalidSpec"]) == 1


@pytest.mark.parametrize(
    ("see", "event"),
    [
        (master(reachable=False, error="timed out"), ("Warning", "MasterUnreachable")),
        (probed(outcome="OutputMismatch"), ("Warning", "OutputMismatch")),
        (rates(load_failed_keys=900.0), ("Warning", "LoadsFailing")),
        (rates(tokens=0.0), ("Normal", "NoTraffic")),
        (container(ENGINE, only=0), ("Normal", "Progressing")),
    ],
)
def test_leaving_true(see, event) -> None:  # type: ignore[no-untyped-def]
    assert event in told(WELL, Case("Ready", "x", see).status())


@pytest.mark.parametrize(
    ("before", "after", "events"),
    [
        (
            ("EnginesReady", "False", "Progressing"),
            ("EnginesReady", "False", "EngineCrashLoop"),
            [("Warning", "EngineCrashLoop")],
        ),
        (("EnginesReady", "False", "EngineCrashLoop"), ("EnginesReady", "False", "Progressing"), []),
        (("EnginesReady", "False", "WaitingForMaster"), ("EnginesReady", "False", "Progressing"), []),
        (
            ("EnginesReady", "False", "ImageNotStartable"),
            ("EnginesReady", "False", "EngineCrashLoop"),
            [("Warning", "EngineCrashLoop")],
        ),
        (("CacheEffective", "Unknown", "NoTraffic"), ("CacheEffective", "Unknown", "MetricsUnavailable"), []),
        (("CacheEffective", "False", "ZeroHits"), ("CacheEffective", "Unknown", "NoTraffic"), []),
        (
            ("CacheEffective", "Unknown", "NoTraffic"),
            ("CacheEffective", "False", "ZeroHits"),
            [("Warning", "ZeroHits")],
        ),
        (
            ("CacheEffective", "False", "ZeroHits"),
            ("CacheEffective", "True", "HitsObserved"),
            [("Normal", "HitsObserved")],
        ),
    ],
)
def test_one_condition(
    before: tuple[str, str, str], after: tuple[str, str, str], events: list[tuple[str, str]]
) -> None:
    assert told(status(before), status(after)) == events
