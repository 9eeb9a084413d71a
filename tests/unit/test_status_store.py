"""StoreReady and TransportMatched."""

from dataclasses import replace

import pytest

from kvcachepool.constants import ANNOTATION_APPROVE, ENGINE, MASTER, STORE
from kvcachepool.facts import Observed, Segment
from kvcachepool.plan import make_plan
from kvcachepool.settings import Settings
from kvcachepool.status import make_status, transitions
from tests.pools import NATIVE, pool
from tests.status_scenes import (
    GIB,
    NODES,
    NOW,
    Case,
    both,
    container,
    gone,
    healthy,
    master,
    planned,
    pods,
    seen,
    trend,
    workload,
)

LOADER = "mooncake_master: error while loading shared libraries: libcudart.so.12: cannot open shared object file"
TWO = {"store": {"replicas": 2, "segmentSize": "64Gi"}}
OOM = {"exit_code": 137, "exit_reason": "OOMKilled", "restarts": 1, "waiting_reason": "CrashLoopBackOff"}
STALE_QUOTA = 'pods "demo-master-5d8fc-x2k9j" is forbidden: exceeded quota: small, requested: memory=1Gi'


def segment(host: str, status: str = "OK", protocol: str = "tcp") -> Segment:
    return Segment(f"{host}:13000", f"{host}:16000", protocol, GIB, status, host)


RDMA = {"protocol": "RDMA", "rdma": {"resourceName": "rdma/hca"}}
LIVE = {(obj["kind"], obj["metadata"]["name"]): obj for obj in planned(pool()).objects}
"""Children as they were rendered from the pool's former spec."""


def told_rdma(observed: Observed) -> Observed:
    """The master lists what members were told to use."""
    owners = (p for p in observed.pods if p.component == STORE)
    return master(segments=tuple(segment(p.ip, protocol="rdma") for p in owners))(observed)


