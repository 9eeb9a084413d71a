"""The calls to the API server as they go over the wire."""

import json

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from kubernetes.aio.client import ApiClient, Configuration

from kvcachepool.cluster import ApiError, Cluster, NotLeaderError, connection

SERVICE = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s", "namespace": "ns"}, "spec": {}}


class Server:
    """Answers everything alike and keeps the last request."""

    def __init__(self) -> None:
        self.status, self.body = 200, "{}"
        self.answers: list[str] = []
        self.request: web.Request | None = None
        self.sent = ""
        self.count = 0

    async def handle(self, request: web.Request) -> web.Response:
        self.request, self.sent = request, await request.text()
        self.count += 1
        return web.Response(status=self.status, text=self.answers.pop(0) if self.answers else self.body)


@pytest.fixture
async def rig():
    server, calls = Server(), []
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", server.handle)
    async with TestServer(app) as running:
        configuration = Configuration(host=str(running.make_url("")).rstrip("/"))
        configuration.api_key["BearerToken"] = "bearer t0ken"
        async with ApiClient(configuration) as client:
            yield server, Cluster(client, on_call=lambda *call: calls.append(call)), calls, client


async def test_apply_is_server_side_apply_with_force_and_our_name(rig):
    server, cluster, calls, _ = rig
    server.body = json.dumps(SERVICE)
    assert await cluster.apply(SERVICE, uid="u") == SERVICE
    assert server.request.method == "PATCH"
    assert server.request.path == "/api/v1/namespaces/ns/services/s"
    assert dict(server.request.query) == {"fieldManager": "kvcachepool-operator", "force": "true"}
    assert server.request.headers["Content-Type"] == "application/apply-patch+yaml"
    assert server.request.headers["Authorization"] == "bearer t0ken"
    assert json.loads(server.sent)["metadata"] == {"name": "s", "namespace": "ns", "uid": "u"}
    assert "uid" not in SERVICE["metadata"]
    assert calls == [("apply", "Service", 200)]


async def test_status_goes_to_the_subresource_of_that_very_pool(rig):
    server, cluster, _, _ = rig
    await cluster.apply_status("ns", "p", "u", {"conditions": []})
    assert server.request.path == "/apis/kvcachepool.io/v1alpha1/namespaces/ns/kvcachepools/p/status"
    sent = json.loads(server.sent)
    assert sent["metadata"] == {"namespace": "ns", "name": "p", "uid": "u"}
    assert set(sent) == {"apiVersion", "kind", "metadata", "status"}


async def test_delete_names_the_uid_and_accepts_that_it_is_gone(rig):
    server, cluster, _, _ = rig
    await cluster.delete("Deployment", "ns", "d", "u")
    assert json.loads(server.sent)["preconditions"] == {"uid": "u"}
    for server.status in (404, 409):
        await cluster.delete("Deployment", "ns", "d", "u")
    server.status = 403
    with pytest.raises(ApiError):
        await cluster.delete("Deployment", "ns", "d", "u")


async def test_an_eviction_names_the_uid_and_may_be_put_off(rig):
    server, cluster, calls, _ = rig
    assert await cluster.evict("ns", "engine-1", "u")
    assert server.request.path == "/api/v1/namespaces/ns/pods/engine-1/eviction"
    assert json.loads(server.sent)["deleteOptions"] == {"preconditions": {"uid": "u"}}
    for server.status in (404, 409, 429):
        assert not await cluster.evict("ns", "engine-1", "u")
    server.status = 403
    with pytest.raises(ApiError):
        await cluster.evict("ns", "engine-1", "u")
    assert calls[0] == ("create", "Eviction", 200)


async def test_a_list_is_read_in_pages(rig):
    server, cluster, _, _ = rig
    server.answers = [
        json.dumps({"metadata": {"continue": "next", "resourceVersion": "7"}, "items": [{"metadata": {"name": "a"}}]}),
        json.dumps({"metadata": {"resourceVersion": "7"}, "items": [{"metadata": {"name": "b"}}]}),
    ]
    items, version = await cluster.list("Pod", None, "l")
    assert [(i["kind"], i["metadata"]["name"]) for i in items] == [("Pod", "a"), ("Pod", "b")]
    assert version == "7"
    assert server.request.path == "/api/v1/pods"
    assert dict(server.request.query) == {"limit": "200", "labelSelector": "l", "continue": "next"}


async def test_existence_is_asked_without_content(rig):
    server, cluster, _, _ = rig
    assert await cluster.exists("PersistentVolumeClaim", "ns", "c")
    assert "PartialObjectMetadata" in server.request.headers["Accept"]
    server.status = 404
    assert not await cluster.exists("PersistentVolumeClaim", "ns", "c")
    assert await cluster.get("Lease", "ns", "l") is None
    assert await cluster.keys("Secret", "ns", "s") is None


