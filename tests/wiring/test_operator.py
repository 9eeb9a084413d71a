"""A whole replica, kopf and all, against a mocked API server."""

import asyncio
import signal
import sys
from contextlib import asynccontextmanager
from datetime import UTC, datetime

import aiohttp
import pytest

from kvcachepool import service
from kvcachepool.facts import Observed
from kvcachepool.settings import Settings
from tests.wiring.conftest import pool, steps, until

LEASE = ("leases", "op", "kvcachepool-operator")


@asynccontextmanager
async def replica(client, *, made=None, ready=True, **settings):
    """A running replica; stopped as by SIGTERM."""
    operator = service.Operator(Settings(http_port=0, **settings), client, made or steps())
    stop = asyncio.Event()
    task = asyncio.create_task(operator.run(stop))
    try:
        if ready:
            await until(lambda: task.done() or not operator._waiting)
        yield operator
    finally:
        stop.set()
        await task


async def get(operator, path):
    await until(lambda: operator.health.port)
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"http://127.0.0.1:{operator.health.port}{path}") as answer,
    ):
        return answer.status, await answer.text()


def passes(operator):
    count = operator.metrics.registry.get_sample_value
    return count("kvcachepool_operator_pass_seconds_count", {"result": "ok"}) or 0


def status_of(api, name="demo"):
    return api.get("kvcachepools", "ns", name).get("status", {})


async def test_a_new_pool_is_applied_and_then_left_in_peace(api, client):
    async with replica(client, resync_seconds=0.05) as operator:
        api.put(pool())
        await until(lambda: status_of(api))
        await until(lambda: passes(operator) > 10)
        assert [path.rsplit("/", 1)[1] for _, path in api.writes()] == [
            "demo-engines", "demo-engines", "status", "events",
        ]  # fmt: skip
        code, text = await get(operator, "/metrics")
        assert code == 200
        assert 'kvcachepool_ready{name="demo",namespace="ns"} 1.0' in text
        assert 'kvcachepool_operator_api_calls_total{code="201",kind="Deployment",verb="apply"} 1.0' in text
        assert (await get(operator, "/healthz"))[0] == 200
        api.delete("kvcachepools", "ns", "demo")
        await until(lambda: operator.cache.pools() == ())
        await until(lambda: not operator.reconciler._children._applied)
        assert 'name="demo"' not in (await get(operator, "/metrics"))[1]


async def test_an_edit_and_a_deleted_child_lead_to_a_pass(api, client):
    async with replica(client):
        created = api.put(pool())
        await until(lambda: ("deployments", "ns", "demo-engines") in api.objects)
        api.put(created | pool(engines={"replicas": 5}) | {"metadata": created["metadata"]})
        await until(lambda: api.get("deployments", "ns", "demo-engines")["spec"]["replicas"] == 5)
        api.delete("services", "ns", "demo-engines")
        await until(lambda: ("services", "ns", "demo-engines") in api.objects)


async def test_what_a_gap_of_the_watch_hid_is_found_by_the_relist(api, client):
    async with replica(client) as operator:
        api.put(pool())
        await until(lambda: ("services", "ns", "demo-engines") in api.objects and status_of(api))
        api.delete("services", "ns", "demo-engines", seen=False)
        await operator.relist.once()
        await until(lambda: ("services", "ns", "demo-engines") in api.objects)


async def test_a_watch_that_is_too_old_is_begun_anew(api, client):
    async with replica(client):
        api.put(pool())
        await until(lambda: status_of(api))
        api.put(pool("hidden"), seen=False)
        api.expire_watches()
        await until(lambda: status_of(api, "hidden"))
        api.put(pool("after"))
        await until(lambda: status_of(api, "after"))


async def test_a_pool_whose_endpoint_hangs_delays_no_other(api, client):
    async def observe(seen):
        if seen.metadata.name.startswith("hanging"):
            await asyncio.Event().wait()
        return Observed()

    async with replica(client, made=steps(observe=observe), workers=4) as operator:
        for number in range(3):
            api.put(pool(f"hanging-{number}"))
        await until(lambda: len(operator.queue._active) == 3)
        for number in range(5):
            api.put(pool(f"fine-{number}"))
        await until(lambda: all(status_of(api, f"fine-{number}") for number in range(5)))
        assert not status_of(api, "hanging-0")


async def test_only_watched_namespaces_are_worked_in(api, client):
    async with replica(client, namespaces=("ns", "team")):
        api.put(pool(namespace="elsewhere"))
        api.put(pool(namespace="team"))
        api.put(pool())
        await until(lambda: status_of(api) and api.get("kvcachepools", "team", "demo").get("status"))
        assert "status" not in api.get("kvcachepools", "elsewhere", "demo")
        listed = {path for _, path in api.requests}
        assert "/api/v1/pods" not in listed
        assert not any("customresourcedefinitions" in path or path.endswith("/api/v1/namespaces") for path in listed)


async def test_it_waits_for_the_crd_and_says_so(api, client, monkeypatch):
    monkeypatch.setattr(service, "_CRD_POLL_SECONDS", 0.05)
    api.crd = False
    async with replica(client, ready=False) as operator:
        await until(lambda: "CRD" in operator._waiting)
        assert (await get(operator, "/healthz"))[0] == 200
        code, text = await get(operator, "/readyz")
        assert code == 500
        assert "CRD kvcachepools.kvcachepool.io is not installed" in text
        api.crd = True
        await until(lambda: not operator._waiting)
        assert (await get(operator, "/readyz"))[0] == 200
        api.put(pool())
        await until(lambda: status_of(api))


