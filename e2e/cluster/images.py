"""Images without a registry: one static program as an OCI archive, and what an archive holds.

An image FROM scratch is a tar of one file and three small JSON documents, so
writing it takes less than calling an image builder.
"""

from __future__ import annotations

import hashlib
import io
import json
import platform
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PAUSE = "localhost/kvcp-pause:1"
COREDNS = "localhost/kvcp-coredns:1"
# What `go build` made for this machine, in the words of image indexes.
_ARCHITECTURE = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
_NAME = "io.containerd.image.name"
_REF_NAME = "org.opencontainers.image.ref.name"
_OCI = "application/vnd.oci.image"


def write_scratch_image(
    archive: Path, ref: str, programs: Mapping[str, Path], entrypoint: Sequence[str], *, user: str = "0"
) -> None:
    """Write an image that holds only these programs (path inside → file); same input, same digest."""
    layer = _layer(programs)
    blobs: dict[str, bytes] = {}

    def blob(data: bytes, media_type: str) -> dict[str, Any]:
        digest = hashlib.sha256(data).hexdigest()
        blobs[digest] = data
        return {"mediaType": media_type, "digest": f"sha256:{digest}", "size": len(data)}

    layer_descriptor = blob(layer, f"{_OCI}.layer.v1.tar")
    config = {
        "architecture": _ARCHITECTURE,
        "os": "linux",
        "config": {"Entrypoint": list(entrypoint), "User": user, "WorkingDir": "/"},
        "rootfs": {"type": "layers", "diff_ids": [layer_descriptor["digest"]]},
    }
    manifest = {
        "schemaVersion": 2,
        "mediaType": f"{_OCI}.manifest.v1+json",
        "config": blob(_json(config), f"{_OCI}.config.v1+json"),
        "layers": [layer_descriptor],
    }
    root = blob(_json(manifest), f"{_OCI}.manifest.v1+json")
    root["annotations"] = {_NAME: ref, _REF_NAME: ref}
    root["platform"] = {"architecture": _ARCHITECTURE, "os": "linux"}
    archive.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(archive, "w") as tar:
        _add(tar, "oci-layout", _json({"imageLayoutVersion": "1.0.0"}))
        _add(tar, "index.json", _json({"schemaVersion": 2, "manifests": [root]}))
        for digest, data in blobs.items():
            _add(tar, f"blobs/sha256/{digest}", data)


@dataclass(frozen=True)
class Contents:
    """The image in an archive: its names, and its manifest's digest if the format has one."""

    names: tuple[str, ...]
    digest: str | None


def inspect(archive: Path) -> Contents:
    """Read an archive's index without unpacking it; OCI archives and `docker save` output."""
    with tarfile.open(archive) as tar:
        documents: dict[str, Any] = {}
        for member in tar:
            name = member.name.removeprefix("./")
            if name in {"index.json", "manifest.json"}:
                file = tar.extractfile(member)
                documents[name] = json.load(file) if file else None
            if name == "index.json":
                break
    if index := documents.get("index.json"):
        manifests = index.get("manifests", [])
        names = [_image_name(item.get("annotations") or {}) for item in manifests]
        digest = manifests[0]["digest"] if len(manifests) == 1 else None
        return Contents(tuple(name for name in names if name), digest)
    if entries := documents.get("manifest.json"):
        return Contents(tuple(tag for entry in entries for tag in entry.get("RepoTags") or []), None)
    raise ValueError(f"{archive}: neither an OCI archive nor the output of `docker save`")


def _image_name(annotations: Mapping[str, str]) -> str | None:
    return annotations.get(_NAME) or annotations.get(_REF_NAME)


def _layer(programs: Mapping[str, Path]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name, path in sorted(programs.items()):
            _add(tar, name.lstrip("/"), path.read_bytes(), mode=0o755)
    return buffer.getvalue()


def _add(tar: tarfile.TarFile, name: str, data: bytes, *, mode: int = 0o644) -> None:
    member = tarfile.TarInfo(name)  # time, owner and group are zero: the digest depends on content alone
    member.size = len(data)
    member.mode = mode
    tar.addfile(member, io.BytesIO(data))


def _json(document: Mapping[str, Any]) -> bytes:
    return json.dumps(document, sort_keys=True).encode()
