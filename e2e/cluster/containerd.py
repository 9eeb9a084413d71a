"""What is asked of a running containerd: which images it has, import, and forgetting a dead cluster's pods."""

from __future__ import annotations

import subprocess
from pathlib import Path

from .errors import ClusterError
from .images import inspect

NAMESPACE = "k8s.io"  # the namespace where the kubelet's requests end up


class Containerd:
    """containerd by its own client `ctr`."""

    def __init__(self, bin_dir: Path, socket: Path) -> None:
        self._command = [str(bin_dir / "ctr"), "--address", str(socket), "--namespace", NAMESPACE]

    def run(self, *arguments: str) -> str:
        outcome = subprocess.run([*self._command, *arguments], capture_output=True, check=False, text=True)
        if outcome.returncode:
            raise ClusterError(f"ctr {' '.join(arguments)}: {outcome.stderr.strip()}")
        return outcome.stdout

    def ready(self) -> bool:
        try:
            self.run("version")
        except ClusterError:
            return False
        return True

    def images(self) -> dict[str, str]:
        """Name → digest."""
        rows = (line.split() for line in self.run("images", "list").splitlines()[1:])
        return {row[0]: row[2] for row in rows if len(row) > 2}

    def load(self, archive: Path, ref: str) -> bool:
        """Import an archive as `ref`; False if it was there already, which its digest tells in an instant."""
        contents = inspect(archive)
        if contents.digest and self.images().get(ref) == contents.digest:
            return False
        self.run("images", "import", "--digests=false", str(archive))
        if ref not in self.images():
            if not contents.names:
                raise ClusterError(f"{archive} holds no name; build it with one, such as oci-archive:FILE:{ref}")
            self.run("images", "tag", "--force", contents.names[0], ref)
        return True

    def forget_containers(self) -> int:
        """Remove the records of containers and sandboxes of a cluster that is gone; images stay."""
        containers = self.run("containers", "list", "--quiet").split()
        for container in containers:
            subprocess.run([*self._command, "tasks", "delete", "--force", container], capture_output=True, check=False)
            self.run("containers", "delete", container)
        sandboxes = [line.split()[0] for line in self.run("sandboxes", "list").splitlines()[1:] if line.strip()]
        for sandbox in sandboxes:
            self.run("sandboxes", "remove", "--force", sandbox)
        return len(containers) + len(sandboxes)
