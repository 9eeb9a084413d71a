"""The running operator against Node objects of many kinds, on a real API server: what is made, what waits, what is said.

No controllers run here, since they would take nodes without a kubelet for dead.
"""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from e2e.cluster.controlplane import ControlPlane
from e2e.cluster.kubectl import Kubectl
from kvcachepool.rbac import DEVICE_PLUGIN_OWNER
from kvcachepool.render.device_plugin import NAME
from tests.apiserver.conftest import CRD_FILE, ROOT, eventually
from tests.nodes import A100, H100, L4, raw_node

OWN = "kvcp"
GROUPS = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {
        "name": "leaderworkersets.leaderworkerset.x-k8s.io",
        "annotations": {"api-approved.kubernetes.io": "https://github.com/kubernetes-sigs/lws"},
    },
    "spec": {
        "group": "leaderworkerset.x-k8s.io",
        "scope": "Namespaced",
        "names": {"kind": "LeaderWorkerSet", "plural": "leaderworkersets", "singular": "leaderworkerset"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "subresources": {"status": {}},
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "properties": {
                            "spec": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
                            "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
                        },
                    }
                },
            }
        ],
    },
}
"""Enough of LeaderWorkerSet to be applied and watched; its controller is not here."""


@pytest.fixture(scope="module")
def own_plane() -> Iterator[ControlPlane]:
    """An API server of its own: nodes are not namespaced."""
    with ControlPlane(controller_manager=False) as started:
        started.kubectl.run("apply", "-f", str(CRD_FILE))
        eventually(lambda: started.kubectl.succeeds("get", "kvcachepools", "--all-namespaces"))
        for name in ("default", OWN):
            if not started.kubectl.succeeds("get", "namespace", name):
                started.kubectl.run("create", "namespace", name)
        yield started


