"""The operator seen from outside: its pods, its metrics, its processes."""

from __future__ import annotations

import re

from e2e.harness.install import NAMESPACE, RELEASE
from e2e.harness.kube import Json, Kube

_CALLS = re.compile(r"^kvcachepool_operator_api_calls_total\{(.*)\} ([0-9.e+]+)$", re.M)
_READS = {"get", "list", "watch", "log", "exists", "served", "discover"}


def pods(kube: Kube, *, release: str = RELEASE, namespace: str = NAMESPACE) -> list[Json]:
    """Running operator pods."""
    found = kube.items("pods", "-n", namespace, "-l", f"app.kubernetes.io/instance={release}")
    return [pod for pod in found if "deletionTimestamp" not in pod["metadata"]]


def metrics(kube: Kube, pod: Json) -> str:
    """The metrics page of one replica."""
    meta = pod["metadata"]
    return kube.run("get", "--raw", f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}:8080/proxy/metrics")


def writes(kube: Kube) -> dict[str, float]:
    """Writing calls to the API server by all replicas, by verb and kind; the Lease is left out."""
    counts: dict[str, float] = {}
    for pod in pods(kube):
        for labels, value in _CALLS.findall(metrics(kube, pod)):
            fields = dict(re.findall(r'(\w+)="([^"]*)"', labels))
            if fields["verb"] not in _READS and fields["kind"].lower() != "lease":
                key = f"{fields['verb']} {fields['kind']}"
                counts[key] = counts.get(key, 0) + float(value)
    return counts


def leader(kube: Kube) -> str:
    """Name of the pod that holds the Lease."""
    lease = kube.get("lease", f"{RELEASE}-kvcachepool-operator", "-n", NAMESPACE)
    holder: str = lease["spec"].get("holderIdentity") or ""
    return holder
