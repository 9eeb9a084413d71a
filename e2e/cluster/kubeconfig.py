"""Writes kubeconfig files that stand alone: certificates inside, so that a copy works anywhere."""

from __future__ import annotations

import base64
import os
from pathlib import Path
from typing import Any

import yaml

from .pki import Pair


def document(*, cluster: str, server: str, ca: bytes, cert: bytes, key: bytes) -> dict[str, Any]:
    """Build the one-context document."""

    def encode(data: bytes) -> str:
        return base64.b64encode(data).decode()

    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": cluster, "cluster": {"server": server, "certificate-authority-data": encode(ca)}}],
        "users": [
            {
                "name": cluster,
                "user": {"client-certificate-data": encode(cert), "client-key-data": encode(key)},
            }
        ],
        "contexts": [{"name": cluster, "context": {"cluster": cluster, "user": cluster}}],
        "current-context": cluster,
    }


def write(path: Path, *, cluster: str, server: str, ca: Path, client: Pair) -> Path:
    """Write the file readable by its owner only: it holds a private key."""
    content = document(
        cluster=cluster,
        server=server,
        ca=ca.read_bytes(),
        cert=client.cert.read_bytes(),
        key=client.key.read_bytes(),
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        yaml.safe_dump(content, file, sort_keys=False)
    return path
