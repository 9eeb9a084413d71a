"""A real API server with etcd and controllers, and no node: started once a session, in a few seconds."""

import os
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from e2e.cluster.controlplane import ControlPlane
from e2e.cluster.errors import ClusterError
from e2e.cluster.kubectl import Kubectl

ROOT = Path(__file__).resolve().parents[2]
CRD_FILE = ROOT / "crds" / "kvcachepools.kvcachepool.io.yaml"


def eventually(holds: Callable[[], bool], seconds: float = 90) -> None:
    """Wait for what the API server does a moment later, such as serving a changed CRD."""
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, "did not come true"
        time.sleep(0.2)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what lies here. Missing programs are a failure unless somebody asked to do without."""
    skip = pytest.mark.skipif(bool(os.environ.get("KVCP_SKIP_APISERVER")), reason="KVCP_SKIP_APISERVER is set")
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.apiserver)
            item.add_marker(skip)


@pytest.fixture(scope="session")
def plane() -> Iterator[ControlPlane]:
    """The API server, with our CRD."""
    with ControlPlane() as started:
        started.kubectl.run("apply", "-f", str(CRD_FILE))
        eventually(lambda: started.kubectl.succeeds("get", "kvcachepools", "--all-namespaces"))
        yield started


@pytest.fixture
def kubectl(plane: ControlPlane) -> Kubectl:
    """kubectl as a cluster administrator."""
    return plane.kubectl


@pytest.fixture
def namespace(kubectl: Kubectl) -> Iterator[str]:
    """A namespace of the test's own."""
    name = f"t-{uuid.uuid4().hex[:10]}"
    kubectl.run("create", "namespace", name)
    yield name
    kubectl.run("delete", "namespace", name, "--wait=false")


def refusal(kubectl: Kubectl, *arguments: str, data: str | None = None) -> str:
    """What kubectl says when it fails; it must."""
    with pytest.raises(ClusterError) as error:
        kubectl.run(*arguments, data=data)
    return str(error.value)
