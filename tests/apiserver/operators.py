"""The operator as a process of its own, with the rights of a cluster administrator."""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from e2e.cluster.controlplane import ControlPlane
from tests.apiserver.conftest import ROOT


@dataclass(frozen=True)
class Running:
    """A running operator."""

    log: Path
    http_port: int


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port


def environment(plane: ControlPlane, **more: str) -> dict[str, str]:
    """For the operator's commands."""
    return os.environ | {"KUBECONFIG": str(plane.kubeconfig), "PYTHONPATH": str(ROOT / "operator")} | more


@contextmanager
def running(plane: ControlPlane, folder: Path, namespace: str, **more: str) -> Iterator[Running]:
    """Watches one namespace; must end well."""
    port, log = free_port(), folder / "operator.log"
    settings = {
        "KVCP_NAMESPACES": namespace,
        "KVCP_LEASE_NAMESPACE": namespace,
        "KVCP_IDENTITY": "here",
        "KVCP_HTTP_PORT": str(port),
        "KVCP_RESYNC_SECONDS": "5",
    }
    with log.open("w") as output:
        command = [sys.executable, "-m", "kvcachepool.cli", "run"]
        process = subprocess.Popen(
            command, env=environment(plane, **(settings | more)), cwd=folder, stdout=output, stderr=subprocess.STDOUT
        )
    try:
        yield Running(log, port)
    finally:
        process.terminate()
        code = process.wait(timeout=30)
    assert code == 0, log.read_text()
