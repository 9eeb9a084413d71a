"""What runs with what, as data: rows with source and date, and the only functions that look into them.

The built-in rows are the YAML files of this package. A cluster can put rows of its own before them by a ConfigMap whose
keys hold YAML of the same form, so that a new engine image needs no new operator.
"""

import datetime
import re
import warnings
from collections.abc import Iterable, Mapping
from functools import cache
from importlib import resources
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError
from pydantic.alias_generators import to_camel

from kvcachepool.compat.versions import CudaVersion, cuda_in_tag, cuda_version, fits, tag_of
from kvcachepool.constants import FAILURE_POLICY
from kvcachepool.documents import DocumentError, load

_LONGEST_PATTERN: Final = 1000
_MOST_REPEATS: Final = 4
"""With 63 characters of a label to match; each more makes the worst case that many times slower."""
FILES: Final = ("cuda.yaml", "builds.yaml", "known_bad.yaml")


def _specifier(text: str) -> str:
    fits("0", text)
    return text


def _pattern(text: str) -> str:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # of a pattern that a later Python reads otherwise
            re.compile(text)
    except (re.error, OverflowError, RecursionError, Warning) as error:
        raise ValueError(f"must be a regular expression, found {text[:64]!r}") from error
    if len(text) > _LONGEST_PATTERN or len(re.findall(r"[*+{]", text)) > _MOST_REPEATS or re.search(r"\)[*+{]", text):
        raise ValueError(
            f"must be a regular expression of at most {_LONGEST_PATTERN} characters and {_MOST_REPEATS} repeats, none "
            f"of a group, so that it is tried quickly; found {text[:64]!r}"
        )
    return text


def _cuda(text: str) -> str:
    return str(cuda_version(text))


Specifier = Annotated[str, AfterValidator(_specifier)]
Cuda = Annotated[str, AfterValidator(_cuda)]


