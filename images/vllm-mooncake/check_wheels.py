"""Fail unless exactly one Mooncake wheel is installed, whole, and made for the CUDA of this image.

Mooncake's three wheels (CUDA 12, CUDA 13, none) install the same `mooncake/` directory. A second one overwrites files
of the first without a word, and a wheel of the other CUDA dies at run time with a missing libcudart, which vLLM then
reports as "please install mooncake". So the image build runs this, and so may an image derived from ours or an init
container. Needs the standard library only and imports none of what it checks.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import re
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib.metadata import Distribution, distributions
from pathlib import Path

# CUDA major version each wheel is made for.
WHEELS = {
    "mooncake-transfer-engine": "12",
    "mooncake-transfer-engine-cuda13": "13",
    "mooncake-transfer-engine-non-cuda": "none",
}
FAMILY = "mooncake-transfer-engine"
LIBCUDART = re.compile(rb"libcudart\.so\.(\d+)")
TORCH_CUDA = re.compile(r"^cuda\b[^=]*=\s*['\"](\d+)", re.MULTILINE)


@dataclass(frozen=True)
class Expected:
    """What the image is supposed to hold."""

    cuda: str  # major version, or "none"
    version: str | None = None
    allow_none: bool = False


def major(cuda: str) -> str:
    """The major version of `13.0`, `13` or `cu129`-less forms; `none` and `cpu` mean no CUDA."""
    if cuda in ("none", "cpu"):
        return "none"
    match = re.fullmatch(r"(\d+)(\.\d+)*", cuda)
    if not match:
        raise ValueError(f"CUDA version is {cuda!r}, expected a number such as 13.0, or none")
    return match.group(1)


def _name(distribution: Distribution) -> str:
    return re.sub(r"[-_.]+", "-", distribution.metadata["Name"] or "").lower()


def _damaged(distribution: Distribution) -> list[str]:
    """Files of mooncake/ that are not as the wheel installed them: another wheel was here."""
    damaged: list[str] = []
    for file in distribution.files or ():
        if file.parts[0] != "mooncake" or file.hash is None:
            continue
        path = Path(str(distribution.locate_file(file)))
        if not path.is_file():
            damaged.append(f"{file} is missing")
            continue
        digest = hashlib.new(file.hash.mode, path.read_bytes()).digest()
        if base64.urlsafe_b64encode(digest).rstrip(b"=").decode() != file.hash.value:
            damaged.append(f"{file} differs from its wheel")
    return damaged


def _linked_cuda(directory: Path) -> dict[str, set[str]]:
    """CUDA major versions each library and program in `directory` names as its run time."""
    found: dict[str, set[str]] = {}
    for path in sorted(directory.iterdir()):
        if path.is_file() and (path.suffix == ".so" or path.name.startswith("mooncake_")):
            majors = {match.decode() for match in LIBCUDART.findall(path.read_bytes())}
            if majors:
                found[path.name] = majors
    return found


def _torch_cuda(search_path: Sequence[str]) -> str | None:
    """CUDA major version torch was built for, read from its version file: importing it takes seconds."""
    for entry in search_path:
        version = Path(entry, "torch", "version.py")
        if version.is_file():
            match = TORCH_CUDA.search(version.read_text(encoding="utf-8"))
            return match.group(1) if match else "none"
    return None


def _directories(search_path: Sequence[str]) -> list[Path]:
    unique = {Path(entry, "mooncake").resolve() for entry in search_path if entry}
    return sorted(path for path in unique if path.is_dir())


def problems(expected: Expected, search_path: Sequence[str]) -> list[str]:
    """Everything that is wrong with the Mooncake found along `search_path`; empty when nothing is."""
    installed: dict[str, Distribution] = {}
    for distribution in distributions(path=list(search_path)):
        name = _name(distribution)
        if name.startswith(FAMILY):
            installed.setdefault(name, distribution)
    directories = _directories(search_path)
    found = [
        f"{name} is for CUDA {WHEELS.get(name, 'unknown')}, this image is for CUDA {expected.cuda}"
        for name in sorted(installed)
        if WHEELS.get(name) != expected.cuda
    ]
    if len(installed) > 1:
        found.append(f"{len(installed)} wheels install the same mooncake/ directory: {', '.join(sorted(installed))}")
    if len(directories) > 1:
        found.append(f"mooncake/ exists {len(directories)} times: {', '.join(map(str, directories))}")
    if not installed and directories:
        found.append(f"{directories[0]} belongs to no installed wheel")
    if not installed and not expected.allow_none:
        found.append("no Mooncake wheel is installed")
    torch = _torch_cuda(search_path)
    # The CPU image has the CUDA build of torch with its CUDA libraries taken out, whichever CUDA that was for.
    if torch is not None and expected.cuda != "none" and torch != expected.cuda:
        found.append(f"torch is built for CUDA {torch}, this image is for CUDA {expected.cuda}")
    if len(installed) == 1:
        found += _check_wheel(next(iter(installed.values())), expected, directories)
    return found


def _check_wheel(wheel: Distribution, expected: Expected, directories: Iterable[Path]) -> list[str]:
    found = _damaged(wheel)
    if expected.version is not None and wheel.version != expected.version:
        found.append(f"{_name(wheel)} is {wheel.version}, expected {expected.version}")
    for directory in directories:
        for name, majors in _linked_cuda(directory).items():
            if majors != {expected.cuda}:
                listed = ", ".join(sorted(majors))
                found.append(f"{name} needs libcudart of CUDA {listed}, this image has CUDA {expected.cuda}")
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Print what is wrong and return 1, or return 0."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cuda", required=True, help="CUDA version of the image (12.9, 13.0, …), or none")
    parser.add_argument("--version", help="Mooncake version that must be installed")
    parser.add_argument("--allow-none", action="store_true", help="for a base image that may come without Mooncake")
    parser.add_argument("--path", action="append", help="search here instead of sys.path; may be repeated")
    options = parser.parse_args(arguments)
    try:
        expected = Expected(major(options.cuda), options.version, options.allow_none)
    except ValueError as error:
        parser.error(str(error))
    found = problems(expected, options.path or [entry for entry in sys.path if entry])
    for problem in found:
        print(f"check_wheels: {problem}", file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
