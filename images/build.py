"""Build the images that need no container registry and put them in a cache as OCI archives.

    python -m images.build [operator|mooncake|engine-cpu|all] [--json]
    python -m images.build --args cuda13      # build arguments of a GPU variant, for docker build
    python -m images.build --lock             # resolve the wheels again after a pin has changed

An archive is made once for each content key and never changes afterwards. Needs root, buildah and mmdebstrap.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from images import buildah, locks
from images.buildah import BuildError
from images.pins import REPOSITORY, load
from images.recipe import NAMES, cuda_arguments, cuda_tag, recipe

# Archives of a name that stay: another checkout on this machine may be using the one before.
KEPT_ARCHIVES = 2


@dataclass(frozen=True)
class BuiltImage:
    """An image that can be imported from `archive` under the name `ref`."""

    ref: str
    archive: Path
    key: str


def cache_directory() -> Path:
    """Where wheels, root file systems and archives are kept between runs."""
    return Path(os.environ.get("KVCP_CACHE") or Path.home() / ".cache" / "kvcachepool")


@contextmanager
def _locked(directory: Path) -> Iterator[None]:
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / ".lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _prune(directory: Path, name: str) -> None:
    archives = sorted(directory.glob(f"{name}-*.tar"), key=lambda path: path.stat().st_mtime, reverse=True)
    for archive in archives[KEPT_ARCHIVES:]:
        archive.unlink(missing_ok=True)


def build(name: str) -> BuiltImage:
    """Build an image unless its archive exists; safe to call from several processes at once."""
    pins = load()
    chosen = recipe(name, pins)
    key = chosen.key()
    cache = cache_directory()
    archives = cache / "images"
    built = BuiltImage(ref=chosen.reference(key), archive=archives / f"{name}-{key}.tar", key=key)
    if built.archive.exists():
        built.archive.touch()  # in use: the last to be pruned
        return built
    with _locked(archives):
        if built.archive.exists():
            return built
        arguments = {
            **chosen.arguments,
            "BASE": buildah.base_image(chosen.base, cache / "rootfs"),
            "BUILD_BASE": buildah.base_image(chosen.build_base, cache / "rootfs"),
        }
        # Layers are worth keeping only where a rebuild is frequent and the image small.
        layered = name == "operator"
        buildah.bud(REPOSITORY, REPOSITORY / chosen.dockerfile, built.ref, arguments, cache / "wheels", layers=layered)
        buildah.push(built.ref, built.archive)
        buildah.remove(chosen.repository, keep=built.ref if layered else None)
        _prune(archives, name)
    return built


def _print_arguments(variant: str) -> None:
    major = variant.removeprefix("cuda")
    pins = load()
    if major not in pins.cuda:
        raise BuildError(f"no GPU variant is called {variant!r}; there are {', '.join(f'cuda{m}' for m in pins.cuda)}")
    words = [f"--build-arg {name}={value}" for name, value in cuda_arguments(major, pins).items()]
    tag = f"{pins.images['engine']}:{cuda_tag(major, pins)}"
    print(f"docker build -f images/vllm-mooncake/Dockerfile {' '.join(words)} -t {tag} .")


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", nargs="?", choices=[*NAMES, "all"], default="all")
    parser.add_argument("--json", action="store_true", help="print {name: {ref, archive}}")
    parser.add_argument("--args", metavar="VARIANT", help="print how to build cuda12 or cuda13, and stop")
    parser.add_argument("--lock", action="store_true", help="write the lock files again, and stop")
    options = parser.parse_args(arguments)
    try:
        if options.args:
            _print_arguments(options.args)
            return 0
        if options.lock:
            locks.write(load())
            return 0
        report: dict[str, dict[str, str]] = {}
        for name in NAMES if options.name == "all" else [options.name]:
            start = time.monotonic()
            built = build(name)
            report[name] = {"ref": built.ref, "archive": str(built.archive)}
            size = built.archive.stat().st_size / 1e6
            print(
                f"{built.ref}  {built.archive}  {size:.0f} MB  {time.monotonic() - start:.1f} s",
                file=sys.stderr if options.json else sys.stdout,
                flush=True,
            )
        if options.json:
            print(json.dumps(report, indent=2))
    except BuildError as error:
        print(f"images.build: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
