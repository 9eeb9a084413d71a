"""Many pools against a real API server, without nodes: what a pass costs, and what an idle operator costs.

The reference is `kubectl apply --server-side` of the very same objects, as `kvcachepool plan` prints them.
"""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import yaml

from e2e.cluster.controlplane import ControlPlane
from kvcachepool import constants
from kvcachepool.preview import preview
from kvcachepool.settings import Settings

ROOT = Path(__file__).parents[2]
NAMESPACE = "bench"


@dataclass(frozen=True)
class Figures:
    """One row of the report; seconds unless named otherwise."""

    pools: int
    converge: float
    reference: float
    pass_p50: float
    pass_p95: float
    passes: int
    calls_per_pass: float
    idle_calls: float
    rss_mib: float


def pool(index: int) -> dict[str, object]:
    """The smallest shared pool; no node will run it."""
    return {
        "apiVersion": "kvcachepool.io/v1alpha1",
        "kind": "KVCachePool",
        "metadata": {"name": f"pool-{index:04}", "namespace": NAMESPACE},
        "spec": {"model": {"id": "org/model", "revision": "1"}, "backend": {"mooncake": {}}},
    }


def measure(pools: int, *, idle_seconds: float = 40) -> Figures:
    """Start a control plane and an operator, make `pools` pools, wait until each has its status and children."""
    with ControlPlane() as plane:
        plane.kubectl.run("apply", "--server-side", "-f", str(ROOT / "crds"))
        _until(lambda: plane.kubectl.succeeds("get", "kvcachepools", "--all-namespaces"), 60)
        for namespace in (NAMESPACE, "reference"):
            plane.kubectl.run("create", "namespace", namespace)
        reference = _reference(plane, pools)
        with _operator(plane) as (process, port):
            manifests = yaml.safe_dump_all([pool(index) for index in range(pools)])
            start = time.monotonic()
            plane.kubectl.run("create", "-f", "-", data=manifests)
            _until(lambda: _settled(plane) == pools, 600)
            converge = time.monotonic() - start
            page = _page(port)
            time.sleep(idle_seconds)
            later = _page(port)
            rss = _rss_mib(process.pid)
        calls, idle = _calls(page), _calls(later) - _calls(page)
        passes = int(_sum(page, r"kvcachepool_operator_pass_seconds_count\{.*"))
        return Figures(
            pools=pools,
            converge=converge,
            reference=reference,
            pass_p50=_quantile(page, 0.5),
            pass_p95=_quantile(page, 0.95),
            passes=passes,
            calls_per_pass=calls / max(passes, 1),
            idle_calls=idle,
            rss_mib=rss,
        )


def _reference(plane: ControlPlane, pools: int) -> float:
    """Seconds that kubectl takes for the same children."""
    documents = []
    for index in range(pools):
        manifest = yaml.safe_dump(pool(index) | {"metadata": {"name": f"pool-{index:04}", "namespace": "reference"}})
        for document in preview(manifest, Settings()):
            child = yaml.safe_load(document)
            del child["metadata"]["ownerReferences"]  # its owner does not exist there
            # the operator makes engines only once the master runs, which it never does without a node
            if child["kind"] == "Service" or child["metadata"]["labels"][constants.LABEL_COMPONENT] != constants.ENGINE:
                documents.append(yaml.safe_dump(child))
    start = time.monotonic()
    plane.kubectl.run("apply", "--server-side", "-f", "-", data="---\n".join(documents))
    return time.monotonic() - start


@contextmanager
def _operator(plane: ControlPlane) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environment = os.environ | {
        "KUBECONFIG": str(plane.kubeconfig),
        "PYTHONPATH": str(ROOT / "operator"),
        "KVCP_LEASE_NAMESPACE": "default",
        "KVCP_IDENTITY": "bench",
        "KVCP_HTTP_PORT": str(port),
        "MALLOC_ARENA_MAX": "2",  # both as in images/operator/Dockerfile
        "MALLOC_TRIM_THRESHOLD_": "131072",
    }
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(
            [sys.executable, *_profiled(), "-m", "kvcachepool.cli", "run", "--log-level=warning"],
            env=environment, stdout=log, stderr=log,
        )  # fmt: skip
        try:
            _until(lambda: bool(_page(port)), 60)
            yield process, port
        finally:
            process.terminate()
            process.wait(timeout=30)


def _profiled() -> list[str]:
    """With KVCP_PROFILE=FILE the operator runs under cProfile, slower, and writes what took its time there."""
    target = os.environ.get("KVCP_PROFILE")
    return ["-m", "cProfile", "-o", target] if target else []


def _settled(plane: ControlPlane) -> int:
    """Pools with a status of their generation and their children."""
    found = plane.kubectl.run(
        "get", "kvpool", "-n", NAMESPACE, "-o", "jsonpath={range .items[*]}{.status.observedGeneration}{'\\n'}{end}"
    )
    told = sum(1 for line in found.splitlines() if line.strip() == "1")
    children = plane.kubectl.run("get", "deployments", "-n", NAMESPACE, "-o", "name").splitlines()
    return min(told, len(children) // 2)


def _page(port: int) -> str:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
            text: str = answer.read().decode()
            return text
    except OSError:
        return ""


def _sum(page: str, pattern: str) -> float:
    return sum(float(line.rsplit(" ", 1)[1]) for line in page.splitlines() if re.match(pattern, line))


def _calls(page: str) -> float:
    """All calls to the API server but those for the Lease."""
    return _sum(page, r'kvcachepool_operator_api_calls_total\{(?!.*kind="Lease").*')


def _quantile(page: str, share: float) -> float:
    """Upper bound of the bucket that holds the quantile."""
    buckets: dict[float, float] = {}
    for line in page.splitlines():
        found = re.match(r'kvcachepool_operator_pass_seconds_bucket\{.*le="([^"]+)".*\} ([0-9.e+]+)', line)
        if found:
            buckets[float(found[1])] = buckets.get(float(found[1]), 0) + float(found[2])
    total = max(buckets.values(), default=0)
    return next((bound for bound, count in sorted(buckets.items()) if count >= share * total), float("nan"))


def _rss_mib(process: int) -> float:
    status = Path(f"/proc/{process}/status").read_text()
    found = re.search(r"VmRSS:\s+(\d+) kB", status)
    assert found
    return int(found[1]) / 1024


def _until(holds: object, seconds: float) -> None:
    assert callable(holds)
    deadline = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > deadline:
            raise RuntimeError("the operator did not converge")
        time.sleep(0.25)
