"""Ways to leave. Last in the order of files: they take the operator, the CRD and everything away."""

from collections.abc import Iterator

import pytest

from e2e.harness import operator
from e2e.harness.install import NAMESPACE, RELEASE, Installation
from e2e.harness.kube import Kube
from e2e.harness.store_only import store_only


@pytest.fixture
def own(installation: Installation, kube: Kube) -> Iterator[None]:
    """Nothing of ours is in the cluster before and after."""
    yield
    for release in (RELEASE, "team"):
        for where in (NAMESPACE, "team-ops"):
            installation.helm("uninstall", release, "-n", where, "--ignore-not-found", "--wait")
    kube.run("delete", "crd", "kvcachepools.kvcachepool.io", "--ignore-not-found", "--timeout=60s")


def gone(kube: Kube, namespace: str) -> bool:
    return kube.find("namespace", namespace) is None


def test_pools_and_crd_can_be_deleted_after_the_operator(
    installation: Installation, kube: Kube, namespace: str, images: dict[str, str], own: None
) -> None:
    installation.install()
    for name in ("one", "two"):
        kube.create(store_only(images, name, namespace))
        kube.wait_condition(namespace, name, "StoreReady", "True", timeout=180)
    installation.helm("uninstall", RELEASE, "-n", NAMESPACE, "--wait")
    assert kube.find("crd", "kvcachepools.kvcachepool.io"), "the chart keeps the CRD"
    assert len(kube.items("kvpool", "-n", namespace)) == 2, "and the pools"
    kube.run("delete", "kvpool", "one", "-n", namespace, "--timeout=30s")
    kube.run("delete", "crd", "kvcachepools.kvcachepool.io", "--timeout=60s")
    kube.wait("children are gone", lambda: not kube.items("deployments,services,pods", "-n", namespace), timeout=120)


def test_a_namespaced_installation_needs_no_cluster_role_and_its_namespace_can_go(
    installation: Installation, kube: Kube, images: dict[str, str], own: None
) -> None:
    kube.namespace("team-ops")
    kube.namespace("team-a")
    try:
        installation.install("--set=scope=namespaces", "--set=namespaces={team-ops,team-a}", "--set=replicas=1",
                             release="team", namespace="team-ops")  # fmt: skip
        roles = kube.items("clusterroles,clusterrolebindings", "-l", "app.kubernetes.io/instance=team")
        assert roles == []
        for where in ("team-ops", "team-a"):
            kube.create(store_only(images, "pool", where))
            kube.wait_condition(where, "pool", "StoreReady", "True", timeout=180)
        assert operator.pods(kube, release="team", namespace="team-ops")
        kube.run("delete", "namespace", "team-ops", "--timeout=120s")
        assert gone(kube, "team-ops")
    finally:
        for where in ("team-ops", "team-a"):
            kube.run("delete", "namespace", where, "--ignore-not-found", "--wait=false")


def test_two_installations_share_a_cluster(
    installation: Installation, kube: Kube, images: dict[str, str], own: None
) -> None:
    """dynamo#4573, dask-kubernetes#916: a cluster-wide and a namespaced operator would reconcile the same pool."""
    kube.namespace("team-ops")
    kube.namespace("others")
    try:
        installation.install("--set=scope=namespaces", "--set=replicas=1", release="team", namespace="team-ops")
        installation.install("--set=crds.install=false")
        for where in ("team-ops", "others"):
            kube.create(store_only(images, "pool", where))
            kube.wait_condition(where, "pool", "StoreReady", "True", timeout=180)
        managers = {
            entry["manager"]
            for child in kube.items(
                "deployments", "-n", "team-ops", "-l", "kvcachepool.io/pool", "--show-managed-fields"
            )
            for entry in child["metadata"]["managedFields"]
        }
        assert "kvcachepool-operator" in managers
        conflict = 'namespace_conflict{namespace="team-ops"} 1.0'
        kube.wait(
            "the cluster-wide one tells that it leaves the namespace to the other",
            lambda: any(conflict in operator.metrics(kube, pod) for pod in operator.pods(kube)),
            timeout=60,
        )
    finally:
        for where in ("team-ops", "others"):
            kube.run("delete", "namespace", where, "--ignore-not-found", "--wait=false")
