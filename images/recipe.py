"""What each image is made from: pure descriptions, and the content key that tells one build from another.

The key covers everything that goes in (Dockerfile, sources, locks, build arguments, base packages), so an archive with
that key can be used without a look at its age. It leaves out the commit: the same content is the same image.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from images.pins import REPOSITORY, Pins

NAMES: Final = ("operator", "mooncake", "engine-cpu")

# Debian packages of the root file systems. The libraries are what Mooncake's programs link to.
BUILD_PACKAGES: Final = ("binutils", "ca-certificates", "gcc", "libc6-dev", "python3", "python3-venv")
PLAIN_PACKAGES: Final = ("ca-certificates", "passwd", "python3")
MOONCAKE_PACKAGES: Final = (*PLAIN_PACKAGES, "libcurl4", "libibverbs1", "libnuma1", "libstdc++6")


@dataclass(frozen=True)
class RootFs:
    """A Debian root file system, made by mmdebstrap."""

    suite: str
    packages: tuple[str, ...]

    @property
    def key(self) -> str:
        """Names the cached file."""
        return digest([self.suite, *sorted(self.packages)])


@dataclass(frozen=True)
class Recipe:
    """One image."""

    name: str
    repository: str
    dockerfile: str
    base: RootFs
    build_base: RootFs
    sources: tuple[str, ...]  # files and directories of the repository that are copied in
    arguments: Mapping[str, str]
    tag: str | None  # None: the key is the tag

    def key(self, repository: Path = REPOSITORY) -> str:
        """Twelve hexadecimal digits that change with the content."""
        return digest(
            [
                json.dumps(dict(sorted(self.arguments.items()))),
                self.base.key,
                self.build_base.key,
                *_contents(repository, (self.dockerfile, *self.sources)),
            ]
        )

    def reference(self, key: str) -> str:
        """The image's name and tag."""
        return f"{self.repository}:{self.tag or key}"


def digest(parts: Iterable[str]) -> str:
    """Twelve hexadecimal digits for a sequence of strings."""
    return hashlib.sha256(json.dumps(list(parts)).encode()).hexdigest()[:12]


def _contents(repository: Path, sources: Iterable[str]) -> Iterable[str]:
    for source in sorted(sources):
        root = repository / source
        files = [root] if root.is_file() else sorted(path for path in root.rglob("*") if path.is_file())
        for path in files:
            if path.suffix == ".pyc" or "__pycache__" in path.parts:
                continue
            yield str(path.relative_to(repository))
            yield hashlib.sha256(path.read_bytes()).hexdigest()


def operator_version(repository: Path = REPOSITORY) -> str:
    """The version the operator's package gives itself."""
    text = (repository / "operator" / "kvcachepool" / "__init__.py").read_text(encoding="utf-8")
    match = re.search(r"^__version__.*=\s*\"(.+)\"$", text, re.MULTILINE)
    if match is None:
        raise ValueError("operator/kvcachepool/__init__.py has no __version__")
    return match.group(1)


def recipe(name: str, pins: Pins) -> Recipe:
    """The recipe of an image that can be built without a container registry."""
    build_base = RootFs(pins.debian, BUILD_PACKAGES)
    repository = {image: f"{pins.registry}{path}" for image, path in pins.images.items()}
    if name == "operator":
        return Recipe(
            name=name,
            repository=repository["operator"],
            dockerfile="images/operator/Dockerfile",
            base=RootFs(pins.debian, PLAIN_PACKAGES),
            build_base=build_base,
            sources=("operator", "images/operator", "requirements/operator.lock"),
            arguments={"UV_VERSION": pins.uv, "VERSION": operator_version()},
            tag=None,
        )
    if name == "mooncake":
        return Recipe(
            name=name,
            repository=repository["mooncake"],
            dockerfile="images/mooncake-master/Dockerfile",
            base=RootFs(pins.debian, MOONCAKE_PACKAGES),
            build_base=build_base,
            sources=("images/mooncake-master", "images/vllm-mooncake/check_wheels.py"),
            arguments={"UV_VERSION": pins.uv, "MOONCAKE_VERSION": pins.mooncake},
            tag=pins.mooncake,
        )
    if name == "engine-cpu":
        return Recipe(
            name=name,
            repository=repository["engine"],
            dockerfile="images/vllm-mooncake/Dockerfile",
            base=RootFs(pins.debian, MOONCAKE_PACKAGES),
            build_base=build_base,
            sources=("images/vllm-mooncake",),
            arguments={
                "VARIANT": "cpu",
                "CUDA": "none",
                "CACHE": "/opt/kvcachepool/vllm-cache",  # read-only, filled at build
                "UV_VERSION": pins.uv,
                "ENGINE_VERSION": pins.cpu_engine,
                "MOONCAKE_VERSION": pins.mooncake,
            },
            tag=f"{pins.cpu_engine}-cpu",
        )
    raise ValueError(f"no image is called {name!r}; there are {', '.join(NAMES)}")


def cuda_arguments(major: str, pins: Pins) -> dict[str, str]:
    """Build arguments of images/vllm-mooncake/Dockerfile that belong together, for a CUDA major version."""
    cuda = pins.cuda[major]
    (xxhash,) = (extra for extra in pins.extras if extra.startswith("xxhash"))
    return {
        "VARIANT": "cuda",
        "BASE": cuda.base,
        "CUDA": cuda.version,
        "MOONCAKE_WHEEL": pins.mooncake_wheels[major],
        "MOONCAKE_VERSION": pins.mooncake,
        "ENGINE_VERSION": pins.engine,
        "XXHASH": xxhash,
    }


def cuda_tag(major: str, pins: Pins) -> str:
    """Tag of the engine image for a CUDA major version, such as 0.33.0-cu13, as the operator asks for it."""
    return f"{pins.engine}-cu{major}"
