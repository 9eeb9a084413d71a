"""A kind cluster, for machines that have docker and kind but no root."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import yaml

from . import hardware
from .builder import program
from .errors import ClusterError, MissingToolError
from .kubectl import Kubectl
from .settings import Settings
from .stages import Stages


class KindProvider:
    """Implements `Provider` with kind; the accelerators are pretended in the same way as on the embedded node."""

    name = "kind"

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._stages = Stages(f"kind {settings.name}")

    @property
    def kubeconfig(self) -> Path:
        return self._settings.cache / "state" / f"kind-{self._settings.name}" / "kubeconfig"

    def up(self) -> Path:
        self._check()
        name = self._settings.name
        self.kubeconfig.parent.mkdir(parents=True, exist_ok=True)
        if name in _kind("get", "clusters").split():
            _kind("export", "kubeconfig", "--name", name, "--kubeconfig", str(self.kubeconfig))
        else:
            image = os.environ.get("KVCP_KIND_IMAGE")
            with self._stages.stage("kind create cluster"):
                _kind(
                    *("create", "cluster", "--name", name, "--kubeconfig", str(self.kubeconfig)),
                    *("--config", "-", "--wait", "180s"),
                    *(("--image", image) if image else ()),
                    data=yaml.safe_dump(config(self._settings)),
                )
        with self._stages.stage("accelerators"):
            kubectl = Kubectl(program("kubectl", self._settings.cache), self.kubeconfig)
            hardware.advertise(kubectl, f"{name}-control-plane", self._settings.hardware)
        return self.kubeconfig

    def down(self, *, purge: bool = False) -> None:
        self._check()
        _kind("delete", "cluster", "--name", self._settings.name, "--kubeconfig", str(self.kubeconfig))
        shutil.rmtree(self.kubeconfig.parent, ignore_errors=True)
        self._stages.say("down" + ("; docker's images are docker's to remove" if purge else ""))

    def load_image(self, archive: Path, ref: str) -> None:
        self._check()
        with self._stages.stage(f"image {ref}"):
            _kind("load", "image-archive", str(archive), "--name", self._settings.name)

    def status(self) -> dict[str, str]:
        self._check()
        running = self._settings.name in _kind("get", "clusters").split()
        return {f"kind cluster {self._settings.name}": "running" if running else "stopped"}

    def _check(self) -> None:
        missing = [tool for tool in ("docker", "kind") if not shutil.which(tool)]
        if missing:
            raise MissingToolError(
                f"provider kind needs {' and '.join(missing)} on PATH (or use KVCP_PROVIDER=embedded)"
            )
        if subprocess.run(["docker", "info"], capture_output=True, check=False).returncode:
            raise MissingToolError("provider kind needs a docker daemon: `docker info` fails")


def config(settings: Settings) -> dict[str, Any]:
    """Build kind's configuration; ranges as in the embedded cluster, so that examples fit both."""
    return {
        "kind": "Cluster",
        "apiVersion": "kind.x-k8s.io/v1alpha4",
        "networking": {"podSubnet": settings.network.pod_cidr, "serviceSubnet": settings.network.service_cidr},
        "nodes": [{"role": "control-plane"}],
    }


def _kind(*arguments: str, data: str | None = None) -> str:
    outcome = subprocess.run(["kind", *arguments], input=data, capture_output=True, text=True, check=False)
    if outcome.returncode:
        hint = ""
        if arguments[:2] == ("create", "cluster"):
            hint = "\n(if the node image cannot be pulled, load one into docker and name it in KVCP_KIND_IMAGE)"
        raise ClusterError(f"kind {' '.join(arguments)}: {outcome.stderr.strip()}{hint}")
    return outcome.stdout
