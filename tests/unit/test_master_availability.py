"""A master that is one of several, or somebody else's: what is made, what is refused, and what the status says."""

import json
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Any

import pytest

from kvcachepool import constants
from kvcachepool.api import KVCachePool
from kvcachepool.constants import ENGINE, MASTER
from kvcachepool.facts import MasterFacts, Observed, PodFacts, Segment
from kvcachepool.observe.gather import gather
from kvcachepool.observe.http import HttpReader
from kvcachepool.observe.memory import PoolMemory
from kvcachepool.plan import make_plan
from kvcachepool.probe.schedule import settled as probe_settled
from kvcachepool.settings import Settings
from tests.nodes import node
from tests.pools import invalid, pool
from tests.status_scenes import (
    GIB,
    Case,
    See,
    both,
    container,
    healthy,
    main_with,
    master,
    pods,
    seen,
    trend,
    workload,
)
from tests.unit.probe_fakes import free_ports, raw_server  # noqa: F401
from tests.unit.test_inject import complete, env_of, first, ready, refusal, user_pod
from tests.unit.test_observe_gather import FakeCluster, raw_pod

ETCD = ["etcd-0.etcd.infra:2379", "etcd-1.etcd.infra:2379"]
HA: dict[str, Any] = {"store": {"master": {"ha": {"etcd": {"endpoints": ETCD}}}}}
EXTERNAL: dict[str, Any] = {"store": {"master": {"external": {"address": "mooncake.cache.svc:50051"}}}}
BY_ETCD: dict[str, Any] = {
    "store": {
        "master": {
            "external": {
                "address": "etcd://etcd-0.etcd.infra:2379",
                "httpAddress": "mooncake.cache.svc:9003",
                "clusterId": "shared",
            }
        }
    }
}
READY = Observed(pods=(PodFacts("m", "u", MASTER, "", ready=True),), nodes=(node("gpu-1"), node("gpu-2")))


def made(item: KVCachePool, observed: Observed = READY) -> dict[tuple[str, str], Any]:
    return {
        (obj["kind"], obj["metadata"]["name"].removeprefix("demo-").split("-")[0]): obj
        for obj in make_plan(item, observed, Settings()).objects
    }


def variables(deployment: dict[str, Any]) -> dict[str, Any]:
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    return {entry["name"]: entry.get("value") for entry in container["env"]}


