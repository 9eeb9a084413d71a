"""Images that differ from one of ours in a file or two, made in a moment.

A variant is the base's manifest with one more layer. Its archive holds that layer alone: the others are in the node's
containerd already, since the base was loaded.
"""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

_LAYER: Final = "application/vnd.oci.image.layer.v1.tar"
_WHITEOUT: Final = ".wh."


def derive(base: Path, archive: Path, ref: str, files: Mapping[str, bytes | None]) -> None:
    """Write the archive of `ref`: the image in `base` with these files (absolute path to content; None: removed)."""
    blobs: dict[str, bytes] = {}

    def blob(data: bytes, media_type: str) -> dict[str, Any]:
        digest = f"sha256:{hashlib.sha256(data).hexdigest()}"
        blobs[f"blobs/{digest.replace(':', '/')}"] = data
        return {"mediaType": media_type, "digest": digest, "size": len(data)}

    with tarfile.open(base) as source:

        def read(descriptor: Mapping[str, Any]) -> Any:
            return _read(source, f"blobs/{descriptor['digest'].replace(':', '/')}")

        (entry,) = _read(source, "index.json")["manifests"]
        manifest = read(entry)
        config = read(manifest["config"])
    layer = blob(_layer(files), _LAYER)
    config["rootfs"]["diff_ids"].append(layer["digest"])
    config.setdefault("history", []).append({"created_by": "a variant for a test"})
    manifest["layers"].append(layer)
    manifest["config"] = blob(json.dumps(config).encode(), manifest["config"]["mediaType"])
    named = {"io.containerd.image.name": ref, "org.opencontainers.image.ref.name": ref}
    root = blob(json.dumps(manifest).encode(), entry["mediaType"]) | {"annotations": named}
    with tarfile.open(archive, "w") as target:
        _add(target, "oci-layout", b'{"imageLayoutVersion": "1.0.0"}')
        _add(target, "index.json", json.dumps({"schemaVersion": 2, "manifests": [root]}).encode())
        for name, data in blobs.items():
            _add(target, name, data)


def _layer(files: Mapping[str, bytes | None]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name, data in sorted(files.items()):
            folder, _, last = name.lstrip("/").rpartition("/")
            _add(tar, f"{folder}/{_WHITEOUT}{last}" if data is None else f"{folder}/{last}", data or b"")
    return buffer.getvalue()


def _add(tar: tarfile.TarFile, name: str, data: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size, member.mode = len(data), 0o644
    tar.addfile(member, io.BytesIO(data))


def _read(tar: tarfile.TarFile, name: str) -> Any:
    file = tar.extractfile(name)
    assert file is not None, name
    return json.load(file)
