"""What GPU feature discovery says about a node.

Names changed once; a node can carry the new ones, the old ones, or both. Source: NVIDIA k8s-gpu-feature-discovery,
"Generated labels" (cuda.driver-version.* and cuda.runtime-version.* are the new ones).
"""

from collections.abc import Mapping
from typing import Final

PRODUCT: Final = "nvidia.com/gpu.product"
DRIVER_MAJOR: Final = ("nvidia.com/cuda.driver-version.major", "nvidia.com/cuda.driver.major")
_DRIVER_MINOR: Final = ("nvidia.com/cuda.driver-version.minor", "nvidia.com/cuda.driver.minor")
_RUNTIME_MAJOR: Final = ("nvidia.com/cuda.runtime-version.major", "nvidia.com/cuda.runtime.major")
CAPABILITY: Final = ("nvidia.com/gpu.compute.major", "nvidia.com/gpu.compute.minor")

_DIGITS: Final = 9
"""Of any number that is meant: Python reads no more than 4,300 of them."""

Labels = Mapping[str, str]


def product(labels: Labels) -> str:
    """Name of the GPU; "" when unknown."""
    return labels.get(PRODUCT, "")


def driver(labels: Labels) -> tuple[int, str] | None:
    """(major version, version to show), the newest that a label tells; None when none does."""
    told = [
        (major, _number(labels.get(minor)))
        for name, minor in zip(DRIVER_MAJOR, _DRIVER_MINOR, strict=True)
        if (major := _number(labels.get(name))) is not None
    ]
    if not told:
        return None
    major, minor = max(told, key=lambda version: version[0])
    return major, f"{major}" if minor is None else f"{major}.{minor:02d}"


def unreadable_driver(labels: Labels) -> str | None:
    """A driver's label that is no number; None when there is none."""
    names = (name for name in DRIVER_MAJOR if name in labels and _number(labels[name]) is None)
    return next((f"{name}={labels[name]}" for name in names), None)


def newest_cuda(labels: Labels) -> int | None:
    """Major version of the newest CUDA that the driver supports; None when unknown."""
    return _first(labels, _RUNTIME_MAJOR)


def capability(labels: Labels) -> tuple[int, int] | None:
    """Compute capability; None when unknown."""
    major, minor = (_number(labels.get(name)) for name in CAPABILITY)
    return None if major is None else (major, minor or 0)


def _first(labels: Labels, names: tuple[str, ...]) -> int | None:
    return next((number for name in names if (number := _number(labels.get(name))) is not None), None)


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdecimal() and len(text) <= _DIGITS else None
