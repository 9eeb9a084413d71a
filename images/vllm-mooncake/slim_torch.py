"""Take the CUDA libraries out of a torch that will only ever run on a CPU.

The CPU build of torch is on none of the registries we install from, the CUDA build runs fine on a CPU, and more than
half of its 6 GB are libraries that are never called. They cannot simply be deleted: torch's own libraries name them
and the dynamic linker insists on finding them. So each is replaced by a tiny library of the same name in which
every function answers "no device": `torch.cuda.is_available()` is False instead of a crash.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable
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
# Loaded on demand by CUDA code only.
UNUSED = ("libtorch_cuda_linalg.so", "libcaffe2_nvrtc.so")

# Packages whose libraries are built against the same CUDA libraries.
COMPANIONS = ("torchaudio", "torchcodec", "torchvision")


def stub_names(needed: Iterable[str], present: Iterable[str]) -> list[str]:
    """The libraries to replace: those needed that neither the system nor torch itself provides."""
    own = set(present)
    return sorted({name for name in needed if name not in own and not SYSTEM.match(name)})


def stub(name: str, undefined: Iterable[str]) -> tuple[str, str]:
    """C source and linker version script of the library called `name`.

    `undefined` has the symbols torch looks for, as `nm` prints them: `function` or `function@version`.
    Functions whose address torch takes at load time must exist, so all of them do.
    """
    source: list[str] = []
    versions: dict[str, list[str]] = {}
    for symbol in sorted(set(undefined)):
        function, _, version = symbol.partition("@")
        if version:
            wanted = VERSIONS.get(version, version) == name
        else:
            wanted = name.startswith(CATCH_ALL) and CUDA_FUNCTION.fullmatch(function) is not None
        if not wanted:
            continue
        is_message = MESSAGE_FUNCTION.fullmatch(function) and not function.startswith("cudaGetLast")
        source.append(
            f'const char *{function}(void) {{ return "no CUDA in this image"; }}\n'
            if is_message
            else f"int {function}(void) {{ return {NO_DEVICE}; }}\n"
        )
        if version:
            versions.setdefault(version, []).append(function)
    script = "".join(f"{version} {{ global: {'; '.join(names)}; }};\n" for version, names in versions.items())
    return "".join(source), script


def _needed(library: Path) -> list[str]:
    output = subprocess.run(["readelf", "-d", library], check=True, capture_output=True, text=True).stdout
    return NEEDED.findall(output)


def _undefined(library: Path) -> list[str]:
    output = subprocess.run(
        ["nm", "-D", "--undefined-only", library], check=True, capture_output=True, text=True
    ).stdout
    return [line.split()[-1].replace("@@", "@") for line in output.splitlines() if line.strip()]


def _compile(name: str, source: str, script: str, directory: Path) -> None:
    with tempfile.NamedTemporaryFile("w", suffix=".map") as versions:
        versions.write(script)
        versions.flush()
        command = ["gcc", "-shared", "-fPIC", "-O1", "-s", "-w", f"-Wl,-soname,{name}"]
        command += [f"-Wl,--version-script={versions.name}"] if script else []
        command += ["-x", "c", "-", "-o", str(directory / name)]
        subprocess.run(command, input=source, check=True, text=True)


def slim(site_packages: Path) -> list[str]:
    """Remove CUDA from `site_packages`; returns the names of the stubs that took its place."""
    libraries = site_packages / "torch" / "lib"
    for name in UNUSED:
        (libraries / name).unlink(missing_ok=True)
    present = sorted(libraries.glob("*.so*"))
    names = stub_names((n for library in present for n in _needed(library)), (p.name for p in present))
    companions = (library for name in COMPANIONS for library in site_packages.glob(f"{name}/**/*.so"))
    undefined = [symbol for library in (*present, *companions) for symbol in _undefined(library)]
    for name in names:
        _compile(name, *stub(name, undefined), libraries)
    for directory in ("nvidia", "triton"):
        shutil.rmtree(site_packages / directory, ignore_errors=True)
    return names


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("site_packages", type=Path)
    names = slim(parser.parse_args().site_packages)
    print(f"replaced {len(names)} CUDA libraries: {' '.join(names)}", file=sys.stderr)


if __name__ == "__main__":
    main()
