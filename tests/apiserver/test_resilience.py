"""Two real replicas, and everything between them and the API server breaks: they reconcile again within a stated bound,
or say by /healthz that they want to be started anew; and never do both write.

The bounds are those of docs/operations.md.
"""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from e2e.cluster.controlplane import ControlPlane
from e2e.harness.api import Api
from tests.apiserver.conftest import CRD_FILE, eventually
from tests.apiserver.pools import pool
from tests.apiserver.replicas import AUDIT_POLICY, Replica, Replicas, overlaps, roles, writes
from tests.chart import helm

pytestmark = helm.needs_helm()

SOURCES = {"127.0.0.2": "first", "127.0.0.3": "second"}
NAMESPACE = "resilience"
POOLS = f"/apis/kvcachepool.io/v1alpha1/namespaces/{NAMESPACE}/kvcachepools"
TAKEOVER, AFTER_RELEASE, AFTER_OUTAGE, DEAD_STREAM, AFTER_RIGHTS = 20, 5, 30, 90, 90
SLACK = 20
"""Of a machine that is busy with other things."""
OUTAGE = 75
"""Longer than the Lease, and than the minute in which kopf gives up on an answer that is an error."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("replicas")


@pytest.fixture(scope="module")
def own(folder: Path) -> Iterator[ControlPlane]:
    """An API server that may be stopped, and writes down who changes what."""
    (folder / "policy.yaml").write_text(AUDIT_POLICY)
    audit = (f"--audit-policy-file={folder}/policy.yaml", f"--audit-log-path={folder}/audit.log")
    with ControlPlane(apiserver_args=audit) as plane:
        plane.kubectl.run("apply", "-f", str(CRD_FILE))
        for name in (helm.NAMESPACE, NAMESPACE):
            plane.kubectl.run("create", "namespace", name)
        plane.kubectl.apply(roles())
        eventually(lambda: plane.kubectl.succeeds("get", "kvcachepools", "--all-namespaces"))
        yield plane


@pytest.fixture(scope="module")
def replicas(own: ControlPlane, folder: Path) -> Iterator[Replicas]:
    made = Replicas()
    try:
        for source, name in SOURCES.items():
            made.all.append(Replica(own, folder, name, source))
        made.until(lambda: all(r.get("/readyz")[0] == 200 for r in made.all), 90, "both are ready")
        yield made
    finally:
        for replica in made.all:
            replica.end()


@pytest.fixture(scope="module")
def api(own: ControlPlane) -> Api:
    return Api(own.kubeconfig)


@pytest.fixture
def demo(api: Api, replicas: Replicas) -> Iterator[str]:
    """A pool that is looked after."""
    code, made = api.call("POST", POOLS, pool("demo", NAMESPACE))
    assert code == 201
    replicas.until(lambda: seen(api) == made["metadata"]["generation"], 60, "the pool has a status of its own")
    yield "demo"
    api.call("DELETE", f"{POOLS}/demo")
    replicas.until(lambda: api.call("GET", f"{POOLS}/demo")[0] == 404, 60, "the pool is gone")


def edit(api: Api) -> int:
    """Changes the spec; its generation."""
    interval = 600 + int(time.monotonic() * 10) % 80000
    change = {"spec": {"verification": {"intervalSeconds": interval}}}
    code, answer = api.call("PATCH", f"{POOLS}/demo", change, "application/merge-patch+json")
    assert code == 200, answer
    generation: int = answer["metadata"]["generation"]
    return generation


def seen(api: Api) -> int:
    """The generation that the status is of."""
    _, answer = api.call("GET", f"{POOLS}/demo")
    generation: int = answer.get("status", {}).get("observedGeneration", 0)
    return generation


def reconciled(api: Api, replicas: Replicas, seconds: float, what: str) -> float:
    """Edits the pool; seconds until its status tells of it."""
    generation = edit(api)
    return replicas.until(lambda: seen(api) >= generation, seconds, what)


@contextmanager
def edits(api: Api) -> Iterator[None]:
    """Within the context the pool is edited all the time, so that there is something to write."""
    stop = threading.Event()

    def work() -> None:
        while not stop.wait(0.4):
            edit(api)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def test_never_do_two_write_whatever_happens_to_the_leader(
    api: Api, replicas: Replicas, demo: str, folder: Path
) -> None:
    """kopf#734, kopf#247: with equal priorities both act, or neither."""
    took = {}
    with edits(api):
        leader, other = replicas.leader(), replicas.follower()

        leader.link.silence(True)
        took["cut off"] = replicas.until(lambda: other.leads, TAKEOVER + SLACK, "the other takes over")
        assert not leader.leads
        assert leader.get("/healthz")[0] == 200, "nothing that a restart would mend"
        leader.link.silence(False)

        leader, other = replicas.leader(), replicas.follower()
        with leader.paused():
            took["paused"] = replicas.until(lambda: other.leads, TAKEOVER + SLACK, "the other takes over")
            time.sleep(3)
        time.sleep(5)  # it wakes in the belief that it leads
        assert replicas.leader() is other

        leader, other = replicas.leader(), replicas.follower()
        with leader.untended():
            leader.process.kill()
            leader.process.wait()
            took["killed"] = replicas.until(lambda: other.leads, TAKEOVER + SLACK, "the other takes over")

        leader, other = replicas.leader(), replicas.follower()
        with leader.untended():
            leader.process.terminate()
            took["ended"] = replicas.until(lambda: other.leads, AFTER_RELEASE + SLACK, "the other takes over")

        leader = replicas.leader()
        leader.process.kill()  # and its kubelet starts it anew: by its own name it goes on
        leader.process.wait()
        took["killed and started anew"] = replicas.until(lambda: replicas.leaders, TAKEOVER + SLACK, "somebody leads")
    print({what: round(seconds) for what, seconds in took.items()})

    found = writes(folder / "audit.log")
    by = {SOURCES[write.source] for write in found if write.holder is None}
    assert by == set(SOURCES.values()), "both have led and written"
    assert overlaps(found, SOURCES) == []


