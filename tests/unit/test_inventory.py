"""`kvcachepool inventory`: one row a node."""

import json

import pytest

from kvcachepool.compat.tables import BUILT_IN
from kvcachepool.facts import NodeFacts
from kvcachepool.inventory import Row, inventory
from tests.nodes import A100, H100, L4, node
from tests.pools import raw


def row(facts: NodeFacts) -> Row:
    return inventory([facts], [], BUILT_IN)[0]


@pytest.mark.parametrize(
    ("facts", "driver", "cuda"),
    [
        (node(), "580.82", "13, 12, 11"),
        (node(product=A100, driver="550.54"), "550.54", "13+, 12, 11"),
        (node(product="NVIDIA-GeForce-RTX-4090", driver="550.54", old_labels=True), "550.54", "12, 11"),
        (node(product="Tesla-V100-SXM2-32GB"), "580.82", "12, 11"),
        (node(driver="", labels={"nvidia.com/cuda.runtime-version.major": "12"}), "", "12 and older"),
        (node(driver=""), "", ""),
        (node(gpus=0), "", ""),
    ],
)
def test_what_cuda_a_node_runs(facts: NodeFacts, driver: str, cuda: str) -> None:
    assert (row(facts).driver, row(facts).cuda) == (driver, cuda)


def test_devices_memory_and_taints() -> None:
    offers = {"rdma/hca_a": "63", "vpc.amazonaws.com/efa": "0", "hugepages-2Mi": "1Gi", "hugepages-1Gi": "0"}
    found = row(node(offers=offers, taints=("k=v:NoSchedule",), cordoned=True, memory="512Gi"))
    assert (found.gpu, dict(found.gpus), dict(found.rdma)) == (H100, {"nvidia.com/gpu": 8}, {"rdma/hca_a": 63})
    assert (found.state, found.memory, dict(found.hugepages)) == ("cordoned", "512.0 GiB", {"hugepages-2Mi": "1.0 GiB"})
    assert list(found.taints) == ["k=v:NoSchedule"]


def test_pools_fit_or_say_why_not() -> None:
    nodes = [node("b", gpus=0), node("a"), node("c", driver="470.10")]
    pools = [
        raw(name="good"),
        raw({"schema": {"blockSize": "?"}}, name="unreadable"),
        raw({"engines": {"extraArgs": ["-tp=2"]}}, name="refused"),
        raw({"engines": {"gpu": {"product": L4}}}, name="other", namespace="team-b"),
    ]
    rows = inventory(nodes, pools, BUILT_IN)
    assert [found.node for found in rows] == ["a", "b", "c"]
    assert [found.pools["team-a/good"] for found in rows] == [
        "yes",
        "fewer nvidia.com/gpu than 1 (found none)",
        "driver below 580, which CUDA 13 needs (found 470.10)",
    ]
    assert rows[0].pools["team-a/unreadable"].startswith("refused: spec.schema.blockSize")
    assert rows[0].pools["team-a/refused"].startswith("refused: spec.engines.extraArgs")
    assert rows[0].pools["team-b/other"] == f"another nvidia.com/gpu.product than {L4} (found {H100})"
    spread = raw({"schema": {"parallelism": {"tensor": 2}}, "engines": {"nodesPerEngine": 2}}, name="spread")
    (found,) = inventory([node("a")], [spread], BUILT_IN)
    assert found.pools["team-a/spread"] == "yes", "whether LeaderWorkerSet is installed is nothing of a node"
    assert json.loads(json.dumps([found.dump() for found in rows]))[0]["pools"]["team-a/good"] == "yes"


def test_mixed_gpus_are_told() -> None:
    rows = inventory([node("a"), node("b", product=L4)], [raw(name="p")], BUILT_IN)
    assert {found.pools["team-a/p"] for found in rows} == {"yes, but GPUs are mixed"}
