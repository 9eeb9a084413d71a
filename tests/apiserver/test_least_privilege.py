"""The operator itself, with the token of the chart's service account and nothing more."""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from e2e.cluster.controlplane import ControlPlane
from e2e.cluster.kubectl import Kubectl
from tests.apiserver.conftest import ROOT, eventually
from tests.apiserver.pools import pool
from tests.chart import helm

pytestmark = pytest.mark.helm

ACCOUNT = "kvcp-kvcachepool-operator"


def rendered(namespace: str, scope: str) -> list[dict[str, Any]]:
    """What the chart gives the operator's account; not the operator, which runs here."""
    kinds = {"ServiceAccount", "Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding"}
    kinds |= {"Secret", "MutatingWebhookConfiguration"}
    values = {"scope": scope, "namespaces": [namespace] if scope == "namespaces" else []}
    return [item for item in helm.template(values) if item["kind"] in kinds]


def as_account(plane: ControlPlane, folder: Path) -> Path:
    """A kubeconfig with a token of the service account."""
    config = yaml.safe_load(plane.kubectl.run("config", "view", "--raw", "-o", "yaml"))
    token = plane.kubectl.run("create", "token", ACCOUNT, f"--namespace={helm.NAMESPACE}").strip()
    for user in config["users"]:
        user["user"] = {"token": token}
    path = folder / "kubeconfig"
    path.write_text(yaml.safe_dump(config))
    return path


@pytest.fixture(params=["namespaces", "cluster"])
def log(plane: ControlPlane, namespace: str, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """A running operator, limited by the chart's roles; its log."""
    objects = rendered(namespace, request.param)
    if not plane.kubectl.succeeds("get", "namespace", helm.NAMESPACE):
        plane.kubectl.run("create", "namespace", helm.NAMESPACE)
    plane.kubectl.apply(objects)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    told = helm.environment(helm.template({"scope": request.param}))
    webhook = {name: value for name, value in told.items() if name.startswith("KVCP_WEBHOOK_")}
    if webhook:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            webhook["KVCP_WEBHOOK_PORT"] = str(free.getsockname()[1])
    environment = (
        os.environ
        | webhook
        | {
            "KUBECONFIG": str(as_account(plane, tmp_path)),
            "PYTHONPATH": str(ROOT / "operator"),
            "KVCP_NAMESPACES": namespace if request.param == "namespaces" else "",
            "KVCP_LEASE_NAMESPACE": helm.NAMESPACE,
            "KVCP_LEASE_NAME": f"lease-of-{namespace}",
            "KVCP_IDENTITY": "here",
            "KVCP_HTTP_PORT": str(port),
            "KVCP_RESYNC_SECONDS": "5",
        }
    )
    path = tmp_path / "log"
    with path.open("w") as output:
        command = [sys.executable, "-m", "kvcachepool.cli", "run"]
        operator = subprocess.Popen(command, env=environment, cwd=tmp_path, stdout=output, stderr=subprocess.STDOUT)
    yield path
    operator.terminate()
    code = operator.wait(timeout=30)
    plane.kubectl.run("delete", "-f", "-", "--ignore-not-found", data=yaml.safe_dump_all(objects))
    assert code == 0, path.read_text()


def reason(kubectl: Kubectl, namespace: str, condition: str) -> str:
    """Reason of a condition of the pool, or nothing yet."""
    status = kubectl.get("kvpool", "mine", f"--namespace={namespace}").get("status", {})
    return next((item["reason"] for item in status.get("conditions", ()) if item["type"] == condition), "")


def test_the_operator_does_all_its_work(kubectl: Kubectl, namespace: str, log: Path) -> None:
    source = {"hub": {"tokenSecretRef": {"name": "hub-token"}}}
    manifest = pool("mine", namespace, model={"id": "org/model", "revision": "r1", "source": source})
    where = f"--namespace={namespace}"

    kubectl.run("apply", "-f", "-", data=yaml.safe_dump(manifest))
    eventually(lambda: reason(kubectl, namespace, "Accepted") == "SecretNotFound")

    kubectl.run("create", "secret", "generic", "hub-token", "--from-literal=token=x", where)
    eventually(lambda: len(kubectl.get("deployments", where)["items"]) > 0)
    eventually(lambda: reason(kubectl, namespace, "Accepted") == "Valid")
    eventually(lambda: "Valid" in kubectl.run("get", "events", where))

    kubectl.run("delete", "kvpool", "mine", where, "--timeout=30s")
    eventually(lambda: kubectl.get("deployments,services", where)["items"] == [])
    for hook in kubectl.get("mutatingwebhookconfigurations")["items"]:
        assert hook["webhooks"][0]["clientConfig"]["caBundle"], "the operator told the API server of its certificate"
    # pools of other tests are on their way out together with their namespaces
    said = [line for line in log.read_text().lower().splitlines() if "being terminated" not in line]
    assert not [line for line in said if "forbidden" in line]
