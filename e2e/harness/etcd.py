"""An etcd for masters that elect a leader: a process of this machine at the node's address, which pods reach.

Of the embedded cluster only; its own etcd is on loopback and holds the cluster.
"""

from __future__ import annotations

import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from e2e.cluster import builder, processes
from e2e.harness.kube import Kube


@contextmanager
def etcd(kube: Kube) -> Iterator[str]:
    """Its endpoint as host:port."""
    addresses = kube.items("nodes")[0]["status"]["addresses"]
    host = next(address["address"] for address in addresses if address["type"] == "InternalIP")
    clients, peers = _free_port(host), _free_port(host)
    with tempfile.TemporaryDirectory(prefix="kvcp-etcd-") as folder, (Path(folder) / "log").open("wb") as log:
        command = [
            builder.program("etcd"), f"--data-dir={folder}/data", "--unsafe-no-fsync", "--log-level=warn",
            f"--listen-client-urls=http://{host}:{clients}", f"--advertise-client-urls=http://{host}:{clients}",
            f"--listen-peer-urls=http://{host}:{peers}", f"--initial-advertise-peer-urls=http://{host}:{peers}",
            f"--initial-cluster=default=http://{host}:{peers}",
        ]  # fmt: skip
        process = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            assert processes.wait(lambda: _listens(host, clients), 30), Path(log.name).read_text()
            yield f"{host}:{clients}"
        finally:
            process.terminate()
            process.wait(timeout=15)


def _free_port(host: str) -> int:
    with socket.socket() as found:
        found.bind((host, 0))
        port: int = found.getsockname()[1]
        return port


def _listens(host: str, port: int) -> bool:
    with suppress(OSError), socket.create_connection((host, port), timeout=1):
        return True
    return False
