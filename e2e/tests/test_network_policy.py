"""NetworkPolicies, enforced: who gets a connection to which port of a running pool."""

from collections.abc import Iterator

import pytest

from e2e.harness import operator
from e2e.harness.install import NAMESPACE
from e2e.harness.kube import Json, Kube
from e2e.tests.conftest import Running
from kvcachepool import constants
from kvcachepool.ports import STORE_PORT

RPC, HTTP, API = constants.MASTER_RPC_PORT, constants.MASTER_HTTP_PORT, constants.ENGINE_PORT
CONNECT = """
import socket, sys
try:
    socket.create_connection((sys.argv[1], int(sys.argv[2])), 3).close()
    print("open")
except OSError as error:
    print("closed", type(error).__name__)
"""


def pods(kube: Kube, pool: Running, component: str) -> list[Json]:
    selector = f"{constants.LABEL_POOL}={pool.name},{constants.LABEL_COMPONENT}={component}"
    return kube.items("pods", "-n", pool.namespace, "-l", selector)


def reaches(kube: Kube, source: tuple[str, str], target: Json, port: int) -> bool:
    """Whether a process in the pod `source` (namespace, name) gets a connection."""
    namespace, name = source
    said = kube.run("exec", "-n", namespace, name, "--", "python3", "-c", CONNECT, target["status"]["podIP"], str(port))
    assert said.startswith(("open", "closed")), said
    return said.startswith("open")


@pytest.fixture
def stranger(kube: Kube, shared_pool: Running, images: dict[str, str]) -> Iterator[tuple[str, str]]:
    """A pod of the pool's own namespace that is no member."""
    name = "stranger"
    security = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    kube.create(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": shared_pool.namespace},
            "spec": {
                "terminationGracePeriodSeconds": 0,
                "automountServiceAccountToken": False,
                "securityContext": {
                    "runAsNonRoot": True, "runAsUser": 65532, "seccompProfile": {"type": "RuntimeDefault"},
                },
                "containers": [
                    {
                        "name": "main",
                        "image": images["mooncake"],
                        "imagePullPolicy": "Never",
                        "command": ["python3", "-c", "import time; time.sleep(3600)"],
                        "securityContext": security,
                    }
                ],
            },
        }
    )  # fmt: skip
    kube.run("wait", "-n", shared_pool.namespace, f"pod/{name}", "--for=condition=Ready", "--timeout=120s")
    yield shared_pool.namespace, name
    kube.run("delete", "pod", name, "-n", shared_pool.namespace, "--wait=false")


def test_only_members_and_the_operator_reach_what_is_not_for_users(
    kube: Kube, shared_pool: Running, stranger: tuple[str, str]
) -> None:
    (master,) = pods(kube, shared_pool, "master")
    store, engine = pods(kube, shared_pool, "store")[0], pods(kube, shared_pool, "engine")[0]
    member = (shared_pool.namespace, engine["metadata"]["name"])
    watcher = (NAMESPACE, operator.leader(kube))

    kube.wait("the stranger is shut out", lambda: not reaches(kube, stranger, master, RPC), timeout=30)
    assert not reaches(kube, stranger, master, HTTP)
    assert not reaches(kube, stranger, store, STORE_PORT)
    assert reaches(kube, stranger, engine, API), "users may be anywhere"

    assert reaches(kube, member, master, RPC)
    assert reaches(kube, member, store, STORE_PORT)
    assert not reaches(kube, member, master, HTTP), "the admin port is not for engines"

    assert reaches(kube, watcher, master, HTTP)
    assert reaches(kube, watcher, engine, API)
    assert not reaches(kube, watcher, master, RPC)
    assert not reaches(kube, watcher, store, STORE_PORT)


def test_switched_off_and_on_again_without_touching_a_pod(
    kube: Kube, shared_pool: Running, stranger: tuple[str, str]
) -> None:
    (master,) = pods(kube, shared_pool, "master")
    every = ("pods", "-n", shared_pool.namespace, "-l", f"{constants.LABEL_POOL}={shared_pool.name}")
    before = {pod["metadata"]["uid"] for pod in kube.items(*every)}

    def switch(on: bool) -> None:
        patch = f'{{"spec": {{"networkPolicy": {{"enabled": {str(on).lower()}}}}}}}'
        kube.run("patch", "kvpool", shared_pool.name, "-n", shared_pool.namespace, "--type=merge", "-p", patch)

    switch(on=False)
    try:
        kube.wait(
            "no policy is left", lambda: not kube.items("networkpolicies", "-n", shared_pool.namespace), timeout=60
        )
        kube.wait("everybody gets through", lambda: reaches(kube, stranger, master, HTTP), timeout=30)
    finally:
        switch(on=True)
    kube.wait("the stranger is shut out again", lambda: not reaches(kube, stranger, master, HTTP), timeout=60)
    assert before == {pod["metadata"]["uid"] for pod in kube.items(*every)}
