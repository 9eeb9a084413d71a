"""Runs helm on the chart, without a cluster."""

import os
import subprocess
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from e2e.cluster.builder import program

CHART = Path(__file__).resolve().parents[2] / "charts" / "kvcachepool-operator"
NAMESPACE = "kvcp-system"
KUBE_VERSION = "1.34.0"
"""helm built from source knows no version of its own, and would take 1.20."""


def needs_helm() -> list[pytest.MarkDecorator]:
    """Marks of every module here. A missing helm is a failure unless somebody asked to do without."""
    skip = pytest.mark.skipif(bool(os.environ.get("KVCP_SKIP_HELM")), reason="KVCP_SKIP_HELM is set")
    return [pytest.mark.helm, skip]


class RefusedError(Exception):
    """helm's own words."""


def run(*arguments: str, stdin: str | None = None) -> str:
    """Output of helm; raises RefusedError."""
    command = [program("helm"), *arguments]
    outcome = subprocess.run(command, input=stdin, capture_output=True, text=True, check=False)
    if outcome.returncode:
        raise RefusedError(outcome.stderr)
    return outcome.stdout


def template(values: Mapping[str, Any] | None = None, *, release: str = "kvcp") -> list[dict[str, Any]]:
    """Rendered objects."""
    text = run(
        "template",
        release,
        str(CHART),
        f"--namespace={NAMESPACE}",
        f"--kube-version={KUBE_VERSION}",
        "--values=-",
        stdin=yaml.safe_dump(dict(values or {})),
    )
    return [document for document in yaml.safe_load_all(text) if document]


@cache
def defaults() -> Sequence[Mapping[str, Any]]:
    """Rendered objects of the chart as it is."""
    return template()


def one(objects: Sequence[Mapping[str, Any]], kind: str, name: str | None = None) -> Mapping[str, Any]:
    """The only object of that kind (and name)."""
    found = [item for item in objects if item["kind"] == kind and name in (None, item["metadata"]["name"])]
    assert len(found) == 1, f"{len(found)} objects of kind {kind}"
    return found[0]


def kinds(objects: Sequence[Mapping[str, Any]]) -> list[str]:
    """Sorted kinds, each as often as it occurs."""
    return sorted(item["kind"] for item in objects)


def environment(objects: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Literal environment of the operator's container."""
    container = one(objects, "Deployment")["spec"]["template"]["spec"]["containers"][0]
    return {entry["name"]: entry["value"] for entry in container["env"] if "value" in entry}
