"""Time to Ready of a real pool against the same pods from plain manifests, on the cluster with real engines."""

from __future__ import annotations

import time

import yaml

from e2e.harness.install import Installation
from e2e.harness.pools import native_pool
from kvcachepool.preview import preview
from kvcachepool.settings import Settings


def measure() -> tuple[float, float]:
    """(seconds with the operator, seconds with plain manifests) for one engine with CPU offload."""
    installation = Installation("bench")
    installation.start()
    installation.install()
    kube = installation.kube
    for namespace in ("bench-plain", "bench-operator"):
        kube.namespace(namespace)
    try:
        plain = native_pool(installation.images, "bench", "bench-plain")
        children = [yaml.safe_load(document) for document in preview(yaml.safe_dump(plain), Settings())]
        for child in children:
            del child["metadata"]["ownerReferences"]
        start = time.monotonic()
        kube.run("apply", "--server-side", "-f", "-", data=yaml.safe_dump_all(children))
        (engine,) = [f"deployment/{c['metadata']['name']}" for c in children if c["kind"] == "Deployment"]
        kube.run("rollout", "status", engine, "-n", "bench-plain", "--timeout=900s", "--request-timeout=0")
        reference = time.monotonic() - start
        kube.run("delete", "namespace", "bench-plain", "--timeout=120s", "--request-timeout=0")
        start = time.monotonic()
        kube.create(native_pool(installation.images, "bench", "bench-operator"))
        kube.wait_condition("bench-operator", "bench", "Ready", "True", timeout=900)
        return time.monotonic() - start, reference
    finally:
        for namespace in ("bench-plain", "bench-operator"):
            kube.run("delete", "namespace", namespace, "--ignore-not-found", "--wait=false")