CASES = [
    Case(
        "StoreReady",
        "PendingMasterRestart",
        seen(children=LIVE),
        spec={"store": {"master": {"evictionRatio": "0.1"}}},
        says=("serves on as it is", "costs over 100000 cached blocks", "--eviction_ratio: 0.05 → 0.1"),
    ),
    Case(
        "StoreReady",
        "PoolFull",
        both(
            seen(children=LIVE),
            master(allocated=62 * GIB, capacity=64 * GIB, segments=(segment("10.0.0.2"),)),
            trend(put_alloc_failures=500.0, evictions_done=0.0),
        ),
        spec={"store": {"master": {"evictionRatio": "0.1"}}},
        says=("97 % of 64.0 GiB", "500 blocks refused", "kubectl annotate kvpool demo -n team-a --overwrite"),
        id="a full pool, with its cure waiting",
    ),
    Case("StoreReady", "Serving", says=("lists 1 of 1 segments",)),
    Case("StoreReady", "Serving", trend(lost_keys=41_000), ("Over 20000 blocks were lost", "fills anew"), id="lost"),
    Case(
        "StoreReady",
        "Serving",
        spec={"store": {"mode": "Embedded"}, "schema": {"parallelism": {"tensor": 2}}, "engines": {"replicas": 1}},
        see=master(segments=(segment("10.0.0.1"), segment("10.0.0.2"))),
        says=("2 of 2 segments",),
        id="embedded, one segment a rank",
    ),
    Case("StoreReady", "NoStore", base=NATIVE, says=("native", "each engine keeps its own")),
    Case(
        "StoreReady",
        "NotAccepted",
        both(gone(MASTER, STORE, ENGINE), seen(missing=(("x", "Secret", "s"),))),
        ("Accepted",),
    ),
    Case(
        "StoreReady",
        "QuotaExceeded",
        both(workload(MASTER, create_failure=STALE_QUOTA, updated=0, ready=0), pods(MASTER, deleting=True)),
        ("exceeded quota: small", 'pod "demo-master-5d8fc-…"'),
    ),
    Case(
        "StoreReady",
        "PodSecurityForbidden",
        workload(STORE, ready=0, create_failure='pods "a-b" is forbidden: violates PodSecurity "restricted:latest": x'),
        ('violates PodSecurity "restricted:latest"', "demo-store"),
    ),
    Case(
        "StoreReady",
        "AdmissionDenied",
        seen(apply_errors=(("Deployment/demo-master", 403, 'admission webhook "x" denied the request: no'),)),
        ('admission webhook "x" denied the request: no', "Deployment/demo-master"),
    ),
    Case(
        "StoreReady",
        "NameTaken",
        seen(
            apply_errors=(
                ("Deployment/demo-store", 409, "Deployment demo-store exists and is not controlled by this pool"),
            )
        ),
        ("Deployment demo-store exists",),
    ),
    Case(
        "StoreReady",
        "ApplyFailed",
        seen(apply_errors=(("Deployment/demo-master", 503, "the server is busy"),)),
        ("HTTP 503", "the server is busy"),
    ),
    Case(
        "StoreReady",
        "MasterUnschedulable",
        both(
            container(MASTER),
            pods(
                MASTER,
                phase="Pending",
                unschedulable="0/3 nodes are available: 3 Insufficient memory. preemption: none.",
            ),
        ),
        ("3 Insufficient memory", "demo-master-0"),
    ),
    Case(
        "StoreReady",
        "MasterImageBroken",
        container(MASTER, exit_code=127, exit_reason="Error", exit_message=LOADER, restarts=5),
        ("libcudart.so.12", "exit code 127", "demo-master-0", "image kvcachepool/mooncake"),
        id="Mooncake#3314",
    ),
    Case(
        "StoreReady",
        "MasterImageBroken",
        container(MASTER, waiting_reason="InvalidImageName", waiting_message="couldn't parse image"),
        ("InvalidImageName", "couldn't parse image"),
        id="name",
    ),
    Case(
        "StoreReady",
        "MasterOOMKilled",
        container(MASTER, **OOM),
        (
            "index is lost",
            "memory limit is 2Gi",
            "64 tokens in 2 segments, 128.0 GiB in all",
            "Raise spec.store.master.resources.limits.memory",
        ),
        spec=TWO,
        id="Mooncake#3452",
    ),
    Case(
        "StoreReady",
        "MasterCrashLoop",
        container(
            MASTER, exit_code=1, exit_reason="Error", restarts=7, exit_message="ERROR: unknown command line flag 'x'"
        ),
        ("unknown command line flag", "exit code 1", "at least 5 times"),
    ),
    Case("StoreReady", "MasterNotReady", both(container(MASTER), seen(master=None)), ("demo-master-0", "RPC port")),
    Case(
        "StoreReady",
        "MasterNotReady",
        both(container(MASTER, started=True), pods(MASTER, node="gpu-7"), seen(master=None)),
        ("on node gpu-7", "port."),
        id="a lost node",
    ),
    Case("StoreReady", "MasterNotReady", gone(MASTER), ("does not exist yet",), id="no pod"),
    Case("StoreReady", "MasterNotReady", master(service_ready=False), ("service is not ready",), id="service"),
    Case(
        "StoreReady",
        "MasterNotReady",
        both(container(MASTER, exit_code=1, restarts=1), seen(master=None)),
        ("last run ended with exit code 1",),
        id="first crash",
    ),
    Case(
        "StoreReady",
        "MasterUnreachable",
        master(reachable=False, error="/health: timed out after 2 s"),
        ("demo-master-0 is ready but does not answer on port 9003", "timed out after 2 s"),
        id="hangs",
    ),
    Case("StoreReady", "MasterUnreachable", seen(master=None), ("has not been asked",), id="not asked"),
    Case(
        "StoreReady",
        "StoreUnschedulable",
        both(
            container(STORE, only=1),
            pods(
                STORE,
                only=1,
                phase="Pending",
                unschedulable="0/2 nodes are available: 2 node(s) had untolerated taint(s) {nvidia.com/gpu: present}.",
            ),
        ),
        ("demo-store-1", "{nvidia.com/gpu: present}", "spec.scheduling.tolerations"),
        spec=TWO,
        id="aibrix#1492",
    ),
    Case(
        "StoreReady",
        "StoreImageBroken",
        container(
            STORE, waiting_reason="ErrImagePull", waiting_message="rpc error: code = NotFound desc = no such image"
        ),
        ("cannot be pulled: no such image", "demo-store-0"),
    ),
    Case(
        "StoreReady",
        "StoreOOMKilled",
        container(STORE, **OOM),
        ("limit is 12Gi", "segment 10.0 GiB + buffer 1Gi", "demo-store-0"),
        spec={"store": {"segmentSize": "10Gi", "resources": {"limits": {"memory": "12Gi"}}}},
    ),
    Case(
        "StoreReady",
        "StoreCrashLoop",
        container(STORE, exit_code=1, restarts=3, exit_message="RuntimeError: cannot reach the master"),
        ("RuntimeError: cannot reach the master", "demo-store-0"),
    ),
    Case("StoreReady", "StoreNotReady", container(STORE, only=0), ("1 of 2 store pods", "demo-store-0"), spec=TWO),
    Case("StoreReady", "NotMeasured", master(segments=None, error="/get_segments_detail: HTTP 404"), ("HTTP 404",)),
    Case(
        "StoreReady",
        "MasterRestarted",
        both(master(segments=(), keys=0), trend(master_restarted=True, lost_keys=41_000)),
        ("0 of 1 segment", "over 20000 blocks", "Without a segment: demo-store-0"),
    ),
    Case(
        "StoreReady",
        "ClientsExpired",
        both(master(segments=(), clients=1), trend(most_clients=12)),
        ("It knows 1 client, there were 12", "clientTtlSeconds"),
        id="Mooncake#3937",
    ),
    Case(
        "StoreReady",
        "SegmentsMissing",
        lambda o: master(segments=o.master.segments[:1] if o.master and o.master.segments else None)(o),
        ("1 of 2 segments", "Without a segment: demo-store-1"),
        spec=TWO,
    ),
    Case(
        "StoreReady",
        "SegmentsMissing",
        lambda o: master(segments=tuple(segment(p.ip, "UNMOUNTING") for p in o.pods if p.component == STORE))(o),
        ("0 of 1 segment",),
        id="unmounting",
    ),
    Case(
        "StoreReady",
        "PoolFull",
        both(
            master(capacity=256_000_000_000, allocated=248_000_000_000),
            trend(put_alloc_failures=734.0, evictions_done=0.0, window_seconds=600),
        ),
        (
            "97 % of 238.4 GiB",
            "over 500 blocks refused and 0 evictions in the last 10 min",
            "evictionHighWatermark (now 0.9)",
        ),
        id="Mooncake#2187",
    ),
    Case(
        "StoreReady",
        "PoolFull",
        both(
            master(capacity=100, allocated=99, put_alloc_failures=3, evictions_done=0),
            trend(put_alloc_failures=None, evictions_done=None),
        ),
        ("99 %", "since its start"),
        id="no trend yet",
    ),
    Case(
        "StoreReady",
        "Serving",
        both(master(capacity=100, allocated=99), trend(put_alloc_failures=9.0, evictions_done=4.0)),
        id="full but evicting",
    ),
    Case("TransportMatched", "AsAsked", says=("1 segment over TCP",)),
    Case("TransportMatched", "NoSharedTransport", base=NATIVE),
    Case("TransportMatched", "NotAccepted", both(gone(MASTER, STORE, ENGINE), seen(missing=(("x", "Secret", "s"),)))),
    Case("TransportMatched", "NotMeasured", seen(master=None)),
    Case("TransportMatched", "NotMeasured", master(segments=(segment("10.0.0.2", protocol=""),)), id="no protocol"),
    Case(
        "TransportMatched",
        "TransportDowngraded",
        lambda o: master(segments=tuple(segment(p.ip, protocol="rdma") for p in o.pods if p.component == STORE))(o),
        ("spec.transport.protocol is TCP, but RDMA is used", "demo-store-0"),
        id="Mooncake#898",
    ),
    Case(
        "TransportMatched",
        "TransportDowngraded",
        says=("spec.transport.protocol is RDMA, but TCP is used", "Likely causes, in this order", "IPC_LOCK"),
        spec={"transport": RDMA},
        id="aibrix#897",
    ),
    Case(
        "TransportMatched",
        "TransportDowngraded",
        lambda o: seen(transports={p.name: "TCP" for p in o.pods if p.component == STORE})(told_rdma(o)),
        ("protocol is RDMA, but TCP is used by 10.0.0.2:13000 (demo-store-0). Likely causes, in this order: the pod",),
        {"transport": RDMA},
        id="fell back, told to use RDMA",
    ),
    Case(
        "TransportMatched",
        "TransportDowngraded",
        lambda o: seen(transports={"demo-store-0": "RDMA", "demo-engine-1": "TCP"})(told_rdma(o)),
        ("but TCP is used by demo-engine-1.",),
        {"transport": RDMA},
        id="an engine fell back",
    ),
    Case(
        "TransportMatched",
        "AsAsked",
        lambda o: seen(transports={"demo-store-0": "RDMA"})(told_rdma(o)),
        ("1 segment over RDMA.",),
        {"transport": RDMA},
        id="installed",
    ),
    Case(
        "TransportMatched",
        "AsAsked",
        told_rdma,
        ("That is what the master lists; the log of demo-store-0 does not tell",),
        {"transport": RDMA},
        id="log rotated",
    ),
    Case(
        "TransportMatched",
        "AsAsked",
        lambda o: master(segments=tuple(segment(p.ip, protocol="efa") for p in o.pods if p.component == STORE))(o),
        ("1 segment over RDMA",),
        {"transport": RDMA},
        id="efa",
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_condition(case: Case) -> None:
    case.check()


def test_full_pool_keeps_engines_ready_and_clears_after_eviction() -> None:
    case = next(c for c in CASES if c.id == "Mooncake#2187")
    engines, store = case.status().condition("EnginesReady"), case.status().condition("StoreReady")
    assert engines is not None
    assert store is not None
    assert (engines.status, store.status) == ("True", "False")
    evicted = Case("StoreReady", "Serving", both(case.see, trend(evictions_done=2.0)))
    evicted.check()


def test_many_names_are_cut() -> None:
    case = Case("StoreReady", "SegmentsMissing", master(segments=()), spec={"store": {"replicas": 6}})
    assert "demo-store-0, demo-store-1, demo-store-2 and 3 more" in case.found().message


def test_a_full_pool_of_small_blocks_needs_a_larger_master_and_says_how_much() -> None:
    """Mooncake#3452: 1 TiB of blocks of 64 KiB."""
    spec = {"store": {"replicas": 16, "segmentSize": "64Gi"}}
    case = Case("StoreReady", "Serving", master(keys=100_000, allocated=100_000 * 2**16), spec=spec)
    store = case.status().store
    assert store is not None
    assert (store.expected_keys, store.master_memory) == (10_000_000, "9.6 GiB")
    advice = case.status().advice
    for part in ("needs about 9.6 GiB, but its limit is 2Gi", "10000000 keys × 1024 B", "blockSize"):
        assert part in advice
    enough = spec | {"store": spec["store"] | {"master": {"resources": {"limits": {"memory": "12Gi"}}}}}
    assert "master needs" not in Case("StoreReady", "Serving", case.see, spec=enough).status().advice


def test_a_nearly_empty_pool_tells_nothing_about_the_master() -> None:
    store = Case("StoreReady", "Serving", master(keys=20, allocated=2**20)).status().store
    assert store is not None
    assert (store.expected_keys, store.master_memory) == (None, "")


def test_the_master_that_is_replaced_after_approval_says_so() -> None:
    before = healthy(Case("StoreReady", "Serving").pool())
    spec = {"store": {"master": {"evictionRatio": "0.1"}}}
    plan = make_plan(pool(spec), before, Settings())
    assert plan.held is not None
    item = pool(spec, annotations={ANNOTATION_APPROVE: plan.held.approval})
    found = make_status(item, make_plan(item, before, Settings()), before, NOW).condition("StoreReady")
    assert found is not None
    assert (found.reason, "being replaced" in found.message) == ("MasterNotReady", True)


def test_a_restart_is_told_also_when_members_were_faster() -> None:
    previous = Case("StoreReady", "Serving").status()
    assert previous.store is not None
    former = previous.store.model_copy(update={"master_start": "2026-03-01T10:00:00Z"})
    previous = previous.model_copy(update={"store": former})
    see = trend(master_restarted=True, lost_keys=1200, lost_bytes=3 * GIB)
    case = Case("StoreReady", "MasterRestarted", see, previous=previous)
    case.check()
    assert "over 1000 blocks (3.0 GiB) were lost" in case.found().message
    again = Case("StoreReady", "Serving", see, previous=case.status())
    again.check()
    events = [(e.type, e.reason) for e in transitions(case.status(), again.status())]
    assert ("Normal", "Serving") in events
    assert ("Warning", "MasterRestarted") in [(e.type, e.reason) for e in transitions(previous, case.status())]


def test_the_start_of_the_master_is_remembered_while_it_is_away() -> None:
    previous = Case("StoreReady", "Serving").status()
    away = Case("StoreReady", "MasterNotReady", gone(MASTER), previous=previous).status().store
    assert away is not None
    assert away.master_start == "2026-03-01T11:00:00Z"


def test_a_member_that_leaves_counts_no_more_at_once() -> None:
    before = Case("StoreReady", "Serving", spec=TWO)
    fewer = both(pods(STORE, only=0, deleting=True, ready=False), master(keys=61_000))
    leaving = Case("StoreReady", "StoreNotReady", fewer, spec=TWO).status()
    assert leaving.store is not None
    assert leaving.store.capacity == "64Gi"
    (event,) = [e for e in transitions(before.status(), leaving) if e.reason == "CapacityShrunk"]
    assert event.type == "Normal"
    assert "from 128.0 GiB to 64.0 GiB; it had about 120000 blocks, now about 61000" in event.message
    assert not [e for e in transitions(leaving, before.status()) if e.reason == "CapacityShrunk"]
    killed = both(pods(STORE, only=0, ip="10.0.0.99"), seen(departed={"10.0.0.2": "demo-store-x"}))
    store = Case("StoreReady", "x", killed, spec=TWO).status().store
    assert store is not None
    assert store.capacity == "64Gi"


def test_members_above_what_is_wanted_are_counted_and_what_they_wait_for_is_said() -> None:
    scene = healthy(Case("StoreReady", "Serving", spec=TWO).pool())
    see = both(lambda _: scene, seen(departed={"10.0.9.9": "demo-store-gone"}))
    found = Case("StoreReady", "StoreNotReady", see).found()
    assert "2 store pods now, 1 wanted; they go one at a time" in found.message
    assert "The next one waits: the master still lists the segment of demo-store-gone." in found.message


def test_a_cordoned_node_of_the_master_is_told_with_the_way_to_let_it_go() -> None:
    see = both(pods(MASTER, node="gpu-1"), lambda o: replace(o, nodes=(replace(NODES[0], cordoned=True), *NODES[1:])))
    found = Case("StoreReady", "Serving", see).found()
    assert "Node gpu-1 is cordoned; moving the master costs over 100000 cached blocks" in found.message
    assert "kvcachepool.io/approve-master-restart=" in found.message


def test_figures_are_rounded() -> None:
    case = Case("StoreReady", "Serving", spec=TWO)
    store = case.status().store
    assert store is not None
    assert (store.capacity, store.used_percent, store.keys) == ("128Gi", 25, 120_000)
    assert (store.segments, store.members, store.segment_bytes) == (2, 2, 64 * GIB)
    assert store.master_start == "2026-03-01T11:00:00Z"
    assert case.status().transport == "TCP"


def test_figures_that_were_not_told_are_left_out() -> None:
    store = Case("StoreReady", "MasterUnreachable", seen(master=None)).status().store
    assert store is not None
    assert (store.capacity, store.used_percent, store.keys, store.segments) == ("", None, None, None)


def test_a_native_pool_has_no_store_figures() -> None:
    assert Case("StoreReady", "NoStore", base=NATIVE).status().store is None


def test_settings_that_are_not_applied_yet_are_not_called_serving() -> None:
    """The first pass after an edit observes before it applies."""
    before = healthy(Case("StoreReady", "Serving").pool())
    after = Case("StoreReady", "StoreNotReady", lambda _: before, spec={"store": {"localBufferSize": "2Gi"}})
    after.check()