@pytest.fixture(scope="module")
def operator(own_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The operator as a process; its log."""
    folder = tmp_path_factory.mktemp("operator")
    own_plane.kubectl.run("create", "configmap", DEVICE_PLUGIN_OWNER, f"--namespace={OWN}")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environment = os.environ | {
        "KUBECONFIG": str(own_plane.kubeconfig),
        "PYTHONPATH": str(ROOT / "operator"),
        "KVCP_LEASE_NAMESPACE": OWN,
        "KVCP_IDENTITY": "here",
        "KVCP_HTTP_PORT": str(port),
        "KVCP_RESYNC_SECONDS": "600",  # what is seen below was brought by watches
        "KVCP_DEVICE_PLUGIN_ACCOUNT": "rdma",
        "KVCP_DEVICE_PLUGIN_IMAGE": "plugin:1",
    }
    log = folder / "log"
    with log.open("w") as output:
        command = [sys.executable, "-m", "kvcachepool.cli", "run"]
        process = subprocess.Popen(command, env=environment, cwd=folder, stdout=output, stderr=subprocess.STDOUT)
    yield log
    process.terminate()
    assert process.wait(timeout=30) == 0, log.read_text()


@pytest.fixture
def cluster(own_plane: ControlPlane, operator: Path) -> Iterator[Kubectl]:
    kubectl = own_plane.kubectl
    yield kubectl
    kubectl.run("delete", "kvpool", "--all", "--namespace=default")
    kubectl.run("delete", "nodes", "--all")
    kinds = "deployments,services,poddisruptionbudgets,networkpolicies"  # what the garbage collector would remove
    kubectl.run("delete", kinds, "--selector=kvcachepool.io/pool", "--namespace=default")


def add(kubectl: Kubectl, raw: dict[str, Any]) -> None:
    """A node with its status, as a kubelet would report it."""
    name = raw["metadata"]["name"]
    kubectl.run("apply", "-f", "-", data=json.dumps(raw))
    patch = json.dumps({"status": raw["status"]})
    kubectl.run("patch", "node", name, "--subresource=status", "--type=merge", f"--patch={patch}")


def make(kubectl: Kubectl, name: str = "solo", **spec: Any) -> None:
    manifest = {
        "apiVersion": "kvcachepool.io/v1alpha1",
        "kind": "KVCachePool",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"model": {"id": "org/model", "revision": "r1"}, "backend": {"native": {}}} | spec,
    }
    kubectl.run("apply", "-f", "-", data=json.dumps(manifest))


def condition(kubectl: Kubectl, kind: str = "HardwareMatched", name: str = "solo") -> dict[str, str]:
    conditions = kubectl.get("kvpool", name, "--namespace=default").get("status", {}).get("conditions", ())
    return next((c for c in conditions if c["type"] == kind), {"status": "", "reason": "", "message": ""})


def engine(kubectl: Kubectl, name: str = "solo") -> dict[str, Any] | None:
    items = kubectl.get("deployments", "--namespace=default")["items"]
    return next((d for d in items if d["metadata"]["name"].startswith(f"{name}-engine-")), None)


def group(kubectl: Kubectl, name: str = "solo") -> dict[str, Any] | None:
    items = kubectl.get("leaderworkersets", "--namespace=default")["items"]
    return next((d for d in items if d["metadata"]["name"].startswith(f"{name}-engine-")), None)


def test_a_pool_waits_for_a_node_and_takes_the_one_that_comes(cluster: Kubectl) -> None:
    add(cluster, raw_node("plain", gpus=0))
    add(cluster, raw_node("tainted", taints=("team=x:NoSchedule",)))
    add(cluster, raw_node("old", driver="470.82", old_labels=True))
    make(cluster)
    eventually(lambda: condition(cluster)["reason"] == "NoCompatibleDriver")
    message = condition(cluster)["message"]
    for part in ("0 of 3 nodes", "driver below 525, which CUDA 12 needs (found 470.82)", "(found team=x:NoSchedule)"):
        assert part in message
    assert condition(cluster, "EnginesReady")["reason"] == "WaitingForNodes"
    assert condition(cluster, "Ready")["status"] == "False"
    assert engine(cluster) is None

    add(cluster, raw_node("new", driver="550.54"))
    eventually(lambda: engine(cluster) is not None)
    made = engine(cluster)
    assert made is not None
    assert made["spec"]["template"]["spec"]["containers"][0]["image"].endswith("-cu12")
    eventually(lambda: condition(cluster)["reason"] == "NodesFit")
    hardware = cluster.get("kvpool", "solo", "--namespace=default")["status"]["hardware"]
    assert (hardware["nodes"], hardware["nodesMatched"], hardware["cuda"], hardware["product"]) == (4, 1, "12", H100)

    for name in ("newer", "other"):
        add(cluster, raw_node(name, product=L4 if name == "other" else H100))
    eventually(lambda: "2 of 6 nodes" in condition(cluster)["message"])
    cluster.run("delete", "node", "new")
    eventually(lambda: "1 of 5 nodes" in condition(cluster)["message"])
    cluster.run("cordon", "newer")
    eventually(lambda: condition(cluster)["status"] == "False")
    kept = engine(cluster)
    assert kept is not None
    assert kept["metadata"]["generation"] == made["metadata"]["generation"], "nothing was replaced"


@pytest.mark.parametrize(
    ("nodes", "spec", "reason", "says"),
    [
        ([raw_node("a"), raw_node("b", product=L4)], {}, "HeterogeneousGPUs", (f"{H100} (1 node), {L4} (1 node)",)),
        (
            [raw_node("a", product=L4)],
            {"engines": {"gpu": {"product": "L4"}}},
            "NoMatchingNodes",
            ("than L4 (found NVIDIA-L4)",),
        ),
        (
            [raw_node("a", offers={"rdma/hca_a": "63"})],
            {
                "backend": {"mooncake": {}},
                "transport": {"protocol": "RDMA", "rdma": {"resourceName": "rdma/hca_b"}},
            },
            "NoRDMANodes",
            ("fewer rdma/hca_b than 1 (found only rdma/hca_a)",),
        ),
        (
            [raw_node("a", memory="16Gi")],
            {"backend": {"native": {"cpuBytes": "64Gi"}}},
            "InsufficientNodeMemory",
            ("CPU cache 64Gi + engine 8Gi + /dev/shm 2Gi = 74Gi (found 16.0 GiB)",),
        ),
        (
            [raw_node("a", product=A100, driver="550.54")],
            {"cuda": {"version": "13"}},
            "NoCompatibleDriver",
            ("below 580, which CUDA 13 needs (found 550.54)",),
        ),
        (
            [raw_node("a"), raw_node("b")],
            {"schema": {"parallelism": {"tensor": 8, "pipeline": 2}}},
            "NoMatchingNodes",
            ("16 ranks", "8 nvidia.com/gpu", "LeaderWorkerSet"),
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_why_no_node_fits(
    cluster: Kubectl, nodes: list[dict[str, Any]], spec: dict[str, Any], reason: str, says: tuple[str, ...]
) -> None:
    for node in nodes:
        add(cluster, node)
    make(cluster, **spec)
    eventually(lambda: condition(cluster)["reason"] == reason)
    for part in says:
        assert part in condition(cluster)["message"]
    assert engine(cluster) is None


def test_a_build_that_contradicts_itself_makes_nothing(cluster: Kubectl) -> None:
    add(cluster, raw_node("a"))
    make(cluster, cuda={"version": "12"}, engines={"image": "vllm/vllm-openai:v0.33.0"})
    eventually(lambda: condition(cluster, "Accepted")["reason"] == "CUDABuildMismatch")
    assert (
        "found 12, but spec.engines.image vllm/vllm-openai:v0.33.0 is built for CUDA 13.0"
        in (condition(cluster, "Accepted")["message"])
    )
    assert cluster.get("deployments,services", "--namespace=default", "--selector=kvcachepool.io/pool")["items"] == []


def test_the_device_plugin_serves_all_pools_and_goes_with_the_last(cluster: Kubectl) -> None:
    add(cluster, raw_node("a"))
    spec = {
        "backend": {"mooncake": {}},
        "transport": {
            "protocol": "RDMA",
            "rdma": {"resourceName": "rdma/hca_a", "devicePlugin": {"selectors": {"vendors": ["15b3"]}}},
        },
    }
    where = f"--namespace={OWN}"
    make(cluster, "one", **spec)
    make(cluster, "two", **spec)
    eventually(lambda: cluster.succeeds("get", "daemonset", NAME, where))
    config = json.loads(cluster.get("configmap", NAME, where)["data"]["config.json"])
    assert [entry["resourceName"] for entry in config["configList"]] == ["hca_a"]
    owner = cluster.get("daemonset", NAME, where)["metadata"]["ownerReferences"][0]
    assert owner["name"] == DEVICE_PLUGIN_OWNER
    assert owner["uid"] == cluster.get("configmap", DEVICE_PLUGIN_OWNER, where)["metadata"]["uid"]

    cluster.run("delete", "kvpool", "one", "--namespace=default")
    make(cluster, "three", **spec)
    eventually(lambda: condition(cluster, name="three")["reason"] == "NoRDMANodes")
    assert cluster.succeeds("get", "daemonset", NAME, where)
    cluster.run("delete", "kvpool", "two", "three", "--namespace=default")
    eventually(lambda: not cluster.succeeds("get", "daemonset", NAME, where))
    assert not cluster.succeeds("get", "configmap", NAME, where)


def test_the_inventory_shows_nodes_and_pools(cluster: Kubectl, own_plane: ControlPlane) -> None:
    add(cluster, raw_node("a", driver="550.54"))
    add(cluster, raw_node("b", gpus=0))
    make(cluster)
    environment = os.environ | {"KUBECONFIG": str(own_plane.kubeconfig), "PYTHONPATH": str(ROOT / "operator")}
    command = [sys.executable, "-m", "kvcachepool.cli", "inventory"]
    printed = subprocess.run([*command, "--output=json"], env=environment, capture_output=True, text=True, check=True)
    rows = json.loads(printed.stdout)
    assert [(row["node"], row["driver"], row["cuda"]) for row in rows] == [
        ("a", "550.54", "13+, 12, 11"),
        ("b", "", ""),
    ]
    assert [row["pools"]["default/solo"] for row in rows] == ["yes", "fewer nvidia.com/gpu than 1 (found none)"]
    table = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
    for text in ("NODE", "default/solo", "8 × nvidia.com/gpu", H100, "2.0 TiB"):
        assert text in table


def test_an_engine_over_two_nodes_is_a_group(cluster: Kubectl) -> None:
    """The kind comes after the operator's start, which is noticed long before the next relist (5 minutes)."""
    where = "--namespace=default"
    add(cluster, raw_node("a"))
    make(cluster, schema={"parallelism": {"tensor": 8, "pipeline": 2}}, engines={"replicas": 1, "nodesPerEngine": 2})
    eventually(lambda: "does not serve LeaderWorkerSet" in condition(cluster, "Accepted")["message"])
    cluster.run("apply", "-f", "-", data=json.dumps(GROUPS))
    eventually(lambda: condition(cluster, "Accepted")["status"] == "True")
    eventually(lambda: condition(cluster)["reason"] == "NoMatchingNodes")
    assert "there is room for 1: 1 of 1 node can take one. No engine is made." in condition(cluster)["message"]
    assert group(cluster) is None

    add(cluster, raw_node("b"))
    eventually(lambda: group(cluster) is not None)
    assert engine(cluster) is None
    made = group(cluster)
    assert made is not None
    name = made["metadata"]["name"]
    assert made["spec"]["leaderWorkerTemplate"]["size"] == 2
    assert made["metadata"]["ownerReferences"][0]["name"] == "solo"
    eventually(lambda: condition(cluster)["reason"] == "NodesFit")
    eventually(lambda: condition(cluster, "EnginesReady")["reason"] == "Progressing")
    done = json.dumps({"status": {"replicas": 1, "readyReplicas": 1, "updatedReplicas": 1}})
    cluster.run("patch", "leaderworkerset", name, where, "--subresource=status", "--type=merge", f"--patch={done}")
    status = cluster.get("kvpool", "solo", where)["status"]
    eventually(lambda: cluster.get("kvpool", "solo", where)["status"]["engines"].get("updated") == 1)
    assert status["hardware"]["nodesMatched"] == 2
    assert cluster.get("leaderworkerset", name, where)["metadata"]["generation"] == made["metadata"]["generation"]
