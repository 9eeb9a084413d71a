"""`helm upgrade` that leaves an older CRD in place (openvox-operator#555): what it lacks is left out of the status."""

import json
from collections.abc import Iterator
from copy import deepcopy

import pytest
import yaml
from kubernetes.aio.config import new_client_from_config

from e2e.cluster.controlplane import ControlPlane
from e2e.cluster.kubectl import Kubectl
from kvcachepool.cluster import Cluster
from tests.apiserver.conftest import ROOT, eventually
from tests.apiserver.pools import pool

CRD = ROOT / "crds" / "kvcachepools.kvcachepool.io.yaml"


@pytest.fixture
def older_crd(kubectl: Kubectl) -> Iterator[None]:
    """The CRD of an operator that did not know two of the status fields."""
    current = yaml.safe_load(CRD.read_text())
    old = deepcopy(current)
    (version,) = old["spec"]["versions"]
    status = version["schema"]["openAPIV3Schema"]["properties"]["status"]["properties"]
    del status["advice"]
    del status["verification"]["properties"]["detail"]
    kubectl.apply([old])
    yield
    kubectl.apply([current])
    eventually(lambda: "advice" in json.dumps(kubectl.get("crd", current["metadata"]["name"])["spec"]))


async def test_a_status_field_that_the_crd_does_not_know_is_left_out_and_told(
    plane: ControlPlane, kubectl: Kubectl, namespace: str, older_crd: None
) -> None:
    kubectl.run("apply", "-f", "-", data=yaml.safe_dump(pool("old", namespace)))
    uid = kubectl.get("kvpool", "old", f"--namespace={namespace}")["metadata"]["uid"]
    status = {"backend": "mooncake", "advice": "lost", "verification": {"outcome": "Verified", "detail": "lost"}}
    client = await new_client_from_config(config_file=str(plane.kubeconfig))
    try:
        cluster = Cluster(client)
        written = await cluster.apply_status(namespace, "old", uid, status)
    finally:
        await client.close()
    assert written["status"] == {"backend": "mooncake", "verification": {"outcome": "Verified"}}
    assert set(cluster.undeclared()) == {("advice",), ("verification", "detail")}
