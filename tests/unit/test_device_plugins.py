"""One RDMA device plugin for all pools that ask for it, as long as one does."""

import json
from typing import Any

import pytest

from kvcachepool.cluster import ApiError
from kvcachepool.device_plugins import DevicePlugins
from kvcachepool.rbac import DEVICE_PLUGIN_OWNER
from kvcachepool.render.device_plugin import NAME, objects, wishes
from kvcachepool.settings import Settings
from tests.pools import raw

SETTINGS = Settings(
    lease_namespace="kvcp", device_plugin_account="kvcp-rdma", device_plugin_image="plugin:1", image_pull_secrets=("r",)
)
VENDOR = {"selectors": {"vendors": ["15b3"]}}


def rdma(name: str, resource: str = "rdma/hca_a", made: str = "2026-01-01T00:00:00Z", **spec: Any) -> dict[str, Any]:
    plugin = spec.pop("plugin", VENDOR)
    transport = {"protocol": "RDMA", "rdma": {"resourceName": resource, "devicePlugin": plugin}}
    return raw({"transport": transport, **spec}, name=name, uid=name, creationTimestamp=made)


def rendered(*pools: dict[str, Any]) -> dict[str, Any]:
    return {obj["kind"]: obj for obj in objects(wishes(pools), SETTINGS, owner={"kind": "ConfigMap", "uid": "o"})}


def config(*pools: dict[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(rendered(*pools)["ConfigMap"]["data"]["config.json"])["configList"]
    return found


def test_pools_that_share_a_resource_share_its_entry() -> None:
    assert config(rdma("a"), rdma("b"), rdma("c", "rdma/hca_b", plugin={**VENDOR, "maxShares": 4})) == [
        {"resourcePrefix": "rdma", "resourceName": "hca_a", "rdmaHcaMax": 1000, "selectors": {"vendors": ["15b3"]}},
        {"resourcePrefix": "rdma", "resourceName": "hca_b", "rdmaHcaMax": 4, "selectors": {"vendors": ["15b3"]}},
    ]


def test_selectors_have_the_plugins_own_names() -> None:
    every = {
        "vendors": ["15b3"], "deviceIDs": ["1017"], "drivers": ["mlx5_core"], "ifNames": ["ib0"], "linkTypes": ["ether"],
    }  # fmt: skip
    assert config(rdma("a", plugin={"selectors": every}))[0]["selectors"] == every


def test_of_two_that_contradict_each_other_the_older_counts_and_the_other_is_told() -> None:
    older = rdma("z", made="2025-01-01T00:00:00Z")
    newer = rdma("a", plugin={"selectors": {"vendors": ["1d0f"]}})
    plan = wishes([newer, older])
    assert [wish.pool for wish in plan.wishes] == [("team-a", "z")]
    assert "pool team-a/z asks for rdma/hca_a with other settings" in plan.conflicts["team-a", "a"]


def test_what_would_end_the_plugin_for_all_pools_is_left_out_and_told() -> None:
    """It validates its whole configuration at start, and exits (resources_manager.go, ValidateConfigs)."""
    plan = wishes([rdma("a"), rdma("b", "team/hca_a"), rdma("c", "rdma/hca.a"), rdma("d", "rdma/hca-a")])
    assert [wish.pool[1] for wish in plan.wishes] == ["a"]
    assert "pool team-a/a asks for rdma/hca_a while names must differ after the slash" in plan.conflicts["team-a", "b"]
    for name, resource in (("c", "rdma/hca.a"), ("d", "rdma/hca-a")):
        assert f"found {resource} in spec.transport.rdma.resourceName" in plan.conflicts["team-a", name]


@pytest.mark.parametrize(
    "other",
    [
        raw(),
        raw({"transport": {"protocol": "RDMA", "rdma": {"resourceName": "rdma/x"}}}),
        raw({"transport": {"protocol": "RDMA"}}),
        raw({"transport": {"rdma": {"resourceName": "rdma/x", "devicePlugin": VENDOR}}}),
        rdma("going") | {"metadata": rdma("going")["metadata"] | {"deletionTimestamp": "2026-01-01T00:00:00Z"}},
        {"metadata": {"name": "x", "namespace": "y"}, "spec": {"transport": "?"}},
    ],
)
def test_pools_that_ask_for_none_get_none(other: dict[str, Any]) -> None:
    assert rendered(other) == {}


def test_a_pool_that_is_refused_for_something_else_keeps_its_plugin() -> None:
    broken = rdma("a")
    broken["spec"]["schema"] = {"blockSize": "?"}
    assert config(broken)[0]["resourceName"] == "hca_a"


def test_it_runs_where_the_pools_may_and_a_new_configuration_restarts_it() -> None:
    zone = {"nodeSelector": {"zone": "a"}}
    required = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "rail", "operator": "Exists"}]}]}
    own = {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}}
    one = rdma("a", scheduling=zone, store={"scheduling": own})
    spec = rendered(one)["DaemonSet"]["spec"]["template"]["spec"]
    terms = spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    in_zone = {"key": "zone", "operator": "In", "values": ["a"]}
    assert terms == [
        {"matchExpressions": [in_zone]},
        {"matchExpressions": [{"key": "rail", "operator": "Exists"}, in_zone]},
    ]
    assert spec["tolerations"] == [{"operator": "Exists"}]
    assert spec["imagePullSecrets"] == [{"name": "r"}]
    everywhere = rendered(one, rdma("b", "rdma/hca_b"))["DaemonSet"]["spec"]["template"]
    assert "affinity" not in everywhere["spec"]
    assert (
        everywhere["metadata"]["annotations"]
        != rendered(one)["DaemonSet"]["spec"]["template"]["metadata"]["annotations"]
    )


