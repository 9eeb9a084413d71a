"""The pinned versions, as the image builds need them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

import yaml

REPOSITORY: Final = Path(__file__).resolve().parent.parent
PINS_FILE: Final = REPOSITORY / "operator" / "kvcachepool" / "compat" / "pins.yaml"


@dataclass(frozen=True)
class Cuda:
    """A public engine image and the CUDA version it comes with."""

    base: str
    version: str


@dataclass(frozen=True)
class Pins:
    """Contents of pins.yaml."""

    python: str
    debian: str
    uv: str
    mooncake: str
    mooncake_wheels: dict[str, str]  # by CUDA major version, or "cpu"
    engine: str
    cuda: dict[str, Cuda]  # by CUDA major version
    cpu_package: str
    cpu_engine: str
    overrides: tuple[str, ...]
    excludes: tuple[str, ...]
    extras: tuple[str, ...]
    registry: str
    images: dict[str, str]  # repository by image: operator, mooncake, engine


def parse(text: str) -> Pins:
    """Pins from the text of a pins.yaml."""
    data: dict[str, Any] = yaml.safe_load(text)
    mooncake, vllm, images = data["mooncake"], data["vllm"], dict(data["images"])
    return Pins(
        python=data["python"],
        debian=data["debian"],
        uv=data["uv"],
        mooncake=mooncake["version"],
        mooncake_wheels=mooncake["wheels"],
        engine=vllm["version"],
        cuda={major: Cuda(base=entry["base"], version=entry["cuda"]) for major, entry in vllm["cuda"].items()},
        cpu_package=vllm["cpu"]["package"],
        cpu_engine=vllm["cpu"]["version"],
        overrides=tuple(vllm["cpu"]["overrides"]),
        excludes=tuple(vllm["cpu"]["excludes"]),
        extras=tuple(vllm["extras"]),
        registry=images.pop("registry") or "localhost/",
        images=images,
    )


@cache
def load() -> Pins:
    """The repository's pins."""
    return parse(PINS_FILE.read_text(encoding="utf-8"))
