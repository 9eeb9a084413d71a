"""A large installation on a real API server: what the operator costs, and how long a change takes to its status.

Pods, nodes and Deployment statuses are made by `writers`; nothing runs but etcd, API server, operator, and a process
that answers for masters and engines with recorded pages. All share one machine.
"""

from __future__ import annotations

import asyncio
import json
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from e2e.bench import writers
from e2e.bench.passes import _operator, _page, _quantile, _rss_mib, _sum, _until
from e2e.bench.writers import ADDRESS, Writer, every
from e2e.cluster.controlplane import ControlPlane
from e2e.harness.api import Api
from e2e.harness.latency import AdmissionLatency, admission_latency
from kvcachepool import constants, policy

ROOT = Path(__file__).parents[2]
_POOLS_PER_NAMESPACE = 20
_MEMBERS = {"master": 1, "store": 1, "engine": 2}
"""Of each pool, beside one engine of its user's own."""
_CHANGES = 100
_STEADY_SECONDS = 60
_TICKS = 100
"""Clock ticks a second in /proc."""


@dataclass
class Window:
    """What the operator did in a steady minute."""

    calls: float = 0
    writes: float = 0
    kib: float = 0
    cpu: float = 0
    """Share of one core."""
    rss: float = 0
    which: str = ""
    """Calls by verb and kind."""


@dataclass
class Figures:
    """The report; seconds and MiB."""

    pools: int
    members: int
    strangers: int
    converge: float = 0
    peak_rss: float = 0
    calls_to_converge: float = 0
    pass_p50: float = 0
    pass_p95: float = 0
    alone: Window = field(default_factory=Window)
    crowded: Window = field(default_factory=Window)
    changes: list[float] = field(default_factory=list)
    admission: AdmissionLatency | None = None

    def lines(self) -> list[str]:
        """As text."""
        cut = statistics.quantiles(self.changes, n=20) if len(self.changes) > 1 else [0.0] * 19
        rows = [
            f"{self.pools} pools, {self.members} member pods; then {self.strangers} unrelated pods more",
            f"to converge: {self.converge:.0f} s, {self.calls_to_converge / max(self.pools, 1):.0f} API calls a pool, "
            f"RSS at most {self.peak_rss:.0f} MiB",
            f"a pass: p50 ≤ {self.pass_p50:g} s, p95 ≤ {self.pass_p95:g} s",
            f"from a change to its status: p50 {cut[9]:.2f} s, p95 {cut[18]:.2f} s of {len(self.changes)}",
        ]
        for name, window in (("without", self.alone), ("with", self.crowded)):
            rows.append(
                f"steady minute {name} unrelated pods: {window.calls:.0f} API calls ({window.which}), "
                f"{window.kib:.0f} KiB from the API server, {window.cpu:.0%} of a core, RSS {window.rss:.0f} MiB"
            )
        if self.admission is not None:
            rows.append(
                f"to let in a pod, median of {self.admission.count}: {self.admission.labelled:.1f} ms with the pool's "
                f"label, {self.admission.unlabelled:.1f} ms without"
            )
        rows.append(f"traffic with / without unrelated pods: {self.crowded.kib / max(self.alone.kib, 1):.2f}")
        return rows


def measure(pools: int, strangers: int, say: Callable[[str], None]) -> Figures:
    """Start everything, measure, stop everything."""
    with ControlPlane(controller_manager=False) as plane:
        plane.kubectl.run("apply", "--server-side", "-f", str(ROOT / "crds"))
        _until(lambda: plane.kubectl.succeeds("get", "kvcachepools", "--all-namespaces"), 60)
        alias = [f"{ADDRESS}/32", "dev", "lo"]
        subprocess.run(["ip", "address", "replace", *alias], check=True)
        peers = subprocess.Popen([sys.executable, "-m", "e2e.bench.peers"], cwd=ROOT)
        try:
            return asyncio.run(_measure(plane, pools, strangers, say))
        finally:
            peers.terminate()
            peers.wait(timeout=30)
            subprocess.run(["ip", "address", "delete", *alias], check=False)


