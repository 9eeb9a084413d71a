"""Pretended accelerators."""

from e2e.cluster.hardware import labels, resources, status_patch
from e2e.cluster.settings import Hardware


def test_labels_carry_both_generations_of_names() -> None:
    found = labels(Hardware(product="NVIDIA-A100-SXM4-80GB", driver="550.54.15", cuda="12.4"))
    assert found["nvidia.com/gpu.product"] == "NVIDIA-A100-SXM4-80GB"
    assert found["nvidia.com/gpu.family"] == "ampere"
    assert found["nvidia.com/cuda.driver-version.full"] == "550.54.15"
    assert found["nvidia.com/cuda.driver.major"] == "550"
    assert found["nvidia.com/cuda.runtime-version.minor"] == "4"


def test_a_longer_model_name_is_not_taken_for_a_shorter() -> None:
    assert labels(Hardware(product="NVIDIA-L40S"))["nvidia.com/gpu.family"] == "unknown"


def test_no_gpus_no_labels() -> None:
    assert labels(Hardware(gpus=0)) == {}
    assert resources(Hardware(gpus=0)) == {}


def test_patch_adds_only_what_is_missing() -> None:
    hardware = Hardware(gpus=4, extra={"rdma/hca": 2})
    status = {"capacity": {"nvidia.com/gpu": "4"}, "allocatable": {"nvidia.com/gpu": "4", "rdma/hca": "2"}}
    assert status_patch(hardware, status) == [{"op": "add", "path": "/status/capacity/rdma~1hca", "value": "2"}]
    assert len(status_patch(hardware, {})) == 4
