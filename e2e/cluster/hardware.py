"""Pretended accelerators: extended resources and the labels that GPU feature discovery would set.

The scheduler and the kubelet count extended resources without asking what
they are, so placement, quotas and node selection behave as on real nodes.
"""

from __future__ import annotations

import json
from typing import Any

from .kubectl import Kubectl
from .settings import Hardware

_FAMILIES = {
    "H100": ("hopper", 9, 0),
    "H200": ("hopper", 9, 0),
    "A100": ("ampere", 8, 0),
    "L4": ("ada-lovelace", 8, 9),
    "B200": ("blackwell", 10, 0),
}


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


def status_patch(hardware: Hardware, status: dict[str, Any]) -> list[dict[str, Any]]:
    """Build a JSON patch for what the node's status lacks; empty if it is all there.

    The kubelet copies capacity to allocatable, but only at its next report, 10
    seconds later: saying both at once makes the resources usable at once.
    """
    return [
        {"op": "add", "path": f"/status/{part}/{name.replace('~', '~0').replace('/', '~1')}", "value": count}
        for part in ("capacity", "allocatable")
        for name, count in resources(hardware).items()
        if status.get(part, {}).get(name) != count
    ]


def advertise(kubectl: Kubectl, node: str, hardware: Hardware) -> bool:
    """Give the node its accelerators again if a restarted kubelet dropped them; True if something changed."""
    found = kubectl.get("node", node)
    patch = status_patch(hardware, found["status"])
    if patch:
        kubectl.run("patch", "node", node, "--subresource=status", "--type=json", f"--patch={json.dumps(patch)}")
    wanted = labels(hardware)
    missing = {key: value for key, value in wanted.items() if found["metadata"]["labels"].get(key) != value}
    if missing:
        kubectl.run("label", "node", node, "--overwrite", *(f"{key}={value}" for key, value in missing.items()))
    return bool(patch or missing)
