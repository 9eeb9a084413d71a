"""The store's trend: what moved, what was lost."""

from kvcachepool.facts import MasterFacts
from kvcachepool.observe.memory import MasterHistory


def look(**figures) -> MasterFacts:
    return MasterFacts(reachable=True, **figures)


def history(*looks) -> MasterHistory:
    found = MasterHistory()
    for now, process, facts in looks:
        found.record(process, facts, now)
    return found


def test_nothing_is_known_at_first():
    trend = history((0, "p/0", look(keys=5, put_failures=3))).trend(0)
    assert trend.put_failures == 0
    assert trend.lost_keys is None
    assert not trend.master_restarted
    assert MasterHistory().trend(0).put_failures is None


def test_increments_over_the_window():
    trend = history(
        (0, "p/0", look(put_requests=100, put_failures=0, evictions_done=0, clients=3)),
        (300, "p/0", look(put_requests=400, put_failures=60, evictions_done=0, clients=1)),
    ).trend(300)
    assert (trend.put_requests, trend.put_failures, trend.evictions_done) == (300, 60, 0)
    assert trend.put_alloc_failures is None
    assert trend.most_clients == 3
    assert trend.window_seconds == 300


def test_old_looks_leave_the_window():
    trend = history(*((t, "p/0", look(put_failures=t, clients=9 if t == 0 else 2)) for t in range(0, 1201, 100))).trend(
        1200
    )
    assert trend.put_failures == 600
    assert trend.most_clients == 2


def test_a_restarted_master_has_lost_its_keys_and_its_counters_begin_anew():
    found = history((0, "p/0", look(keys=5000, put_requests=9000)), (30, "p/1", look(keys=0, put_requests=10)))
    trend = found.trend(30)
    assert trend.master_restarted
    assert trend.lost_keys == 5000
    assert trend.put_requests == 0
    later = found.trend(700)
    assert not later.master_restarted
    assert later.lost_keys is None


def test_a_master_restarted_empty_has_lost_nothing():
    trend = history((0, "p/0", look(keys=0)), (30, "q/0", look(keys=0))).trend(30)
    assert trend.master_restarted
    assert trend.lost_keys is None


def test_keys_that_vanish_without_evictions_are_a_loss():
    trend = history((0, "p/0", look(keys=1000, evicted_keys=0)), (30, "p/0", look(keys=10, evicted_keys=0))).trend(30)
    assert trend.lost_keys == 990
    assert not trend.master_restarted


def test_evicted_keys_are_no_loss():
    trend = history((0, "p/0", look(keys=1000, evicted_keys=0)), (30, "p/0", look(keys=100, evicted_keys=900))).trend(
        30
    )
    assert trend.lost_keys is None


def test_a_master_that_does_not_answer_is_no_loss():
    trend = history(
        (0, "p/0", look(keys=1000)), (30, "p/0", MasterFacts(False, "refused")), (60, "p/0", look(keys=1001))
    ).trend(60)
    assert trend.lost_keys is None
    assert not trend.master_restarted
