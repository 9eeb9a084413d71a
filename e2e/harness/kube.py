"""kubectl, and waiting for what it shows."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from e2e.cluster.errors import ClusterError
from e2e.cluster.kubectl import Kubectl

Json = dict[str, Any]


class WaitTimeoutError(AssertionError):
    """Something did not come about in time; the message says what was seen last."""


class Kube(Kubectl):
    """kubectl with the verbs that tests and demo need."""

    def __init__(self, program: Path | str, kubeconfig: Path) -> None:
        super().__init__(program, kubeconfig)
        self.kubeconfig = kubeconfig

    def find(self, *arguments: str) -> Json | None:
        """The object, or None when it does not exist."""
        text = self.run("get", *arguments, "--output=json", "--ignore-not-found")
        return json.loads(text) if text.strip() else None

    def items(self, *arguments: str) -> list[Json]:
        """Items of a list."""
        items: list[Json] = self.get(*arguments)["items"]
        return items

    def create(self, manifest: Json) -> None:
        """As a user does: client-side apply."""
        self.run("apply", "-f", "-", data=yaml.safe_dump(manifest))

    def namespace(self, name: str, **labels: str) -> None:
        """Make the namespace unless it is there; underscores in label names become `pod-security.kubernetes.io/…`."""
        keys = {f"pod-security.kubernetes.io/{key}": value for key, value in labels.items()}
        self.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": keys}})

    def pool(self, namespace: str, name: str) -> Json:
        """The KVCachePool."""
        result: Json = self.get("kvcachepool", name, "-n", namespace)
        return result

    def condition(self, namespace: str, name: str, kind: str) -> Json:
        """One condition of a pool; empty when it is not there."""
        found = self.find("kvcachepool", name, "-n", namespace) or {}
        conditions = found.get("status", {}).get("conditions", [])
        return next((c for c in conditions if c["type"] == kind), {})

    def wait(self, what: str, seen: Callable[[], Any], *, timeout: float, pause: float = 1.0) -> Any:
        """Poll `seen` until it gives something true; raises WaitTimeoutError with the last thing seen."""
        deadline = time.monotonic() + timeout
        last: Any = None
        while True:
            try:
                last = seen()
                if last:
                    return last
            except ClusterError as error:
                last = str(error)
            if time.monotonic() > deadline:
                raise WaitTimeoutError(f"{what}: not within {timeout:.0f} s; last seen: {last!r}")
            time.sleep(pause)

    def wait_condition(
        self, namespace: str, name: str, kind: str, status: str, *, reason: str | None = None, timeout: float = 120
    ) -> Json:
        """Wait until a pool's condition reads so for the spec as it is now; the error shows all conditions."""

        def seen() -> Json | None:
            pool = self.pool(namespace, name)
            conditions = pool.get("status", {}).get("conditions", [])
            found: Json = next((c for c in conditions if c["type"] == kind), {})
            current = found.get("observedGeneration") == pool["metadata"]["generation"]
            fits = found.get("status") == status and reason in (None, found.get("reason"))
            return found if current and fits else None

        try:
            result: Json = self.wait(f"{kind}={status}", seen, timeout=timeout)
        except WaitTimeoutError as error:
            raise WaitTimeoutError(f"{error}\n{self.describe(namespace, name)}") from error
        return result

    def describe(self, namespace: str, name: str) -> str:
        """Conditions and pods, for an error message."""
        status = (self.find("kvcachepool", name, "-n", namespace) or {}).get("status", {})
        lines = [
            f"{c['type']:20} {c['status']:8} {c['reason']:24} {c.get('message', '')}"
            for c in status.get("conditions", [])
        ]
        pods = self.run("get", "pods", "-n", namespace, "-o", "wide")
        return "\n".join([*lines, pods])
