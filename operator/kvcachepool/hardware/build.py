"""Which engine images a pool could run, and what in its spec contradicts itself about CUDA."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from kvcachepool.api import KVCachePool
from kvcachepool.compat.pins import PINS
from kvcachepool.compat.tables import EngineBuild, Tables
from kvcachepool.compat.versions import CudaVersion, cuda_in_local, cuda_version, release, tag_of
from kvcachepool.findings import Finding

AUTO: Final = "auto"
_NVIDIA: Final = "nvidia.com/"
_FIELD: Final = "spec.cuda.version"
_VERSION: Final = "spec.engines.version"


@dataclass(frozen=True, slots=True)
class Build:
    """An image and the CUDA inside; None for engines that need none."""

    image: str
    """As the user wrote it, or the operator's own without the installation's registry."""
    cuda: CudaVersion | None
    own: bool
    """One of the operator's images."""


def needs_cuda(pool: KVCachePool) -> bool:
    """Whether the engines run on NVIDIA GPUs."""
    return pool.spec.engines.gpu.resource_name.startswith(_NVIDIA)


def builds(pool: KVCachePool, tables: Tables) -> tuple[Build, ...]:
    """The images to choose from, the newest CUDA first; empty when `check_build` has findings about CUDA."""
    engines = pool.spec.engines
    if not needs_cuda(pool):
        own = _own_image(f"{release(engines.version)}-cpu")
        return (Build(engines.image or own, None, own=engines.image is None),)
    asked, _, _ = asked_cuda(pool)
    if engines.image is not None:
        found = tables.cuda_of(engines.image)
        if (found is None and asked is None) or (found and asked and not found.agrees(asked)):
            return ()
        return (Build(engines.image, found or asked, own=False),)
    known = own_builds(pool, tables)
    return tuple(Build(image, cuda, own=True) for image, cuda in known if asked is None or cuda.agrees(asked))


def own_builds(pool: KVCachePool, tables: Tables) -> list[tuple[str, CudaVersion]]:
    """(image, CUDA) of the operator's builds of the engine's version, the newest first."""
    version = release(pool.spec.engines.version)
    known = [(row.image, cuda_version(row.cuda)) for row in tables.choices(version)]
    if not known:  # a version that no row has: the build's tag follows from its CUDA
        known = [(_own_image(f"{version}-cu{major}"), CudaVersion(int(major))) for major in PINS.wheel_majors]
    return known


def check_build(pool: KVCachePool, tables: Tables) -> Iterable[Finding]:
    """Contradictions about the build, with both values; nothing is created for any of them."""
    if needs_cuda(pool):
        yield from _check_cuda(pool, tables)
    elif pool.spec.engines.image is None:
        yield from _check_no_cuda(pool)
    yield from _check_versions(pool, tables)


def _check_no_cuda(pool: KVCachePool) -> Iterable[Finding]:
    """The operator has no build for other GPUs, and one for the CPU."""
    engines, field = pool.spec.engines, "spec.engines.image"
    device, version = engines.gpu.resource_name, release(engines.version)
    if device:
        yield Finding(
            "InvalidSpec",
            f"{field}: found none with spec.engines.gpu.resourceName {device}, but the operator's own builds are for "
            f"{_NVIDIA}… and for the CPU; expected an image of engine {version} for that device",
            field,
        )
    elif version != PINS.cpu_engine_version:
        yield Finding(
            "InvalidSpec",
            f"{field}: found none with spec.engines.gpu.resourceName empty, but the operator's build for the CPU is "
            f"engine {PINS.cpu_engine_version} and {_VERSION} is {version}; set the image, or that version",
            field,
        )


