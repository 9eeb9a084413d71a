"""Take out of an engine's Python packages what a CPU never uses: two thirds of their size.

The CPU build of torch is on none of the registries we install from. Its CUDA build runs fine on a CPU, but needs 2.7 GB
of CUDA libraries that are never called. They cannot simply be left out: torch's own libraries name them, and the
dynamic linker insists on finding every one, with every symbol whose address is taken at load time. So each is replaced
by a tiny library of the same name, in which every function answers "no device": `torch.cuda.is_available()` is then
False instead of a crash. Torch's own libraries stay: its Python bindings call into the GPU half while they load.

What is left loses its symbol tables for debuggers (half a gigabyte in vLLM's kernels alone), headers and tests.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

NO_DEVICE = 100  # cudaErrorNoDevice; for every other library just some error
# What a torch library may need without it being CUDA: the C library, the compiler's run time and torch itself.
SYSTEM = re.compile(r"^(libc|libdl|libm|librt|libpthread|libgcc_s|libstdc\+\+|libgomp|ld-linux-x86-64)\.so")
NEEDED = re.compile(r"\(NEEDED\)\s+Shared library: \[(.+)\]")
CUDA_FUNCTION = re.compile(r"(cu[A-Z]|cuda[A-Z]|cublas|cudnn|cufft|cupti|curand|cusparse|nccl|nvrtc|nvshmem)\w*")
MESSAGE_FUNCTION = re.compile(r"\w+Get(ErrorString|ErrorName|LastError)")
# Where a symbol's version is not the name of its library.
VERSIONS = {"NVSHMEM": "libnvshmem_host.so.3"}
# Symbols without a version are looked up in every library that is loaded; this one always is.
CATCH_ALL = "libcudart.so"
# Loaded on demand by CUDA code.
UNUSED = ("libtorch_cuda_linalg.so", "libcaffe2_nvrtc.so")
# Packages whose libraries are built against the same CUDA libraries.
COMPANIONS = ("torchaudio", "torchcodec", "torchvision")
UNUSED_DIRECTORIES = ("nvidia", "triton", "torch/include", "torch/share")
# Libraries that come with more symbols for debuggers than code.
STRIPPED = ("vllm/*.so", "torch/lib/*.so", "llvmlite/binding/*.so")


@dataclass(frozen=True)
class Symbol:
    """A dynamic symbol as nm prints it."""

    name: str
    kind: str
    version: str


def parse_symbols(output: str) -> list[Symbol]:
    """Symbols in the output of `nm -D`."""
    symbols = []
    for line in output.splitlines():
        *_, kind, name = line.split()
        name, _, version = name.replace("@@", "@").partition("@")
        symbols.append(Symbol(name, kind, version))
    return symbols


def stub_names(needed: Iterable[str], present: Iterable[str]) -> list[str]:
    """The libraries to replace: those needed that neither the system nor torch itself provides."""
    own = set(present)
    return sorted({name for name in needed if name not in own and not SYSTEM.match(name)})


def cuda_stub(library: str, undefined: Iterable[Symbol]) -> tuple[str, str]:
    """C source and linker version script that stand in for a CUDA library, for those who look for `undefined`."""
    source: dict[str, str] = {}
    versions: dict[str, list[str]] = {}
    for symbol in sorted(undefined, key=lambda symbol: (symbol.name, symbol.version)):
        if symbol.version:
            wanted = VERSIONS.get(symbol.version, symbol.version) == library
        else:
            wanted = library.startswith(CATCH_ALL) and CUDA_FUNCTION.fullmatch(symbol.name) is not None
        if not wanted or symbol.name in source:
            continue
        is_message = MESSAGE_FUNCTION.fullmatch(symbol.name) and not symbol.name.startswith("cudaGetLast")
        source[symbol.name] = (
            f'const char *{symbol.name}(void) {{ return "no CUDA in this image"; }}\n'
            if is_message
            else f"int {symbol.name}(void) {{ return {NO_DEVICE}; }}\n"
        )
        if symbol.version:
            versions.setdefault(symbol.version, []).append(symbol.name)
    script = "".join(f"{version} {{ global: {'; '.join(names)}; }};\n" for version, names in versions.items())
    return "".join(source.values()), script


def _needed(library: Path) -> list[str]:
    output = subprocess.run(["readelf", "-d", library], check=True, capture_output=True, text=True).stdout
    return NEEDED.findall(output)


def _symbols(library: Path, which: str) -> list[Symbol]:
    command = ["nm", "-D", which, str(library)]
    return parse_symbols(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def _compile(name: str, source: str, script: str, directory: Path) -> None:
    library = directory / name
    library.unlink(missing_ok=True)
    with tempfile.NamedTemporaryFile("w", suffix=".map") as versions:
        versions.write(script)
        versions.flush()
        command = ["gcc", "-shared", "-fPIC", "-O1", "-s", "-w", f"-Wl,-soname,{name}"]
        command += [f"-Wl,--version-script={versions.name}"] if script else []
        command += ["-x", "c", "-", "-o", str(library)]
        subprocess.run(command, input=source, check=True, text=True)


def replace_cuda(site_packages: Path) -> list[str]:
    """Put stubs in the place of all GPU libraries; returns their names."""
    libraries = site_packages / "torch" / "lib"
    for name in UNUSED:
        (libraries / name).unlink(missing_ok=True)
    own = sorted(libraries.glob("*.so*"))
    names = stub_names((n for path in own for n in _needed(path)), (path.name for path in own))
    companions = [path for name in COMPANIONS for path in site_packages.glob(f"{name}/**/*.so")]
    undefined = [symbol for path in (*own, *companions) for symbol in _symbols(path, "--undefined-only")]
    for name in names:
        _compile(name, *cuda_stub(name, undefined), libraries)
    return names


def slim(site_packages: Path) -> list[str]:
    """Do all of it; returns the names of the stubs."""
    names = replace_cuda(site_packages)
    for directory in UNUSED_DIRECTORIES:
        shutil.rmtree(site_packages / directory, ignore_errors=True)
    for tests in sorted(site_packages.glob("**/tests")):
        if tests.is_dir():
            shutil.rmtree(tests)
    stripped = [path for pattern in STRIPPED for path in sorted(site_packages.glob(pattern))]
    subprocess.run(["strip", "--strip-unneeded", *stripped], check=True)
    return names


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("site_packages", type=Path)
    names = slim(parser.parse_args().site_packages)
    print(f"replaced {len(names)} GPU libraries: {' '.join(names)}", file=sys.stderr)


if __name__ == "__main__":
    main()
