"""Nodes without a kubelet beside the real one: what they offer is read, the scheduler binds pods to them, and nothing
runs there."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Final

from e2e.harness.kube import Json, Kube

TAINT: Final = "kvcp.test/simulated"
"""On each of them, so that pods of others do not end there."""
TOLERATION: Final = {"key": TAINT, "operator": "Exists", "effect": "NoSchedule"}
_BEAT_SECONDS: Final = 10
_LEASES: Final = "kube-node-lease"


@contextmanager
def simulated(kube: Kube, nodes: Sequence[Json]) -> Iterator[None]:
    """Within the context these nodes are there, and alive: their Leases are renewed as by a kubelet."""
    stop = threading.Event()
    names = [node["metadata"]["name"] for node in nodes]
    beat = threading.Thread(target=_beat, args=(kube, names, stop), daemon=True)
    try:
        for node in nodes:
            taint = {"key": TAINT, "effect": "NoSchedule"}
            spec = node["spec"] | {"taints": [*node["spec"].get("taints", ()), taint]}
            kube.create(node | {"spec": spec})
            _report(kube, node)
        beat.start()
        yield
    finally:
        stop.set()
        kube.run("delete", "node", "--ignore-not-found", *names)
        kube.run("delete", "lease", "-n", _LEASES, "--ignore-not-found", *names)


def _report(kube: Kube, node: Json) -> None:
    """The status, as its kubelet would report it."""
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    conditions = [
        c | {"reason": "Simulated", "lastHeartbeatTime": now, "lastTransitionTime": now}
        for c in node["status"]["conditions"]
    ]
    status = json.dumps({"status": node["status"] | {"conditions": conditions}})
    kube.run("patch", "node", node["metadata"]["name"], "--subresource=status", "--type=merge", f"--patch={status}")


def _beat(kube: Kube, names: Sequence[str], stop: threading.Event) -> None:
    while True:
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        for name in names:
            spec = {"holderIdentity": name, "leaseDurationSeconds": 40, "renewTime": now}
            lease = {
                "apiVersion": "coordination.k8s.io/v1",
                "kind": "Lease",
                "metadata": {"name": name, "namespace": _LEASES},
                "spec": spec,
            }
            kube.create(lease)
        if stop.wait(_BEAT_SECONDS):
            return
