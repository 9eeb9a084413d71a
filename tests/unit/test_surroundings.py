"""Nodes and tables between passes: what is news, what is none, and what may not be read."""

from copy import deepcopy
from typing import Any

import pytest

from kvcachepool.cluster import ApiError, Cluster
from kvcachepool.compat.tables import BUILT_IN
from kvcachepool.constants import COMPATIBILITY_CONFIG_MAP
from kvcachepool.facts import Observed
from kvcachepool.nodecache import NodeCache
from kvcachepool.surroundings import Surroundings
from tests.nodes import raw_node

ROWS = """
cudaVersions:
  - {major: 14, minDriver: 620, minCapability: "8.0", source: https://example.com, date: 2026-11-29}
"""


def at(version: int, raw: dict[str, Any], uid: str = "u") -> dict[str, Any]:
    changed = deepcopy(raw)
    changed["metadata"] |= {"resourceVersion": str(version), "uid": uid}
    return changed


def names(cache: NodeCache) -> list[str] | None:
    return None if cache.facts is None else [node.name for node in cache.facts]


def test_a_heartbeat_is_no_news() -> None:
    cache = NodeCache()
    assert cache.replace([at(1, raw_node("a"))], "1")
    beat = at(2, raw_node("a"))
    beat["status"]["conditions"][0]["lastHeartbeatTime"] = "2026-11-29T00:00:00Z"
    beat["status"]["images"] = [{"names": ["x"]}]
    assert not cache.event("MODIFIED", beat)
    assert cache.event("MODIFIED", at(3, raw_node("a", cordoned=True)))
    assert not cache.event("MODIFIED", at(2, raw_node("a"))), "an older version comes late"
    assert cache.facts is not None
    assert cache.facts[0].cordoned


def test_nodes_come_and_go() -> None:
    cache = NodeCache()
    assert names(cache) is None
    assert cache.replace([], "0")
    assert names(cache) == []
    assert cache.event("ADDED", at(1, raw_node("b"), "ub"))
    assert cache.event("ADDED", at(2, raw_node("a"), "ua"))
    assert names(cache) == ["a", "b"]
    assert cache.event("DELETED", at(3, raw_node("b"), "ub"))
    assert not cache.event("DELETED", at(3, raw_node("b"), "ub"))
    assert not cache.replace([at(2, raw_node("a"), "ua"), at(1, raw_node("b"), "ub")], "2"), "that list was on its way"
    assert names(cache) == ["a"]
    assert cache.replace([], "4")
    assert names(cache) == []


def test_a_node_that_came_after_the_list_was_taken_stays() -> None:
    cache = NodeCache()
    cache.replace([at(1, raw_node("a"), "ua")], "1")
    cache.event("ADDED", at(5, raw_node("b"), "ub"))
    assert not cache.replace([at(1, raw_node("a"), "ua")], "4"), "that list was on its way"
    assert names(cache) == ["a", "b"]
    assert cache.replace([at(1, raw_node("a"), "ua")], "5")
    assert names(cache) == ["a"]


def test_after_nodes_could_not_be_read_one_of_them_is_not_the_cluster() -> None:
    cache = NodeCache()
    cache.replace([at(1, raw_node("a"), "ua"), at(2, raw_node("b"), "ub")], "2")
    assert cache.forbid()
    assert not cache.event("MODIFIED", at(3, raw_node("a", cordoned=True), "ua"))
    assert not cache.event("DELETED", at(4, raw_node("b"), "ub"))
    assert not cache.forbid()
    assert not cache.event("ADDED", at(7, raw_node("c"), "uc"))
    assert names(cache) is None
    assert cache.replace([at(3, raw_node("a", cordoned=True), "ua")], "6")
    assert names(cache) == ["a", "c"]


class FakeCluster:
    def __init__(self) -> None:
        self.nodes: list[dict[str, Any]] | int = [raw_node("a")]
        self.rows: dict[str, str] | int | None = None
        self.groups = False

    async def served(self, kind: str) -> bool:
        assert kind == "LeaderWorkerSet"
        return self.groups

    async def list(self, kind: str, namespace: str | None) -> tuple[list[dict[str, Any]], str]:
        assert (kind, namespace) == ("Node", None)
        if isinstance(self.nodes, int):
            raise ApiError(self.nodes, "no")
        return self.nodes, "1"

    async def get(self, kind: str, namespace: str, name: str) -> dict[str, Any] | None:
        assert (kind, namespace, name) == ("ConfigMap", "kvcp", COMPATIBILITY_CONFIG_MAP)
        if isinstance(self.rows, int):
            raise ApiError(self.rows, "no")
        return None if self.rows is None else {"data": self.rows}


