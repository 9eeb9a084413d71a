"""An API server in memory, over real HTTP, in a thread of its own.

It knows what the operator relies on: versions, uids, label selection, watches, server-side apply that changes
nothing when nothing differs, preconditions, conflicts; and it can be told to fail.
"""

import asyncio
import copy
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from aiohttp import web

from tests.nodes import raw_node

Json = dict[str, Any]

_GROUPS = {
    "/api/v1": [
        "pods:Pod", "services:Service", "configmaps:ConfigMap", "secrets:Secret", "events:Event",
        "namespaces:Namespace", "persistentvolumeclaims:PersistentVolumeClaim",
        "nodes:Node",
    ],
    "/apis/apps/v1": ["deployments:Deployment"],
    "/apis/discovery.k8s.io/v1": ["endpointslices:EndpointSlice"],
    "/apis/policy/v1": ["poddisruptionbudgets:PodDisruptionBudget"],
    "/apis/networking.k8s.io/v1": ["networkpolicies:NetworkPolicy"],
    "/apis/coordination.k8s.io/v1": ["leases:Lease"],
    "/apis/apiextensions.k8s.io/v1": ["customresourcedefinitions:CustomResourceDefinition"],
    "/apis/kvcachepool.io/v1alpha1": ["kvcachepools:KVCachePool"],
}  # fmt: skip
_KIND = {part.split(":")[0]: part.split(":")[1] for parts in _GROUPS.values() for part in parts}
_CLUSTER_SCOPED = ("nodes", "namespaces")
_LABEL = "kvcachepool.io/pool"


