"""The preflight, run as a program by a real interpreter over packages on disk that really fail in these ways."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kvcachepool.podscripts import source

CONNECTOR = "MooncakeStoreConnector"
EXPECTED: dict[str, Any] = {
    "engine": "0.33.0",
    "connector": CONNECTOR,
    "mooncake": "0.3.13.post1",
    "cuda": None,
    "forwardCompat": False,
    "devices": 1,
    "wheels": {
        "mooncake-transfer-engine": "12",
        "mooncake-transfer-engine-cuda13": "13",
        "mooncake-transfer-engine-non-cuda": "none",
    },
    "rdma": None,
}


class Image:
    """Site-packages of an engine image."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "site-packages"
        self.libraries = folder / "lib"
        self.log = folder / "termination-log"
        for path in (self.folder, self.libraries):
            path.mkdir()
        self.wheel("vllm", "0.33.0+cu130")
        self.connectors(CONNECTOR, "OffloadingConnector")
        self.wheel("mooncake-transfer-engine-cuda13", "0.3.13.post1")
        self.store("")

    def wheel(self, name: str, version: str) -> None:
        info = self.folder / f"{name.replace('-', '_')}-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.4\nName: {name}\nVersion: {version}\n")

    def remove(self, name: str) -> None:
        for info in self.folder.glob(f"{name.replace('-', '_')}-*.dist-info"):
            shutil.rmtree(info)

    def connectors(self, *names: str) -> None:
        folder = self.folder / "vllm/distributed/kv_transfer/kv_connector"
        folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "vllm/__init__.py").write_text("raise AssertionError('the engine must not be imported')")
        (folder / "factory.py").write_text("\n".join(f'register("{name}", "x")' for name in names))

    def store(self, text: str) -> None:
        folder = self.folder / "mooncake"
        folder.mkdir(exist_ok=True)
        (folder / "__init__.py").touch()
        (folder / "store.py").write_text(text)

    def run(self, **expected: Any) -> dict[str, Any]:
        env = {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": str(self.folder),
            "LD_LIBRARY_PATH": str(self.libraries),
            "PREFLIGHT_TERMINATION_LOG": str(self.log),
        }
        # -S: without the packages of the test's own environment
        command = [sys.executable, "-S", "-c", source("preflight"), json.dumps(EXPECTED | expected)]
        done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
        assert done.stderr == ""
        result: dict[str, Any] = json.loads(done.stdout)
        assert done.stdout.count("\n") == 1
        assert json.loads(self.log.read_text()) == result
        assert done.returncode == (0 if result["ok"] else 1)
        return result

    def fails(self, reason: str, *says: str, **expected: Any) -> None:
        result = self.run(**expected)
        assert (result["ok"], result.get("reason")) == (False, reason), result
        for part in says:
            assert part in result["message"], result["message"]


@pytest.fixture
def image(tmp_path: Path) -> Image:
    return Image(tmp_path)


def driver(image: Image, *, cuda: int = 13000, devices: int = 8, init: int = 0) -> None:
    """A GPU driver's library that answers so."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("needs a C compiler")
    code = image.libraries / "cuda.c"
    code.write_text(
        f"int cuInit(unsigned f) {{ return {init}; }}\n"
        f"int cuDriverGetVersion(int *v) {{ *v = {cuda}; return 0; }}\n"
        f"int cuDeviceGetCount(int *n) {{ *n = {devices}; return 0; }}\n"
    )
    subprocess.run([compiler, "-shared", "-o", image.libraries / "libcuda.so.1", code], check=True)


def extension_that_needs(image: Image, library: str) -> None:
    """mooncake.store as an extension module whose library is then taken away, as in an image of another CUDA."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("needs a C compiler")
    (image.folder / "mooncake/store.py").unlink()
    empty = image.libraries / "empty.c"
    empty.write_text("int used_by_store(void) { return 0; }\n")
    code = image.libraries / "store.c"
    code.write_text("int used_by_store(void);\nvoid *PyInit_store(void) { used_by_store(); return 0; }\n")
    built = image.libraries / library
    subprocess.run([compiler, "-shared", f"-Wl,-soname,{library}", "-o", built, empty], check=True)
    target = image.folder / "mooncake/store.so"
    subprocess.run([compiler, "-shared", "-Wl,--no-as-needed", "-o", target, code, built], check=True)
    built.unlink()


def test_an_image_that_is_right(image: Image) -> None:
    assert image.run() == {"ok": True, "engine": "0.33.0", "mooncake": "0.3.13.post1"}


def test_a_wheel_of_another_cuda_is_named_with_the_one_to_install(image: Image) -> None:
    """vllm#42511, Mooncake#1298: the engine itself says "please install mooncake"."""
    image.remove("mooncake-transfer-engine-cuda13")
    image.wheel("mooncake-transfer-engine", "0.3.13.post1")
    image.fails(
        "CUDABuildMismatch",
        "mooncake-transfer-engine is made for CUDA 12",
        "This image is CUDA 13, install mooncake-transfer-engine-cuda13 0.3.13.post1",
        cuda=13,
    )