async def _measure(plane: ControlPlane, pools: int, strangers: int, say: Callable[[str], None]) -> Figures:
    names = [(f"team-{index // _POOLS_PER_NAMESPACE:03}", f"pool-{index:04}") for index in range(pools)]
    figures = Figures(pools, pools * (sum(_MEMBERS.values()) + 1), strangers)
    async with Writer(plane.kubeconfig) as writer:
        await writers.prepare(writer, sorted({space for space, _ in names} | {"crowd"}), nodes=20)
        with _operator(plane) as (process, port):
            start = time.monotonic()
            await every(names, lambda key: writer.call("POST", _pool_path(key[0]), writers.manifest(*key)))
            say(f"pools made after {time.monotonic() - start:.0f} s")
            for component, count in _MEMBERS.items():
                await _all_there(writer, names, component)
                say(f"every {component} Deployment is there after {time.monotonic() - start:.0f} s")

                async def fill(key: tuple[str, str], component: str = component, count: int = count) -> None:
                    deployment = writers.workloads(*key)[component]
                    await writers.members(writer, key[0], deployment, count)

                await every(names, fill)
            await every(names, lambda key: _own_member(writer, *key))
            say(f"every pod is there after {time.monotonic() - start:.0f} s")
            await _quiet(port)
            figures.converge = time.monotonic() - start
            page = await asyncio.to_thread(_page, port)
            figures.calls_to_converge = _sum(page, _CALLS)
            figures.pass_p50, figures.pass_p95 = _quantile(page, 0.5), _quantile(page, 0.95)
            say(f"quiet after {figures.converge:.0f} s")
            figures.alone = await _steady(process.pid, port, plane.server)
            say("crowd comes")
            path = "/api/v1/namespaces/crowd/pods"
            await every(range(strangers), lambda index: writer.call("POST", path, writers.unrelated(index)))
            say(f"crowd is there after {time.monotonic() - start:.0f} s")
            figures.crowded = await _steady(process.pid, port, plane.server)
            figures.changes = await _changes(writer, names)
            figures.admission = await asyncio.to_thread(_admission, plane, names[0])
            figures.peak_rss = _peak_seen(process.pid)
    return figures


_METADATA = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
_CALLS = r'kvcachepool_operator_api_calls_total\{(?!.*kind="Lease").*'
_WRITES = r'kvcachepool_operator_api_calls_total\{(?!.*kind="Lease").*verb="(apply|create|patch|delete|update)".*'


def _which(before: str, after: str) -> str:
    """Calls between two pages by verb and kind, the most frequent first."""
    counts: dict[str, float] = {}
    for page, sign in ((after, 1), (before, -1)):
        for line in page.splitlines():
            if re.match(_CALLS, line):
                labels = dict(re.findall(r'(\w+)="([^"]*)"', line))
                name = f"{labels['verb']} {labels['kind']}"
                counts[name] = counts.get(name, 0) + sign * float(line.rsplit(" ", 1)[1])
    most = sorted(((count, name) for name, count in counts.items() if count), reverse=True)
    return ", ".join(f"{count:.0f} {name}" for count, name in most)


def _pool_path(namespace: str, name: str = "") -> str:
    path = f"/apis/{constants.API_VERSION}/namespaces/{namespace}/{constants.PLURAL}"
    return f"{path}/{name}" if name else path


async def _own_member(writer: Writer, namespace: str, name: str) -> None:
    template = writers.workloads(namespace, name)["engine"]["spec"]["template"]
    labels = {key: value for key, value in template["metadata"]["labels"].items() if key != constants.LABEL_COMPONENT}
    metadata = {**template["metadata"], "name": f"{name}-own", "labels": labels}
    await writers.pod(writer, namespace, {"metadata": metadata, "spec": template["spec"] | {"nodeName": "gpu-001"}})


async def _all_there(writer: Writer, names: list[tuple[str, str]], component: str, seconds: float = 900) -> None:
    """Waits until each pool has its Deployment of the component."""
    path = f"/apis/apps/v1/deployments?labelSelector={constants.LABEL_COMPONENT}%3D{component}"
    deadline = time.monotonic() + seconds
    while True:
        found = len((await writer.call("GET", path, accept=_METADATA))["items"] or ())
        if found >= len(names):
            return
        if time.monotonic() > deadline:
            raise RuntimeError(f"{found} of {len(names)} pools have a {component} Deployment")
        await asyncio.sleep(2)