def _check_cuda(pool: KVCachePool, tables: Tables) -> Iterable[Finding]:
    engines, (asked, field, value) = pool.spec.engines, asked_cuda(pool)
    local = cuda_in_local(engines.version)
    found = tables.cuda_of(engines.image) if engines.image is not None else None
    possible = builds(pool, tables)
    if local is not None and asked is not None and not local.agrees(asked):
        yield Finding(
            "CUDABuildMismatch",
            f"{_VERSION}: found {engines.version}, but {field} is {value}; make them agree",
            _VERSION,
        )
    if engines.image is not None and found is None and asked is None:
        told = (
            "has no tag" if not tag_of(engines.image) else f"has the tag {tag_of(engines.image)}, which tells no CUDA"
        )
        yield Finding(
            "CUDABuildMismatch",
            f"{_FIELD}: found auto, but spec.engines.image {engines.image} {told}; "
            "expected the CUDA version inside the image, such as 13.0 or 12.9",
            _FIELD,
        )
    elif found is not None and asked is not None and not found.agrees(asked):
        yield Finding(
            "CUDABuildMismatch",
            f"{field}: found {value}, but spec.engines.image {engines.image} is built for CUDA {found}; "
            "make them agree",
            field,
        )
    elif not possible:
        version = release(engines.version)
        known = ", ".join(row.cuda for row in tables.choices(version)) or ", ".join(PINS.wheel_majors)
        yield Finding(
            "CUDABuildMismatch",
            f"{field}: found {value}, but the operator's builds of engine {version} are for CUDA {known}; "
            "choose one of them, or set spec.engines.image",
            field,
        )
    for major in sorted({build.cuda.major for build in possible if build.cuda and not tables.cuda(build.cuda.major)}):
        yield Finding(
            "CUDABuildMismatch",
            f"{_FIELD}: CUDA {major} is in no compatibility table, so that its driver is not known; add a row to "
            "ConfigMap kvcachepool-compatibility, or use another build",
            _FIELD,
        )
    product = engines.gpu.product
    if pool.spec.cuda.allow_forward_compat and product is not None and not tables.data_center(product):
        yield Finding(
            "CUDABuildMismatch",
            f"spec.cuda.allowForwardCompat: found true with spec.engines.gpu.product {product}, which no compatibility "
            "table has as a data-centre GPU; forward compatibility works on these only",
            "spec.cuda.allowForwardCompat",
        )


def _check_versions(pool: KVCachePool, tables: Tables) -> Iterable[Finding]:
    mooncake = pool.spec.backend.mooncake
    for build in builds(pool, tables)[:1]:
        row = tables.build(build.image)
        if row is None:
            continue
        if mooncake is not None and row.mooncake is not None and release(row.mooncake) != mooncake.version:
            yield _skew("spec.backend.mooncake.version", mooncake.version, row, f"Mooncake {row.mooncake}")
        if release(row.engine) != release(pool.spec.engines.version):
            yield _skew(_VERSION, pool.spec.engines.version, row, f"vLLM {row.engine}")
    for bad in tables.bad(
        engine=pool.spec.engines.version,
        mooncake=mooncake.version if mooncake is not None else None,
        backend=pool.spec.backend.name,
        features=pool.features,
    ):
        if bad.effect == "refuse":
            yield Finding("KnownBadCombination", f"spec.engines.version and spec.backend: {bad}", "spec")


def _skew(field: str, found: str, row: EngineBuild, inside: str) -> Finding:
    return Finding(
        "VersionSkew",
        f"{field}: found {found}, but the engine image {row.image} holds {inside}; a skew fails without an error, so "
        "make them agree",
        field,
    )


def asked_cuda(pool: KVCachePool) -> tuple[CudaVersion | None, str, str]:
    """(the CUDA that is asked for, the field that does, its value). A local part of the engine's version asks for one,
    too, where spec.cuda.version leaves it open."""
    version, engine = pool.spec.cuda.version, pool.spec.engines.version
    asked, local = None if version == AUTO else cuda_version(version), cuda_in_local(engine)
    if local is not None and (asked is None or (asked.minor is None and asked.agrees(local))):
        return local, _VERSION, engine
    return asked, _FIELD, version


def _own_image(tag: str) -> str:
    return f"{PINS.images.engine}:{tag}"
