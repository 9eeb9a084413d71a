"""The one interface to a cluster, whoever runs it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Protocol, runtime_checkable

from .settings import Settings, from_environment

PROVIDERS = ("embedded", "kind", "existing")
DEFAULT_PROVIDER = "embedded"


@runtime_checkable
class Provider(Protocol):
    """A cluster that tests and the demo can use without knowing where it runs."""

    @property
    def name(self) -> str:
        """The provider's name, one of `PROVIDERS`."""

    @property
    def kubeconfig(self) -> Path:
        """Credentials of a cluster administrator; the file exists after `up`."""

    def up(self) -> Path:
        """Make the cluster usable and return `kubeconfig`; quick when it already is."""

    def down(self, *, purge: bool = False) -> None:
        """Remove the cluster; with `purge` also what would make the next start faster."""

    def load_image(self, archive: Path, ref: str) -> None:
        """Make the image in an OCI or docker archive available to pods as `ref`."""

    def status(self) -> dict[str, str]:
        """Component → state, for people."""


def get_provider(name: str | None = None, settings: Settings | None = None) -> Provider:
    """Choose by argument, then by KVCP_PROVIDER, then the embedded one."""
    name = name or os.environ.get("KVCP_PROVIDER") or DEFAULT_PROVIDER
    settings = settings or from_environment()
    # Imported late: `existing` must work where what the others need is not installed.
    if name == "embedded":
        from .embedded import EmbeddedProvider

        return EmbeddedProvider(settings)
    if name == "kind":
        from .kind import KindProvider

        return KindProvider(settings)
    if name == "existing":
        from .existing import ExistingProvider

        return ExistingProvider(settings)
    raise ValueError(f"unknown provider {name!r}: choose one of {', '.join(PROVIDERS)}")
