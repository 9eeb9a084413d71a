"""Which image engines get, by version and device, and what of it contradicts itself."""

import re
from typing import Any

import pytest

from kvcachepool.compat.pins import PINS
from kvcachepool.compat.tables import BUILT_IN
from kvcachepool.compat.versions import CudaVersion, cuda_in_local, release
from kvcachepool.hardware.build import builds, check_build
from tests.pools import pool

CPU: dict[str, Any] = {"gpu": {"resourceName": ""}}
AMD: dict[str, Any] = {"gpu": {"resourceName": "amd.com/gpu"}}


def spec(engines: dict[str, Any], cuda: str = "auto") -> dict[str, Any]:
    return {"engines": engines, "cuda": {"version": cuda}}


def found(given: dict[str, Any]) -> list[tuple[str, str]]:
    return [(finding.reason, finding.message) for finding in check_build(pool(given), BUILT_IN)]


@pytest.mark.parametrize(
    ("version", "bare", "cuda"),
    [
        ("0.33.0", "0.33.0", None),
        ("0.33.0+cu129", "0.33.0", CudaVersion(12, 9)),
        ("0.34.0rc1.dev5+g1a2b3c4.cu130", "0.34.0rc1.dev5", CudaVersion(13, 0)),
        ("0.33.0+cpu", "0.33.0", None),
    ],
)
def test_a_local_part_is_no_part_of_the_release(version: str, bare: str, cuda: CudaVersion | None) -> None:
    assert (release(version), cuda_in_local(version)) == (bare, cuda)


@pytest.mark.parametrize(
    ("version", "cuda", "tags"),
    [
        ("0.33.0", "auto", ["0.33.0-cu13", "0.33.0-cu12"]),
        ("0.33.0+cu129", "auto", ["0.33.0-cu12"]),
        ("0.33.0+cu130", "auto", ["0.33.0-cu13"]),
        ("0.33.0+cu129", "12", ["0.33.0-cu12"]),
        ("0.33.0+g1a2b3c4", "auto", ["0.33.0-cu13", "0.33.0-cu12"]),
        ("0.35.0+cu129", "auto", ["0.35.0-cu12"]),
        ("0.35.0+local", "13", ["0.35.0-cu13"]),
    ],
)
def test_own_images_have_valid_tags_and_the_cuda_that_the_version_tells(
    version: str, cuda: str, tags: list[str]
) -> None:
    given = spec({"version": version}, cuda)
    images = [build.image for build in builds(pool(given), BUILT_IN)]
    assert images == [f"{PINS.images.engine}:{tag}" for tag in tags]
    assert all(re.fullmatch(r"[\w][\w.-]{0,127}", image.partition(":")[2]) for image in images)
    assert found(given) == []


@pytest.mark.parametrize(
    ("engines", "cuda", "says"),
    [
        ({"version": "0.33.0+cu129"}, "13", "spec.engines.version: found 0.33.0+cu129, but spec.cuda.version is 13;"),
        (
            {"version": "0.33.0+cu129", "image": "vllm/vllm-openai:v0.33.0"},
            "auto",
            "spec.engines.version: found 0.33.0+cu129, but spec.engines.image vllm/vllm-openai:v0.33.0 is built for "
            "CUDA 13.0;",
        ),
        ({"version": "0.33.0+cu129", "image": "a/b:x-cu124"}, "12", "spec.engines.version: found 0.33.0+cu129, but"),
        ({"version": "0.33.0+cu124"}, "auto", "builds of engine 0.33.0 are for CUDA 13.0, 12.9"),
    ],
)
def test_a_local_part_that_names_another_cuda_is_refused(engines: dict[str, Any], cuda: str, says: str) -> None:
    reasons, messages = zip(*found(spec(engines, cuda)), strict=True)
    assert reasons == ("CUDABuildMismatch",)
    assert says in messages[0]


def test_a_local_part_is_no_skew() -> None:
    assert found(spec({"version": "0.33.0+cu130", "image": "vllm/vllm-openai:v0.33.0"})) == []
    skewed = found(spec({"version": "0.32.0+cu130", "image": "vllm/vllm-openai:v0.33.0"}))
    assert [reason for reason, _ in skewed] == ["VersionSkew"]


@pytest.mark.parametrize(
    ("engines", "says"),
    [
        (
            AMD,
            "found none with spec.engines.gpu.resourceName amd.com/gpu, but the operator's own builds are for nvidia",
        ),
        (CPU, f"the operator's build for the CPU is engine {PINS.cpu_engine_version}"),
    ],
)
def test_an_image_that_the_operator_does_not_have_must_be_given(engines: dict[str, Any], says: str) -> None:
    reasons, messages = zip(*found(spec(engines)), strict=True)
    assert reasons == ("InvalidSpec",)
    assert messages[0].startswith("spec.engines.image: found none")
    assert says in messages[0]
    assert found(spec({**engines, "image": "registry.internal/vllm:prod"})) == []


@pytest.mark.parametrize("local", ["", "+cpu"])
def test_the_cpu_build_that_there_is_needs_no_image(local: str) -> None:
    given = spec({**CPU, "version": f"{PINS.cpu_engine_version}{local}"})
    assert [b.image for b in builds(pool(given), BUILT_IN)] == [f"{PINS.images.engine}:{PINS.cpu_engine_version}-cpu"]
    assert found(given) == []