async def _quiet(port: int, seconds: float = 900) -> None:
    """Waits until the operator has written nothing for 20 seconds."""
    deadline, before, since = time.monotonic() + seconds, -1.0, time.monotonic()
    while time.monotonic() - since < 20:
        writes = _sum(await asyncio.to_thread(_page, port), _WRITES)
        if writes != before:
            before, since = writes, time.monotonic()
        if time.monotonic() > deadline:
            raise RuntimeError("the operator keeps writing")
        await asyncio.sleep(2)


async def _steady(pid: int, port: int, server: str) -> Window:
    """A minute in which nobody changes anything."""
    await _quiet(port)
    before, cpu, received = await asyncio.to_thread(_page, port), _cpu(pid), _received(pid, server)
    start = time.monotonic()
    await asyncio.sleep(_STEADY_SECONDS)
    took = time.monotonic() - start
    after = await asyncio.to_thread(_page, port)
    return Window(
        calls=_sum(after, _CALLS) - _sum(before, _CALLS),
        writes=_sum(after, _WRITES) - _sum(before, _WRITES),
        kib=(_received(pid, server) - received) / 1024,
        cpu=(_cpu(pid) - cpu) / took,
        rss=_rss_mib(pid),
        which=_which(before, after),
    )


async def _changes(writer: Writer, names: list[tuple[str, str]]) -> list[float]:
    """Seconds from an edit of a pool to the status that says so, one pool after the other, spread over all."""
    took = []
    for key in names[:: max(1, len(names) // _CHANGES)][:_CHANGES]:
        start = time.monotonic()
        changed = await writer.patch(_pool_path(*key), {"spec": {"engines": {"replicas": 3}}})
        version, generation = changed["metadata"]["resourceVersion"], changed["metadata"]["generation"]
        query = f"watch=true&fieldSelector=metadata.name%3D{key[1]}&resourceVersion={version}&timeoutSeconds=120"
        async with writer.session.get(f"{_pool_path(key[0])}?{query}") as stream:
            async for line in stream.content:
                seen: Any = json.loads(line)["object"]
                if seen.get("status", {}).get("observedGeneration", 0) >= generation:
                    took.append(time.monotonic() - start)
                    break
    return took


def _admission(plane: ControlPlane, key: tuple[str, str]) -> AdmissionLatency:
    """With the admission policy in force, beside all that runs."""
    plane.kubectl.apply([policy.policy("bench"), *policy.bindings("bench")])
    template = writers.workloads(*key)["engine"]["spec"]["template"]
    labels = {
        name: value for name, value in template["metadata"]["labels"].items() if name != constants.LABEL_COMPONENT
    }
    metadata = {**template["metadata"], "name": "measured", "namespace": key[0], "labels": labels}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]}
    api = Api(plane.kubeconfig)
    wrong = pod | {"metadata": metadata | {"labels": metadata["labels"] | {constants.LABEL_SCHEMA: "0" * 12}}}
    deadline = time.monotonic() + 60
    while not api.create_pod(wrong):
        if time.monotonic() > deadline:
            raise RuntimeError("the admission policy does not come into force")
        time.sleep(1)
    return admission_latency(api, pod, count=_CHANGES)


def _cpu(pid: int) -> float:
    """Seconds of CPU so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def _received(pid: int, server: str) -> float:
    """Bytes that the process's open connections to the API server have brought."""
    port = server.rpartition(":")[2]
    listed = subprocess.run(["ss", "-tinpHO", f"dport = :{port}"], capture_output=True, text=True, check=True).stdout
    mine = (line for line in listed.splitlines() if f"pid={pid}," in line)
    return sum(float(found[1]) for line in mine if (found := re.search(r"bytes_received:(\d+)", line)))


def _peak_seen(pid: int) -> float:
    found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert found
    return int(found[1]) / 1024
