"""Runs kubectl: what needs an API server here needs it rarely, so its own client is library enough."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml

from .errors import ClusterError


class Kubectl:
    """kubectl for one kubeconfig."""

    def __init__(self, program: Path | str, kubeconfig: Path) -> None:
        self._command = [str(program), f"--kubeconfig={kubeconfig}", "--request-timeout=20s"]

    def run(self, *arguments: str, data: str | None = None) -> str:
        """Return its output; its own words are the error's text."""
        outcome = subprocess.run([*self._command, *arguments], input=data, capture_output=True, check=False, text=True)
        if outcome.returncode:
            raise ClusterError(f"kubectl {' '.join(arguments)}: {outcome.stderr.strip() or outcome.stdout.strip()}")
        return outcome.stdout

    def succeeds(self, *arguments: str) -> bool:
        outcome = subprocess.run(
            [*self._command, *arguments], stdin=subprocess.DEVNULL, capture_output=True, check=False
        )
        return outcome.returncode == 0

    def get(self, *arguments: str) -> Any:
        return json.loads(self.run("get", *arguments, "--output=json"))

    def apply(self, objects: Iterable[Mapping[str, Any]]) -> None:
        """Server-side apply, so that a second start leaves alone what others added."""
        documents = yaml.safe_dump_all([dict(item) for item in objects], sort_keys=False)
        self.run(
            "apply", "--server-side", "--force-conflicts", "--field-manager=kvcp-cluster", "-f", "-", data=documents
        )
