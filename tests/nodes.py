"""Nodes for tests, as the API server has them, with the labels that GPU feature discovery gives."""

from typing import Any

from kvcachepool.facts import NodeFacts
from kvcachepool.observe.nodes import node_facts

Json = dict[str, Any]

GPU = "nvidia.com/gpu"
A100, H100, L4 = "NVIDIA-A100-SXM4-80GB", "NVIDIA-H100-80GB-HBM3", "NVIDIA-L4"
_CAPABILITY = {A100: "8.0", H100: "9.0", L4: "8.9", "Tesla-V100-SXM2-32GB": "7.0", "NVIDIA-GeForce-RTX-4090": "8.9"}


def raw_node(
    name: str = "gpu-1",
    *,
    product: str = H100,
    gpus: int = 8,
    driver: str = "580.82",
    old_labels: bool = False,
    offers: dict[str, str] | None = None,
    labels: dict[str, str] | None = None,
    taints: tuple[str, ...] = (),
    memory: str = "2Ti",
    cpu: str = "192",
    ready: bool = True,
    cordoned: bool = False,
) -> Json:
    """A GPU node; with `gpus` 0 a plain one. Taints are written KEY=VALUE:EFFECT. An empty `driver` leaves its labels
    out."""
    found: Json = {"kubernetes.io/hostname": name}
    allocatable = {"cpu": cpu, "memory": memory, "pods": "110", **(offers or {})}
    if gpus:
        allocatable[GPU] = str(gpus)
        major, minor = _CAPABILITY.get(product, "9.0").split(".")
        found |= {
            "nvidia.com/gpu.product": product,
            "nvidia.com/gpu.count": str(gpus),
            "nvidia.com/gpu.compute.major": major,
            "nvidia.com/gpu.compute.minor": minor,
        }
        if driver:
            found |= _driver(driver, old=old_labels)
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {**found, **(labels or {})}},
        "spec": {"taints": [_taint(text) for text in taints], "unschedulable": cordoned},
        "status": {
            "allocatable": allocatable,
            "capacity": allocatable,
            "conditions": [{"type": "Ready", "status": "True" if ready else "False"}],
        },
    }


def node(name: str = "gpu-1", **given: Any) -> NodeFacts:
    """The same as facts."""
    return node_facts(raw_node(name, **given))


def _driver(version: str, *, old: bool) -> Json:
    major, minor = version.split(".")
    if old:
        return {"nvidia.com/cuda.driver.major": major, "nvidia.com/cuda.driver.minor": minor}
    return {"nvidia.com/cuda.driver-version.major": major, "nvidia.com/cuda.driver-version.minor": minor}


def _taint(text: str) -> Json:
    rest, _, effect = text.rpartition(":")
    key, _, value = rest.partition("=")
    return {"key": key, "effect": effect} | ({"value": value} if value else {})