def engine_config(deployment: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(
        deployment["spec"]["template"]["metadata"]["annotations"]["kvcachepool.io/mooncake.json"]
    )
    return found


def test_masters_publish_their_own_address_and_clients_look_it_up():
    objects = made(pool(HA))
    masters = objects["Deployment", "master"]
    args = masters["spec"]["template"]["spec"]["containers"][0]["args"]
    assert masters["spec"]["replicas"] == 2
    assert "--rpc_address=$(POD_IP)" in args, "0.0.0.0 would be published as the leader's address"
    assert f"--etcd_endpoints={';'.join(ETCD)}" in args
    assert "--cluster_id=team-a/demo" in args
    assert not [flag for flag in args if "snapshot" in flag or "oplog" in flag]
    address = f"etcd://{';'.join(ETCD)}"
    assert variables(objects["Deployment", "store"])["MOONCAKE_MASTER"] == address
    engine = objects["Deployment", "engine"]
    assert engine_config(engine)["master_server_address"] == address
    for component in ("store", "engine"):
        assert variables(objects["Deployment", component])["MC_STORE_CLUSTER_ID"] == "team-a/demo"


def test_one_master_is_rendered_as_before():
    objects = made(pool())
    args = objects["Deployment", "master"]["spec"]["template"]["spec"]["containers"][0]["args"]
    assert "--rpc_address=0.0.0.0" in args
    assert not [flag for flag in args if "etcd" in flag or "cluster" in flag]
    assert "MC_STORE_CLUSTER_ID" not in variables(objects["Deployment", "store"])


def test_another_number_of_masters_restarts_none():
    def hashes(count: int) -> dict[str, str]:
        spec = {"store": {"master": {"replicas": count, **HA["store"]["master"]}}}
        annotations: dict[str, str] = made(pool(spec))["Deployment", "master"]["metadata"]["annotations"]
        return annotations

    assert hashes(2) == hashes(3)


def test_ones_own_spreading_goes_before_that_of_masters():
    own = [{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}]
    spec = {"store": {"master": {"scheduling": {"topologySpreadConstraints": own}, **HA["store"]["master"]}}}
    assert made(pool(spec))["Deployment", "master"]["spec"]["template"]["spec"]["topologySpreadConstraints"] == own
    spread = made(pool(HA))["Deployment", "master"]["spec"]["template"]["spec"]["topologySpreadConstraints"]
    assert spread[0]["topologyKey"] == "kubernetes.io/hostname"


@pytest.mark.parametrize(
    ("spec", "address", "cluster_id"),
    [(EXTERNAL, "mooncake.cache.svc:50051", None), (BY_ETCD, "etcd://etcd-0.etcd.infra:2379", "shared")],
    ids=["address", "etcd"],
)
def test_nothing_is_made_of_an_external_master(spec: dict[str, Any], address: str, cluster_id: str | None):
    objects = made(pool(spec), replace(READY, master=MasterFacts(True)))
    assert not [name for _, name in objects if name == "master"]
    store = variables(objects["Deployment", "store"])
    assert (store["MOONCAKE_MASTER"], store.get("MC_STORE_CLUSTER_ID")) == (address, cluster_id)
    assert engine_config(objects["Deployment", "engine"])["master_server_address"] == address


@pytest.mark.parametrize(
    ("facts", "waits"),
    [
        (None, True),
        (MasterFacts(False, "refused"), True),
        (MasterFacts(True, service_ready=False), True),
        (MasterFacts(True), False),
    ],
)
def test_engines_wait_for_an_external_master(facts: MasterFacts | None, waits: bool):
    observed = Observed(master=facts, nodes=READY.nodes)
    plan = make_plan(pool(EXTERNAL), observed, Settings())
    assert (plan.waiting is not None) == waits
    if plan.waiting is not None:
        assert "mooncake.cache.svc:50051" in plan.waiting.message


@pytest.mark.parametrize("version", ["0.3.7", "0.3.10.post2"])
def test_versions_that_cannot_stand_by_are_refused_with_the_report(version: str):
    old = {"backend": {"mooncake": {"version": version}}}
    findings = [f for f in make_plan(pool(HA | old), READY, Settings()).findings if f.reason == "KnownBadCombination"]
    assert len(findings) == 1
    assert "Mooncake#2253" in findings[0].message
    alone = make_plan(pool(old), READY, Settings()).findings
    assert not [f for f in alone if "Mooncake#2253" in f.message]


def test_a_password_in_an_address_is_never_shown():
    for spec in (
        {"store": {"master": {"ha": {"etcd": {"endpoints": ["root:hunter2@etcd:2379"]}}}}},
        {"store": {"master": {"external": {"address": "etcd://root:hunter2@etcd:2379"}}}},
    ):
        (message,) = invalid(spec)
        assert "hunter2" not in message
        assert "found one with an @" in message


@pytest.mark.parametrize("port", ["0", "65536", "99999", "050051", "-1", ""])
def test_a_port_that_does_not_exist_is_refused(port: str):
    (message,) = invalid({"store": {"master": {"external": {"address": f"mooncake.cache.svc:{port}"}}}})
    assert "must be host:port" in message


@pytest.mark.parametrize("spec", [{}, HA, EXTERNAL], ids=["one", "ha", "external"])
def test_no_service_leads_in_from_outside(spec: dict[str, Any]):
    """Nothing in Mooncake is authenticated (Mooncake#1147)."""
    services = [obj for (kind, _), obj in made(pool(spec)).items() if kind == "Service"]
    assert services
    assert {service["spec"]["type"] for service in services} == {"ClusterIP"}


def test_ones_own_engines_are_told_the_same_and_may_not_say_otherwise():
    subject = ready(HA)
    container = first(complete(user_pod(), subject))
    assert env_of(container)["MC_STORE_CLUSTER_ID"] == "team-a/demo"
    other = user_pod(env=[{"name": "MC_STORE_CLUSTER_ID", "value": "team-b/demo"}])
    assert "MC_STORE_CLUSTER_ID is set otherwise than the pool needs it" in refusal(other, subject)


STAND_BY = pods(MASTER, only=1, ready=False)
DEAD = container(MASTER, only=1, exit_code=1, exit_reason="Error", restarts=4, exit_message="F1 cannot reach etcd")
NOBODY = both(STAND_BY, pods(MASTER, only=0, ready=False))


def own(host: str) -> See:
    """With one more segment, of that host."""
    extra = Segment(f"{host}:13000", f"{host}:16000", "tcp", GIB, "OK", host)
    return lambda observed: replace(
        observed,
        master=observed.master and replace(observed.master, segments=(*(observed.master.segments or ()), extra)),
    )


def external_scene(observed: Observed) -> Observed:
    """The scene has no master pod, since none is made; the external one answers."""
    segments = tuple(
        Segment(f"{p.ip}:13000", f"{p.ip}:16000", "tcp", GIB, "OK", p.ip)
        for p in observed.pods
        if p.component == constants.STORE
    )
    facts = MasterFacts(True, service_ready=True, capacity=8 * GIB, allocated=GIB, keys=9, clients=4, segments=segments)
    return replace(observed, master=facts)


def external(*changes: See) -> See:
    return both(external_scene, *changes)


CASES = [
    Case("StoreReady", "Serving", STAND_BY, ("lists 1 of 1 segments",), spec=HA, id="one leads"),
    Case("StoreReady", "Serving", DEAD, spec=HA, id="the other is broken"),
    Case("StoreReady", "MasterNotReady", NOBODY, ("None of 2 masters leads", ETCD[0]), spec=HA, id="nobody leads"),
    Case(
        "StoreReady",
        "MasterRestarted",
        both(STAND_BY, master(segments=()), trend(master_restarted=True, lost_keys=41_000)),
        ("Another one leads now: the index is lost; over 20000 blocks were lost",),
        spec=HA,
        id="failover",
    ),
    Case("StoreReady", "Serving", external(), ("lists 1 of 1 segments",), spec=EXTERNAL, id="external"),
    Case(
        "StoreReady",
        "SegmentsMissing",
        external(master(segments=()), own("10.9.9.9")),
        ("lists 0 of 1 segment",),
        spec=EXTERNAL,
        id="external, of others only",
    ),
    Case(
        "StoreReady",
        "MasterUnreachable",
        external(seen(master=MasterFacts(False, "/health: refused"))),
        ("The external master mooncake.cache.svc:50051", "mooncake.cache.svc:9003", "refused"),
        spec=EXTERNAL,
        id="external",
    ),
    Case(
        "StoreReady",
        "MasterNotReady",
        external(master(service_ready=False)),
        ("The external master", "not ready"),
        spec=EXTERNAL,
        id="external, not ready",
    ),
    Case(
        "StoreReady",
        "PoolFull",
        external(master(allocated=8 * GIB), trend(put_alloc_failures=300.0, evictions_done=0.0)),
        ("Lower the external master's --eviction_high_watermark_ratio",),
        spec=EXTERNAL,
        id="external",
    ),
    Case(
        "StoreReady",
        "ClientsExpired",
        external(master(segments=(), clients=1), trend(most_clients=9)),
        ("its --client_ttl",),
        spec=EXTERNAL,
        id="external",
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_what_the_store_condition_says(case: Case):
    case.check()


@pytest.mark.parametrize(
    ("see", "said"),
    [
        (STAND_BY, ""),
        (DEAD, "No other master could take over from the leader now. Pod demo-master-1: "),
        (
            both(STAND_BY, main_with(MASTER, lambda main: replace(main, running=False), only=1)),
            "No other master could take over from the leader now. No other master runs.",
        ),
    ],
    ids=["one stands by", "it is broken", "it has not begun"],
)
def test_a_leader_without_a_successor_is_told(see: See, said: str):
    advice = Case("StoreReady", "Serving", see, spec=HA).status().advice
    assert advice.startswith(said) if said else "take over" not in advice


def test_the_start_of_the_leader_is_shown_and_not_of_one_that_stands_by():
    leads = both(pods(MASTER, only=0, ready=False), pods(MASTER, only=1, started="2026-03-01T11:59:00Z"))
    store = Case("StoreReady", "Serving", leads, spec=HA).status().store
    assert store is not None
    assert store.master_start == "2026-03-01T11:59:00Z"


@pytest.mark.parametrize(("ready", "settled"), [(0, False), (1, True), (2, True)])
def test_masters_that_stand_by_keep_no_probe_waiting(ready: int, settled: bool):
    item = pool(HA)
    observed = both(STAND_BY, workload(MASTER, ready=ready))(healthy(item))
    digest = make_plan(item, observed, Settings()).schema
    assert digest is not None
    assert probe_settled(observed, digest.digest) == settled
    replaced = workload(MASTER, ready=1, updated=1)(observed)
    assert not probe_settled(replaced, digest.digest), "one of two is still of the former template"


def test_memory_of_an_external_master_is_not_estimated():
    store = Case("StoreReady", "Serving", external(master(keys=10**7, allocated=6 * GIB)), spec=EXTERNAL).status().store
    assert store is not None
    assert (store.master_memory, store.expected_keys) == ("", None)


def test_engines_of_a_healthy_pool_stay_when_nobody_leads():
    item = pool(HA)
    names = {(o["kind"], o["metadata"]["name"]) for o in make_plan(item, NOBODY(healthy(item)), Settings()).objects}
    assert len([name for kind, name in names if kind == "Deployment" and f"-{ENGINE}-" in name]) == 1


def page(health: str, keys: int):
    """A master's pages."""
    pages = {"/health": health, "/metrics": f"master_key_count {keys}\n"}

    async def answer(reader, writer):
        path = (await reader.readuntil(b"\r\n\r\n")).split()[1].decode()
        body = pages.get(path, '{"segments": []}').encode()
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
        await writer.drain()

    return answer


LEADER = '{"service_ready": true, "role": "leader"}'
STANDBY = '{"service_ready": false, "role": "standby"}'


async def test_a_look_at_a_master_that_stands_by_is_no_restart():
    """For a moment nobody may be ready; then one that stands by is asked, whose index was never the pool's."""
    memory, item = PoolMemory(), pool(HA)
    async with AsyncExitStack() as stack:
        http = await stack.enter_async_context(HttpReader(timeout=30))
        for now, health, keys, name in ((0.0, LEADER, 900, "a"), (5.0, STANDBY, 0, "b"), (9.0, LEADER, 900, "a")):
            async with raw_server(page(health, keys), constants.MASTER_HTTP_PORT) as host:
                observed = await gather(item, FakeCluster(raw_pod(name, host, "master")), http, memory, now)
        assert not observed.store_trend.master_restarted
        async with raw_server(page(LEADER, 0), constants.MASTER_HTTP_PORT) as host:
            observed = await gather(item, FakeCluster(raw_pod("b", host, "master")), http, memory, 12.0)
    assert observed.store_trend.master_restarted, "another one leads"
    assert observed.store_trend.lost_keys == 900


async def test_an_external_master_is_asked_at_its_address():
    port = constants.ENGINE_PORT  # any other than the well-known one
    async with HttpReader(timeout=30) as http, raw_server(page(LEADER, 7), port) as host:
        item = pool(EXTERNAL)
        there = item.store.master.external
        assert there is not None
        assert there.http == ("mooncake.cache.svc", 9003)
        moved = there.model_copy(update={"http_address": f"{host}:{port}"})
        store = item.store.model_copy(update={"master": item.store.master.model_copy(update={"external": moved})})
        item = item.model_copy(update={"spec": item.spec.model_copy(update={"store": store})})
        observed = await gather(item, FakeCluster(), http, PoolMemory(), 0.0)
    assert observed.master is not None
    assert observed.master.keys == 7
