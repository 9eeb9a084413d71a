"""The programs that build images on a machine without a container daemon: buildah and mmdebstrap."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Final

from images.recipe import RootFs

LABEL: Final = "io.kvcachepool.build"
BASE_REPOSITORY: Final = "localhost/kvcachepool/base"
CERTIFICATES: Final = "/etc/ssl/certs/ca-certificates.crt"
# Documentation and translations are a third of a small Debian.
MMDEBSTRAP_OPTIONS: Final = (
    "--variant=essential",
    "--aptopt=APT::Install-Recommends false",
    "--aptopt=Acquire::Languages none",
    "--dpkgopt=path-exclude=/usr/share/doc/*",
    "--dpkgopt=path-exclude=/usr/share/man/*",
    "--dpkgopt=path-exclude=/usr/share/info/*",
    "--dpkgopt=path-exclude=/usr/share/locale/*",
    "--dpkgopt=path-include=/usr/share/doc/*/copyright",
)


class BuildError(Exception):
    """A program failed; the message has the end of what it said."""


def run(command: Sequence[str | Path], environment: Mapping[str, str] | None = None) -> str:
    """Run a program, return what it prints; raises BuildError with the end of its output."""
    words = [str(word) for word in command]
    if shutil.which(words[0]) is None:
        raise BuildError(f"{words[0]} is not installed (Debian: apt-get install buildah mmdebstrap)")
    result = subprocess.run(
        words,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **(environment or {})},
    )
    if result.returncode != 0:
        tail = "\n".join((result.stdout + result.stderr).splitlines()[-30:])
        raise BuildError(f"{' '.join(words[:3])} … exited {result.returncode}:\n{tail}")
    return result.stdout


@cache
def storage_options() -> tuple[str, ...]:
    """The storage driver: overlay where the kernel lets us, else vfs, which copies but always works."""
    overlay = ("--storage-driver", "overlay")
    try:
        run(["buildah", *overlay, "info"])
    except BuildError:
        run(["buildah", "--version"])  # a missing program is not a missing file system
        return ("--storage-driver", "vfs")
    return overlay


def buildah(*arguments: str | Path) -> str:
    """Run buildah on our storage."""
    return run(["buildah", *storage_options(), *arguments])


def debian(rootfs: RootFs, cache: Path) -> Path:
    """The root file system as a tar file, made once for each list of packages."""
    archive = cache / f"debian-{rootfs.suite}-{rootfs.key}.tar"
    if not archive.exists():
        cache.mkdir(parents=True, exist_ok=True)
        unfinished = archive.with_suffix(".new")
        packages = ",".join(rootfs.packages)
        run(
            ["mmdebstrap", *MMDEBSTRAP_OPTIONS, f"--include={packages}", "--format=tar", rootfs.suite, unfinished],
            {"SOURCE_DATE_EPOCH": "0"},
        )
        unfinished.rename(archive)
    return archive


def base_image(rootfs: RootFs, cache: Path) -> str:
    """A root file system as an image in buildah's storage, imported when it is not there."""
    reference = f"{BASE_REPOSITORY}:{rootfs.key}"
    if reference in images():
        return reference
    archive = debian(rootfs, cache)
    container = buildah("from", "scratch").strip()
    try:
        buildah("add", container, archive, "/")
        buildah("config", "--label", f"{LABEL}=base", container)
        buildah("commit", "--quiet", container, reference)
    finally:
        buildah("rm", container)
    return reference


def images() -> set[str]:
    """References of all images in the storage."""
    return set(buildah("images", "--format", "{{.Name}}:{{.Tag}}").split())


def bud(
    context: Path,
    dockerfile: Path,
    reference: str,
    arguments: Mapping[str, str],
    wheels: Path,
    *,
    layers: bool,
) -> None:
    """Build an image from a Dockerfile; `wheels` is the cache of everything that pip and uv download."""
    wheels.mkdir(parents=True, exist_ok=True)
    command: list[str | Path] = ["bud", "--isolation", "chroot", "--quiet", "--pull-never", "--tag", reference]
    command += ["--layers"] if layers else []
    command += ["--label", f"{LABEL}=image", "--file", dockerfile, "--volume", f"{wheels}:/root/.cache:rw"]
    ignore = dockerfile.with_name(dockerfile.name + ".dockerignore")
    command += ["--ignorefile", ignore] if ignore.exists() else []
    certificates = Path(os.environ.get("SSL_CERT_FILE", CERTIFICATES))
    if certificates.exists():
        command += ["--volume", f"{certificates}:{CERTIFICATES}:ro"]
    for name, value in arguments.items():
        command += ["--build-arg", f"{name}={value}"]
    buildah(*command, context)


def push(reference: str, archive: Path) -> None:
    """Write an image to an OCI archive. Its import is bound by the disk, so fast compression pays; more does not."""
    unfinished = archive.with_suffix(".new")
    unfinished.unlink(missing_ok=True)
    compression = ("--compression-format", "zstd", "--compression-level", "1")
    buildah("push", "--quiet", *compression, reference, f"oci-archive:{unfinished}:{reference}")
    unfinished.rename(archive)


def remove(repository: str, keep: str | None) -> None:
    """Remove all images of a repository but one; without one to keep, also layers that no image needs any more.

    Not with one to keep: the layers of its first stage belong to no image, and spare the next build their work.
    """
    for reference in images():
        if reference.startswith(f"{repository}:") and reference != keep:
            buildah("rmi", reference)
    if keep is None:
        buildah("rmi", "--prune")
