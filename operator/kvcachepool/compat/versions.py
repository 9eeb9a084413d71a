"""Versions: how they compare, and which CUDA version the tag of an image names."""

import re
from dataclasses import dataclass

_RELEASE = re.compile(r"^([0-9]+(?:\.[0-9]+)*)(?:\.post([0-9]+))?")
_TEST = re.compile(r"^(==|>=|<=|<|>)\s*([0-9][0-9a-z.]*)$")
_CUDA = re.compile(r"^([0-9]{2})(?:\.([0-9]{1,2}))?$")
_TAG = re.compile(r"(?:^|[-_.])cu(?:da)?-?([0-9]{2})\.?([0-9])?(?![0-9])")


@dataclass(frozen=True, slots=True)
class CudaVersion:
    """Major version, and the minor one where it is known."""

    major: int
    minor: int | None = None

    def __str__(self) -> str:
        return str(self.major) if self.minor is None else f"{self.major}.{self.minor}"

    def agrees(self, other: "CudaVersion") -> bool:
        """Whether both can name one build; a minor version that is not given agrees with any."""
        return self.major == other.major and (None in (self.minor, other.minor) or self.minor == other.minor)


def cuda_version(text: str) -> CudaVersion:
    """Of `13`, `13.0` or `12.9`. Raises ValueError."""
    match = _CUDA.match(text)
    if match is None:
        raise ValueError(f"must be a CUDA version such as 13 or 12.9, found {text[:64]!r}")
    return CudaVersion(int(match[1]), int(match[2]) if match[2] else None)


def cuda_in_tag(image: str) -> CudaVersion | None:
    """What the tag says, as in `…:v0.33.0-cu129` or `…:0.33.0-cu13`; None when it says nothing."""
    return _named(tag_of(image))


def release(version: str) -> str:
    """Without the local part (`+cu129`), by which images and wheels are not told apart: it cannot stand in a tag."""
    return version.partition("+")[0]


def cuda_in_local(version: str) -> CudaVersion | None:
    """What the local part of a version says, as in `0.33.0+cu129`; None when it says nothing."""
    return _named(version.partition("+")[2])


def tag_of(image: str) -> str:
    """The tag, "" without one. A registry's port is none."""
    name = image.partition("@")[0].rpartition("/")[2]
    return name.partition(":")[2]


def fits(version: str, specifier: str) -> bool:
    """Whether a version meets all tests of `>=0.28,<0.29`. A post release counts as later than its release.

    Raises ValueError for a specifier of which any test cannot be read, whatever the version.
    """
    return all([_meets(version, test.strip()) for test in specifier.split(",")])  # noqa: C419 - each test is read


def _named(text: str) -> CudaVersion | None:
    match = _TAG.search(text)
    return CudaVersion(int(match[1]), int(match[2]) if match[2] else None) if match else None


def _meets(version: str, test: str) -> bool:
    match = _TEST.match(test)
    if match is None:
        raise ValueError(f"must be tests such as >=0.28,<0.29, found {test[:64]!r}")
    left, right = _key(version), _key(match[2])
    length = max(len(left[0]), len(right[0]))
    pair = [((*release, *(0,) * (length - len(release))), post) for release, post in (left, right)]
    found, wanted = pair
    return {
        "==": found == wanted,
        ">=": found >= wanted,
        "<=": found <= wanted,
        "<": found < wanted,
        ">": found > wanted,
    }[match[1]]


def _key(version: str) -> tuple[tuple[int, ...], int]:
    match = _RELEASE.match(version)
    if match is None:
        raise ValueError(f"must be a version such as 0.33.0, found {version[:64]!r}")
    return tuple(int(part) for part in match[1].split(".")), int(match[2] or 0)
