"""Engines that have lost the store: evidence over time, and who is restarted."""

from dataclasses import replace

import pytest

from kvcachepool import constants
from kvcachepool.facts import EngineFacts, EngineTrend, MasterFacts, Observed, PodFacts, Segment, StoreOperation
from kvcachepool.observe.engine_history import EngineHistory
from kvcachepool.stranded import looping, next_to_restart, stranded
from tests.pools import pool

PODS = {name: PodFacts(name, f"uid-{name}", constants.ENGINE, "d", ip="10.0.0.1", ready=True) for name in ("a", "b")}


def reading(*, load_failed: float = 0, saved: float = 0, refused: float = 0, tokens: float = 0) -> EngineFacts:
    operations = {
        "load_get": StoreOperation(keys=load_failed, failed_keys=load_failed),
        "save_put": StoreOperation(keys=saved + refused, failed_keys=refused),
    }
    return EngineFacts(True, tokens={"local_compute": tokens}, operations=operations, started=1.0)


def history(*looks: tuple[float, EngineFacts]) -> EngineTrend:
    found, trends = EngineHistory(), {}
    for now, facts in looks:
        trends = dict(found.look(PODS, {"a": facts}, now))
    return trends["a"]


def test_a_request_that_asks_again_and_again_loops() -> None:
    trend = history(*((t, reading(load_failed=90 * 60 * t)) for t in range(0, 91, 10)))
    assert (trend.looping_seconds, trend.looped_keys) == (90, 486_000)


def test_failed_loads_that_are_computed_once_do_not() -> None:
    trend = history(*((t, reading(load_failed=60 * t, tokens=60 * 16 * t)) for t in range(0, 91, 10)))
    assert trend.looping_seconds == 0


def test_a_loop_that_ends_is_over() -> None:
    looks = [(t, reading(load_failed=5_000 * t)) for t in range(0, 61, 10)]
    ended = reading(load_failed=5_000 * 60)
    held = history(*looks, (70, ended), (90, ended))
    assert (held.looping_seconds, held.looped_keys) == (60, 300_000), "as long as it was seen, and no longer"
    assert history(*looks, (70, ended), (90, ended), (91, ended)).looping_seconds == 0


def test_other_prompts_hide_a_loop_and_do_not_end_it() -> None:
    """Seen: about 800 blocks a second, and a probe of three prompts of 8,128 tokens at the same engine."""
    probed = {40: 8_128, 50: 24_384}
    looks = [(t, reading(load_failed=800 * t, tokens=max((n for at, n in probed.items() if at <= t), default=0)))
             for t in range(0, 91, 5)]  # fmt: skip
    assert history(*looks).looping_seconds == 90


def test_refused_saves_count_from_the_first_until_one_succeeds() -> None:
    looks = [(0, reading(saved=50)), (30, reading(saved=50, refused=8)), (60, reading(saved=50, refused=8))]
    trend = history(*looks, (90, reading(saved=50, refused=30)))
    assert (trend.refused_seconds, trend.refused_keys) == (90, 30), "an idle time changes nothing"
    assert history(*looks, (90, reading(saved=51, refused=30))).refused_seconds == 0


def test_another_start_of_the_engine_begins_anew() -> None:
    looks = [(0, reading(saved=50)), (30, reading(saved=50, refused=8))]
    assert history(*looks, (60, replace(reading(saved=50, refused=30), started=2.0))).refused_seconds == 0
    unreadable = EngineFacts(False, "timed out")
    assert history(*looks, (60, unreadable), (90, reading(saved=50, refused=30))).refused_seconds == 90


def master(**changes: object) -> MasterFacts:
    segments = (Segment("x", "x", "tcp", 1, "OK", "10.0.0.9"),)
    return replace(MasterFacts(True, segments=segments, capacity=100, allocated=50), **changes)  # type: ignore[arg-type]


REFUSED = {"a": EngineTrend(up_seconds=7200, refused_seconds=200, refused_keys=40)}


def seen(**changes: object) -> Observed:
    return replace(Observed(pods=tuple(PODS.values()), master=master()), **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("observed", "expected"),
    [
        (seen(engine_trends=REFUSED), {"a": "all its saves are refused while the store has room"}),
        (seen(engine_trends=REFUSED, master=master(allocated=98)), {}),
        (seen(engine_trends=REFUSED, master=None), {}),
        (seen(engine_trends=REFUSED, master=master(segments=())), {}),
        (seen(engine_trends={"a": EngineTrend(refused_seconds=60, refused_keys=500)}), {}),
        (seen(engine_trends={"a": EngineTrend(refused_seconds=600, refused_keys=3)}), {}),
        (seen(absent={"b": 190}), {"b": "the master does not list its segment"}),
        (seen(absent={"b": 60}), {}),
        (seen(absent={"b": 190}, pods=(replace(PODS["b"], ready=False),)), {}),
    ],
)
def test_evidence(observed: Observed, expected: dict[str, str]) -> None:
    assert stranded(pool(), observed) == expected


def test_loads_of_a_member_that_was_killed_are_no_loop_before_it_is_dropped() -> None:
    short, long = EngineTrend(looping_seconds=40, looped_keys=9.0), EngineTrend(looping_seconds=80, looped_keys=9.0)
    assert looping(pool(), seen(engine_trends={"a": short, "b": long})) == {"b": 9.0}
    patient = pool({"store": {"master": {"clientTtlSeconds": 60}}})
    assert looping(patient, seen(engine_trends={"b": long})) == {}


ALLOWED = pool({"engines": {"restartWhenStranded": "OneAtATime"}})


def test_nobody_is_restarted_unless_the_spec_allows_it() -> None:
    assert next_to_restart(pool(), seen(engine_trends=REFUSED)) is None
    found = next_to_restart(ALLOWED, seen(engine_trends=REFUSED))
    assert found is not None
    assert found.name == "a"


def test_one_at_a_time() -> None:
    both = {name: EngineTrend(up_seconds=7200, refused_seconds=200, refused_keys=40) for name in PODS}
    loading = (PODS["a"], replace(PODS["b"], ready=False))
    ending = (*PODS.values(), replace(PODS["b"], name="c", uid="c", deleting=True))
    for pods in (loading, ending, (PODS["a"],)):
        assert next_to_restart(ALLOWED, seen(engine_trends=both, pods=pods)) is None
    assert next_to_restart(ALLOWED, seen(engine_trends=both)) == PODS["a"]


def test_a_restart_that_did_not_help_is_not_repeated_at_once() -> None:
    young = {"a": replace(REFUSED["a"], up_seconds=600)}
    assert next_to_restart(ALLOWED, seen(engine_trends=young)) is None
    soon = pool({"engines": {"restartWhenStranded": "OneAtATime", "startupSeconds": 300}})
    assert next_to_restart(soon, seen(engine_trends=young)) == PODS["a"]


def test_a_users_own_member_is_left_alone() -> None:
    own = replace(PODS["a"], component="", owned=False)
    assert next_to_restart(ALLOWED, seen(engine_trends=REFUSED, pods=(own, PODS["b"]))) is None
