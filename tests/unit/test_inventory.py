"""`kvcachepool inventory`: one row a node."""

import json
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner

from kvcachepool.api import KVCachePool
from kvcachepool.cli import main
from kvcachepool.cluster import ApiError
from kvcachepool.compat.tables import BUILT_IN
from kvcachepool.facts import NodeFacts
from kvcachepool.inventory import Row, inventory
from kvcachepool.plan import make_plan
from kvcachepool.plan_types import Plan
from tests.nodes import A100, H100, L4, node, raw_node
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


def test_a_pool_that_nobody_foresaw_hides_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    def plan(pool: KVCachePool, *_: Any) -> Plan:
        if pool.metadata.name == "odd":
            raise KeyError("unforeseen")
        return make_plan(pool, *_)

    monkeypatch.setattr("kvcachepool.inventory.make_plan", plan)
    (found,) = inventory([node("a")], [raw(name="odd"), raw(name="good")], BUILT_IN)
    assert dict(found.pools) == {"team-a/good": "yes", "team-a/odd": "unknown: KeyError: '…'"}


class FakeCluster:
    """One node, one pool, and what the ConfigMap's answer is."""

    rows: dict[str, str] | int | None = None

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    async def list(self, kind: str, _namespace: str | None) -> tuple[list[dict[str, Any]], str]:
        return ([raw_node("a")] if kind == "Node" else [raw(name="good")]), "1"

    async def get(self, *_: str) -> dict[str, Any] | None:
        if isinstance(self.rows, int):
            raise ApiError(self.rows, "configmaps is forbidden")
        return None if self.rows is None else {"data": self.rows}


@pytest.mark.parametrize(
    ("rows", "warning"),
    [
        (None, ""),
        ({"a.yaml": "cudaVersions: [{}]"}, "is ignored, built-in rows only: a.yaml: cudaVersions.0"),
        (403, "is ignored, built-in rows only: configmaps is forbidden"),
    ],
)
def test_rows_that_the_operator_would_ignore_are_ignored_with_a_warning(
    rows: Any, warning: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def connect() -> Any:
        return SimpleNamespace(close=connect)

    monkeypatch.setattr("kvcachepool.cluster.connect", connect)
    monkeypatch.setattr("kvcachepool.cluster.Cluster", FakeCluster)
    monkeypatch.setattr(FakeCluster, "rows", rows)
    monkeypatch.setenv("KVCP_LEASE_NAMESPACE", "kvcp")
    result = CliRunner().invoke(main, ["inventory", "-o", "json"])
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)[0]["pools"] == {"team-a/good": "yes"}
    assert warning in result.stderr
    assert bool(result.stderr) is bool(warning)


def test_trouble_that_passes_is_no_reason_to_answer_without_the_clusters_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    async def connect() -> Any:
        return SimpleNamespace(close=connect)

    monkeypatch.setattr("kvcachepool.cluster.connect", connect)
    monkeypatch.setattr("kvcachepool.cluster.Cluster", FakeCluster)
    monkeypatch.setattr(FakeCluster, "rows", 503)
    monkeypatch.setenv("KVCP_LEASE_NAMESPACE", "kvcp")
    assert CliRunner().invoke(main, ["inventory"]).exit_code == 1
