"""The guard that keeps a Mooncake wheel for another CUDA out of an engine image."""

from __future__ import annotations

import base64
import hashlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

REPOSITORY = Path(__file__).parents[2]
CUDA12, CUDA13, NO_CUDA = (
    "mooncake-transfer-engine",
    "mooncake-transfer-engine-cuda13",
    "mooncake-transfer-engine-non-cuda",
)


def _script() -> ModuleType:
    spec = importlib.util.spec_from_file_location(
        "check_wheels", REPOSITORY / "images" / "vllm-mooncake" / "check_wheels.py"
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


check_wheels = _script()


def install(site: Path, wheel: str, *, library: bytes = b"code", version: str = "0.3.13.post1") -> None:
    """Install a wheel as pip does: files of an earlier one are overwritten without a word."""
    package = site / "mooncake"
    package.mkdir(parents=True, exist_ok=True)
    (package / "store.so").write_bytes(library)
    digest = base64.urlsafe_b64encode(hashlib.sha256(library).digest()).rstrip(b"=").decode()
    info = site / f"{wheel.replace('-', '_')}-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {wheel}\nVersion: {version}\n")
    (info / "RECORD").write_text(f"mooncake/store.so,sha256={digest},{len(library)}\n{info.name}/METADATA,,\n")


def torch(site: Path, line: str) -> None:
    (site / "torch").mkdir(parents=True)
    (site / "torch" / "version.py").write_text(f"__version__ = '2.13.0'\n{line}\n")


def run(*sites: Path, cuda: str, allow_none: bool = False, version: str | None = None) -> list[str]:
    expected = check_wheels.Expected(check_wheels.major(cuda), version, allow_none)
    found: list[str] = check_wheels.problems(expected, [str(site) for site in sites])
    return found


@pytest.mark.parametrize(
    ("wheel", "library", "cuda"),
    [
        (CUDA12, b"..libcudart.so.12..", "12.9"),
        (CUDA13, b"..libcudart.so.13..", "13.0"),
        (NO_CUDA, b"no cuda in here", "none"),
    ],
)
def test_the_wheel_of_this_cuda_is_fine(tmp_path: Path, wheel: str, library: bytes, cuda: str) -> None:
    install(tmp_path, wheel, library=library)
    assert run(tmp_path, cuda=cuda, version="0.3.13.post1") == []


@pytest.mark.parametrize(
    ("wheel", "cuda", "message"),
    [
        (CUDA12, "13.0", "mooncake-transfer-engine is for CUDA 12, this image is for CUDA 13"),
        (CUDA13, "12.9", "mooncake-transfer-engine-cuda13 is for CUDA 13, this image is for CUDA 12"),
        (CUDA13, "none", "mooncake-transfer-engine-cuda13 is for CUDA 13, this image is for CUDA none"),
        (NO_CUDA, "13", "mooncake-transfer-engine-non-cuda is for CUDA none, this image is for CUDA 13"),
        ("mooncake-transfer-engine-efa", "13", "mooncake-transfer-engine-efa is for CUDA unknown, "),
    ],
)
def test_a_wheel_of_another_cuda_is_named(tmp_path: Path, wheel: str, cuda: str, message: str) -> None:
    install(tmp_path, wheel)
    assert any(problem.startswith(message) for problem in run(tmp_path, cuda=cuda))


def test_a_base_that_holds_another_wheel_fails_before_ours_is_installed(tmp_path: Path) -> None:
    assert run(tmp_path, cuda="13.0", allow_none=True) == []
    install(tmp_path, CUDA12)
    assert run(tmp_path, cuda="13.0", allow_none=True) != []


def test_no_wheel_at_all_is_a_problem_where_one_is_needed(tmp_path: Path) -> None:
    assert run(tmp_path, cuda="13.0") == ["no Mooncake wheel is installed"]


