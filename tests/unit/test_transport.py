"""What RDMA, TCP and shared memory look like in the pods: engines and store pods alike, the master with none of it."""

from typing import Any

import pytest

from kvcachepool import constants
from kvcachepool.facts import Observed, PodFacts
from kvcachepool.plan import make_plan
from kvcachepool.settings import Settings
from tests.pools import invalid, merged, pool

MASTER = PodFacts("demo-master-1", "u", constants.MASTER, "", ready=True)
NAME = "openshift.io/sriov.rail_0"
SPEC: dict[str, Any] = {"transport": {"protocol": "RDMA", "rdma": {"resourceName": NAME, "count": 2}}}


def pods(spec: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Pod templates by component."""
    plan = make_plan(pool(spec), Observed(pods=(MASTER,)), Settings())
    assert plan.findings == ()
    workloads = (o for o in plan.objects if o["kind"] == "Deployment")
    return {o["metadata"]["labels"][constants.LABEL_COMPONENT]: dict(o["spec"]["template"]) for o in workloads}


def main(template: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = template["spec"]["containers"][0]
    return found


def env(template: dict[str, Any]) -> dict[str, str]:
    return {v["name"]: v["value"] for v in main(template)["env"] if "value" in v}


def rdma(**fields: Any) -> dict[str, Any]:
    return merged(SPEC, {"transport": {"rdma": fields}})


def test_the_resource_is_asked_for_by_its_name_in_requests_and_limits() -> None:
    """aibrix#1012: nothing of one vendor is compiled in."""
    found = pods(SPEC)
    for component in (constants.ENGINE, constants.STORE):
        resources = main(found[component])["resources"]
        assert (resources["requests"][NAME], resources["limits"][NAME]) == ("2", "2")
        security = main(found[component])["securityContext"]
        assert security["capabilities"]["add"] == ["IPC_LOCK"]
        assert not security.get("privileged")
        assert "MC_FORCE_TCP" not in env(found[component])
    assert NAME not in str(found[constants.MASTER])
    assert "IPC_LOCK" not in str(found[constants.MASTER])


def test_over_tcp_there_is_none_of_it_and_tcp_is_forced() -> None:
    """aibrix#897, Mooncake#898: discovery must not take devices that nobody asked for."""
    found = pods(merged(rdma(devices=["mlx5_0"], gidIndex=3, hostNetwork=True), {"transport": {"protocol": "TCP"}}))
    for component in (constants.ENGINE, constants.STORE):
        assert env(found[component])["MC_FORCE_TCP"] == "true"
        assert "MC_GID_INDEX" not in env(found[component])
        assert "hostNetwork" not in found[component]["spec"]
    assert env(found[constants.STORE])["MOONCAKE_DEVICE"] == ""
    for text in (NAME, "IPC_LOCK", "mlx5_0"):
        assert text not in str(found)


@pytest.mark.parametrize(("given", "rendered"), [({}, None), ({"gidIndex": 0}, "0"), ({"gidIndex": 3}, "3")])
def test_a_gid_index_only_where_one_is_given(given: dict[str, int], rendered: str | None) -> None:
    """Mooncake#2729, Mooncake#946: with macvlan it differs from pod to pod."""
    found = pods(rdma(**given))
    for component in (constants.ENGINE, constants.STORE):
        assert env(found[component]).get("MC_GID_INDEX") == rendered


@pytest.mark.parametrize(("devices", "joined"), [([], ""), (["mlx5_6", "mlx5_0"], "mlx5_6,mlx5_0")])
def test_devices_keep_their_order_in_every_member(devices: list[str], joined: str) -> None:
    found = pods(rdma(devices=devices))
    assert env(found[constants.STORE])["MOONCAKE_DEVICE"] == joined
    config = found[constants.ENGINE]["metadata"]["annotations"]["kvcachepool.io/mooncake.json"]
    assert f'"device_name": "{joined}"' in config


@pytest.mark.parametrize(
    ("devices", "says"),
    [
        (["mlx5_0", "mlx5_0"], "each may be named once, found more of mlx5_0"),
        (["mlx5_0 , mlx5_6"], "the name of one device without blanks"),
        ([""], "the name of one device"),
    ],
)
def test_devices_that_cannot_be_meant_are_refused(devices: list[str], says: str) -> None:
    messages = invalid(rdma(devices=devices))
    assert any("spec.transport.rdma.devices" in text and says in text for text in messages), messages


@pytest.mark.parametrize("shm", ["2Gi", "24Gi"])
def test_shared_memory_is_mounted_once_and_counted(shm: str) -> None:
    """kserve PR#5949, kubernetes#28272."""
    template = pods({"engines": {"shmSize": shm, "engineMemory": "8Gi"}})[constants.ENGINE]
    mounts = [m for m in main(template)["volumeMounts"] if m["mountPath"] == "/dev/shm"]
    assert len(mounts) == 1
    (volume,) = (v for v in template["spec"]["volumes"] if v["name"] == mounts[0]["name"])
    assert volume["emptyDir"] == {"medium": "Memory", "sizeLimit": shm}
    less = pods({"engines": {"shmSize": "1Gi", "engineMemory": "8Gi"}})[constants.ENGINE]
    asked = [main(t)["resources"]["requests"]["memory"] for t in (template, less)]
    assert int(asked[0].removesuffix("Gi")) - int(asked[1].removesuffix("Gi")) == int(shm.removesuffix("Gi")) - 1


@pytest.mark.parametrize(("given", "surge"), [({}, 0), ({"maxSurge": 1}, 1)])
def test_a_rollout_takes_no_gpu_that_is_not_free(given: dict[str, int], surge: int) -> None:
    """LLMKube#192: a new pod would stay Pending, and the old one never leave."""
    plan = make_plan(pool({"engines": given}), Observed(pods=(MASTER,)), Settings())
    (engine,) = (o for o in plan.objects if o["metadata"]["name"].startswith("demo-engine-"))
    rolling = engine["spec"]["strategy"]["rollingUpdate"]
    assert (rolling["maxSurge"], rolling["maxUnavailable"]) == (surge, 0 if surge else 1)
