"""Who reaches whom through the rendered policies, and when there are none."""

from dataclasses import replace
from typing import Any

import pytest

from kvcachepool import constants
from kvcachepool.api import KVCachePool
from kvcachepool.facts import Observed, PodFacts
from kvcachepool.plan import make_plan
from kvcachepool.settings import Settings
from tests.policies import Pod, reaches
from tests.pools import NATIVE, pool

OPERATOR = {"app.kubernetes.io/name": "kvcachepool-operator", "app.kubernetes.io/instance": "kvcp"}
SETTINGS = Settings(
    network_policies=True,
    lease_namespace="kvcp-system",
    pod_labels=tuple(f"{name}={value}" for name, value in OPERATOR.items()),
    metrics_from='[{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}]',
)
READY = Observed(pods=(PodFacts(name="master", uid="", component=constants.MASTER, digest="", ready=True),))

IN_POOL = {constants.LABEL_POOL: "demo"}
MASTER, STORE, ENGINE, WORKER = (
    Pod(IN_POOL | {constants.LABEL_COMPONENT: component}) for component in ("master", "store", "engine", "worker")
)
MEMBER_OF_A_USER = Pod(IN_POOL | {"app": "own"})
NEGATIVE = Pod({constants.LABEL_NEGATIVE: "demo"})
DRILL = Pod({constants.LABEL_DRILL: "demo"})
FROM_OPERATOR = Pod(OPERATOR, "kvcp-system")
PROMETHEUS = Pod({"app": "prometheus"}, "monitoring")
STRANGER = Pod({"app": "stranger"})
OF_ANOTHER_POOL = Pod({constants.LABEL_POOL: "other", constants.LABEL_COMPONENT: "engine"})
SAME_LABEL_ELSEWHERE = Pod(ENGINE.labels, "team-b")
LOOKS_LIKE_THE_OPERATOR = Pod(OPERATOR)
OUTSIDE = Pod(namespace="")
RPC, HTTP, REST, TRANSFER, API = constants.MASTER_RPC_PORT, constants.MASTER_HTTP_PORT, 8081, 15432, 8000


def policies(given: KVCachePool, settings: Settings = SETTINGS, observed: Observed = READY) -> list[Any]:
    return [obj for obj in make_plan(given, observed, settings).objects if obj["kind"] == "NetworkPolicy"]


@pytest.mark.parametrize("port", [RPC, HTTP, REST, TRANSFER])
@pytest.mark.parametrize(
    "stranger", [STRANGER, OF_ANOTHER_POOL, SAME_LABEL_ELSEWHERE, LOOKS_LIKE_THE_OPERATOR, OUTSIDE]
)
def test_nobody_else_reaches_master_store_or_the_inner_ports_of_engines(stranger: Pod, port: int) -> None:
    made = policies(pool())
    assert not any(reaches(made, stranger, target, port) for target in (MASTER, STORE, ENGINE, WORKER))


@pytest.mark.parametrize("member", [ENGINE, STORE, WORKER, MEMBER_OF_A_USER, NEGATIVE])
def test_members_reach_the_store_and_each_other_but_not_the_masters_admin_port(member: Pod) -> None:
    made = policies(pool())
    assert reaches(made, member, MASTER, RPC)
    assert reaches(made, member, MASTER, HTTP) is (member is STORE), "a store pod that leaves has its blocks moved"
    assert reaches(made, member, STORE, TRANSFER)
    assert reaches(made, member, ENGINE, TRANSFER), "segments of engines, and ranks on other nodes"


@pytest.mark.parametrize("store", [{"drainSeconds": 0}, {"mode": "Embedded"}])
def test_store_pods_that_move_no_blocks_do_not_reach_it_either(store: dict[str, Any]) -> None:
    assert not reaches(policies(pool({"store": store})), STORE, MASTER, HTTP)


