"""Builds the cluster's programs from pinned Go modules.

The programs come from the Go module proxy because it is the one source that a
machine without a container registry can be expected to reach. Each unit (one
Go module) is built into a folder keyed by everything that shapes the result,
so a second build is a look-up, a change to one unit rebuilds only that one,
and two versions can exist side by side.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from .errors import ClusterError, MissingToolError
from .locks import locked
from .settings import cache_dir
from .stages import Stages

TOOLS = Path(__file__).parent / "tools"
KUBERNETES = "1.36.3"
_VERSION = "k8s.io/component-base/version"
_KUBERNETES_LDFLAGS = (
    f"-s -w -X {_VERSION}.gitVersion=v{KUBERNETES} -X {_VERSION}.gitMajor=1 -X {_VERSION}.gitMinor=36"
    f" -X {_VERSION}.gitTreeState=clean"
)


@dataclass(frozen=True)
class Unit:
    """Programs that one `go build` makes, so that what they share is compiled once."""

    name: str
    packages: Mapping[str, str]  # import path → file name of the program
    ldflags: str = "-s -w"
    tags: str = ""
    environment: Mapping[str, str] = field(default_factory=lambda: {"CGO_ENABLED": "0", "GOFLAGS": ""})

    @property
    def source(self) -> Path:
        return TOOLS / self.name

    @property
    def programs(self) -> list[str]:
        return sorted(self.packages.values())


_K8S = "k8s.io/kubernetes/cmd"
_CONTAINERD = "github.com/containerd/containerd/v2/cmd"
UNITS = (
    Unit(
        "cluster",
        {
            **{
                f"{_K8S}/{command}": command
                for command in (
                    "kube-apiserver",
                    "kube-controller-manager",
                    "kube-scheduler",
                    "kubelet",
                    "kube-proxy",
                    "kubectl",
                )
            },
            **{f"{_CONTAINERD}/{command}": command for command in ("containerd", "containerd-shim-runc-v2", "ctr")},
            "go.etcd.io/etcd/server/v3": "etcd",
            "./pause": "pause",
        },
        ldflags=_KUBERNETES_LDFLAGS,
        tags="no_btrfs,no_devmapper,no_zfs",
    ),
    Unit("coredns", {".": "coredns"}),
    Unit("kube-router", {"github.com/cloudnativelabs/kube-router/v2/cmd/kube-router": "kube-router"}),
    Unit(
        "helm",
        {"helm.sh/helm/v3/cmd/helm": "helm"},
        ldflags="-s -w -X helm.sh/helm/v3/internal/version.version=v3.22.0",
    ),
)

DEVICE_PLUGIN = Unit("deviceplugin", {".": "deviceplugin"})
"""Runs in pods of tests and is built when they want it: a change of it does not restart the cluster."""


def unit_key(unit: Unit, go_version: str) -> str:
    """Hash what shapes the programs: sources and pins, compiler, flags."""
    digest = hashlib.sha256()
    for path in sorted(path for path in unit.source.rglob("*") if path.is_file()):
        digest.update(f"{path.relative_to(unit.source)}\0".encode() + path.read_bytes() + b"\0")
    flags = [go_version, unit.ldflags, unit.tags, dict(unit.packages), dict(unit.environment)]
    digest.update(json.dumps(flags, sort_keys=True).encode())
    return digest.hexdigest()[:16]


def tools_key(go_version: str, units: tuple[Unit, ...] = UNITS) -> str:
    """Name the folder that holds the programs of all units."""
    return hashlib.sha256("".join(unit_key(unit, go_version) for unit in units).encode()).hexdigest()[:16]


def go_version() -> str:
    if not shutil.which("go"):
        raise MissingToolError("the Go toolchain (go >= 1.26) is needed to build the cluster's programs: not on PATH")
    # From a module's folder: a `toolchain` line may choose another compiler than the installed one.
    answer = subprocess.run(["go", "env", "GOVERSION"], cwd=UNITS[0].source, check=True, capture_output=True, text=True)
    return answer.stdout.strip()


def find_tools(cache: Path | None = None) -> Path | None:
    """Return the bin folder if everything is built, else None; never builds."""
    override = os.environ.get("KVCP_TOOLS")
    if override:
        return Path(override)
    bin_dir = (cache or cache_dir()) / "tools" / tools_key(go_version()) / "bin"
    return bin_dir if bin_dir.is_dir() else None


def require_tools(cache: Path | None = None) -> Path:
    """Return the bin folder or say how to get it: a start must not turn into a build of many minutes."""
    found = find_tools(cache)
    if found is None:
        raise MissingToolError("the cluster's programs are not built: run `python -m e2e.cluster build` first")
    return found


def program(name: str, cache: Path | None = None) -> str:
    """Return the program built here or, where nothing was built, the one on PATH."""
    tools = find_tools(cache) if shutil.which("go") or os.environ.get("KVCP_TOOLS") else None
    found = str(tools / name) if tools else shutil.which(name)
    if not found:
        raise MissingToolError(f"{name} is neither on PATH nor built: run `python -m e2e.cluster build`")
    return found


def build(cache: Path | None = None, *, stages: Stages | None = None) -> Path:
    """Build whatever is missing and return the bin folder."""
    root = (cache or cache_dir()) / "tools"
    stages = stages or Stages("build")
    version = go_version()
    with locked(root / ".lock", stages, "build"):
        bin_dir = root / tools_key(version) / "bin"
        if bin_dir.is_dir():
            stages.say(f"all programs are built: {bin_dir}")
            return bin_dir
        folders = [
            _build_unit(unit, root / "units" / f"{unit.name}-{unit_key(unit, version)}", stages) for unit in UNITS
        ]
        # Hard links: one folder for PATH costs no space beside the units' own.
        with _into(bin_dir.parent) as scratch:
            (scratch / "bin").mkdir()
            for built in (path for folder in folders for path in folder.iterdir()):
                os.link(built, scratch / "bin" / built.name)
    stages.say(f"programs are in {bin_dir}")
    return bin_dir


def build_unit(unit: Unit, cache: Path | None = None, *, stages: Stages | None = None) -> Path:
    """Build programs that are no part of the cluster and return their folder, whose name is their key."""
    root = (cache or cache_dir()) / "tools"
    stages = stages or Stages("build")
    with locked(root / ".lock", stages, "build"):
        return _build_unit(unit, root / "units" / f"{unit.name}-{unit_key(unit, go_version())}", stages)


def prune(cache: Path | None = None) -> list[Path]:
    """Remove builds of former versions; call it only while no cluster runs from them."""
    root = (cache or cache_dir()) / "tools"
    version = go_version()
    keep = {tools_key(version), "units"} | {
        f"{unit.name}-{unit_key(unit, version)}" for unit in (*UNITS, DEVICE_PLUGIN)
    }
    stale = [path for parent in (root, root / "units") if parent.is_dir() for path in parent.iterdir()]
    removed = [path for path in stale if path.is_dir() and path.name not in keep]
    for path in removed:
        shutil.rmtree(path)
    return removed


def _build_unit(unit: Unit, folder: Path, stages: Stages) -> Path:
    if folder.is_dir():
        stages.say(f"{unit.name}: built before")
        return folder
    # The compiler is many short processes with small heaps: collecting less often saves CPU time.
    environment = {"GOGC": "400", **os.environ, **unit.environment}
    with stages.stage(f"{unit.name}: {', '.join(unit.programs)}"), _into(folder) as scratch:
        command = [
            "nice",
            "-n",
            "5",
            "go",
            "build",
            "-trimpath",
            "-buildvcs=false",
            "-mod=readonly",
            "-ldflags",
            unit.ldflags,
        ]
        command += ["-tags", unit.tags] if unit.tags else []
        command += ["-o", f"{scratch}/", *unit.packages]
        stages.say(f"{unit.name}: compiling (the first time takes minutes)")
        outcome = subprocess.run(command, cwd=unit.source, env=environment, check=False)
        if outcome.returncode:
            raise ClusterError(f"{unit.name}: go build failed with exit code {outcome.returncode}")
        for package, wanted in unit.packages.items():
            built = scratch / _go_name(package, unit)
            if built.name != wanted:
                built.rename(scratch / wanted)
    return folder


def _go_name(package: str, unit: Unit) -> str:
    """Name the file as `go build` does: the last path element that is not a major version."""
    if package == ".":
        return unit.name
    parts = package.split("/")
    last = parts[-1]
    return parts[-2] if last.startswith("v") and last[1:].isdigit() else last


@contextmanager
def _into(target: Path) -> Iterator[Path]:
    """Fill a scratch folder and rename it, so that a cut-off build leaves nothing that looks finished."""
    target.parent.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    try:
        yield scratch
        scratch.chmod(0o755)
        scratch.rename(target)
    except BaseException:
        shutil.rmtree(scratch, ignore_errors=True)
        raise