def test_two_wheels_in_one_directory_are_a_problem_even_when_one_is_right(tmp_path: Path) -> None:
    install(tmp_path, CUDA13, library=b"first")
    install(tmp_path, CUDA12, library=b"second")
    problems = run(tmp_path, cuda="13.0")
    assert (
        "2 wheels install the same mooncake/ directory: "
        "mooncake-transfer-engine, mooncake-transfer-engine-cuda13" in problems
    )


def test_a_second_mooncake_on_the_search_path_is_a_problem(tmp_path: Path) -> None:
    install(tmp_path / "a", CUDA13)
    (tmp_path / "b" / "mooncake").mkdir(parents=True)
    assert any("mooncake/ exists 2 times" in p for p in run(tmp_path / "a", tmp_path / "b", cuda="13.0"))


def test_traces_of_a_wheel_that_was_removed_again_are_found(tmp_path: Path) -> None:
    """pip uninstall of the other wheel deletes or leaves behind files that ours needs."""
    install(tmp_path, CUDA13, library=b"ours")
    (tmp_path / "mooncake" / "store.so").write_bytes(b"theirs")
    assert run(tmp_path, cuda="13.0") == ["mooncake/store.so differs from its wheel"]
    (tmp_path / "mooncake" / "store.so").unlink()
    assert run(tmp_path, cuda="13.0") == ["mooncake/store.so is missing"]


def test_a_directory_that_no_wheel_owns_is_a_problem(tmp_path: Path) -> None:
    (tmp_path / "mooncake").mkdir()
    assert run(tmp_path, cuda="13.0", allow_none=True) == [f"{tmp_path / 'mooncake'} belongs to no installed wheel"]


def test_a_non_cuda_wheel_whose_library_needs_cuda_is_a_problem(tmp_path: Path) -> None:
    """As published once: the package says it needs no CUDA, its program does."""
    install(tmp_path, NO_CUDA, library=b"\0libcudart.so.12\0")
    assert run(tmp_path, cuda="none") == ["store.so needs libcudart of CUDA 12, this image has CUDA none"]


@pytest.mark.parametrize("line", ["cuda: Optional[str] = '12.9'", "cuda = '12.9'"])
def test_a_torch_of_another_cuda_is_a_problem(tmp_path: Path, line: str) -> None:
    install(tmp_path, CUDA13)
    torch(tmp_path, line)
    assert run(tmp_path, cuda="13.0") == ["torch is built for CUDA 12, this image is for CUDA 13"]


def test_a_cpu_torch_in_a_gpu_image_is_a_problem(tmp_path: Path) -> None:
    install(tmp_path, CUDA13)
    torch(tmp_path, "cuda: Optional[str] = None")
    assert run(tmp_path, cuda="13.0") == ["torch is built for CUDA none, this image is for CUDA 13"]


def test_the_cpu_image_may_have_a_torch_of_any_cuda(tmp_path: Path) -> None:
    install(tmp_path, NO_CUDA)
    torch(tmp_path, "cuda: Optional[str] = '13.0'")
    assert run(tmp_path, cuda="none") == []


def test_another_version_is_a_problem(tmp_path: Path) -> None:
    install(tmp_path, CUDA13, version="0.3.14")
    assert run(tmp_path, cuda="13.0", version="0.3.13.post1") == [
        "mooncake-transfer-engine-cuda13 is 0.3.14, expected 0.3.13.post1"
    ]


def test_the_command_fails_the_build(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    install(tmp_path, CUDA12)
    assert check_wheels.main(["--cuda", "12.9", "--path", str(tmp_path)]) == 0
    assert check_wheels.main(["--cuda", "13.0", "--path", str(tmp_path)]) == 1
    assert "check_wheels: mooncake-transfer-engine is for CUDA 12" in capsys.readouterr().err


@pytest.mark.parametrize("value", ["", "cu129", "13.x", "latest"])
def test_a_cuda_version_that_is_none_is_refused(value: str) -> None:
    with pytest.raises(SystemExit):
        check_wheels.main(["--cuda", value])
