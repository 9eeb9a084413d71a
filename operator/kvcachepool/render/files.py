"""Configuration files of a pod, out of its own annotations: they cannot be changed under a running pod, need no
ConfigMap to be kept in step, and a changed file is a changed template (docs/adr/0003)."""

from collections.abc import Mapping
from typing import Any

from kvcachepool import constants

_PREFIX = f"{constants.GROUP}/"


def file_annotations(files: Mapping[str, str]) -> dict[str, str]:
    """Annotations that hold the files, by file name."""
    return {f"{_PREFIX}{name}": text for name, text in files.items()}


def files_volume(volume: str, files: Mapping[str, str]) -> dict[str, Any]:
    """The volume that shows them as files."""
    items = [
        {"path": name, "fieldRef": {"fieldPath": f"metadata.annotations['{_PREFIX}{name}']"}} for name in sorted(files)
    ]
    return {"name": volume, "downwardAPI": {"items": items}}
