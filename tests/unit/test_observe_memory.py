"""The store's trend: what moved, what was lost."""

from kvcachepool.facts import MasterFacts, Segment
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


def segment(host: str) -> Segment:
    return Segment(host, f"{host}:1", "tcp", 1, "OK", host)


def test_what_goes_with_a_member_is_a_loss_also_when_the_master_counts_it_later():
    both, one = (segment("a"), segment("b")), (segment("b"),)
    found = history(
        (0, "p/0", look(keys=1000, allocated=4000, evicted_keys=0, segments=both)),
        (5, "p/0", look(keys=1000, allocated=4000, evicted_keys=0, segments=one)),
        (10, "p/0", look(keys=800, allocated=3200, evicted_keys=0, segments=one)),
        (15, "p/0", look(keys=750, allocated=3000, evicted_keys=10, segments=one)),
    )
    trend = found.trend(15)
    assert (trend.lost_keys, trend.lost_bytes) == (240, 1000)
    later = history(
        (0, "p/0", look(keys=1000, evicted_keys=0, segments=both)),
        (5, "p/0", look(keys=1000, evicted_keys=0, segments=one)),
        (300, "p/0", look(keys=900, evicted_keys=0, segments=one)),
    )
    assert later.trend(300).lost_keys is None


def test_a_restart_loses_the_memory_too():
    trend = history((0, "p/0", look(keys=5, allocated=70)), (9, "p/1", look(keys=0, allocated=0))).trend(9)
    assert (trend.lost_keys, trend.lost_bytes) == (5, 70)


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
