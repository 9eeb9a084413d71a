"""Pools without engines: a real master and store pod, up in seconds. For what does not need an engine."""

from __future__ import annotations

from typing import Any

from e2e.harness.kube import Json
from e2e.harness.pools import tiny_engines, tiny_pool


def store_only(images: dict[str, str], name: str, namespace: str, *, engines: Json | None = None, **spec: Any) -> Json:
    """`engines` changes fields of the engines, of which there are none unless it says so."""
    version = images["engine-cpu"].rsplit(":", 1)[1].split("-")[0]
    fields = {"replicas": 0} | (engines or {})
    return tiny_pool(images, name, namespace, engines=tiny_engines(images, version=version, **fields), **spec)
