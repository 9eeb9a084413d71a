"""One pass's facts put together: from watch cache, master and engines, within bounds."""

import asyncio
import json
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from typing import Any

import pytest

from kvcachepool import constants
from kvcachepool.api import PoolStatus
from kvcachepool.api.status import SchemaStatus, VerificationStatus
from kvcachepool.observe.gather import _workloads, gather
from kvcachepool.observe.http import HttpReader
from kvcachepool.observe.memory import PoolMemory
from tests.pools import pool
from tests.unit.probe_fakes import FakeEngine, FakeStore, engines, free_ports, hang, loopback, raw_server  # noqa: F401

CRASH = "Traceback (most recent call last):\n  File x\nValueError: no such model\n"


class FakeCluster:
    def __init__(self, *pods: dict[str, Any], log: str | Exception = CRASH) -> None:
        self._pods = list(pods)
        self.log = log
        self.calls: list[tuple[str, ...]] = []
        self.there: dict[tuple[str, str], frozenset[str]] = {}
        self.down = False

    def pods(self, key):
        assert key == ("team-a", "demo")
        return self._pods

    def children(self, key):
        owner = [{"uid": "0f8e", "controller": True}]
        deployment = {
            "metadata": {
                "name": "demo-engine",
                "ownerReferences": owner,
                "labels": {"kvcachepool.io/component": "engine"},
            }
        }
        stranger = {"metadata": {"name": "foreign", "labels": {"kvcachepool.io/component": "engine"}}}
        return {("Deployment", "demo-engine"): deployment, ("Deployment", "foreign"): stranger}

    async def pod_log(self, namespace, pod, container, *, previous, tail_lines, limit_bytes):
        self.calls.append(("log", pod, container, str(previous)))
        if isinstance(self.log, Exception):
            raise self.log
        return self.log

    async def exists(self, kind, namespace, name):
        self.calls.append(("exists", kind, name))
        if self.down:
            raise RuntimeError("no API server")
        return (kind, name) in self.there

    async def keys(self, kind, namespace, name):
        self.calls.append(("keys", kind, name))
        if self.down:
            raise RuntimeError("no API server")
        return self.there.get((kind, name))