def test_a_really_missing_cuda_library(image: Image) -> None:
    image.remove("mooncake-transfer-engine-cuda13")  # built from source, so that no metadata tells its CUDA
    extension_that_needs(image, "libcudart.so.12")
    image.fails(
        "CUDABuildMismatch",
        "libcudart.so.12 is missing: this image is CUDA 13, install mooncake-transfer-engine-cuda13",
        cuda=13,
    )
    image.fails("CUDABuildMismatch", "libcudart.so.12 is missing: install mooncake-transfer-engine-non-cuda")


def test_another_missing_library(image: Image) -> None:
    extension_that_needs(image, "libibverbs-of-elsewhere.so.1")
    image.fails("LibraryMissing", "libibverbs-of-elsewhere.so.1 is missing in the image")


@pytest.mark.parametrize("name", ["mooncake-transfer-engine", "mooncake-transfer-engine-non-cuda"])
def test_two_wheels_over_each_other(image: Image, name: str) -> None:
    image.wheel(name, "0.3.13.post1")
    image.fails("WheelConflict", name, "mooncake-transfer-engine-cuda13", "leave one")


def test_no_wheel_at_all(image: Image) -> None:
    image.remove("mooncake-transfer-engine-cuda13")
    shutil.rmtree(image.folder / "mooncake")
    image.fails("WheelMissing", "install mooncake-transfer-engine-cuda13 0.3.13.post1", cuda=13)
    image.fails("WheelMissing", "mooncake-transfer-engine")


def test_anything_else_that_the_import_raises(image: Image) -> None:
    image.store("raise RuntimeError('odd')")
    image.fails("ImportFailed", "RuntimeError: odd")


def test_version_skew(image: Image) -> None:
    image.fails("VersionSkew", "vllm 0.33.0", "spec.engines.version is 0.34.0", engine="0.34.0")
    image.fails("VersionSkew", "0.3.13.post1", "spec.backend.mooncake.version is 0.3.14", mooncake="0.3.14")


def test_a_local_part_of_a_version_is_no_skew_on_either_side(image: Image) -> None:
    image.remove("mooncake-transfer-engine-cuda13")
    image.wheel("mooncake-transfer-engine-cuda13", "0.3.13.post1+g1a2b3c4")
    assert image.run(engine="0.33.0+cu129")["ok"]
    image.fails("VersionSkew", "vllm 0.33.0", engine="0.34.0+cu130")
    image.fails("VersionSkew", "0.3.13.post1+g1a2b3c4", mooncake="0.3.14")


def test_an_engine_without_the_connector(image: Image) -> None:
    image.connectors("OffloadingConnector")
    image.fails("ConnectorMissing", CONNECTOR)
    assert image.run(connector="OffloadingConnector", mooncake=None)["ok"]
    assert image.run(connector=None, mooncake=None)["ok"]


def test_an_image_without_an_engine(image: Image) -> None:
    shutil.rmtree(image.folder / "vllm")
    image.fails("EngineMissing", "holds no vLLM")


def test_no_driver_in_the_container(image: Image) -> None:
    if Path("/usr/lib/x86_64-linux-gnu/libcuda.so.1").exists():
        pytest.skip("this machine has a GPU driver")
    image.fails("NoDriver", "libcuda.so.1 is missing", "runtimeClassName", cuda=13)


def test_devices_and_driver(image: Image) -> None:
    driver(image)
    assert image.run(cuda=13, devices=8)["devices"] == 8
    image.fails("NoDevice", "sees 8 devices, but an engine has 16 ranks", cuda=13, devices=16)
    driver(image, init=100)
    image.fails("NoDevice", "error 100", cuda=13)
    driver(image, cuda=12040)
    image.fails("NoCompatibleDriver", "up to 12.4, but this build is CUDA 13", cuda=13)
    assert image.run(cuda=13, forwardCompat=True)["driverCuda"] == "12.4"


def test_network_devices(image: Image, tmp_path: Path) -> None:
    where = {"infiniband": str(tmp_path / "infiniband")}
    image.fails("NoRDMADevice", "sees the RDMA devices none", "device plugin", rdma=[], **where)
    for name in ("mlx5_0", "mlx5_1"):
        (tmp_path / "infiniband" / name).mkdir(parents=True)
    assert image.run(rdma=["mlx5_1"], **where)["rdmaDevices"] == ["mlx5_0", "mlx5_1"]
    image.fails("NoRDMADevice", "mlx5_0, mlx5_1, but not mlx5_6", rdma=["mlx5_0", "mlx5_6"], **where)


def test_it_needs_the_standard_library_only_and_stays_small() -> None:
    text = source("preflight")
    assert "kvcachepool" not in text
    assert len(text) < 12_000
