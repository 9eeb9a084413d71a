"""What Pod Security says of a pool's own pods: over TCP all fit `restricted`; RDMA needs locked memory, and is told so."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from e2e.cluster.kubectl import Kubectl
from e2e.harness.api import Api
from kvcachepool.preview import preview
from kvcachepool.settings import Settings
from tests.apiserver.conftest import ControlPlane

CASES = Path(__file__).parents[1] / "golden" / "cases"
TCP = ("mooncake-two-engines", "native-one-engine", "tp8-embedded-flash", "master-ha", "master-external")


@pytest.fixture
def restricted(kubectl: Kubectl, namespace: str) -> str:
    kubectl.run("label", "namespace", namespace, "pod-security.kubernetes.io/enforce=restricted")
    return namespace


def pods(case: str, namespace: str) -> dict[str, dict[str, Any]]:
    """A pod of each component of a golden case."""
    found = {}
    for document in preview((CASES / case / "pool.yaml").read_text(), Settings()):
        item = yaml.safe_load(document)
        if item["kind"] == "Deployment":
            template = item["spec"]["template"]
            component = template["metadata"]["labels"]["kvcachepool.io/component"]
            template["metadata"] |= {"name": component, "namespace": namespace}
            template["spec"].pop("priorityClassName", None)
            found[component] = {"apiVersion": "v1", "kind": "Pod"} | template
    return found


@pytest.mark.parametrize("case", TCP)
def test_pods_over_tcp_pass_the_restricted_profile(plane: ControlPlane, restricted: str, case: str) -> None:
    api, made = Api(plane.kubeconfig), pods(case, restricted)
    assert made
    assert {component: api.create_pod(pod) for component, pod in made.items()} == dict.fromkeys(made, "")


def test_pods_over_rdma_are_refused_with_the_sentence_that_the_status_quotes(
    plane: ControlPlane, restricted: str
) -> None:
    """bank-vaults#706, ocs-ci#11775. The condition for that sentence is PodSecurityForbidden."""
    api = Api(plane.kubeconfig)
    said = {component: api.create_pod(pod) for component, pod in pods("a100-rdma-shared", restricted).items()}
    assert said.pop("master") == "", "the master moves no blocks"
    assert said
    for message in said.values():
        assert 'violates PodSecurity "restricted:latest"' in message
        assert "IPC_LOCK" in message
