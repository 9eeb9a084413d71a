"""Which libraries are replaced when CUDA is taken out of torch, and by what."""

from __future__ import annotations

import ctypes
import importlib.util
import sys
from pathlib import Path
from types import ModuleType


def _script() -> ModuleType:
    path = Path(__file__).parents[2] / "images" / "vllm-mooncake" / "slim.py"
    spec = importlib.util.spec_from_file_location("slim", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


slim = _script()

NM = """\
                 U cudaGetDeviceCount@libcudart.so.13
                 U __cudaRegisterFatBinary@@libcudart.so.13
                 U cudaGetErrorString@libcudart.so.13
                 U cudaGetLastError@libcudart.so.13
                 U cublasCreate_v2@libcublas.so.13
                 U nvshmem_init@NVSHMEM
                 U ncclSend
                 U PyList_New
                 U _ZN3c105ErrorD1Ev
                 U memcpy@GLIBC_2.14
                 w __gmon_start__
"""


def test_only_what_neither_torch_nor_the_system_has_is_replaced() -> None:
    needed = ["libc10.so", "libcudart.so.13", "libcudart.so.13", "libstdc++.so.6", "libgomp.so.1", "libnccl.so.2"]
    assert slim.stub_names(needed, ["libc10.so", "libgomp.so.1"]) == ["libcudart.so.13", "libnccl.so.2"]


def test_symbols_are_read_with_and_without_a_version() -> None:
    symbols = slim.parse_symbols(NM)
    assert slim.Symbol("cudaGetDeviceCount", "U", "libcudart.so.13") in symbols
    assert slim.Symbol("__cudaRegisterFatBinary", "U", "libcudart.so.13") in symbols
    assert slim.Symbol("ncclSend", "U", "") in symbols


def test_a_stub_defines_what_is_looked_for_in_that_library_and_no_more() -> None:
    symbols = slim.parse_symbols(NM)
    source, script = slim.cuda_stub("libcublas.so.13", symbols)
    assert "cublasCreate_v2" in source
    assert source.count("\n") == 1
    assert script == "libcublas.so.13 { global: cublasCreate_v2; };\n"
    assert "nvshmem_init" in slim.cuda_stub("libnvshmem_host.so.3", symbols)[0]
    assert slim.cuda_stub("libnccl.so.2", symbols) == ("", "")


def test_functions_without_a_version_land_in_the_library_that_is_always_loaded() -> None:
    source, script = slim.cuda_stub("libcudart.so.13", slim.parse_symbols(NM))
    assert "int ncclSend(void)" in source
    assert "ncclSend" not in script
    for foreign in ("PyList_New", "_ZN3c10", "memcpy", "cublas", "__gmon_start__"):
        assert foreign not in source


def test_a_stub_can_be_compiled_and_says_that_there_is_no_device(tmp_path: Path) -> None:
    name = "libcudart.so.13"
    slim._compile(name, *slim.cuda_stub(name, slim.parse_symbols(NM)), tmp_path)
    library = ctypes.CDLL(str(tmp_path / name))
    assert library.cudaGetDeviceCount() == 100
    assert library.cudaGetLastError() == 100
    library.cudaGetErrorString.restype = ctypes.c_char_p
    assert library.cudaGetErrorString() == b"no CUDA in this image"