def node_terms(*terms: Any) -> dict[str, Any]:
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": list(terms)}}}


def expression(**requirement: Any) -> dict[str, Any]:
    return {"affinity": node_terms({"matchExpressions": [requirement]})}


@pytest.mark.parametrize(
    ("bad", "told"),
    [
        ({"affinity": node_terms({"matchExpressions": 5})}, "matchExpressions in scheduling: found 5, expected a list"),
        ({"affinity": node_terms(5)}, "nodeSelectorTerms[0] in scheduling: found 5, expected an object"),
        ({"affinity": node_terms()}, "nodeSelectorTerms in scheduling: found none, expected at least one term"),
        ({"affinity": {"nodeAffinity": "x"}}, "affinity.nodeAffinity in scheduling: found 'x', expected an object"),
        (
            expression(key="k", operator="in", values=["v"]),
            "operator in scheduling: found 'in', expected one of In, NotIn",
        ),
        (expression(key="k", operator="In"), "values in scheduling: found none, expected at least one value"),
        (
            expression(key="k", operator="In", values=["a b"]),
            "values in scheduling: found 'a b', expected the value of",
        ),
        (expression(key="a b", operator="Exists"), "key in scheduling: found 'a b', expected the key of a label"),
        (
            {"nodeSelector": {"a b": "c"}},
            "nodeSelector in scheduling: found the key 'a b', expected the key of a label",
        ),
    ],
)
def test_a_place_that_the_api_server_would_refuse_is_its_own_pools_trouble_only(bad: dict[str, Any], told: str) -> None:
    """The DaemonSet of all pools would be refused for it."""
    broken = rdma("a", "rdma/hca_b", scheduling=bad)
    plan = wishes([broken, rdma("b", scheduling={"nodeSelector": {"zone": "a"}})])
    assert [wish.pool[1] for wish in plan.wishes] == ["b"]
    assert told in plan.conflicts["team-a", "a"]
    kept = rendered(broken, rdma("b", scheduling={"nodeSelector": {"zone": "a"}}))
    assert kept == rendered(rdma("b", scheduling={"nodeSelector": {"zone": "a"}}))


@pytest.mark.parametrize("nothing", [{}, {"matchExpressions": []}, {"matchFields": None}])
def test_terms_that_hold_for_no_node_stay_so_and_are_a_list_that_the_api_server_takes(nothing: Any) -> None:
    place = {"nodeSelector": {"zone": "a"}, "affinity": node_terms(nothing)}
    affinity = rendered(rdma("a", scheduling=place))["DaemonSet"]["spec"]["template"]["spec"]["affinity"]
    assert affinity == node_terms({})


