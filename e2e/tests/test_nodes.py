"""Nodes of many kinds in a running cluster: what is chosen and refused, and where the scheduler puts an engine."""

import json
from collections.abc import Iterator

import pytest

from e2e.harness.kube import Json, Kube
from e2e.harness.nodes import TOLERATION, simulated
from e2e.harness.pools import engine_deployments, tiny_pool
from e2e.tests.conftest import Running
from tests.nodes import A100, H100, L4, raw_node

NODES = [
    raw_node("sim-h100", driver="580.82"),
    raw_node("sim-h100-old", driver="550.54", old_labels=True),
    raw_node("sim-h100-cordoned", cordoned=True),
    raw_node("sim-a100", product=A100, driver="550.54", offers={"rdma/hca_a": "63"}),
    raw_node("sim-l4", product=L4, gpus=1, memory="16Gi"),
    raw_node("sim-mig", gpus=0, offers={"nvidia.com/mig-1g.5gb": "7"}),
    raw_node("sim-team", product=A100, taints=("team=x:NoSchedule",)),
]
HERE = {"kvcp.test/simulated": "true"}


@pytest.fixture(scope="module")
def pool(kube: Kube, images: dict[str, str]) -> Iterator[Running]:
    """A store on the real node, and engines that may only run on the simulated ones."""
    made = Running("e2e-nodes", "choosy")
    nodes = [n | {"metadata": n["metadata"] | {"labels": n["metadata"]["labels"] | HERE}} for n in NODES]
    kube.namespace(made.namespace)
    engines = {
        "replicas": 1,
        "engineMemory": "2Gi",
        "shmSize": "128Mi",
        "scheduling": {"nodeSelector": HERE, "tolerations": [TOLERATION]},
    }
    with simulated(kube, nodes):
        kube.create(tiny_pool(images, made.name, made.namespace, engines=engines, cuda=None))
        yield made
        kube.run("delete", "kvpool", made.name, "-n", made.namespace)
        kube.run("delete", "pods", "--all", "-n", made.namespace, "--force", "--grace-period=0")
        kube.run("delete", "namespace", made.namespace, "--wait=false")


def ask(kube: Kube, pool: Running, **spec: Json) -> None:
    patch = json.dumps({"spec": spec})
    kube.run("patch", "kvpool", "-n", pool.namespace, pool.name, "--type=merge", f"-p={patch}")


def said(kube: Kube, pool: Running, reason: str, *parts: str) -> None:
    status = "True" if reason == "NodesFit" else "False"
    found = kube.wait_condition(pool.namespace, pool.name, "HardwareMatched", status, reason=reason, timeout=60)
    for part in parts:
        assert part in found["message"]


def test_several_gpus_need_a_choice(kube: Kube, pool: Running) -> None:
    said(kube, pool, "HeterogeneousGPUs", f"{A100} (1 node), {H100} (2 nodes), {L4} (1 node)")
    assert engine_deployments(kube, pool.namespace, pool.name) == []


def test_what_no_node_has_is_told_with_what_there_is(kube: Kube, pool: Running) -> None:
    ask(kube, pool, engines={"gpu": {"product": "L4"}})
    said(
        kube, pool, "NoMatchingNodes",
        f"another nvidia.com/gpu.product than L4 (found {A100}, {H100}, {L4})",
        "1 node: fewer nvidia.com/gpu than 1 (found only nvidia.com/mig-1g.5gb)",
        "1 node: not available for new pods (found cordoned)",
        "1 node: nodeSelector or affinity does not match (found no label kvcp.test/simulated)",  # the real one
    )  # fmt: skip
    ask(kube, pool, engines={"gpu": {"product": L4}, "engineMemory": "64Gi"})
    said(kube, pool, "InsufficientNodeMemory", "engine 64Gi", "(found 16.0 GiB)")
    ask(kube, pool, engines={"gpu": {"product": A100}, "engineMemory": "2Gi"}, cuda={"version": "13"})
    said(kube, pool, "NoCompatibleDriver", "driver below 580, which CUDA 13 needs (found 550.54)", "(found team=x:NoSc")
    assert engine_deployments(kube, pool.namespace, pool.name) == []


def test_the_scheduler_puts_the_engine_where_the_operator_said(kube: Kube, pool: Running) -> None:
    ask(kube, pool, cuda={"version": "auto"})
    said(kube, pool, "NodesFit", f"1 of 8 nodes can take an engine ({A100}, CUDA 12)")
    selector = f"kvcachepool.io/pool={pool.name},kvcachepool.io/component=engine"

    def bound() -> str:
        found = kube.items("pods", "-n", pool.namespace, "-l", selector)
        return str(found[0]["spec"].get("nodeName", "")) if found else ""

    assert kube.wait("the engine is bound to a node", bound, timeout=180) == "sim-a100"
    (deployment,) = engine_deployments(kube, pool.namespace, pool.name)
    assert deployment["spec"]["template"]["spec"]["containers"][0]["image"].endswith("-cu12")
