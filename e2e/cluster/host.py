"""What a cluster changes on its host, and the way back: bridge, kernel settings, mounts, cgroups, sockets.

`release` must work after anything: a clean stop, a crash, a machine that was
restarted, a start that failed half-way. So it never asks what was done, it
looks at what is there and is ours.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
from pathlib import Path

from . import firewall, processes
from .errors import MissingToolError, RefusedError
from .settings import Settings

_SYSCTLS = {
    "net/ipv4/ip_forward": "1",
    # A reply from a pod on the same bridge must pass the rules that undo the Service's address translation.
    "net/bridge/bridge-nf-call-iptables": "1",
}
_PROGRAMS = ("runc", "ip", "iptables", "ip6tables", "ipset", "conntrack", "mount", "umount")
_CGROUPS = Path("/sys/fs/cgroup")
_OWNER = Path("/run/kvcachepool-cluster")
_DEVICE_PLUGINS = Path("/var/lib/kubelet/device-plugins")
_CNI_RESULTS = Path("/var/lib/cni/results")
_CONTAINER_LINKS = Path("/var/log/containers")


def check_prerequisites() -> None:
    """Say all that is missing at once."""
    if os.geteuid() != 0:
        raise RefusedError(
            "the embedded cluster runs containers, so it must be started as root (or use KVCP_PROVIDER=kind)"
        )
    missing = [program for program in _PROGRAMS if not shutil.which(program)]
    if not Path("/usr/lib/cni/bridge").is_file():
        missing.append("CNI plugins in /usr/lib/cni")
    if missing:
        raise MissingToolError(f"missing: {', '.join(missing)}; on Debian run e2e/setup/debian-packages.sh")


def claim(settings: Settings) -> None:
    """Refuse a second node on the host: kube-proxy's chains have the same names in both."""
    try:
        owner = _OWNER.read_text().strip()
    except FileNotFoundError:
        owner = ""
    if owner and owner != str(settings.state) and Path(owner).is_dir():
        other = processes.Supervisor(Path(owner))
        if any(other.alive(name) for name in other.names()):
            raise RefusedError(f"another embedded cluster runs from {owner}; stop that one first")
    if not owner and firewall.leftovers():
        raise RefusedError("a Kubernetes node or CNI network that is not ours has packet filter rules on this host")
    _OWNER.write_text(f"{settings.state}\n")


def owned(settings: Settings) -> bool:
    return _read(_OWNER) == str(settings.state)


def prepare(settings: Settings) -> None:
    """Make the bridge, whose address is the node's and the API server's, and let packets through it."""
    _make_cgroups(settings)
    bridge, address = settings.bridge, f"{settings.network.node_ip}/24"
    if not Path(f"/sys/class/net/{bridge}").exists():
        _run("ip", "link", "add", bridge, "type", "bridge")
    if address not in _run("ip", "-oneline", "address", "show", "dev", bridge):
        _run("ip", "address", "add", address, "dev", bridge)
    _run("ip", "link", "set", bridge, "up")
    saved = settings.state / "sysctls.json"
    before = {name: value for name in _SYSCTLS if (value := _read(Path("/proc/sys") / name)) is not None}
    if not saved.exists():
        saved.parent.mkdir(parents=True, exist_ok=True)
        saved.write_text(json.dumps(before))
    for name in before:
        (Path("/proc/sys") / name).write_text(_SYSCTLS[name])
    firewall.allow_forwarding(bridge)


def release(settings: Settings) -> list[str]:
    """Take everything back; returns what could not be."""
    end_containers(settings)
    unmount(settings.state)
    bridge = settings.bridge
    if Path(f"/sys/class/net/{bridge}").exists():
        _run("ip", "link", "delete", bridge)
    problems = firewall.clear() if owned(settings) else []
    _remove_cgroups(settings)
    _remove_strays(settings)
    try:
        before = json.loads((settings.state / "sysctls.json").read_text())
    except (OSError, ValueError):
        before = {}
    for name, value in before.items():
        (Path("/proc/sys") / name).write_text(value)
    (settings.state / "sysctls.json").unlink(missing_ok=True)
    problems += leftovers(settings)
    if owned(settings) and not problems:
        _OWNER.unlink()
    return problems


