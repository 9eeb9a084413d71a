"""Lock files of the wheels that go into the images, resolved from the pins."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Final

from images.buildah import run
from images.pins import REPOSITORY, Pins

MOONCAKE: Final = REPOSITORY / "images" / "mooncake-master" / "requirements.lock"
ENGINE: Final = REPOSITORY / "images" / "vllm-mooncake" / "cpu.lock"


def mooncake_requirements(pins: Pins) -> list[str]:
    """What the image of master and store node is made of."""
    return [f"{pins.mooncake_wheels['cpu']}=={pins.mooncake}"]


def engine_requirements(pins: Pins) -> list[str]:
    """What the CPU engine is made of."""
    return [f"{pins.cpu_package}=={pins.cpu_engine}", *mooncake_requirements(pins), *pins.extras]


def write(pins: Pins) -> None:
    """Resolve and write both lock files."""
    _compile(pins, mooncake_requirements(pins), MOONCAKE)
    _compile(pins, engine_requirements(pins), ENGINE)


def _compile(pins: Pins, requirements: list[str], output: Path) -> None:
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        for file, lines in (("in", requirements), ("overrides", pins.overrides), ("excludes", pins.excludes)):
            (directory / file).write_text("".join(f"{line}\n" for line in lines))
        run(
            [
                *("uv", "pip", "compile", "--quiet", "--no-header", "--no-annotate", "--generate-hashes"),
                *("--python-version", pins.python, "--python-platform", "x86_64-manylinux_2_36"),
                *("--overrides", directory / "overrides", "--excludes", directory / "excludes"),
                *(directory / "in", "--output-file", output),
            ]
        )