def test_the_check_for_two_writers_finds_them() -> None:
    from tests.apiserver.replicas import Write

    found = [
        Write(1, "127.0.0.2", "lease", "first"),
        Write(2, "127.0.0.2", "patch a", None),
        Write(3, "127.0.0.3", "lease", "second"),
        Write(4, "127.0.0.3", "patch a", None),
        Write(5, "127.0.0.2", "patch b", None),
    ]
    assert [write.what for write in overlaps(found, SOURCES)] == ["patch b"]


def test_the_api_server_is_away_for_minutes(own: ControlPlane, api: Api, replicas: Replicas, demo: str) -> None:
    starts = [replica.starts for replica in replicas.all]
    replicas.leader()
    edit(api)  # the answer to the status may be the last that is sent, and its watch event never come
    own.stop_apiserver()
    try:
        began = time.monotonic()
        replicas.until(lambda: not replicas.leaders, TAKEOVER + SLACK, "who cannot renew the Lease leads no more")
        while time.monotonic() - began < OUTAGE:
            told = [replica.get("/healthz") for replica in replicas.all]
            assert told == [(200, "ok"), (200, "ok")], "a restart would not help"
            assert [replica.process.poll() for replica in replicas.all] == [None, None]
            time.sleep(5)
    finally:
        own.start_apiserver()
    took = reconciled(api, replicas, AFTER_OUTAGE + SLACK, "an edit after the outage is seen")
    print({"after the outage": round(took)})
    assert [replica.starts for replica in replicas.all] == starts


def test_watch_connections_are_cut_or_die_silently(api: Api, replicas: Replicas, demo: str) -> None:
    for _ in range(3):
        for replica in replicas.all:
            replica.link.cut()
        reconciled(api, replicas, AFTER_OUTAGE + SLACK, "an edit after the cut is seen")
    for replica in replicas.all:
        replica.link.freeze()
    took = reconciled(api, replicas, DEAD_STREAM + SLACK, "an edit that a dead stream hides is seen")
    print({"dead streams": round(took)})


def test_rights_are_revoked_and_given_back(own: ControlPlane, api: Api, replicas: Replicas, demo: str) -> None:
    given = roles()
    bindings = [item for item in given if item["kind"] in {"RoleBinding", "ClusterRoleBinding"}]
    own.kubectl.run("delete", "-f", "-", data=yaml.safe_dump_all(bindings))
    try:
        for replica in replicas.all:
            replica.link.cut()  # watches that are open would go on
        generation = edit(api)
        replicas.until(lambda: not replicas.leaders, TAKEOVER + SLACK, "nobody may renew the Lease")
        for _ in range(15):
            for replica in replicas.all:
                replica.tend()
            time.sleep(5)
        assert seen(api) < generation
    finally:
        own.kubectl.apply(bindings)
    took = replicas.until(lambda: seen(api) >= generation, AFTER_RIGHTS + SLACK, "the edit is seen")
    print({"rights given back": round(took), "starts": [replica.starts for replica in replicas.all]})