class FakeCluster:
    """Keeps what is applied; counts calls."""

    def __init__(self) -> None:
        self.objects: dict[tuple[str, str], dict[str, Any]] = {
            ("ConfigMap", DEVICE_PLUGIN_OWNER): {"metadata": {"uid": "owner-uid"}}
        }
        self.calls = 0
        self.error: ApiError | None = None

    async def get(self, kind: str, namespace: str, name: str) -> dict[str, Any] | None:
        assert namespace == "kvcp"
        self.calls += 1
        return self.objects.get((kind, name))

    async def apply(self, obj: dict[str, Any]) -> dict[str, Any]:
        self.calls += 1
        if self.error:
            raise self.error
        self.objects[obj["kind"], obj["metadata"]["name"]] = obj | {"metadata": obj["metadata"] | {"uid": "u"}}
        return obj

    async def delete(self, kind: str, namespace: str, name: str, uid: str) -> None:
        self.calls += 1
        assert self.objects.pop((kind, name))["metadata"]["uid"] == uid


class World:
    def __init__(self, settings: Settings = SETTINGS) -> None:
        self.cluster = FakeCluster()
        self.pools: list[dict[str, Any]] = []
        self.told: list[tuple[str, str]] = []
        fake: Any = self.cluster
        self.plugins = DevicePlugins(fake, settings, lambda: self.pools, self.told.append, leads=lambda: True)

    def runs(self) -> bool:
        return {("DaemonSet", NAME), ("ConfigMap", NAME)} <= self.cluster.objects.keys()


async def test_it_comes_with_the_first_pool_and_goes_with_the_last() -> None:
    world = World()
    world.pools = [rdma("a"), rdma("b")]
    await world.plugins.once()
    assert world.runs()
    assert world.cluster.objects["DaemonSet", NAME]["metadata"]["ownerReferences"][0]["uid"] == "owner-uid"
    world.pools.pop()
    await world.plugins.once()
    assert world.runs()
    world.pools.clear()
    await world.plugins.once()
    assert world.cluster.objects.keys() == {("ConfigMap", DEVICE_PLUGIN_OWNER)}


async def test_what_a_dead_operator_left_goes_too() -> None:
    world = World()
    world.pools = [rdma("a")]
    await world.plugins.once()
    restarted = World()
    restarted.cluster.objects = world.cluster.objects
    await restarted.plugins.once()
    assert not restarted.runs()


async def test_while_nothing_changes_nothing_is_asked_of_the_api_server() -> None:
    world = World()
    world.pools = [rdma("a")]
    await world.plugins.once(recheck=False)
    calls = world.cluster.calls
    await world.plugins.once(recheck=False)
    assert world.cluster.calls == calls
    world.pools = [rdma("a", plugin={**VENDOR, "maxShares": 2})]
    await world.plugins.once(recheck=False)
    assert world.cluster.calls > calls


async def test_trouble_is_told_to_the_pools_that_ask() -> None:
    world = World()
    world.pools = [rdma("a"), raw(name="other")]
    world.cluster.error = ApiError(403, "daemonsets is forbidden")
    await world.plugins.once()
    assert "daemonsets is forbidden" in world.plugins.trouble(("team-a", "a"))
    assert world.plugins.trouble(("team-a", "other")) == ""
    assert world.told == [("team-a", "a")]
    world.cluster.error = None
    await world.plugins.once(recheck=False)
    assert (world.plugins.trouble(("team-a", "a")), world.runs()) == ("", True)


async def test_an_installation_without_it_says_so_and_does_nothing() -> None:
    world = World(Settings(lease_namespace="kvcp"))
    world.pools = [rdma("a")]
    await world.plugins.once()
    assert "rdma.devicePlugin.enabled" in world.plugins.trouble(("team-a", "a"))
    assert world.cluster.calls == 0


async def test_without_its_owner_it_is_not_made() -> None:
    """It would stay when the release goes."""
    world = World()
    world.pools = [rdma("a")]
    world.cluster.objects.clear()
    await world.plugins.once()
    assert not world.runs()
    assert DEVICE_PLUGIN_OWNER in world.plugins.trouble(("team-a", "a"))
