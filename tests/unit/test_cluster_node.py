"""The settings without which a node did not start or leaked onto its host."""

import tomllib
from pathlib import Path

import pytest

from e2e.cluster import control, dns, node
from e2e.cluster.host import mounts
from e2e.cluster.settings import Settings


@pytest.fixture
def plan(tmp_path: Path) -> node.NodePlan:
    settings = Settings(cache=tmp_path)
    return node.NodePlan(
        settings,
        control.ControlPlan(
            name=settings.name,
            bin=Path("/tools"),
            state=settings.state,
            ports=settings.ports,
            address=settings.network.node_ip,
        ),
    )


def test_containerd_stays_in_its_folder(plan: node.NodePlan) -> None:
    config = tomllib.loads(node.containerd_config(plan))
    assert config["version"] == 3
    assert Path(config["root"]).is_relative_to(plan.state)
    assert Path(config["state"]).is_relative_to(plan.state)
    runtime = config["plugins"]["io.containerd.cri.v1.runtime"]
    assert runtime["restrict_oom_score_adj"] is True
    assert runtime["netns_mounts_under_state_dir"] is True


def test_socket_paths_fit_the_kernels_limit(plan: node.NodePlan) -> None:
    length = len(str(plan.socket.relative_to(plan.settings.cache))) + len(".ttrpc")
    assert length < 60


def test_nothing_listens_beyond_host_and_pods(plan: node.NodePlan, tmp_path: Path) -> None:
    credentials = control.prepare(plan.control, tmp_path / "admin")
    apiserver = control.apiserver(plan.control, credentials)
    assert "--bind-address=10.244.0.1" in apiserver.argv
    assert "--endpoint-reconciler-type=none" not in apiserver.argv
    assert "--bind-address=127.0.0.1" in control.scheduler(plan.control).argv
    assert node.proxy_config(plan)["nodePortAddresses"] == ["primary"]
    assert all("0.0.0.0" not in item for item in control.etcd(plan.control).argv)


def test_a_control_plane_on_loopback_publishes_no_endpoint(plan: node.NodePlan, tmp_path: Path) -> None:
    loopback = control.ControlPlan("c", Path("/tools"), tmp_path / "plane", plan.settings.ports)
    credentials = control.prepare(loopback, tmp_path / "admin")
    assert "--endpoint-reconciler-type=none" in control.apiserver(loopback, credentials).argv


def test_prepare_writes_what_the_daemons_read(plan: node.NodePlan, tmp_path: Path) -> None:
    credentials = control.prepare(plan.control, tmp_path / "admin")
    node.prepare(plan, credentials.ca)
    for daemon in (node.containerd(plan), node.kubelet(plan), node.kube_proxy(plan), node.kube_router(plan)):
        assert daemon.digest() == daemon.digest()
        assert all(path.is_file() for path in daemon.configs)


def test_names_outside_the_cluster_fail_fast() -> None:
    assert "forward" not in dns.COREFILE
    assert "NXDOMAIN" in dns.COREFILE


def test_mounts_are_told_by_whole_path_elements() -> None:
    assert mounts(Path("/pro")) == []
    assert any(point.startswith("/proc") or point.startswith("/sys") for point in mounts(Path("")) or ["/proc"])
