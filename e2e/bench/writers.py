"""Stands in for controllers, scheduler and kubelets: writes pods and their statuses to a real API server."""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
import tempfile
from collections.abc import Awaitable, Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import aiohttp
import yaml

from kvcachepool import constants
from kvcachepool.api import KVCachePool
from kvcachepool.api.parse import parse_pool
from kvcachepool.facts import Observed, PodFacts
from kvcachepool.plan import make_plan
from kvcachepool.settings import Settings

Json = dict[str, Any]
ADDRESS = "192.0.2.1"
"""Of every simulated pod; `e2e.bench.peers` answers there. For documentation only (RFC 5737), and put on the loopback
device: the API server takes no loopback address for an endpoint."""
_AT_ONCE = 24
_MASTER = Observed(pods=(PodFacts("m", "u", constants.MASTER, "", ready=True),))


class Writer:
    """An API client for thousands of writes."""

    def __init__(self, kubeconfig: Path) -> None:
        config = yaml.safe_load(kubeconfig.read_text(encoding="utf-8"))
        cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
        self.server: str = cluster["server"]
        authority = base64.b64decode(cluster["certificate-authority-data"]).decode()
        self._tls = ssl.create_default_context(cadata=authority)
        with tempfile.NamedTemporaryFile(suffix=".pem") as file:
            file.write(base64.b64decode(user["client-certificate-data"]) + base64.b64decode(user["client-key-data"]))
            file.flush()
            self._tls.load_cert_chain(file.name)

    async def __aenter__(self) -> Writer:
        self.session = aiohttp.ClientSession(
            self.server, connector=aiohttp.TCPConnector(limit=_AT_ONCE, ssl=self._tls),
            timeout=aiohttp.ClientTimeout(total=None, sock_read=300),
        )  # fmt: skip
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.session.close()

    async def call(
        self, method: str, path: str, body: Any = None, kind: str = "application/json", accept: str = "application/json"
    ) -> Json:
        """The answer. Raises RuntimeError for anything but success."""
        headers = {"Content-Type": kind, "Accept": accept}
        async with self.session.request(method, path, data=json.dumps(body), headers=headers) as answer:
            text = await answer.text()
            if answer.status >= 300:
                raise RuntimeError(f"{method} {path}: {answer.status} {text[:300]}")
            found: Json = json.loads(text)
            return found

    async def patch(self, path: str, body: Json) -> Json:
        """Merge patch."""
        return await self.call("PATCH", path, body, "application/merge-patch+json")


async def every(items: Iterable[Any], work: Callable[[Any], Awaitable[Any]]) -> None:
    """`work` for each item, some at a time."""
    waiting = iter(items)

    async def worker() -> None:
        for item in waiting:
            await work(item)

    await asyncio.gather(*(worker() for _ in range(_AT_ONCE)))


async def prepare(writer: Writer, namespaces: Sequence[str], nodes: int) -> None:
    """Namespaces with the account that a controller would make, and GPU nodes."""

    async def space(name: str) -> None:
        await writer.call("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
        await writer.call("POST", f"/api/v1/namespaces/{name}/serviceaccounts", {"metadata": {"name": "default"}})

    await every(namespaces, space)
    await every(range(nodes), lambda index: _node(writer, f"gpu-{index:03}"))


async def _node(writer: Writer, name: str) -> None:
    labels = {
        "nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3", "nvidia.com/gpu.compute.major": "9",
        "nvidia.com/gpu.compute.minor": "0", "nvidia.com/cuda.driver-version.major": "580",
        "nvidia.com/cuda.driver-version.minor": "82", "nvidia.com/cuda.runtime-version.major": "13",
        "nvidia.com/cuda.runtime-version.minor": "0",
    }  # fmt: skip
    amounts = {"nvidia.com/gpu": "8", "cpu": "192", "memory": "2Ti", "pods": "250"}
    await writer.call("POST", "/api/v1/nodes", {"metadata": {"name": name, "labels": labels}})
    ready = [{"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "ready"}]
    status = {"allocatable": amounts, "capacity": amounts, "conditions": ready}
    await writer.patch(f"/api/v1/nodes/{name}/status", {"status": status})


def manifest(namespace: str, name: str) -> Json:
    """A shared pool without a probe, whose requests nobody here could answer."""
    return {
        "apiVersion": constants.API_VERSION,
        "kind": constants.KIND,
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "model": {"id": "org/model", "revision": "1"},
            "backend": {"mooncake": {}},
            "verification": {"enabled": False},
        },
    }


def workloads(namespace: str, name: str) -> dict[str, Json]:
    """The Deployments of such a pool, by component."""
    pool = parse_pool(manifest(namespace, name) | {"metadata": {"name": name, "namespace": namespace, "uid": "u"}})
    assert isinstance(pool, KVCachePool)
    objects = make_plan(pool, _MASTER, Settings()).objects
    return {o["metadata"]["labels"][constants.LABEL_COMPONENT]: dict(o) for o in objects if o["kind"] == "Deployment"}


async def members(writer: Writer, namespace: str, deployment: Json, count: int) -> None:
    """The Deployment's pods, running, and its counters."""
    name = deployment["metadata"]["name"]
    path = f"/apis/apps/v1/namespaces/{namespace}/deployments/{name}"
    for index in range(count):
        template = deployment["spec"]["template"]
        owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": f"{name}-abc", "uid": name, "controller": True}
        labels = template["metadata"]["labels"] | {"pod-template-hash": "abc"}
        metadata = {**template["metadata"], "name": f"{name}-abc-{index}", "labels": labels, "ownerReferences": [owner]}
        await pod(writer, namespace, {"metadata": metadata, "spec": template["spec"] | {"nodeName": "gpu-000"}})
    counters = {"replicas": count, "updatedReplicas": count, "readyReplicas": count, "observedGeneration": 1}
    await writer.patch(f"{path}/status", {"status": counters})


async def pod(writer: Writer, namespace: str, body: Json) -> None:
    """A pod that runs and is ready."""
    path = f"/api/v1/namespaces/{namespace}/pods"
    await writer.call("POST", path, body)
    states = [
        {"name": c["name"], "image": c["image"], "imageID": "x", "ready": True, "restartCount": 0, "started": True,
         "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}}}
        for c in body["spec"]["containers"]
    ]  # fmt: skip
    status = {
        "phase": "Running", "podIP": ADDRESS, "podIPs": [{"ip": ADDRESS}], "containerStatuses": states,
        "conditions": [{"type": kind, "status": "True"} for kind in ("Ready", "PodScheduled", "ContainersReady")],
    }  # fmt: skip
    await writer.patch(f"{path}/{body['metadata']['name']}/status", {"status": status})


def unrelated(index: int) -> Json:
    """A pod of somebody else, about as large as pods are."""
    env = [{"name": f"VARIABLE_{number}", "value": "x" * 60} for number in range(20)]
    container = {"name": "main", "image": "registry.example.com/app:1", "env": env, "args": ["--flag"] * 10}
    labels = {"app": f"app-{index % 500}", "team": f"team-{index % 20}"}
    spec = {"containers": [container], "nodeName": f"gpu-{index % 10:03}", "automountServiceAccountToken": False}
    return {"metadata": {"name": f"app-{index:05}", "labels": labels}, "spec": spec}
