"""A cluster that somebody else runs, reached by a kubeconfig.

Tests create and delete things, so this provider works only on a context that
was named on purpose, and keeps a copy of that context alone: switching the
context elsewhere while tests run cannot send them to another cluster.
"""

from __future__ import annotations

import os
import shlex
import subprocess
from collections.abc import Mapping
from pathlib import Path

from .builder import program
from .errors import ClusterError, RefusedError
from .kubectl import Kubectl
from .settings import Settings


class ExistingProvider:
    """Implements `Provider` for a cluster that is neither started nor stopped here."""

    name = "existing"

    def __init__(self, settings: Settings, env: Mapping[str, str] | None = None) -> None:
        self._settings = settings
        self._env = os.environ if env is None else env

    @property
    def kubeconfig(self) -> Path:
        return self._settings.cache / "state" / "existing" / "kubeconfig"

    def up(self) -> Path:
        kubectl = program("kubectl", self._settings.cache)
        context = allowed_context(self._kubectl_config(kubectl, "current-context").strip(), self._env)
        pinned = self._kubectl_config(kubectl, "view", "--minify", "--flatten", f"--context={context}")
        self.kubeconfig.parent.mkdir(parents=True, exist_ok=True)
        with open(os.open(self.kubeconfig, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
            file.write(pinned)
        Kubectl(kubectl, self.kubeconfig).run("get", "--raw", "/readyz")
        return self.kubeconfig

    def down(self, *, purge: bool = False) -> None:  # noqa: ARG002
        """Forget the credentials; the cluster is not ours to stop, with or without `purge`."""
        self.kubeconfig.unlink(missing_ok=True)

    def load_image(self, archive: Path, ref: str) -> None:
        command = load_command(self._env.get("KVCP_LOAD_IMAGE_CMD", ""), archive, ref)
        if subprocess.run(command, check=False).returncode:
            raise ClusterError(f"KVCP_LOAD_IMAGE_CMD failed: {shlex.join(command)}")

    def status(self) -> dict[str, str]:
        if not self.kubeconfig.exists():
            return {"existing cluster": "not connected: run `up`"}
        ready = Kubectl(program("kubectl", self._settings.cache), self.kubeconfig).succeeds("get", "--raw", "/readyz")
        return {"existing cluster": "running" if ready else "does not answer"}

    def _kubectl_config(self, kubectl: Path | str, *arguments: str) -> str:
        outcome = subprocess.run(
            [str(kubectl), "config", *arguments], env=dict(self._env), capture_output=True, text=True, check=False
        )
        if outcome.returncode:
            raise ClusterError(f"kubectl config {arguments[0]}: {outcome.stderr.strip()}")
        return outcome.stdout


def allowed_context(current: str, env: Mapping[str, str]) -> str:
    """Return the context if it was named on purpose."""
    allowed = env.get("KVCP_EXISTING_CONTEXT", "")
    if not allowed:
        raise RefusedError(
            f"tests would change the cluster of context {current!r}: "
            "to allow that, set KVCP_EXISTING_CONTEXT to its name"
        )
    if allowed != current:
        raise RefusedError(f"KVCP_EXISTING_CONTEXT allows {allowed!r}, but the current context is {current!r}")
    return current


def load_command(template: str, archive: Path, ref: str) -> list[str]:
    """Fill the template in word by word, so that a path with blanks stays one argument and no shell reads it."""
    if not template:
        raise RefusedError(
            "how an image gets into an existing cluster is not known here: push it to a registry that the cluster "
            "pulls from, or set KVCP_LOAD_IMAGE_CMD, such as 'skopeo copy oci-archive:{archive} docker://{ref}'"
        )
    values = {"{archive}": str(archive), "{ref}": ref}
    words = shlex.split(template)
    for placeholder, value in values.items():
        words = [word.replace(placeholder, value) for word in words]
    return words
