"""Choices about a cluster."""

from pathlib import Path

import pytest

from e2e.cluster.settings import Ports, Settings, cache_dir, from_environment, parse_resources


def test_defaults_need_no_environment() -> None:
    settings = from_environment(env={"KVCP_CACHE": "/c"})
    assert settings.state == Path("/c/state/kvcp")
    assert settings.bridge == "kvcp0"
    assert settings.network.node_ip == "10.244.0.1"
    assert settings.network.dns_ip == "10.96.0.10"
    assert settings.hardware.gpus == 8


def test_environment_moves_ports_ranges_and_hardware() -> None:
    settings = from_environment(
        "other",
        {
            "KVCP_CACHE": "/c",
            "KVCP_CLUSTER": "ignored",
            "KVCP_PORT_BASE": "20000",
            "KVCP_POD_PREFIX": "10.7.3",
            "KVCP_GPUS": "2",
            "KVCP_EXTENDED_RESOURCES": "rdma/hca=4",
        },
    )
    assert settings.name == "other"
    assert settings.ports.apiserver == 20043
    assert settings.network.pod_cidr == "10.7.3.0/24"
    assert settings.hardware.gpus == 2
    assert settings.hardware.extra == {"rdma/hca": 4}


def test_ports_of_a_block_differ() -> None:
    ports = list(vars(Ports.block(20000)).values())
    assert len(set(ports)) == len(ports)


def test_free_ports_differ() -> None:
    ports = list(vars(Ports.free()).values())
    assert len(set(ports)) == len(ports)


@pytest.mark.parametrize("name", ["", "Upper", "a/b", "..", "fifteen-letters"])
def test_names_that_cannot_name_a_folder_and_a_device_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match="cluster name"):
        Settings(name=name)


@pytest.mark.parametrize("text", ["hca=1", "rdma/hca", "rdma/hca=x"])
def test_malformed_resources_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="domain/name=count"):
        parse_resources(text)


def test_cache_follows_the_environment() -> None:
    assert cache_dir({"KVCP_CACHE": "/somewhere"}) == Path("/somewhere")
    assert cache_dir({}).parts[-2:] == (".cache", "kvcachepool")
