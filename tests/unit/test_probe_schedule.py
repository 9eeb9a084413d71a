"""When a probe is due, and between which members."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvcachepool.api.status import PoolStatus, SchemaStatus, VerificationStatus
from kvcachepool.constants import ENGINE, STORE
from kvcachepool.facts import ContainerFacts, EngineFacts, MasterFacts, Observed, PodFacts, WorkloadFacts
from kvcachepool.observe.memory import ProbeMemory
from kvcachepool.probe.schedule import Decision, due, members, note_members, pause
from tests.pools import NATIVE, pool

DIGEST = "0123456789ab"
NOW = 1_800_000_000.0
AT = "2027-01-15T08:00:00Z"
"""NOW, as the status says it."""


def engine_pod(name: str, **over) -> PodFacts:
    values = {
        "uid": f"uid-{name}",
        "component": ENGINE,
        "digest": DIGEST,
        "ip": f"10.0.0.{ord(name[-1])}",
        "phase": "Running",
        "ready": True,
        "containers": (ContainerFacts("engine", running=True),),
    }
    return PodFacts(name, **(values | over))


def seen(*pods: PodFacts, unreadable: str = "", **over) -> Observed:
    found = pods or (engine_pod("a"), engine_pod("b"))
    values = {
        "pods": found,
        "engines": {p.name: EngineFacts(reachable=p.name != unreadable) for p in found},
        "workloads": {ENGINE: WorkloadFacts("e", ENGINE, len(found), len(found), len(found), 1, 1)},
        "master": MasterFacts(reachable=True, service_ready=True),
    }
    return Observed(**(values | over))


def decide(
    observed: Observed, memory: ProbeMemory | None = None, *, now=NOW, spec=None, status=None, base=None
) -> Decision:
    memory = memory or ProbeMemory()
    found = pool(spec, **({"base": base} if base else {}))
    if status is not None:
        found = found.model_copy(update={"status": status})
    note_members(memory, members(observed, DIGEST), now)
    return due(found, observed, memory, DIGEST, now)


def names(decision: Decision) -> tuple[str, str] | None:
    return (decision.pair[0].name, decision.pair[1].name) if decision.pair else None


def test_the_first_probe_runs_as_soon_as_the_pool_is_settled():
    assert names(decide(seen())) == ("a", "b")


@pytest.mark.parametrize(
    ("observed", "why"),
    [
        (seen(engine_pod("a")), "1 engines are ready"),
        (seen(engine_pod("a"), engine_pod("b", ready=False)), "1 engines are ready"),
        (seen(engine_pod("a"), engine_pod("b", deleting=True)), "1 engines are ready"),
        (seen(unreadable="b"), "1 engines are ready and readable"),
        (seen(engine_pod("a"), engine_pod("b"), engine_pod("c", digest="other")), "being replaced"),
        (seen(workloads={ENGINE: WorkloadFacts("e", ENGINE, 2, 1, 2, 1, 1)}), "being replaced"),
        (seen(workloads={ENGINE: WorkloadFacts("e", ENGINE, 2, 2, 2, 2, 1)}), "being replaced"),
        (seen(workloads={STORE: WorkloadFacts("s", STORE, 1, 1, 0, 1, 1)}), "being replaced"),
        (seen(master=MasterFacts(reachable=True, service_ready=False)), "master"),
    ],
)
def test_none_runs_without_firm_ground(observed, why):
    decision = decide(observed)
    assert decision.pair is None
    assert why in decision.why


def test_none_runs_where_nothing_is_shared_or_it_is_switched_off():
    assert "shares nothing" in decide(seen(), base=NATIVE).why
    assert "verification.enabled" in decide(seen(), spec={"verification": {"enabled": False}}).why


def test_a_users_own_member_is_probed_and_one_of_another_schema_does_not_hinder():
    observed = seen(engine_pod("a"), engine_pod("u", component=""), engine_pod("x", component="", digest="other"))
    assert names(decide(observed)) == ("a", "u")


def done(memory: ProbeMemory, writer: str, reader: str, *, verified: bool | None = True, at=NOW) -> ProbeMemory:
    memory.result = VerificationStatus(writer=writer, reader=reader, verified=verified, last_time=AT, outcome="x")
    memory.finished = at
    memory.probed_members = memory.members
    memory.failures = 0 if verified else memory.failures + 1
    return memory


def after(observed: Observed, **over) -> ProbeMemory:
    memory = ProbeMemory()
    decide(observed, memory)
    return done(memory, "a", "b", **over)


def test_the_interval_with_a_tenth_of_jitter():
    memory = after(seen())
    assert decide(seen(), memory, now=NOW + 539).pair is None
    assert decide(seen(), memory, now=NOW + 661).pair is not None


@given(st.integers(1_700_000_000, 1_900_000_000), st.text(min_size=1, max_size=20))
@settings(max_examples=100, deadline=None)
def test_jitter_is_the_same_at_every_pass_and_within_a_tenth(when, uid):
    found, last = pool(uid=uid), VerificationStatus(verified=True)
    waits = {pause(found, ProbeMemory(), last, float(when)) for _ in range(3)}
    assert len(waits) == 1
    assert 540 <= waits.pop() <= 660


def test_pools_do_not_probe_together():
    last = VerificationStatus(verified=True)
    waits = {round(pause(pool(uid=f"u{n}"), ProbeMemory(), last, NOW)) for n in range(50)}
    assert len(waits) > 20


def test_after_failures_it_comes_sooner_and_then_less_often():
    memory, waits = ProbeMemory(), []
    for _ in range(6):
        done(memory, "a", "b", verified=False)
        assert memory.result is not None
        waits.append(pause(pool(), memory, memory.result, NOW))
    factor = waits[0] / 60
    assert waits == pytest.approx([factor * s for s in (60, 120, 240, 480, 600, 600)])


@pytest.mark.parametrize("verified", [False, None])
def test_a_failed_pair_is_tried_again_first(verified):
    observed = seen(engine_pod("a"), engine_pod("b"), engine_pod("c"))
    memory = after(observed, verified=verified)
    assert names(decide(observed, memory, now=NOW + 70)) == ("a", "b")


def test_every_member_reads_and_writes_in_turn():
    observed = seen(*(engine_pod(n) for n in "cab"))
    memory, pairs, now = ProbeMemory(), [], NOW
    for _ in range(4):
        pair = names(decide(observed, memory, now=now))
        assert pair is not None
        pairs.append(pair)
        done(memory, *pair, at=now)
        now += 700
    assert pairs == [("a", "b"), ("b", "c"), ("c", "a"), ("a", "b")]


def test_changed_members_are_probed_once_the_change_is_over():
    memory = after(seen())
    larger = seen(engine_pod("a"), engine_pod("b"), engine_pod("c"))
    assert decide(larger, memory, now=NOW + 30).pair is None
    assert decide(larger, memory, now=NOW + 40).pair is None
    assert decide(seen(engine_pod("a"), engine_pod("c")), memory, now=NOW + 45).pair is None
    assert decide(seen(engine_pod("a"), engine_pod("c")), memory, now=NOW + 59).pair is None
    assert decide(seen(engine_pod("a"), engine_pod("c")), memory, now=NOW + 60).why == "members changed"


def test_a_restarted_engine_is_a_change_and_is_cold():
    memory = after(seen())
    memory.warm = {"uid-a/0", "uid-b/0", "uid-b/0/loads"}
    restarted = seen(engine_pod("a"), engine_pod("b", containers=(ContainerFacts("engine", running=True, restarts=1),)))
    decide(restarted, memory, now=NOW + 30)
    assert memory.warm == {"uid-a/0"}
    assert decide(restarted, memory, now=NOW + 45).why == "members changed"


def test_a_flapping_member_that_comes_back_is_no_change():
    memory = after(seen())
    decide(seen(engine_pod("a"), engine_pod("b", ready=False)), memory, now=NOW + 30)
    assert decide(seen(), memory, now=NOW + 60).why == "not yet"


def test_metrics_that_cannot_be_read_for_a_moment_are_no_change():
    memory = after(seen())
    decide(seen(unreadable="b"), memory, now=NOW + 30)
    assert decide(seen(), memory, now=NOW + 60).why == "not yet"


def status(digest: str = DIGEST, **verification) -> PoolStatus:
    values = {"last_time": AT, "writer": "a", "reader": "b", "verified": True, "outcome": "Verified"}
    return PoolStatus(schema_=SchemaStatus(digest=digest), verification=VerificationStatus(**(values | verification)))


def test_a_restarted_operator_goes_on_from_the_status():
    assert decide(seen(), status=status(), now=NOW + 30).why == "not yet"
    later = decide(seen(engine_pod("a"), engine_pod("b"), engine_pod("c")), status=status(), now=NOW + 700)
    assert names(later) == ("b", "c")


def test_a_restarted_operator_retries_a_failure_soon():
    assert decide(seen(), status=status(verified=False), now=NOW + 70).why == "interval is over"


def test_a_result_of_another_schema_or_of_pods_that_are_gone_does_not_count():
    assert decide(seen(), status=status(digest="ffffffffffff"), now=NOW + 30).why == "never probed"
    memory = ProbeMemory()
    assert decide(seen(), memory, status=status(reader="gone"), now=NOW + 30).why == "not yet"
    assert decide(seen(), memory, status=status(reader="gone"), now=NOW + 45).why == "members changed"


def test_nonsense_in_the_status_is_no_result():
    assert decide(seen(), status=status(last_time="yesterday")).why == "never probed"