@pytest.mark.parametrize("watcher", [FROM_OPERATOR, PROMETHEUS, DRILL])
def test_operator_scraper_and_drills_reach_just_the_ports_with_figures(watcher: Pod) -> None:
    made = policies(pool({"networkPolicy": {"clients": [{"podSelector": {"matchLabels": {"app": "gateway"}}}]}}))
    assert reaches(made, watcher, MASTER, HTTP)
    assert reaches(made, watcher, ENGINE, API)
    assert not reaches(made, watcher, MASTER, RPC)
    assert not reaches(made, watcher, STORE, REST)
    assert not reaches(made, watcher, ENGINE, TRANSFER)


def test_engines_serve_everybody_or_the_clients_that_are_named() -> None:
    assert all(reaches(policies(pool()), source, ENGINE, API) for source in (STRANGER, OUTSIDE, FROM_OPERATOR))
    limited = policies(pool({"networkPolicy": {"clients": [{"podSelector": {"matchLabels": {"app": "gateway"}}}]}}))
    assert reaches(limited, Pod({"app": "gateway"}), ENGINE, API)
    assert not any(reaches(limited, source, ENGINE, API) for source in (STRANGER, OUTSIDE))


def test_pods_of_users_keep_all_their_ports() -> None:
    assert reaches(policies(pool()), STRANGER, MEMBER_OF_A_USER, 8012)


def test_without_peers_a_port_is_closed_not_open() -> None:
    alone = replace(SETTINGS, lease_namespace="", metrics_from="")
    made = policies(pool(), alone)
    assert not any(reaches(made, source, MASTER, HTTP) for source in (FROM_OPERATOR, PROMETHEUS, STRANGER))


def test_a_native_pool_has_engines_only() -> None:
    (only,) = policies(pool(base=NATIVE))
    assert only["spec"]["podSelector"]["matchExpressions"][0]["values"] == ["engine", "worker"]


def test_a_long_name_is_selected_by_the_label_that_its_pods_have() -> None:
    given = pool(name="a" * 200)
    labels = {policy["spec"]["podSelector"]["matchLabels"][constants.LABEL_POOL] for policy in policies(given)}
    deployment = next(o for o in make_plan(given, READY, SETTINGS).objects if o["kind"] == "Deployment")
    assert labels == {deployment["spec"]["template"]["metadata"]["labels"][constants.LABEL_POOL]}


def test_on_the_nodes_network_there_are_none() -> None:
    rdma = {"protocol": "RDMA", "rdma": {"resourceName": "rdma/hca", "hostNetwork": True}}
    assert policies(pool({"transport": rdma})) == []


@pytest.mark.parametrize("how", ["pool", "installation"])
def test_switched_off_they_are_removed_at_once_whatever_the_engines_do(how: str) -> None:
    made = make_plan(pool(), READY, SETTINGS).objects
    observed = replace(READY, children={(obj["kind"], obj["metadata"]["name"]): obj for obj in made})
    given = pool({"networkPolicy": {"enabled": False}}) if how == "pool" else pool()
    off = make_plan(given, observed, SETTINGS if how == "pool" else replace(SETTINGS, network_policies=False))
    assert sorted(off.prune) == [("NetworkPolicy", f"demo-{name}") for name in ("engine", "master", "store")]
    assert not [obj for obj in off.objects if obj["kind"] == "NetworkPolicy"]
    assert not make_plan(pool(), observed, SETTINGS).prune


@pytest.mark.parametrize("text", ["[", "{}", "[1]", '"x"'])
def test_the_setting_is_checked_at_start(text: str) -> None:
    with pytest.raises(ValueError, match=r"KVCP_METRICS_FROM|line 1"):
        Settings.from_env({"KVCP_METRICS_FROM": text})
    assert Settings.from_env({"KVCP_NETWORK_POLICIES": "true"}).network_policies
    with pytest.raises(ValueError, match="KVCP_NETWORK_POLICIES: found 'yes', expected true or false"):
        Settings.from_env({"KVCP_NETWORK_POLICIES": "yes"})
