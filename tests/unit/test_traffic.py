"""Windowed rates out of counters."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvcachepool.facts import EngineFacts, StoreOperation
from kvcachepool.observe.traffic import Traffic


def engine(computed=0.0, local=0.0, pool=0.0, *, queries=None, saved=None, started=1.0) -> EngineFacts:
    return EngineFacts(
        reachable=True,
        tokens={"local_compute": computed, "local_cache_hit": local, "external_kv_transfer": pool},
        external_queries=queries,
        operations=None if saved is None else {"save_put": StoreOperation(keys=saved[0], failed_keys=saved[1])},
        started=started,
    )


def record(traffic: Traffic, now: float, **readings: EngineFacts) -> None:
    traffic.record(readings, frozenset(readings), now, traffic.epoch)


def test_nothing_is_known_before_two_readings():
    traffic = Traffic()
    assert traffic.rates(0).tokens is None
    record(traffic, 0, a=engine(5000, 100, 100))
    rates = traffic.rates(0)
    assert (rates.tokens, rates.local, rates.pool, rates.saved_keys) == (None, None, None, None)


def test_what_was_before_the_first_reading_does_not_count():
    traffic = Traffic()
    record(traffic, 0, a=engine(1e9, 5, 5), b=engine())
    record(traffic, 30, a=engine(1e9 + 100, 205, 105), b=engine(0, 0, 600))
    rates = traffic.rates(30)
    assert rates.tokens == 1000
    assert rates.local == 0.2
    assert rates.pool == 0.7
    assert rates.window_seconds == 30


def test_without_traffic_shares_are_unknown_and_tokens_are_zero():
    traffic = Traffic()
    record(traffic, 0, a=engine(10))
    record(traffic, 30, a=engine(10))
    rates = traffic.rates(30)
    assert rates.tokens == 0
    assert rates.local is None
    assert rates.pool is None


def test_a_missing_metric_is_unknown():
    traffic = Traffic()
    for now in (0, 30):
        record(traffic, now, a=EngineFacts(reachable=True, external_queries=5.0 + now))
    rates = traffic.rates(30)
    assert rates.tokens is None
    assert rates.external_queries == 30
    assert rates.saved_keys is None


def test_an_engine_that_cannot_be_read_leaves_the_others():
    traffic = Traffic()
    record(traffic, 0, a=engine(), b=EngineFacts(reachable=False, error="refused"))
    record(traffic, 30, a=engine(100), b=EngineFacts(reachable=False, error="refused"))
    assert traffic.rates(30).tokens == 100


def test_when_no_engine_can_be_read_any_more_the_window_runs_empty():
    traffic = Traffic()
    record(traffic, 0, a=engine())
    record(traffic, 30, a=engine(100))
    for now in range(60, 700, 30):
        record(traffic, now, a=EngineFacts(reachable=False))
    assert traffic.rates(700).tokens is None


def test_counters_that_start_anew_are_a_new_base():
    traffic = Traffic()
    record(traffic, 0, a=engine(1000))
    record(traffic, 30, a=engine(1100))
    record(traffic, 60, a=engine(40, started=2.0))
    record(traffic, 90, a=engine(90, started=2.0))
    assert traffic.rates(90).tokens == 150


def test_a_restart_is_seen_by_the_start_time_even_where_counters_have_grown():
    traffic = Traffic()
    record(traffic, 0, a=engine(10))
    record(traffic, 30, a=engine(5000, started=2.0))
    assert traffic.rates(30).tokens is None


def test_a_restart_is_seen_by_a_smaller_counter_where_no_start_time_is_exported():
    traffic = Traffic()
    record(traffic, 0, a=engine(1000, started=None))
    record(traffic, 30, a=engine(40, started=None))
    record(traffic, 60, a=engine(100, started=None))
    assert traffic.rates(60).tokens == 60


def test_a_replaced_pod_keeps_its_share_and_the_new_one_starts_from_its_first_reading():
    traffic = Traffic()
    record(traffic, 0, old=engine())
    record(traffic, 30, old=engine(0, 0, 500))
    record(traffic, 60, new=engine(900))
    record(traffic, 90, new=engine(1400))
    rates = traffic.rates(90)
    assert rates.tokens == 1000
    assert rates.pool == 0.5


def test_the_window_moves():
    traffic = Traffic()
    record(traffic, 0, a=engine())
    record(traffic, 30, a=engine(0, 0, 100))
    for now in range(60, 661, 30):
        record(traffic, now, a=engine(now, 0, 100))
    rates = traffic.rates(660)
    assert rates.pool == 0, "the hits are older than the window; there is traffic without any"
    assert rates.window_seconds == 600


def test_a_pod_unread_for_longer_than_the_window_is_a_new_base():
    traffic = Traffic()
    record(traffic, 0, a=engine())
    record(traffic, 601, a=engine(7000))
    assert traffic.rates(601).tokens is None


def test_failed_saves_are_counted():
    traffic = Traffic()
    record(traffic, 0, a=engine(saved=(0, 0)))
    record(traffic, 30, a=engine(saved=(64, 62)))
    rates = traffic.rates(30)
    assert (rates.saved_keys, rates.save_failed_keys, rates.load_keys) == (64, 62, 0)


def test_the_probes_share_is_taken_off_once():
    traffic = Traffic()
    record(traffic, 0, a=engine(queries=0))
    with traffic.probe():
        traffic.caused("a", {"local_compute": 64, "external_kv_transfer": 1984, "external_queries": 2048})
    record(traffic, 30, a=engine(64 + 10, 0, 1984, queries=2048 + 10))
    record(traffic, 60, a=engine(64 + 30, 0, 1984, queries=2048 + 30))
    rates = traffic.rates(60)
    assert rates.tokens == 30
    assert rates.pool == 0
    assert rates.external_queries == 30


@pytest.mark.parametrize("ended", [False, True])
def test_readings_that_overlap_a_probe_are_not_used(ended):
    traffic = Traffic()
    record(traffic, 0, a=engine())
    epoch = traffic.epoch
    with traffic.probe():
        if not ended:
            traffic.record({"a": engine(777)}, frozenset({"a"}), 30, epoch)
        traffic.caused("a", {"local_compute": 1000})
    if ended:
        traffic.record({"a": engine(777)}, frozenset({"a"}), 30, epoch)
    assert traffic.rates(30).tokens is None
    record(traffic, 60, a=engine(1000 + 5))
    assert traffic.rates(60).tokens == 5


def test_a_share_of_a_pod_never_read_before_is_part_of_its_base():
    traffic = Traffic()
    traffic.caused("a", {"local_compute": 100})
    record(traffic, 0, a=engine(100))
    record(traffic, 30, a=engine(130))
    assert traffic.rates(30).tokens == 30


def test_a_forgotten_pod_is_read_anew():
    traffic = Traffic()
    record(traffic, 0, a=engine())
    traffic.forget("a")
    record(traffic, 30, a=engine(5000))
    record(traffic, 60, a=engine(5007))
    assert traffic.rates(60).tokens == 7


STEP = st.tuples(
    st.integers(0, 1000), st.integers(0, 1000), st.integers(0, 500), st.integers(0, 500), st.booleans(), st.booleans()
)


@settings(deadline=None, max_examples=60)
@given(st.lists(STEP, min_size=1, max_size=18))
def test_users_tokens_are_exact_whatever_the_probe_and_restarts_do(steps):
    """Over any history within one window: the rate counts users' tokens only, and all of them but those between the
    last reading before a restart and the first after it."""
    traffic, start = Traffic(), 1.0
    counters = {"computed": 0, "pool": 0}
    expected = {"computed": 0, "pool": 0}
    record(traffic, 0, a=engine())
    read = False
    for number, (computed, hits, probe_computed, probe_hits, restart, probed) in enumerate(steps, 1):
        if probed:
            with traffic.probe():
                traffic.caused("a", {"local_compute": probe_computed, "external_kv_transfer": probe_hits})
                counters["computed"] += probe_computed
                counters["pool"] += probe_hits
        counters["computed"] += computed
        counters["pool"] += hits
        if restart:
            start += 1
            counters = {"computed": computed, "pool": hits}
        else:
            expected["computed"] += computed
            expected["pool"] += hits
            read = True
        record(traffic, number * 30, a=engine(counters["computed"], 0, counters["pool"], started=start))
    rates = traffic.rates(len(steps) * 30)
    total = expected["computed"] + expected["pool"]
    assert rates.tokens == (total if read else None)
    assert rates.pool == (expected["pool"] / total if total else None)