class FakeApi:
    """`with FakeApi().running() as api:`; everything else may be called from any thread."""

    def __init__(self) -> None:
        self.url = ""
        self.objects: dict[tuple[str, str, str], Json] = {}
        """By (plural, namespace, name); one node that fits every pool is there from the start."""
        self.objects["nodes", "", "gpu-1"] = raw_node(driver="580.82") | {
            "metadata": raw_node()["metadata"] | {"uid": "node-uid", "resourceVersion": "1"}
        }
        self.requests: list[tuple[str, str]] = []
        """(method, path), watches and discovery left out."""
        self.answer_instead: Callable[[str, str], tuple[int, str] | None] = lambda _method, _path: None
        """Gives (status, message) for a request that is to fail; status 0 closes the connection."""
        self.crd = True
        self.version = 100
        self._expired = 0
        self._history: list[tuple[int, str, str, Json]] = []
        self._changed: asyncio.Condition
        self._loop: asyncio.AbstractEventLoop

    @contextmanager
    def running(self) -> Iterator["FakeApi"]:
        ready, stop = threading.Event(), asyncio.Event()

        async def serve() -> None:
            self._loop, self._changed = asyncio.get_running_loop(), asyncio.Condition()
            app = web.Application()
            app.router.add_route("*", "/{path:.*}", self._handle)
            runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
            await runner.setup()
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            self.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
            ready.set()
            await stop.wait()
            await runner.cleanup()

        thread = threading.Thread(target=lambda: asyncio.run(serve()), daemon=True)
        thread.start()
        assert ready.wait(10)
        try:
            yield self
        finally:
            self._loop.call_soon_threadsafe(stop.set)
            thread.join(10)

    def writes(self) -> list[tuple[str, str]]:
        """Requests that change something, in order, Leases left out."""
        return [r for r in self.requests if r[0] != "GET" and "/leases" not in r[1]]

    def put(self, obj: Json, *, seen: bool = True) -> Json:
        """Creates or replaces an object as a user or a controller does; `seen` False: in a gap of every watch."""
        return asyncio.run_coroutine_threadsafe(self._store(copy.deepcopy(obj), seen), self._loop).result(10)

    def delete(self, plural: str, namespace: str, name: str, *, seen: bool = True) -> None:
        """Removes an object; `seen` False: in a gap of every watch."""
        asyncio.run_coroutine_threadsafe(self._remove((plural, namespace, name), seen), self._loop).result(10)

    def get(self, plural: str, namespace: str, name: str) -> Json:
        return self.objects[(plural, namespace, name)]

    async def _store(self, obj: Json, seen: bool = True) -> Json:
        plural = next(p for p, kind in _KIND.items() if kind == obj["kind"])
        metadata = obj["metadata"]
        key = (plural, metadata["namespace"], metadata["name"])
        old = self.objects.get(key)
        self.version += 1
        metadata["resourceVersion"] = str(self.version)
        metadata.setdefault("uid", old["metadata"]["uid"] if old else f"uid-{self.version}")
        if old is None or old.get("spec") != obj.get("spec"):
            metadata["generation"] = (old["metadata"].get("generation", 0) if old else 0) + 1
        self.objects[key] = obj
        if seen:
            await self._publish("MODIFIED" if old else "ADDED", plural, obj)
        return obj

    async def _remove(self, key: tuple[str, str, str], seen: bool = True) -> None:
        obj = self.objects.pop(key)
        self.version += 1
        if seen:
            gone = copy.deepcopy(obj)
            gone["metadata"]["resourceVersion"] = str(self.version)
            await self._publish("DELETED", key[0], gone)

    async def _publish(self, change: str, plural: str, obj: Json) -> None:
        self._history.append((self.version, change, plural, copy.deepcopy(obj)))
        async with self._changed:
            self._changed.notify_all()

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        path = request.path
        if "watch" in request.query:
            return await self._watch(request)
        discovered = self._discover(path)
        if discovered is not None:
            return web.json_response(discovered, status=discovered.get("code", 200))
        self.requests.append((request.method, path))
        failure = self.answer_instead(request.method, path)
        if failure is not None:
            if failure[0] == 0:
                assert request.transport is not None
                request.transport.abort()
            return _error(*failure)
        return await self._serve(request)

    def _discover(self, path: str) -> Json | None:
        groups = [g for g in _GROUPS if self.crd or "kvcachepool" not in g]
        if path == "/api":
            return {"versions": ["v1"]}
        if path == "/apis":
            names = [g.split("/")[2:4] for g in groups if g.startswith("/apis/")]
            return {
                "groups": [
                    {"name": n, "versions": [{"version": v}], "preferredVersion": {"version": v}} for n, v in names
                ]
            }
        if path in groups:
            verbs = ["get", "list", "watch", "create", "patch", "update", "delete"]
            return {
                "resources": [
                    {
                        "name": plural,
                        "kind": kind,
                        "singularName": kind.lower(),
                        "namespaced": plural not in {"nodes", "namespaces"},
                        "verbs": verbs,
                    }
                    for plural, kind in (part.split(":") for part in _GROUPS[path])
                ]
            }
        group_version = path.startswith("/apis/") and path.count("/") == 3
        return {"code": 404, "message": "404 page not found"} if group_version or path in _GROUPS else None

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        plural, namespace, name, sub = _split(request.path)
        key = (plural, namespace or "", name)
        if request.method == "GET":
            if not name:
                return web.json_response(
                    {
                        "metadata": {"resourceVersion": str(self.version)},
                        "items": self._select(request, plural, namespace),
                    }
                )
            return web.json_response(self.objects[key]) if key in self.objects else _error(404, f"{name} not found")
        body = json.loads(await request.text() or "{}")
        if request.method == "POST":
            key = (plural, key[1], body["metadata"]["name"])
            if key in self.objects:
                return _error(409, f"{key[2]} already exists")
            body.setdefault("kind", _KIND[plural])
            body["metadata"].setdefault("namespace", key[1])
            return web.json_response(await self._store(body), status=201)
        old = self.objects.get(key)
        if request.method == "PATCH":
            return await self._apply(key, sub, old, body)
        if old is None:
            return _error(404, f"{name} not found")
        if request.method == "DELETE":
            if (body.get("preconditions") or {}).get("uid", old["metadata"]["uid"]) != old["metadata"]["uid"]:
                return _error(409, "the uid in the precondition differs")
            await self._remove(key)
            return web.json_response({"kind": "Status", "status": "Success"})
        if body["metadata"].get("resourceVersion") != old["metadata"]["resourceVersion"]:
            return _error(409, "the object has been modified")
        return web.json_response(await self._store({**body, "kind": _KIND[plural]}))

    async def _apply(self, key: tuple[str, str, str], sub: str, old: Json | None, body: Json) -> web.StreamResponse:
        uid = body["metadata"].pop("uid", None)
        if (uid is not None or sub) and (old is None or uid != old["metadata"]["uid"]):
            return _error(409, "uid mismatch") if old is not None else _error(404, "not found")
        new = copy.deepcopy(old) if old is not None else {"kind": body["kind"], "metadata": {}}
        for part, value in body.items():
            if part == "metadata" and not sub:
                new["metadata"] |= value
            elif part == "status" if sub else part in ("spec", "data"):
                new[part] = value
        if new == old:
            return web.json_response(old)
        return web.json_response(await self._store(new), status=200 if old else 201)

    def _select(self, request: web.Request, plural: str, namespace: str | None) -> list[Json]:
        wanted = request.query.get("labelSelector")
        return [
            obj
            for (p, ns, _), obj in self.objects.items()
            if p == plural and namespace in (None, ns) and (not wanted or wanted in _labels(obj))
        ]

    async def _watch(self, request: web.Request) -> web.StreamResponse:
        plural, namespace, _, _ = _split(request.path)
        if plural == "kvcachepools" and not self.crd:
            return _error(404, "404 page not found")
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        since = int(request.query.get("resourceVersion", "0"))
        wanted = request.query.get("labelSelector")
        expired = self._expired
        while self.crd or plural != "kvcachepools":
            if expired != self._expired:
                gone = {"type": "ERROR", "object": {"kind": "Status", "code": 410, "message": "too old"}}
                await response.write(json.dumps(gone).encode() + b"\n")
                break
            for version, change, p, obj in list(self._history):
                if version <= since or p != plural or namespace not in (None, obj["metadata"].get("namespace", "")):
                    continue
                if wanted and wanted not in _labels(obj):
                    continue
                await response.write(json.dumps({"type": change, "object": obj}).encode() + b"\n")
            since = max([since, *(entry[0] for entry in self._history)])
            async with self._changed:
                await self._changed.wait()
        return response

    def expire_watches(self) -> None:
        """Every watch ends with "410 Gone", as after a compaction."""

        async def expire() -> None:
            self._expired += 1
            async with self._changed:
                self._changed.notify_all()

        asyncio.run_coroutine_threadsafe(expire(), self._loop).result(10)

    def drop_crd(self) -> None:
        """The CRD and its objects go; watches of it end."""

        async def drop() -> None:
            self.crd = False
            for key in [key for key in self.objects if key[0] == "kvcachepools"]:
                await self._remove(key)
            async with self._changed:
                self._changed.notify_all()

        asyncio.run_coroutine_threadsafe(drop(), self._loop).result(10)


def _labels(obj: Json) -> Json:
    labels: Json = obj["metadata"].get("labels") or {}
    return labels


def _split(path: str) -> tuple[str, str | None, str, str]:
    """(plural, namespace, name, subresource)."""
    parts = path.strip("/").split("/")[2 if path.startswith("/api/") else 3 :]
    namespace = None
    if parts[0] == "namespaces" and len(parts) > 2:
        namespace, parts = parts[1], parts[2:]
    plural, name, sub = [*parts, "", ""][:3]
    return plural, namespace, name, sub


def _error(status: int, message: str) -> web.Response:
    return web.json_response({"kind": "Status", "code": status, "message": message}, status=status)