async def test_of_a_secret_only_the_names_of_keys_are_kept(rig):
    server, cluster, _, _ = rig
    server.body = json.dumps({"data": {"token": "c2VjcmV0"}})
    assert await cluster.keys("Secret", "ns", "s") == {"token"}
    server.body = json.dumps({"metadata": {}})
    assert await cluster.keys("Secret", "ns", "s") == frozenset()


async def test_a_log_is_bounded_and_may_be_absent(rig):
    server, cluster, _, _ = rig
    server.body = "x" * 100
    read = {"previous": True, "tail_lines": 5, "limit_bytes": 10}
    assert await cluster.pod_log("ns", "p", "c", **read) == "x" * 10
    assert server.request.path == "/api/v1/namespaces/ns/pods/p/log"
    assert dict(server.request.query) == {"container": "c", "previous": "true", "tailLines": "5", "limitBytes": "10"}
    server.status = 400
    assert await cluster.pod_log("ns", "p", "c", **read) == ""


@pytest.mark.parametrize(
    ("code", "retry"),
    [(400, False), (403, False), (422, False), (401, True), (409, True), (429, True), (500, True), (503, True)],
)
async def test_errors_say_whether_they_may_pass(rig, code, retry):
    server, cluster, calls, _ = rig
    server.status, server.body = code, json.dumps({"message": "exceeded quota: pods"})
    with pytest.raises(ApiError) as error:
        await cluster.apply(SERVICE)
    assert (error.value.status, error.value.message, error.value.retry) == (code, "exceeded quota: pods", retry)
    assert calls == [("apply", "Service", code)]


async def test_an_answer_that_is_no_json_is_trouble_that_may_pass(rig):
    server, cluster, _, _ = rig
    server.body = "<html>proxy</html>"
    with pytest.raises(ApiError, match="no JSON") as error:
        await cluster.apply(SERVICE)
    assert error.value.retry
    server.status = 502
    with pytest.raises(ApiError, match="Bad Gateway"):
        await cluster.apply(SERVICE)


async def test_no_server_is_trouble_that_may_pass():
    calls = []
    async with ApiClient(Configuration(host="http://127.0.0.1:1")) as client:
        cluster = Cluster(client, on_call=lambda *call: calls.append(call))
        with pytest.raises(ApiError, match="did not answer") as error:
            await cluster.get("Lease", "ns", "l")
    assert (error.value.status, error.value.retry) == (0, True)
    assert calls == [("get", "Lease", 0)]


async def test_no_write_is_sent_without_time_left_on_the_lease(rig):
    server, _, _, client = rig
    left = [0.0]
    cluster = Cluster(client, write_seconds_left=lambda: left[0])
    for write in (
        lambda: cluster.apply(SERVICE),
        lambda: cluster.apply_status("ns", "p", "u", {}),
        lambda: cluster.create(SERVICE),
        lambda: cluster.update(SERVICE),
        lambda: cluster.delete("Service", "ns", "s", "u"),
        lambda: cluster.post_event(("ns", "p"), "u", "Normal", "R", "m"),
    ):
        with pytest.raises(NotLeaderError):
            await write()
    assert server.count == 0
    await cluster.get("Lease", "ns", "l")
    left[0] = 5.0
    await cluster.apply(SERVICE)
    assert server.count == 2


async def test_an_event_is_about_the_pool_and_not_too_long(rig):
    server, cluster, _, _ = rig
    await cluster.post_event(("ns", "n" * 253), "u", "Warning", "MasterNotReady", "m" * 5000)
    sent = json.loads(server.sent)
    assert server.request.path == "/api/v1/namespaces/ns/events"
    assert len(sent["metadata"]["name"]) <= 253
    assert len(sent["message"]) == 1024
    assert sent["involvedObject"]["uid"] == "u"
    assert (sent["type"], sent["reason"]) == ("Warning", "MasterNotReady")


async def test_the_crd_is_looked_for_by_discovery(rig):
    server, cluster, _, _ = rig
    server.body = json.dumps({"resources": [{"name": "kvcachepools"}]})
    assert await cluster.served()
    server.body = json.dumps({"resources": []})
    assert not await cluster.served()
    server.status = 404
    assert not await cluster.served()


async def test_the_connection_can_be_used_by_another_client(rig):
    client = rig[3]
    found = await connection(client)
    assert found["server"] == client.configuration.host
    assert found["token"] == "t0ken"
