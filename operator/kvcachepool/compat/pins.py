"""The pinned versions (pins.yaml), typed. The only place where the operator learns a version or an image name."""

from functools import cache
from importlib import resources
from typing import Final

import yaml
from pydantic import BaseModel, ConfigDict, Field


class _Part(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)


class Mooncake(_Part):
    """One version for master, store and client."""

    version: str
    wheels: dict[str, str]


class CpuEngine(_Part):
    """vLLM on the CPU."""

    version: str


class Engine(_Part):
    """vLLM on GPUs; the CPU build has a version of its own."""

    version: str
    cpu: CpuEngine


class Images(_Part):
    """Repositories of our images, without registry and tag."""

    operator: str
    mooncake: str
    engine: str


class Pins(_Part):
    """Contents of pins.yaml that the operator uses; the image builds read more of it."""

    mooncake: Mooncake
    vllm: Engine
    images: Images = Field(repr=False)

    @property
    def engine_version(self) -> str:
        """Default vLLM version of a new pool."""
        return self.vllm.version

    @property
    def cpu_engine_version(self) -> str:
        """The only vLLM version that there is a CPU build of."""
        return self.vllm.cpu.version

    @property
    def wheel_majors(self) -> tuple[str, ...]:
        """Major versions of CUDA that there are builds for, the newest first."""
        return tuple(sorted((name for name in self.mooncake.wheels if name.isdecimal()), key=int, reverse=True))

    @property
    def mooncake_version(self) -> str:
        """Default Mooncake version of a new pool."""
        return self.mooncake.version


@cache
def _load() -> Pins:
    text = resources.files("kvcachepool.compat").joinpath("pins.yaml").read_text(encoding="utf-8")
    return Pins.model_validate(yaml.safe_load(text))


PINS: Final = _load()