@pytest.fixture
def cluster() -> FakeCluster:
    return FakeCluster()


@pytest.fixture
def news() -> list[int]:
    return []


@pytest.fixture
def around(cluster: FakeCluster, news: list[int]) -> Surroundings:
    fake: Any = cluster
    known: Cluster = fake
    return Surroundings(known, "kvcp", lambda: news.append(1))


async def test_pools_are_looked_at_when_something_changed_and_only_then(
    cluster: FakeCluster, around: Surroundings, news: list[int]
) -> None:
    await around.refresh()
    await around.refresh()
    assert len(news) == 1
    around.node_event("MODIFIED", raw_node("a"))
    assert len(news) == 1
    around.node_event("ADDED", raw_node("b"))
    cluster.rows = {"own.yaml": ROWS}
    cluster.nodes = [raw_node("a"), raw_node("b")]
    await around.refresh()
    assert len(news) == 3
    seen = around.seen_by(Observed())
    assert seen.nodes is not None
    assert [node.name for node in seen.nodes] == ["a", "b"]
    assert seen.tables.cuda(14) is not None


@pytest.mark.parametrize("status", [401, 403, 404])
async def test_nodes_that_may_not_be_read_are_unknown(cluster: FakeCluster, around: Surroundings, status: int) -> None:
    await around.refresh()
    cluster.nodes = cluster.rows = status
    await around.refresh()
    assert around.seen_by(Observed()).nodes is None
    cluster.nodes = [raw_node("a")]
    await around.refresh()
    assert around.seen_by(Observed()).nodes is not None


@pytest.mark.parametrize("field", ["nodes", "rows"])
async def test_other_trouble_is_raised_and_leaves_what_is_known(
    cluster: FakeCluster, around: Surroundings, field: str
) -> None:
    cluster.rows = {"own.yaml": ROWS}
    await around.refresh()
    setattr(cluster, field, 503)
    with pytest.raises(ApiError):
        await around.refresh()
    seen = around.seen_by(Observed())
    assert seen.nodes is not None
    assert seen.tables.cuda(14) is not None


async def test_what_was_read_before_the_trouble_is_told(
    cluster: FakeCluster, around: Surroundings, news: list[int]
) -> None:
    """It is no change any more in the next round."""
    await around.refresh()
    cluster.nodes, cluster.rows = [raw_node("b")], 503
    with pytest.raises(ApiError):
        await around.refresh()
    assert len(news) == 2
    with pytest.raises(ApiError):
        await around.refresh()
    assert len(news) == 2


async def test_rows_with_a_fault_are_ignored_as_a_whole_and_told(cluster: FakeCluster, around: Surroundings) -> None:
    cluster.rows = {"good.yaml": ROWS, "bad.yaml": "cudaVersions: [{}]"}
    await around.refresh()
    seen = around.seen_by(Observed())
    assert seen.tables is BUILT_IN
    assert seen.tables_error.startswith("bad.yaml: cudaVersions.0")
    cluster.rows = {"good.yaml": ROWS}
    await around.refresh()
    assert (around.tables_error, around.seen_by(Observed()).tables.cuda(14) is None) == ("", False)


async def test_outside_a_cluster_there_is_no_configmap(cluster: FakeCluster) -> None:
    fake: Any = cluster
    cluster.rows = 500
    around = Surroundings(fake, "", lambda: None)
    await around.refresh()
    assert around.seen_by(Observed()).tables is BUILT_IN


async def test_a_kind_that_is_installed_later_is_noticed(
    cluster: FakeCluster, around: Surroundings, news: list[int]
) -> None:
    await around.refresh()
    cluster.groups = True
    await around.refresh()
    assert (around.seen_by(Observed()).leader_worker_sets, len(news)) == (True, 2)