class _Row(BaseModel):
    """A fact, where it is from, and when that was read."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="forbid", frozen=True)

    source: Annotated[str, Field(min_length=8)]
    date: datetime.date


class CudaRow(_Row):
    """What a major version of CUDA needs."""

    major: Annotated[int, Field(ge=11)]
    min_driver: Annotated[int, Field(ge=1)]
    min_forward_driver: Annotated[int, Field(ge=1)] | None = None
    min_capability: Annotated[str, Field(pattern=r"^[0-9]{1,2}\.[0-9]$")]

    @property
    def capability(self) -> tuple[int, int]:
        """The oldest compute capability, such as (7, 5)."""
        major, minor = self.min_capability.split(".")
        return int(major), int(minor)


class GpuClass(_Row):
    """Which products are data-centre GPUs."""

    products: Annotated[str, AfterValidator(_pattern)]
    data_center: bool


class EngineBuild(_Row):
    """An engine image."""

    image: Annotated[str, Field(min_length=1)]
    """Repository and tag, without registry."""
    engine: str
    cuda: Cuda
    mooncake: str | None = None
    """Version of the client inside."""
    operators: bool = False
    """The operator may choose it."""


class Wheel(_Row):
    """A Mooncake wheel."""

    package: str
    cuda: Literal["none"] | Cuda


class Lmcache(_Row):
    """An LMCache wheel."""

    version: str
    cuda: Cuda
    pins: dict[str, str]


class KnownBad(_Row):
    """A combination that fails; what is left out matches everything."""

    engine: Specifier | None = None
    mooncake: Specifier | None = None
    backend: str | None = None
    policy: Literal["recompute", "fail"] | None = None
    """What the engine does with a block that it cannot load."""
    feature: Literal["masterHa", "severalCacheGroups"] | None = None
    """Only for pools that use it."""
    effect: Literal["refuse", "warn", "note"]
    problem: Annotated[str, Field(min_length=8)]
    remedy: Annotated[str, Field(min_length=3)]
    issue: Annotated[str, Field(pattern=r"^[\w./-]+#[0-9]+$")]

    def matches(
        self,
        *,
        engine: str,
        mooncake: str | None,
        backend: str,
        policy: str = FAILURE_POLICY,
        features: frozenset[str] = frozenset(),
    ) -> bool:
        """Whether a pool with these versions is meant."""
        return (
            self.backend in (None, backend)
            and self.policy in (None, policy)
            and (self.feature is None or self.feature in features)
            and (self.engine is None or fits(engine, self.engine))
            and (self.mooncake is None or (mooncake is not None and fits(mooncake, self.mooncake)))
        )

    def __str__(self) -> str:
        return f"{self.problem} ({self.issue}); {self.remedy}"


class Tables(BaseModel):
    """All rows; of several that answer a question, the first does."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="forbid", frozen=True)

    cuda_versions: tuple[CudaRow, ...] = ()
    gpu_classes: tuple[GpuClass, ...] = ()
    engine_builds: tuple[EngineBuild, ...] = ()
    wheels: tuple[Wheel, ...] = ()
    lmcache: tuple[Lmcache, ...] = ()
    known_bad: tuple[KnownBad, ...] = ()

    def over(self, base: "Tables") -> "Tables":
        """These rows, then those of `base`."""
        joined: dict[str, Any] = {name: (*getattr(self, name), *getattr(base, name)) for name in Tables.model_fields}
        return Tables.model_construct(None, **joined)

    def cuda(self, major: int) -> CudaRow | None:
        """What that major version needs."""
        return next((row for row in self.cuda_versions if row.major == major), None)

    def data_center(self, product: str) -> bool:
        """Whether forward compatibility works on that product; False for one that is not known."""
        row = next((row for row in self.gpu_classes if re.fullmatch(row.products, product)), None)
        return row is not None and row.data_center

    def build(self, image: str) -> EngineBuild | None:
        """The row of an image, whatever registry it comes from."""
        name = image.partition("@")[0]
        return next((row for row in self.engine_builds if name == row.image or name.endswith(f"/{row.image}")), None)

    def cuda_of(self, image: str) -> CudaVersion | None:
        """The CUDA of an image, by its row or else by its tag; None when neither says."""
        row = self.build(image) if tag_of(image) else None
        return cuda_version(row.cuda) if row is not None else cuda_in_tag(image)

    def choices(self, engine: str) -> tuple[EngineBuild, ...]:
        """The operator's own builds of an engine version, the newest CUDA first."""
        rows = (row for row in self.engine_builds if row.operators and row.engine == engine)
        return tuple(sorted(rows, key=lambda row: _order(cuda_version(row.cuda)), reverse=True))

    def wheel(self, major: int) -> str | None:
        """The Mooncake wheel for a major version of CUDA."""
        return next((row.package for row in self.wheels if row.cuda != "none" and _major(row.cuda) == major), None)

    def wheel_cuda(self, package: str) -> str | None:
        """The CUDA that a wheel is made for: a major version, or `none`."""
        return next((row.cuda for row in self.wheels if row.package == package), None)

    def bad(
        self, *, engine: str, mooncake: str | None, backend: str, features: frozenset[str] = frozenset()
    ) -> tuple[KnownBad, ...]:
        """The rows that mean a pool with these versions, whose engines recompute what they cannot load."""
        return tuple(
            row
            for row in self.known_bad
            if row.matches(engine=engine, mooncake=mooncake, backend=backend, features=features)
        )


def _order(version: CudaVersion) -> tuple[int, int]:
    return version.major, version.minor or 0


def _major(text: str) -> int:
    return cuda_version(text).major


class TableError(ValueError):
    """Rows that cannot be used; says which and why."""


def parse_tables(documents: Mapping[str, str]) -> Tables:
    """Tables out of YAML texts by name. Raises TableError for the first one that cannot be used."""
    parts = [_parse(name, text) for name, text in sorted(documents.items())]
    return _joined(parts)


def _joined(parts: Iterable[Tables]) -> Tables:
    result = Tables()
    for part in parts:
        result = result.over(part)
    return result


def _parse(name: str, text: str) -> Tables:
    try:
        content = load(text)
    except DocumentError as error:
        raise TableError(f"{name}: {error}") from error
    if len(content) > 1:
        raise TableError(f"{name}: found {len(content)} documents, expected one")
    try:
        return Tables.model_validate(content[0] if content else {})
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"])[:200]
        raise TableError(f"{name}: {where}: {first['msg'].removeprefix('Value error, ')[:500]}") from error


@cache
def _built_in() -> Tables:
    folder = resources.files("kvcachepool.compat")
    return _joined(_parse(name, folder.joinpath(name).read_text(encoding="utf-8")) for name in FILES)


BUILT_IN: Final = _built_in()