def leftovers(settings: Settings) -> list[str]:
    """Name what of the cluster is on the host; empty after a complete `release`."""
    found = [f"mount {point}" for point in mounts(settings.state)]
    found += [f"process {pid}" for pid in _shims(settings)]
    found += [f"cgroup {path}" for path in _cgroups(settings)]
    found += [f"packet filter {chain}" for chain in firewall.leftovers() if owned(settings)]
    if Path(f"/sys/class/net/{settings.bridge}").exists():
        found.append(f"bridge {settings.bridge}")
    return found


def end_containers(settings: Settings) -> None:
    """End the pods' processes, then the shims that watch over them.

    The cgroup tells which processes are in a pod, whoever their parent is by now.
    """
    if any(processes.Supervisor(settings.state).alive(name) for name in ("kubelet", "containerd")):
        raise RuntimeError("containers would be started again: stop the kubelet and containerd first")
    for _ in range(5):  # a process may fork while its siblings are counted
        pids = {int(pid) for path in _cgroups(settings) for pid in (_read(path / "cgroup.procs") or "").split()}
        if not pids:
            break
        processes.end(pids)
    processes.end(_shims(settings))


def unmount(below: Path) -> None:
    """Unmount everything below a folder, deepest and newest first."""
    for point in reversed(mounts(below)):
        subprocess.run(["umount", "--lazy", point], capture_output=True, check=False)


def mounts(below: Path) -> list[str]:
    """Mount points below a folder in the order in which they were made."""
    rows = Path("/proc/self/mountinfo").read_text().splitlines()
    # The kernel writes blanks and the like as octal escapes.
    points = [row.split()[4].encode().decode("unicode_escape") for row in rows]
    return [point for point in points if point.startswith(f"{below}/")]


def _shims(settings: Settings) -> list[int]:
    address = str(settings.state / "run")

    def ours(argv: list[str]) -> bool:
        return Path(argv[0]).name == "containerd-shim-runc-v2" and any(item.startswith(address) for item in argv)

    return processes.find(ours)


def _hierarchies() -> list[Path]:
    """Roots of the cgroup hierarchies that hold resources: one in version 2, one per controller in version 1."""
    if (_CGROUPS / "cgroup.controllers").exists():
        return [_CGROUPS]
    # A hierarchy may be there under two names, one of them a link; `unified`, without controllers, also gets cgroups.
    return [path for path in _CGROUPS.iterdir() if path.is_dir() and not path.is_symlink()]


def _make_cgroups(settings: Settings) -> None:
    """Make a parent for the pods' cgroups, so that ours are never mixed up with another node's."""
    for root in _hierarchies():
        control = root / "cgroup.subtree_control"
        if control.exists():
            for controller in (root / "cgroup.controllers").read_text().split():
                _try_write(control, f"+{controller}")
        (root / settings.name).mkdir(exist_ok=True)
        if control.exists():
            for controller in (root / settings.name / "cgroup.controllers").read_text().split():
                _try_write(root / settings.name / "cgroup.subtree_control", f"+{controller}")


def _cgroups(settings: Settings) -> list[Path]:
    """Our cgroups, children before parents."""
    found = [Path(folder) for root in _hierarchies() for folder, _, _ in os.walk(root / settings.name)]
    return sorted(found, key=lambda path: len(path.parts), reverse=True)


def _remove_cgroups(settings: Settings) -> None:
    def gone() -> bool:
        for path in _cgroups(settings):
            with contextlib.suppress(OSError):  # its last process may still be leaving
                path.rmdir()
        return not _cgroups(settings)

    processes.wait(gone, 5)


def _remove_strays(settings: Settings) -> None:
    """Remove the few files that the kubelet puts outside its folder, if they are from this cluster."""
    if (
        owned(settings)
        and _DEVICE_PLUGINS.is_dir()
        and not any(processes.find(lambda argv: Path(argv[0]).name == "kubelet"))
    ):
        shutil.rmtree(_DEVICE_PLUGINS)
    # What the CNI library remembers of pods; the file tells by its network namespace whose pod it was.
    for result in _CNI_RESULTS.glob("*"):
        if str(settings.state) in (_read(result) or ""):
            result.unlink()
    if _CONTAINER_LINKS.is_dir():
        for link in _CONTAINER_LINKS.iterdir():
            if link.is_symlink() and os.readlink(link).startswith(str(settings.state)):
                link.unlink()


def _read(path: Path) -> str | None:
    try:
        return path.read_text().strip()
    except OSError:
        return None


def _try_write(path: Path, text: str) -> None:
    # A controller may be in use elsewhere; if the kubelet needs it, it says so.
    with contextlib.suppress(OSError):
        path.write_text(text)


def _run(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout
