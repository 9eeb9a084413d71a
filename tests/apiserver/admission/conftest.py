"""An API server with the admission policy in force, and pools whose operator is gone for good."""

from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from e2e.cluster.controlplane import ControlPlane
from e2e.harness.api import Api
from kvcachepool import constants, policy
from kvcachepool.api import KVCachePool
from tests.apiserver.conftest import eventually
from tests.apiserver.pools import manifest_of
from tests.members import engine_of, status_of
from tests.pools import pool

Json = dict[str, Any]

NAME = "kvcp-test-schema"


@pytest.fixture(scope="module")
def api(plane: ControlPlane) -> Iterator[Api]:
    """The API server with the policy installed and in force."""
    objects = (policy.policy(NAME), *policy.bindings(NAME))
    plane.kubectl.run("apply", "-f", "-", data=yaml.safe_dump_all(objects))
    api = Api(plane.kubeconfig)
    stranger = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "x", "namespace": "default", "labels": {constants.LABEL_POOL: "none"}},
        "spec": {"containers": [{"name": "x", "image": "x"}]},
    }
    eventually(lambda: api.create_pod(stranger) != "")
    yield api
    for obj in objects:
        plane.kubectl.run("delete", obj["kind"], obj["metadata"]["name"])


class World:
    """A namespace with pools whose operator is gone for good."""

    def __init__(self, api: Api, namespace: str) -> None:
        self.api = api
        self.namespace = namespace

    def pool(self, spec: Json | None = None, *, name: str = "demo", status: Json | None = None) -> KVCachePool:
        """Make a pool; unless another one is given, with the status that an operator would have left."""
        subject = pool(spec, name=name, namespace=self.namespace)
        path = f"/apis/{constants.API_VERSION}/namespaces/{self.namespace}/{constants.PLURAL}"
        manifest = manifest_of(subject)
        code, answer = self.api.call("POST", path, manifest)
        assert code == 201, answer
        self.status(name, status_of(subject) if status is None else status)
        return subject

    def admits(self, pod: Json) -> None:
        """Wait until the admission plugin knows the pool well enough to let the pod in."""
        said = [""]

        def holds() -> bool:
            said[0] = self.api.create_pod(pod)
            return said[0] == ""

        try:
            eventually(holds)
        except AssertionError:
            pytest.fail(said[0])

    def status(self, name: str, status: Json) -> None:
        """Write a pool's status."""
        path = f"/apis/{constants.API_VERSION}/namespaces/{self.namespace}/{constants.PLURAL}/{name}/status"
        code, answer = self.api.call("PATCH", path, {"status": status}, "application/merge-patch+json")
        assert code == 200, answer


@pytest.fixture
def world(api: Api, namespace: str) -> World:
    return World(api, namespace)


@pytest.fixture
def demo(world: World) -> KVCachePool:
    """The pool of most tests, known to the admission plugin."""
    subject = world.pool()
    world.admits(engine_of(subject))
    return subject
