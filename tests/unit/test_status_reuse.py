"""ReuseVerified, ReuseWorthwhile, CacheEffective and the advice."""

from typing import Any

import pytest

from kvcachepool.api import Condition, PoolStatus
from kvcachepool.api.status import HitRateStatus
from kvcachepool.constants import ENGINE, MASTER, STORE
from kvcachepool.facts import EngineFacts, EngineTrend
from tests.pools import NATIVE
from tests.status_scenes import (
    VERIFIED,
    Case,
    both,
    container,
    gone,
    master,
    member,
    pods,
    probed,
    rates,
    seen,
    trend,
)

MISSING_ALL = both(gone(MASTER, STORE, ENGINE), seen(missing=(("x", "Secret", "s"),)))
SLOW = probed(ttft_reuse_ms=134, gigabytes_per_second="3.2")
TWO_NATIVE = {"engines": {"replicas": 2}}

CASES = [
    Case(
        "CacheEffective",
        "EnginesStranded",
        seen(engine_trends={"demo-engine-0": EngineTrend(refused_seconds=300, refused_keys=400.0)}),
        ("Engines demo-engine-0 have lost the store", "all its saves are refused", "restartWhenStranded is Never"),
    ),
    Case(
        "CacheEffective",
        "EnginesStranded",
        seen(
            engine_trends={"demo-engine-0": EngineTrend(refused_seconds=300, refused_keys=400.0)},
            eviction_refused="This pod has more than one PodDisruptionBudget",
        ),
        ("It cannot be evicted: This pod has more than one PodDisruptionBudget.",),
        spec={"engines": {"restartWhenStranded": "OneAtATime"}},
        id="two budgets",
    ),
    Case(
        "CacheEffective",
        "LoadsLooping",
        seen(engine_trends={"demo-engine-1": EngineTrend(looping_seconds=75, looped_keys=412_000.0)}),
        ("demo-engine-1 fail without a pause", "over 200000 blocks so far"),
        id="vllm#55297",
    ),
    Case(
        "ReuseVerified",
        "Verified",
        says=("demo-engine-1 reused 8128 of 8192 prompt tokens that demo-engine-0 computed", "0 tokens were reused"),
    ),
    Case("ReuseVerified", "Verified", probed(detail=""), ("reused 8128 of 8192", "demo-engine-0"), id="figures only"),
    Case(
        "ReuseVerified",
        "ZeroCrossInstanceHits",
        probed(
            outcome="ZeroCrossInstanceHits", verified=False, reused_tokens=0, detail="b reused 0 of 8192 prompt tokens"
        ),
        ("b reused 0 of 8192 prompt tokens.",),
        id="LMCache#2511",
    ),
    Case(
        "ReuseVerified",
        "OutputMismatch",
        probed(outcome="OutputMismatch", verified=False, detail="b answered otherwise"),
        ("b answered otherwise.", "spec.schema.hashSeed"),
    ),
    Case(
        "ReuseVerified",
        "NegativeArmHit",
        probed(outcome="NegativeArmHit", verified=False, detail="b took 64 of 8192 prompt tokens from a cache"),
        ("b took 64 of 8192", "Do not trust"),
    ),
    Case(
        "ReuseVerified",
        "SavesFailing",
        probed(outcome="SavesFailing", detail="failed to store 62"),
        ("failed to store 62",),
    ),
    Case(
        "ReuseVerified",
        "LoadsFailing",
        probed(outcome="LoadsFailing", detail="failed to load 3"),
        ("failed to load 3",),
    ),
    Case("ReuseVerified", "SinglePod", spec={"engines": {"replicas": 1}}, says=("spec.engines.replicas is 1",)),
    Case("ReuseVerified", "SinglePod", base=NATIVE, id="native"),
    Case("ReuseVerified", "Verified", member(), spec={"engines": {"replicas": 1}}, id="one engine and an own member"),
    Case("ReuseVerified", "NotShared", base=NATIVE, spec=TWO_NATIVE, says=("2 engines", "spec.backend.mooncake")),
    Case("ReuseVerified", "Disabled", spec={"verification": {"enabled": False}}, says=("spec.verification.enabled",)),
    Case("ReuseVerified", "Pending", seen(verification=None), ("is due",)),
    Case(
        "ReuseVerified",
        "Pending",
        both(seen(verification=None), container(ENGINE, only=0)),
        ("all engines are ready",),
        id="roll",
    ),
    Case("ReuseVerified", "Pending", probed(writer="gone-1", reader="gone-2"), id="other pods"),
    Case("ReuseVerified", "Pending", both(pods(ENGINE, digest="0123456789ab")), id="other schema"),
    Case("ReuseVerified", "Verified", probed(writer="gone-1"), id="one of the pods is left"),
    Case(
        "ReuseVerified",
        "ProbeFailed",
        probed(outcome="ProbeFailed", verified=None, detail="demo-engine-1: no answer in 90 s"),
        ("no answer in 90 s",),
    ),
    Case("ReuseVerified", "ProbeFailed", probed(outcome="SomethingNew", detail="x"), id="outcome of a later prober"),
    Case("ReuseVerified", "NotAccepted", MISSING_ALL),
    Case(
        "ReuseWorthwhile",
        "ReuseFaster",
        says=("at 8192 prompt tokens: 62 ms by reuse, 115 ms by recompute", "8.9 GB/s", "break-even is 3.5 GB/s"),
    ),
    Case(
        "ReuseWorthwhile",
        "ReuseSlowerThanRecompute",
        SLOW,
        ("134 ms by reuse, 115 ms by recompute", "3.2 GB/s", "break-even is 3.5 GB/s", "status.advice"),
    ),
    Case("ReuseWorthwhile", "ReuseSlowerThanRecompute", probed(ttft_reuse_ms=115), id="a draw is no gain"),
    Case("ReuseWorthwhile", "NotMeasured", probed(ttft_reuse_ms=None)),
    Case("ReuseWorthwhile", "NotMeasured", probed(outcome="OutputMismatch"), id="not verified"),
    Case("ReuseWorthwhile", "NotMeasured", base=NATIVE, spec=TWO_NATIVE, id="native"),
    Case("ReuseWorthwhile", "NotAccepted", MISSING_ALL),
    Case("CacheEffective", "HitsObserved", says=("41 % of the prompt tokens came from the pool, 12 % from",)),
    Case("CacheEffective", "HitsObserved", rates(pool=0.002, tokens=3_000.0), ("under 1 %",), id="few"),
    Case("CacheEffective", "NotAccepted", MISSING_ALL),
    Case("CacheEffective", "NoTraffic", rates(tokens=0, pool=None, local=None), ("No prompt tokens",)),
    Case("CacheEffective", "NoTraffic", rates(tokens=9_999, pool=0.0, local=0.0), ("from 10000",), id="too little"),
    Case("CacheEffective", "MetricsUnavailable", rates(tokens=None, pool=None, local=None), ("port 8000",)),
    Case(
        "CacheEffective",
        "LoadsFailing",
        rates(load_keys=1_000.0, load_failed_keys=50.0),
        (
            "5 % of the blocks that engines tried to load failed in the last 10 min (50 blocks)",
            "41 % of the prompt tokens",
        ),
        id="although hits are counted",
    ),
    Case("CacheEffective", "HitsObserved", rates(load_keys=1_000.0, load_failed_keys=2.0), id="single failures"),
    Case(
        "CacheEffective",
        "SavesFailing",
        rates(saved_keys=64.0, save_failed_keys=62.0, pool=0.0),
        ("97 % of the blocks that engines tried to save failed", "over 50 blocks"),
        id="Mooncake#4209",
    ),
    Case(
        "CacheEffective",
        "WritesNotArriving",
        rates(pool=0.0, saved_keys=0.0),
        ("looked up over 100000 prompt tokens and saved 0 blocks", "64 tokens"),
    ),
    Case(
        "CacheEffective",
        "WritesNotArriving",
        both(rates(pool=0.0, saved_keys=300.0), master(put_requests=0)),
        ("saved over 200 blocks", "0 puts since its start"),
        id="skew",
    ),
    Case(
        "CacheEffective",
        "ZeroHits",
        both(rates(pool=0.0), master(put_requests=0), trend(master_restarted=True)),
        id="the master has just restarted",
    ),
    Case(
        "CacheEffective",
        "ZeroHits",
        rates(pool=0.0),
        ("0 % of 200000 prompt tokens", "12 % came from the engines' own caches", "ReuseVerified"),
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_condition(case: Case) -> None:
    case.check()


def test_equal_seeds_do_not_imply_that_it_works() -> None:
    """LMCache#2511: settings agree, the pool serves, and yet nothing is reused."""
    status = next(c for c in CASES if c.id == "LMCache#2511").status()
    by_type = {c.type: c.status for c in status.conditions}
    assert by_type["ReuseVerified"] == "False"
    assert by_type["SchemaHomogeneous"] == by_type["Available"] == by_type["Ready"] == "True"


def test_the_result_in_the_status_counts_after_a_restart_of_the_operator() -> None:
    case = Case("ReuseVerified", "Verified", seen(verification=None), previous=PoolStatus(verification=VERIFIED))
    case.check()
    assert case.status().verification == VERIFIED


def test_a_stale_result_leaves_no_figures() -> None:
    status = next(c for c in CASES if c.id == "other pods").status()
    assert status.verification.verified is None
    assert status.verification.ttft_reuse_ms is None
    worth = status.condition("ReuseWorthwhile")
    assert worth is not None
    assert worth.reason == "NotMeasured"


@pytest.mark.parametrize(
    ("case", "says"),
    [
        (Case("Ready", "x"), ()),
        (Case("Ready", "x", spec={"engines": {"replicas": 1}}), ("With one engine", "spec.backend.native")),
        (Case("Ready", "x", base=NATIVE), ()),
        (Case("Ready", "x", base=NATIVE, spec=TWO_NATIVE), ("2 engines", "spec.backend.mooncake")),
        (Case("Ready", "x", SLOW), ("3.5 GB/s", "fp8", "longer prompts", "RDMA")),
        (
            Case("Ready", "x", both(SLOW, pods(ENGINE, node="n"))),
            ("spec.backend.native, since all engines are on one node",),
        ),
    ],
)
def test_advice(case: Case, says: tuple[str, ...]) -> None:
    advice = case.status().advice
    assert bool(advice) == bool(says)
    for part in says:
        assert part in advice


def test_advice_does_not_name_what_is_set_already() -> None:
    assert "fp8" not in Case("Ready", "x", SLOW, spec={"schema": {"kvCacheDtype": "fp8_e5m2"}}).status().advice
    assert "on one node" not in Case("Ready", "x", SLOW).status().advice


def test_hit_rates_are_whole_percents_and_absent_without_traffic() -> None:
    rate = Case("CacheEffective", "HitsObserved").status().hit_rate
    assert (rate.local, rate.pool, rate.total, rate.window_seconds) == (12, 41, 53, 600)
    for see in (rates(tokens=0.0, pool=None, local=None), rates(tokens=None), rates(pool=None)):
        found = Case("CacheEffective", "x", see).status().hit_rate
        assert (found.local, found.pool, found.total) == (None, None, None)


NOTHING_YET = {"tokens": None, "pool": None, "local": None}


@pytest.mark.parametrize(
    ("previous", "now", "reason", "pool"),
    [
        ("HitsObserved", {"window_seconds": 0, **NOTHING_YET}, "HitsObserved", 41),
        ("HitsObserved", {"window_seconds": 30, **NOTHING_YET, "tokens": 0.0}, "HitsObserved", 41),
        ("ZeroHits", {"window_seconds": 90, "tokens": 900.0, "pool": 0.0}, "ZeroHits", 0),
        ("ZeroHits", {"window_seconds": 90, "tokens": 900.0, "pool": 0.2}, "HitsObserved", 20),
        ("NoTraffic", {"window_seconds": 0, **NOTHING_YET}, "NoTraffic", 41),
        ("HitsObserved", {"window_seconds": 600, **NOTHING_YET, "tokens": 0.0}, "NoTraffic", None),
    ],
)
def test_a_new_leader_says_nothing_else_until_it_has_seen_enough(
    previous: str, now: dict[str, Any], reason: str, pool: int | None
) -> None:
    """It has no window of rates yet; each change of the leader would be two writes a pool, and untrue."""
    former = PoolStatus(
        conditions=[Condition(type="CacheEffective", status="True", reason=previous, message="As before.")],
        hit_rate=HitRateStatus(local=12, pool=41, total=53, window_seconds=600),
    )
    engine = EngineFacts(True, tokens={"local_compute": 7.0})
    status = Case("CacheEffective", reason, both(seen(engines={"a": engine}), rates(**now)), previous=former).status()
    condition = status.condition("CacheEffective")
    assert condition is not None
    assert condition.reason == reason
    assert (condition.message == "As before.") is (reason == previous != "NoTraffic")
    assert status.hit_rate.pool == pool


def test_what_cannot_be_read_is_told_to_a_new_leader_too() -> None:
    former = PoolStatus(conditions=[Condition(type="CacheEffective", status="True", reason="HitsObserved")])
    see = both(seen(engines={}), rates(window_seconds=0, **NOTHING_YET))
    Case("CacheEffective", "MetricsUnavailable", see, previous=former).check()


@pytest.mark.parametrize("seconds", [0, 59, 61, 200, 600])
def test_the_window_does_not_grow_in_the_status(seconds: int) -> None:
    """It would be a write a minute after each start of the operator, and tell nobody anything."""
    found = Case("CacheEffective", "x", rates(window_seconds=seconds)).status().hit_rate.window_seconds
    assert found == 600