async def test_it_ends_with_an_error_when_the_crd_is_removed(api, client):
    """The pod is started anew and waits for the CRD; a deaf operator would look healthy."""
    operator = service.Operator(Settings(http_port=0), client, steps())
    task = asyncio.create_task(operator.run(asyncio.Event()))
    api.put(pool())
    await until(lambda: status_of(api))
    api.drop_crd()
    with pytest.raises(Exception, match="404"):
        await task


async def test_no_right_to_list_is_said_by_readyz(api, client):
    api.answer_instead = lambda _method, path: (403, "pods is forbidden") if path == "/api/v1/pods" else None
    async with replica(client, ready=False) as operator:
        await until(lambda: "forbidden" in operator._waiting)
        assert "pods is forbidden" in (await get(operator, "/readyz"))[1]
        api.answer_instead = lambda _method, _path: None
        await until(lambda: not operator._waiting)


async def test_a_dead_watch_fails_healthz(api, client, monkeypatch):
    monkeypatch.setattr(service, "_WATCH_LAG_SECONDS", 0.0)
    async with replica(client) as operator:
        assert (await get(operator, "/healthz"))[0] == 200
        unseen = {"kind": "Pod", "metadata": {"name": "pod", "namespace": "ns", "uid": "u", "resourceVersion": "9999"}}
        operator.cache.replace("Pod", None, [unseen], "9999")
        code, text = await get(operator, "/healthz")
        assert code == 500
        assert "the watch of Pod has not delivered ns/pod" in text
        operator.cache.event("ADDED", unseen)
        assert (await get(operator, "/healthz"))[0] == 200


async def test_a_watch_owes_nothing_while_the_api_server_does_not_answer(api, client, monkeypatch):
    """An outage that begins when something was written and not yet delivered must not restart the pod."""
    monkeypatch.setattr(service, "_WATCH_LAG_SECONDS", 3.0)
    async with replica(client, lease_namespace="op", identity="me") as operator:
        await until(lambda: operator.leadership.leads)
        unseen = {"kind": "Pod", "metadata": {"name": "pod", "namespace": "ns", "uid": "u", "resourceVersion": "9999"}}
        operator.cache.replace("Pod", None, [unseen], "9999")
        ref, _ = operator.cache.lagging()
        monkeypatch.setattr(operator.cache, "lagging", lambda: (ref, 1000.0))
        assert (await get(operator, "/healthz"))[0] == 500
        api.answer_instead = lambda _method, path: (503, "away") if "leases" in path else None
        await until(lambda: operator.leadership.answered_seconds() < 2)
        assert (await get(operator, "/healthz"))[0] == 200


async def test_a_follower_watches_and_writes_nothing(api, client):
    now = datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
    held = {"holderIdentity": "other", "leaseDurationSeconds": 15, "acquireTime": now, "renewTime": now}
    api.put({"kind": "Lease", "metadata": {"name": LEASE[2], "namespace": "op"}, "spec": held})
    async with replica(client, lease_namespace="op", identity="me") as operator:
        api.put(pool())
        await until(operator.cache.pools)
        await until(
            lambda: ("GET", "/apis/coordination.k8s.io/v1/namespaces/op/leases/kvcachepool-operator") in api.requests
        )
        await asyncio.sleep(0.3)
        assert api.writes() == []
        assert (await get(operator, "/readyz"))[0] == 200
        assert "kvcachepool_operator_leader 0.0" in (await get(operator, "/metrics"))[1]
    assert api.get(*LEASE)["spec"]["holderIdentity"] == "other"


async def test_the_follower_takes_over_at_once_when_the_leader_stops(api, client):
    async with replica(client, lease_namespace="op", identity="second") as second:
        async with replica(client, lease_namespace="op", identity="first") as first:
            await until(lambda: first.leadership.leads or second.leadership.leads)
            leader, follower = (first, second) if first.leadership.leads else (second, first)
            api.put(pool())
            await until(lambda: status_of(api))
            assert not follower.queue.running
        await until(lambda: second.leadership.leads, 10)
        assert leader is second or not leader.queue.running
        api.put(pool("after"))
        await until(lambda: status_of(api, "after"))
    assert api.get(*LEASE)["spec"]["holderIdentity"] == ""


async def test_sigterm_gives_the_lease_back_and_ends_well(api, kubeconfig):
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "kvcachepool.cli", "run", "--log-format", "json",
        env={
            "PYTHONPATH": "operator", "KUBECONFIG": kubeconfig, "KVCP_HTTP_PORT": "0",
            "KVCP_LEASE_NAMESPACE": "op", "KVCP_IDENTITY": "me",
        },
        stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        await until(lambda: LEASE in api.objects, 60)
        assert api.get(*LEASE)["spec"]["holderIdentity"] == "me"
        await until(lambda: any(path.endswith("/kvcachepools") for _, path in api.requests))
        process.send_signal(signal.SIGTERM)
        _, logged = await asyncio.wait_for(process.communicate(), 30)
    finally:
        if process.returncode is None:
            process.kill()
    assert process.returncode == 0, logged.decode()
    assert api.get(*LEASE)["spec"]["holderIdentity"] == ""
    assert b"Traceback" not in logged
    assert b"not-a-secret" not in logged