def test_an_operator_that_was_away_meets_what_happened(api: Api, replicas: Replicas, demo: str) -> None:
    """kopf#698, kopf#716: at 0 replicas a pool is edited twice and its Service deleted, a flag added by hand, a stray
    pod made, and another pool deleted."""
    assert api.call("POST", POOLS, pool("leaving", NAMESPACE))[0] == 201
    children = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments"
    replicas.until(lambda: api.call("GET", f"{children}/leaving-master")[0] == 200, 60, "the other pool has children")
    for replica in replicas.all:
        replica.process.terminate()
        assert replica.process.wait(timeout=30) == 0
    edit(api)
    for milliseconds in (11000, 12000):
        change = {"spec": {"store": {"master": {"leaseTtlMilliseconds": milliseconds}}}}
        assert api.call("PATCH", f"{POOLS}/demo", change, "application/merge-patch+json")[0] == 200
    generation = edit(api)
    assert api.call("DELETE", f"/api/v1/namespaces/{NAMESPACE}/services/demo-master")[0] == 200
    flag = [{"op": "add", "path": "/spec/template/spec/containers/0/args/-", "value": "--by_hand=1"}]
    for name in ("demo-master", "demo-store"):
        assert api.call("PATCH", f"{children}/{name}", flag, "application/json-patch+json")[0] == 200
    stray = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "stray",
            "namespace": NAMESPACE,
            "labels": {"kvcachepool.io/pool": "demo", "kvcachepool.io/schema": "0" * 12},
        },
        "spec": {"containers": [{"name": "engine", "image": "none"}]},
    }
    assert api.create_pod(stray, keep=True) == ""
    assert api.call("DELETE", f"{POOLS}/leaving")[0] == 200

    def args(name: str) -> list[str]:
        _, answer = api.call("GET", f"{children}/{name}")
        found: list[str] = answer["spec"]["template"]["spec"]["containers"][0]["args"]
        return found

    def condition(kind: str) -> dict[str, Any]:
        _, answer = api.call("GET", f"{POOLS}/demo")
        found = answer.get("status", {}).get("conditions", ())
        return next((item for item in found if item["type"] == kind), {})

    replicas.until(lambda: seen(api) >= generation, 60 + SLACK, "the last edit is seen")  # starts them as well
    replicas.until(lambda: "--default_kv_lease_ttl=12000" in args("demo-master"), 30, "the last edit wins")
    for name in ("demo-master", "demo-store"):
        replicas.until(lambda name=name: "--by_hand=1" not in args(name), 30, "what was done by hand is undone")
    service = f"/api/v1/namespaces/{NAMESPACE}/services/demo-master"
    replicas.until(lambda: api.call("GET", service)[0] == 200, 30, "the Service is back")
    gone = lambda: api.call("GET", f"{children}/leaving-master")[0] == 404  # noqa: E731
    replicas.until(gone, 60 + SLACK, "the deleted pool's are gone: the garbage collector's work")
    homogeneous = condition("SchemaHomogeneous")
    assert homogeneous["status"] != "True"
    assert "stray" in homogeneous["message"]
    api.call("DELETE", f"/api/v1/namespaces/{NAMESPACE}/pods/stray", {"gracePeriodSeconds": 0})


def test_the_crd_is_changed_and_replaced(own: ControlPlane, api: Api, replicas: Replicas) -> None:
    assert api.call("POST", POOLS, pool("demo", NAMESPACE))[0] == 201
    replicas.until(lambda: seen(api), 60, "the pool has a status")
    crd: dict[str, Any] = yaml.safe_load(CRD_FILE.read_text())
    schema = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    schema["description"] += " Changed."
    starts = [replica.starts for replica in replicas.all]
    own.kubectl.apply([crd])
    reconciled(api, replicas, AFTER_OUTAGE + SLACK, "an edit after a change of the CRD is seen")
    assert [replica.starts for replica in replicas.all] == starts

    own.kubectl.run("delete", "crd", crd["metadata"]["name"], "--timeout=60s")
    told = replicas.until(
        lambda: all("is not installed" in replica.get("/readyz")[1] for replica in replicas.all),
        DEAD_STREAM + SLACK,
        "replicas wait for the CRD and say so",
    )
    own.kubectl.run("apply", "-f", str(CRD_FILE))
    eventually(lambda: own.kubectl.succeeds("get", "kvcachepools", "--all-namespaces"))
    assert api.call("POST", POOLS, pool("demo", NAMESPACE))[0] == 201
    took = replicas.until(lambda: seen(api), AFTER_OUTAGE + SLACK, "a pool of the new CRD is looked after")
    print({"told": round(told), "after": round(took), "starts": [replica.starts for replica in replicas.all]})
    api.call("DELETE", f"{POOLS}/demo")


def test_no_log_shows_a_token(replicas: Replicas) -> None:
    """Last, after everything that can break has."""
    for replica in replicas.all:
        assert replica.token not in replica.log.read_text()
