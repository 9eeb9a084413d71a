"""Whatever is seen: all conditions, no exception, and the same again."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kvcachepool.api import KVCachePool
from kvcachepool.api.status import VerificationStatus
from kvcachepool.constants import ENGINE, MASTER, STORE
from kvcachepool.facts import (
    ContainerFacts,
    EngineFacts,
    MasterFacts,
    Observed,
    PodFacts,
    Rates,
    Segment,
    StoreTrend,
    WorkloadFacts,
)
from kvcachepool.plan import make_plan
from kvcachepool.settings import Settings
from kvcachepool.status import make_status, transitions
from kvcachepool.status.reasons import CONDITIONS, reasons_of
from kvcachepool.status.text import listing, percent, quote, roughly, step, window
from tests.pools import NATIVE, pool
from tests.status_scenes import NOW, healthy, planned

POOLS = [
    pool(),
    pool({"store": {"replicas": 3}}),
    pool({"store": {"mode": "Embedded"}, "engines": {"replicas": 1}}),
    pool({"engines": {"replicas": 0}}),
    pool({"engines": {"extraArgs": ["--dtype=half"]}}),
    pool(base=NATIVE),
    pool({"engines": {"replicas": 4}}, base=NATIVE),
]
SCHEMA = planned(POOLS[0]).schema
DIGESTS = st.sampled_from(["", "0123456789ab", SCHEMA.digest if SCHEMA else ""])
TEXTS = st.one_of(
    st.text(max_size=40),
    st.sampled_from(
        ["exceeded quota: q", "violates PodSecurity", "ValueError: x", "0/1 nodes are available: 1 Insufficient cpu."]
    ),
)
NAMES = st.sampled_from(["demo-engine-0", "demo-engine-1", "demo-store-0", "demo-master-0", "x"])
COUNTS = st.one_of(st.none(), st.integers(0, 10**15))
FIGURES = st.one_of(st.none(), st.floats(0, 1e12))
SHARES = st.one_of(st.none(), st.floats(0, 1))
CONTAINERS = st.builds(
    ContainerFacts,
    name=st.sampled_from(["engine", "master", "store", "wait-for-master"]),
    init=st.booleans(),
    image=TEXTS,
    args=st.lists(st.sampled_from(["-tp", "4", "--dtype=half", "--block-size", "-"]), max_size=4).map(tuple),
    env=st.dictionaries(st.sampled_from(["PYTHONHASHSEED", "A"]), TEXTS, max_size=2),
    env_refs=st.sampled_from([(), ("PYTHONHASHSEED",)]),
    ready=st.booleans(),
    running=st.booleans(),
    restarts=st.integers(0, 10**6),
    waiting_reason=st.sampled_from(
        ["", "CrashLoopBackOff", "ErrImagePull", "ImagePullBackOff", "CreateContainerError"]
    ),
    waiting_message=TEXTS,
    exit_code=st.sampled_from([None, 0, 1, 126, 127, 128, 137, 143, -1]),
    exit_reason=st.sampled_from(["", "Completed", "Error", "OOMKilled"]),
    exit_message=TEXTS,
    ran_seconds=COUNTS,
)
PODS = st.builds(
    PodFacts,
    name=NAMES,
    uid=st.text(max_size=3),
    component=st.sampled_from([ENGINE, STORE, MASTER, ""]),
    digest=DIGESTS,
    ip=st.sampled_from(["", "10.0.0.1", "10.0.0.2"]),
    node=st.sampled_from(["", "n1"]),
    phase=st.sampled_from(["", "Pending", "Running", "Failed"]),
    ready=st.booleans(),
    deleting=st.booleans(),
    owned=st.booleans(),
    unschedulable=TEXTS,
    started=st.sampled_from(["", "2026-03-01T00:00:00Z", "2026-03-01", "later"]),
    containers=st.lists(CONTAINERS, max_size=2).map(tuple),
    log_line=TEXTS,
)
SMALL = st.integers(0, 4)
WORKLOADS = st.builds(WorkloadFacts, st.just("w"), st.just(""), SMALL, SMALL, SMALL, SMALL, SMALL, TEXTS)
SEGMENTS = st.builds(
    Segment,
    TEXTS,
    TEXTS,
    st.sampled_from(["tcp", "rdma", ""]),
    st.integers(0, 9),
    st.sampled_from(["OK", "UNMOUNTING"]),
    TEXTS,
)
MASTERS = st.builds(
    MasterFacts,
    reachable=st.booleans(),
    error=TEXTS,
    service_ready=st.sampled_from([None, True, False]),
    capacity=COUNTS,
    allocated=COUNTS,
    keys=COUNTS,
    clients=COUNTS,
    segments=st.one_of(st.none(), st.lists(SEGMENTS, max_size=3).map(tuple)),
    evictions_done=COUNTS,
    put_requests=COUNTS,
    put_alloc_failures=COUNTS,
)
ENGINES = st.builds(
    EngineFacts,
    reachable=st.booleans(),
    error=TEXTS,
    cache_config=st.one_of(st.none(), st.dictionaries(st.sampled_from(["block_size", "cache_dtype", "x"]), TEXTS)),
)
OBSERVED = st.builds(
    Observed,
    pods=st.lists(PODS, max_size=5).map(tuple),
    workloads=st.dictionaries(st.sampled_from([ENGINE, STORE, MASTER]), WORKLOADS),
    missing=st.lists(st.tuples(TEXTS, st.sampled_from(["Secret", "ConfigMap", "Other"]), TEXTS), max_size=2).map(tuple),
    master=st.one_of(st.none(), MASTERS),
    engines=st.dictionaries(NAMES, ENGINES, max_size=3),
    rates=st.builds(Rates, st.integers(0, 3600), FIGURES, SHARES, SHARES, FIGURES, FIGURES, FIGURES, FIGURES, FIGURES),
    store_trend=st.builds(
        StoreTrend,
        window_seconds=st.integers(0, 3600),
        master_restarted=st.booleans(),
        put_alloc_failures=FIGURES,
        evictions_done=FIGURES,
        lost_keys=COUNTS,
        most_clients=COUNTS,
    ),
    verification=st.one_of(
        st.none(),
        st.builds(
            VerificationStatus,
            outcome=st.sampled_from(["", "Verified", "OutputMismatch", "ProbeFailed", "?"]),
            writer=NAMES,
            reader=NAMES,
            detail=TEXTS,
            ttft_reuse_ms=COUNTS,
            ttft_recompute_ms=COUNTS,
        ),
    ),
    apply_errors=st.lists(
        st.tuples(
            st.sampled_from(["Deployment/demo-engine", "Service/demo-master", "x"]),
            st.sampled_from([0, 403, 409, 503]),
            TEXTS,
        ),
        max_size=2,
    ).map(tuple),
)
MERGED = ("pods", "workloads", "children", "master", "engines", "rates", "store_trend", "verification")


@st.composite
def scenes(draw: st.DrawFn) -> tuple[KVCachePool, Observed]:
    """Anything at all, or a pool that is well in which some kinds of facts are anything."""
    item, noise = draw(st.sampled_from(POOLS)), draw(OBSERVED)
    kept: dict[str, Any] = {}
    if draw(st.booleans()):
        well = healthy(item)
        kept = {name: getattr(well, name) for name in draw(st.sets(st.sampled_from(MERGED)))}
    return item, replace(noise, **kept)


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(scenes())
def test_any_scene(scene: tuple[KVCachePool, Observed]) -> None:
    item, observed = scene
    plan = make_plan(item, observed, Settings())
    status = make_status(item, plan, observed, NOW)

    assert [c.type for c in status.conditions] == [info.type for info in CONDITIONS]
    for condition in status.conditions:
        assert condition.reason in reasons_of(condition.type)
        assert 0 < len(condition.message) <= 720
        assert condition.observed_generation == 1
    assert make_status(item, plan, observed, NOW).dump() == status.dump()

    shuffled = replace(observed, pods=observed.pods[::-1], apply_errors=observed.apply_errors[::-1])
    if len({p.name for p in observed.pods}) == len(observed.pods):
        assert make_status(item, plan, shuffled, NOW).dump() == status.dump()

    read_back = item.model_copy(update={"status": type(status).model_validate(status.dump())})
    assert make_status(read_back, plan, observed, NOW + timedelta(seconds=30)).dump() == status.dump()
    assert transitions(status, status) == ()


@given(st.text(max_size=400))
def test_quotes_are_one_short_line(text: str) -> None:
    line = quote(text, 100)
    assert len(line) <= 100
    assert "\n" not in line
    assert line == line.strip()


@given(st.floats(0, 1e18))
def test_steps_are_one_two_five(value: float) -> None:
    reached = step(value)
    assert reached <= value
    assert value < 1 or value < 2.5 * reached
    assert str(reached).rstrip("0") in {"1", "2", "5", ""}
    assert roughly(value) in {str(reached), f"over {reached}"}


@given(st.lists(st.text("abc", min_size=1, max_size=3)), st.floats(0, 1), st.integers(0, 10**6))
def test_texts_do_not_depend_on_order(names: list[str], share: float, seconds: int) -> None:
    assert listing(names) == listing(reversed(names))
    assert percent(share).endswith(" %")
    assert window(seconds).startswith("in the last ")