def raw_pod(
    name: str, ip: str = "", component: str = "engine", *, crashed: bool = False, **over: Any
) -> dict[str, Any]:
    running = {"name": "main", "ready": True, "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}}}
    ended = {
        "name": "main",
        "restartCount": 3,
        "state": {"waiting": {"reason": "CrashLoopBackOff"}},
        "lastState": {"terminated": {"exitCode": 1, "message": "ERROR: from the kubelet"}},
    }
    return {
        "metadata": {
            "name": name,
            "uid": f"uid-{name}",
            "labels": {"kvcachepool.io/component": component, "pod-template-hash": "h"},
            "ownerReferences": [{"kind": "ReplicaSet", "name": "demo-engine-h", "controller": True}],
            **over,
        },
        "spec": {"containers": [{"name": "main"}]},
        "status": {"phase": "Running", "podIP": ip, "containerStatuses": [ended if crashed else running]},
    }


async def observe(
    cluster: FakeCluster, http: HttpReader, memory: PoolMemory | None = None, now: float = 0.0, spec=None
):
    return await gather(pool(spec), cluster, http, memory or PoolMemory(), now)


async def test_everything_of_a_pass():
    engine = FakeEngine(FakeStore())
    cluster = FakeCluster(raw_pod("b", engine.host), raw_pod("a", "", crashed=True), raw_pod("m", loopback(), "master"))
    memory = PoolMemory()
    memory.probe.result = VerificationStatus(outcome="Verified")
    async with engines(engine), HttpReader(timeout=30) as http:
        observed = await observe(cluster, http, memory)
    assert [pod.name for pod in observed.pods] == ["a", "b", "m"]
    assert observed.pods[0].log_line == "ValueError: no such model"
    assert observed.pods[1].owned
    assert set(observed.engines) == {"b"}
    assert observed.engines["b"].reachable
    assert set(observed.children) == {("Deployment", "demo-engine")}, "a stranger with our label is not ours"
    assert [w.component for w in observed.workloads.values()] == ["engine"]
    assert observed.master is not None
    assert observed.master.error == "/health: refused"
    assert observed.missing == ()
    assert observed.verification is memory.probe.result


@pytest.mark.parametrize(
    "change",
    [
        {"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}},
        {"status": {"phase": "Pending"}},
        {"status": {"podIP": ""}},
        {"component": "store"},
    ],
)
async def test_only_running_engines_are_asked(change):
    raw = raw_pod("a", loopback(), change.get("component", "engine"))
    for part in ("metadata", "status"):
        raw[part] |= change.get(part, {})
    async with HttpReader(timeout=1) as http:
        observed = await observe(FakeCluster(raw), http)
    assert observed.engines == {}
    assert observed.master is None


async def test_a_master_pod_that_is_not_ours_is_not_asked():
    raw = raw_pod("m", loopback(), "master", ownerReferences=[])
    async with HttpReader(timeout=1) as http:
        assert (await observe(FakeCluster(raw), http)).master is None


async def test_all_are_asked_at_once():
    """Six engines and the master answer only when all fifteen requests are there."""
    everybody = asyncio.Barrier(15)

    async def wait(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        await everybody.wait()
        writer.write(b"HTTP/1.1 503 No\r\nContent-Length: 0\r\n\r\n")
        await writer.drain()

    async with AsyncExitStack() as stack, HttpReader(timeout=60) as http:
        hosts = [await stack.enter_async_context(raw_server(wait)) for _ in range(6)]
        master = await stack.enter_async_context(raw_server(wait, constants.MASTER_HTTP_PORT))
        pods = [raw_pod(f"p{n}", host) for n, host in enumerate(hosts)]
        observed = await observe(FakeCluster(*pods, raw_pod("m", master, "master")), http)
    assert {facts.error for facts in observed.engines.values()} == {"/metrics: HTTP 503"}
    assert observed.master is not None
    assert observed.master.error == "/health: HTTP 503"


async def test_one_that_hangs_is_a_fact_beside_the_others():
    good = FakeEngine(FakeStore())
    async with engines(good), raw_server(hang) as host, HttpReader(timeout=2) as http:
        observed = await observe(FakeCluster(raw_pod("good", good.host), raw_pod("bad", host)), http)
    assert observed.engines["good"].reachable
    assert observed.engines["bad"].error == "/metrics: timed out after 2 s"


async def test_a_log_is_read_once_for_each_crash():
    cluster, memory = FakeCluster(raw_pod("a", crashed=True)), PoolMemory()
    async with HttpReader() as http:
        for now in (0.0, 30.0, 500.0):
            assert (await observe(cluster, http, memory, now)).pods[0].log_line == "ValueError: no such model"
        assert len(cluster.calls) == 1
        cluster._pods[0]["status"]["containerStatuses"][0]["restartCount"] = 4
        cluster.log = "ERROR: another reason"
        assert (await observe(cluster, http, memory, 530.0)).pods[0].log_line == "ERROR: another reason"
        cluster._pods.clear()
        await observe(cluster, http, memory, 560.0)
    assert memory.log_lines == {}


async def test_without_a_log_the_kubelets_message_is_taken():
    cluster, memory = FakeCluster(raw_pod("a", crashed=True), log=RuntimeError("gone")), PoolMemory()
    async with HttpReader() as http:
        assert (await observe(cluster, http, memory)).pods[0].log_line == "ERROR: from the kubelet"


async def test_an_empty_log_is_read_again_later():
    raw = raw_pod("a", crashed=True)
    raw["status"]["containerStatuses"][0]["lastState"]["terminated"]["message"] = ""
    cluster, memory = FakeCluster(raw, log=""), PoolMemory()
    async with HttpReader() as http:
        for now, calls in ((0.0, 1), (30.0, 1), (61.0, 2)):
            assert (await observe(cluster, http, memory, now)).pods[0].log_line == ""
            assert len(cluster.calls) == calls


async def test_a_container_that_runs_again_but_is_not_ready_shows_its_previous_log():
    raw = raw_pod("a", crashed=True)
    raw["status"]["containerStatuses"][0]["state"] = {"running": {}}
    cluster = FakeCluster(raw)
    async with HttpReader(timeout=1) as http:
        observed = await observe(cluster, http)
    assert cluster.calls == [("log", "a", "main", "True")]
    assert observed.pods[0].log_line == "ValueError: no such model"


def master_with_keys(keys: int, listed: str, asked: list[str]):
    """A master that says it has so many keys, and lists some."""
    pages = {"/health": '{"service_ready": true}', "/metrics": f"master_key_count {keys}\n", "/get_all_keys": listed}

    async def answer(reader, writer):
        path = (await reader.readuntil(b"\r\n\r\n")).split()[1].decode()
        asked.append(path)
        body = pages.get(path, '{"segments": []}').encode()
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
        await writer.drain()

    return raw_server(answer, constants.MASTER_HTTP_PORT)


@pytest.mark.parametrize(
    ("previous", "keys", "listed", "counts", "times"),
    [
        ("0123456789ab", 3, "0123456789ab@tiny@x\nfedcba987654@tiny@y\nstray\n", (1, 1), 2),
        ("0123456789ab", 2, "fedcba987654@tiny@y\n", (0, 1), 1),
        ("0123456789ab", 20_001, "0123456789ab@tiny@x\n", None, 0),
        ("", 3, "0123456789ab@tiny@x\n", None, 0),
    ],
    ids=["counted again while some are left", "none left", "too many to list", "no former schema"],
)
async def test_what_a_former_schema_still_holds_is_counted_now_and_then(previous, keys, listed, counts, times):
    asked: list[str] = []
    memory = PoolMemory()
    former = pool().model_copy(
        update={"status": PoolStatus(schema_=SchemaStatus(digest="fedcba987654", previous_digest=previous))}
    )
    async with master_with_keys(keys, listed, asked) as host, HttpReader(timeout=30) as http:
        cluster = FakeCluster(raw_pod("m", host, "master"))
        for now in (0.0, 30.0, 60.0):
            seen = (await gather(former, cluster, http, memory, now)).keys_by_prefix
    found = None if seen is None else (seen.get("0123456789ab", 0), seen.get("fedcba987654", 0))
    assert found == counts
    assert asked.count("/get_all_keys") == times


REFERRING = {
    "model": {"source": {"hub": {"tokenSecretRef": {"name": "hf", "key": "t"}}}},
    "imagePullSecrets": [{"name": "regcred"}],
    "engines": {
        "env": [
            {"name": "A", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}},
            {"name": "B", "valueFrom": {"configMapKeyRef": {"name": "c", "key": "k"}}},
            {"name": "C", "valueFrom": {"secretKeyRef": {"name": "o", "key": "k", "optional": True}}},
            {"name": "D", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
        ]
    },
}


async def test_references_that_do_not_resolve():
    cluster, memory = FakeCluster(), PoolMemory()
    async with HttpReader() as http:
        observed = await observe(cluster, http, memory, 0.0, REFERRING)
        assert observed.missing == (
            ("model.source.hub.tokenSecretRef", "Secret", "hf (key t)"),
            ("imagePullSecrets[0].name", "Secret", "regcred"),
            ("engines.env[0].valueFrom.secretKeyRef", "Secret", "s (key k)"),
            ("engines.env[1].valueFrom.configMapKeyRef", "ConfigMap", "c (key k)"),
        )
        cluster.there = {
            ("Secret", "hf"): frozenset({"other"}),
            ("Secret", "regcred"): frozenset(),
            ("Secret", "s"): frozenset({"k"}),
            ("ConfigMap", "c"): frozenset({"k"}),
        }
        assert len((await observe(cluster, http, memory, 59.0, REFERRING)).missing) == 4, "remembered for a minute"
        observed = await observe(cluster, http, memory, 60.0, REFERRING)
    assert observed.missing == (("model.source.hub.tokenSecretRef", "Secret", "hf (key t)"),)


async def test_a_steady_pass_asks_the_api_server_nothing():
    cluster, memory = FakeCluster(), PoolMemory()
    spec = {"model": {"source": {"pvc": {"claimName": "weights"}}}}
    cluster.there = {("PersistentVolumeClaim", "weights"): frozenset()}
    async with HttpReader() as http:
        for now in range(0, 600, 30):
            assert (await observe(cluster, http, memory, now, spec)).missing == ()
        assert cluster.calls == [("exists", "PersistentVolumeClaim", "weights")]
        await observe(cluster, http, memory, 600, spec)
    assert len(cluster.calls) == 2


async def test_an_api_server_that_does_not_answer_makes_nothing_missing():
    cluster, memory = FakeCluster(), PoolMemory()
    cluster.down = True
    async with HttpReader() as http:
        assert (await observe(cluster, http, memory, 0.0, REFERRING)).missing == ()
        cluster.down = False
        assert len((await observe(cluster, http, memory, 30.0, REFERRING)).missing) == 4


async def test_references_that_the_spec_no_longer_has_are_forgotten():
    cluster, memory = FakeCluster(), PoolMemory()
    async with HttpReader() as http:
        await observe(cluster, http, memory, 0.0, REFERRING)
        assert (await observe(cluster, http, memory, 1.0)).missing == ()
    assert memory.references == {}


@pytest.mark.parametrize(("nodes", "ready"), [(1, 3), (2, 5)])
def test_of_two_workloads_of_one_name_the_wanted_kind_counts(nodes: int, ready: int) -> None:
    """While a generation changes between one node an engine and several, there is one of each kind."""
    children = {
        (kind, "demo-engine-1"): {
            "kind": kind,
            "metadata": {"name": "demo-engine-1", "labels": {"kvcachepool.io/component": "engine"}},
            "status": {"readyReplicas": count},
        }
        for kind, count in (("LeaderWorkerSet", 5), ("Deployment", 3))
    }
    spec = {"schema": {"parallelism": {"tensor": 2}}, "engines": {"nodesPerEngine": nodes}}
    found = _workloads(pool(spec), children)
    assert [(name, facts.ready) for name, facts in found.items()] == [("demo-engine-1", ready)]


def master_that_lists(hosts: list[str]):
    """A master with a segment on each of the hosts, as they are when it is asked."""

    async def answer(reader, writer):
        path = (await reader.readuntil(b"\r\n\r\n")).split()[1].decode()
        rows = [{"segment_name": host, "te_endpoint": f"{host}:1", "status": "OK"} for host in hosts]
        page = {"service_ready": True} if path == "/health" else {"segments": rows}
        body = json.dumps(page).encode()
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
        await writer.drain()

    return raw_server(answer, constants.MASTER_HTTP_PORT)


async def test_members_that_left_and_what_engines_refuse_are_remembered_between_passes():
    hosts = ["10.1.1.1", "10.1.1.2"]
    spec = {"store": {"replicas": 2}}
    store = [raw_pod(f"s{n}", f"10.1.1.{n}", "store") for n in (1, 2)]
    for raw in store:
        raw["status"]["conditions"] = [{"type": "Ready", "status": "True"}]
    memory = PoolMemory()
    async with master_that_lists(hosts) as host, HttpReader(timeout=30) as http:
        master_pod = raw_pod("m", host, "master")
        seen = await observe(FakeCluster(*store, master_pod), http, memory, 10.0, spec)
        assert (seen.departed, seen.absent) == ({}, {})
        seen = await observe(FakeCluster(store[0], master_pod), http, memory, 20.0, spec)
        assert seen.departed == {"10.1.1.2": "s2"}
        hosts.clear()
        seen = await observe(FakeCluster(store[0], master_pod), http, memory, 30.0, spec)
        assert (seen.departed, seen.absent) == ({}, {"s1": 0})
        seen = await observe(FakeCluster(store[0], master_pod), http, memory, 45.0, spec)
        assert seen.absent == {"s1": 15}


async def test_how_long_an_engine_runs_is_told_with_its_trend():
    engine, memory = FakeEngine(FakeStore()), PoolMemory()
    started = datetime(2026, 1, 1, tzinfo=UTC).timestamp()
    async with engines(engine), HttpReader(timeout=30) as http:
        observed = await observe(FakeCluster(raw_pod("b", engine.host)), http, memory, started + 90)
    assert observed.engine_trends["b"].up_seconds == 90
    assert observed.engine_trends["b"].refused_seconds == 0
