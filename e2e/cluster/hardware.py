"""Pretended accelerators: extended resources and the labels that GPU feature discovery would set.

The scheduler and the kubelet count extended resources without asking what
they are, so placement, quotas and node selection behave as on real nodes.
"""

from __future__ import annotations

import json
from typing import Any

from .kubectl import Kubectl
from .settings import Hardware

_FAMILIES = {"H100": ("hopper", 9, 0), "H200": ("hopper", 9, 0), "A100": ("ampere", 8, 0), "L4": ("ada-lovelace", 8, 9), "B200": ("blackwell", 10, 0)}


def resources(hardware: Hardware) -> dict[str, str]:
    counts = {hardware.gpu_resource: hardware.gpus, **hardware.extra}
    return {name: str(count) for name, count in counts.items() if count > 0}


def labels(hardware: Hardware) -> dict[str, str]:
    """Give what GPU feature discovery writes, under the names of its new and its old releases."""
    if hardware.gpus <= 0:
        return {}
    major, minor, revision = [*hardware.driver.split("."), "0", "0"][:3]
    cuda_major, cuda_minor = [*hardware.cuda.split("."), "0"][:2]
    family, compute_major, compute_minor = next(
        (value for model, value in _FAMILIES.items() if f"-{model}-" in f"{hardware.product}-"), ("unknown", 0, 0)
    )
    values = {
        "gpu.present": "true",
        "gpu.count": str(hardware.gpus),
        "gpu.product": hardware.product,
        "gpu.memory": str(hardware.memory_mib),
        "gpu.family": family,
        "gpu.compute.major": str(compute_major),
        "gpu.compute.minor": str(compute_minor),
        "cuda.driver-version.full": hardware.driver,
        "cuda.driver-version.major": major,
        "cuda.driver-version.minor": minor,
        "cuda.driver-version.revision": revision,
        "cuda.runtime-version.full": hardware.cuda,
        "cuda.runtime-version.major": cuda_major,
        "cuda.runtime-version.minor": cuda_minor,
        "cuda.driver.major": major,
        "cuda.driver.minor": minor,
        "cuda.driver.rev": revision,
        "cuda.runtime.major": cuda_major,
        "cuda.runtime.minor": cuda_minor,
    }
    return {f"nvidia.com/{name}": value for name, value in values.items()}


def capacity_patch(hardware: Hardware, capacity: dict[str, str]) -> list[dict[str, Any]]:
    """Build a JSON patch of the node's status for what its capacity lacks; empty if it is all there."""
    return [
        {"op": "add", "path": f"/status/capacity/{name.replace('~', '~0').replace('/', '~1')}", "value": count}
        for name, count in resources(hardware).items()
        if capacity.get(name) != count
    ]


def advertise(kubectl: Kubectl, node: str, hardware: Hardware) -> bool:
    """Give the node its accelerators again if a restarted kubelet dropped them; True if something changed."""
    found = kubectl.get("node", node)
    patch = capacity_patch(hardware, found["status"].get("capacity", {}))
    if patch:
        kubectl.run("patch", "node", node, "--subresource=status", "--type=json", f"--patch={json.dumps(patch)}")
    wanted = labels(hardware)
    missing = {key: value for key, value in wanted.items() if found["metadata"]["labels"].get(key) != value}
    if missing:
        kubectl.run("label", "node", node, "--overwrite", *(f"{key}={value}" for key, value in missing.items()))
    return bool(patch or missing)


def allocatable(kubectl: Kubectl, node: str, hardware: Hardware) -> bool:
    """Tell whether the kubelet has taken the capacity over, from when on pods can use it."""
    found = kubectl.get("node", node)["status"].get("allocatable", {})
    return all(found.get(name) == count for name, count in resources(hardware).items())
