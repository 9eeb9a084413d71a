"""The compatibility tables: every row has a source, a fault is told, and lookups answer as the sources say."""

from importlib import resources
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from kvcachepool.compat.pins import PINS
from kvcachepool.compat.tables import BUILT_IN, FILES, TableError, Tables, parse_tables
from kvcachepool.compat.versions import CudaVersion, cuda_in_tag, cuda_version, fits, tag_of

FOLDER = resources.files("kvcachepool.compat")
ROWS = [
    (f"{name}:{table}[{number}]", table, row)
    for name in FILES
    for table, rows in yaml.safe_load(FOLDER.joinpath(name).read_text()).items()
    for number, row in enumerate(rows)
]
SOURCE = {"source": "https://example.com/x", "date": "2026-11-29"}


@pytest.mark.parametrize(("name", "table", "row"), ROWS, ids=[name for name, _, _ in ROWS])
def test_a_row_without_source_or_date_fails(name: str, table: str, row: dict[str, Any]) -> None:
    for missing in ("source", "date"):
        poorer = {key: value for key, value in row.items() if key != missing}
        with pytest.raises(TableError, match=rf"{table}\.0\.{missing}: Field required"):
            parse_tables({"x": yaml.safe_dump({table: [poorer]})})
    assert (
        "://" in row["source"]
        or "pins.yaml" in row["source"]
        or "wheel" in row["source"]
        or "store.so" in row["source"]
    )


def test_every_table_has_rows() -> None:
    assert {table for _, table, _ in ROWS} == {
        "cudaVersions", "gpuClasses", "engineBuilds", "wheels", "lmcache", "knownBad",
    }  # fmt: skip


def test_the_operators_builds_are_the_pinned_ones() -> None:
    pins = yaml.safe_load(FOLDER.joinpath("pins.yaml").read_text())
    rows = BUILT_IN.choices(PINS.engine_version)
    assert [row.image for row in rows] == [
        f"{PINS.images.engine}:{PINS.engine_version}-cu{major}" for major in PINS.wheel_majors
    ]
    for row in rows:
        major = row.cuda.split(".")[0]
        assert row.cuda == pins["vllm"]["cuda"][major]["cuda"]
        assert row.mooncake == PINS.mooncake_version
        assert str(BUILT_IN.cuda_of(pins["vllm"]["cuda"][major]["base"])) == row.cuda
        assert BUILT_IN.wheel(int(major)) == pins["mooncake"]["wheels"][major]
    assert BUILT_IN.wheel_cuda(pins["mooncake"]["wheels"]["cpu"]) == "none"


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("- a: 1", "Input should be"),
        ("a: [", "own.yaml: not YAML"),
        ("cudaVersion: []", "own.yaml: cudaVersion: Extra inputs"),
        (yaml.safe_dump({"cudaVersions": [{"major": 14, "minDriver": 0, "minCapability": "8.0", **SOURCE}]}), "minDriver"),
        (yaml.safe_dump({"gpuClasses": [{"products": "(", "dataCenter": True, **SOURCE}]}), "must be a regular expression"),
        (yaml.safe_dump({"gpuClasses": [{"products": "A[0---9]", "dataCenter": True, **SOURCE}]}), "must be a regular expression"),
        (yaml.safe_dump({"engineBuilds": [{"image": "x", "engine": "1", "cuda": "cu12", **SOURCE}]}), "must be a CUDA version"),
        (
            yaml.safe_dump(
                {"knownBad": [{"engine": "~=1", "effect": "warn", "problem": "it fails", "remedy": "wait", "issue": "a#1", **SOURCE}]}
            ),
            "must be tests such as >=0.28,<0.29",
        ),
        (
            yaml.safe_dump(
                {"knownBad": [{"engine": ">=1,", "effect": "warn", "problem": "it fails", "remedy": "wait", "issue": "a#1", **SOURCE}]}
            ),
            "must be tests such as >=0.28,<0.29, found ''",
        ),
    ],
)  # fmt: skip
def test_a_fault_in_own_rows_says_where(text: str, where: str) -> None:
    with pytest.raises(TableError, match=r"own\.yaml") as error:
        parse_tables({"own.yaml": text})
    assert where in str(error.value)


def test_own_rows_come_first() -> None:
    own = parse_tables(
        {
            "a": yaml.safe_dump({"cudaVersions": [{"major": 14, "minDriver": 620, "minCapability": "8.0", **SOURCE}]}),
            "b": yaml.safe_dump({"engineBuilds": [{"image": "team/vllm:prod", "engine": "0.33.0", "cuda": "12.8", **SOURCE}]}),
            "c": yaml.safe_dump({"gpuClasses": [{"products": "OUR-GPU", "dataCenter": True, **SOURCE}]}),
        }
    ).over(BUILT_IN)  # fmt: skip
    assert own.cuda(14) is not None
    assert own.cuda(13) == BUILT_IN.cuda(13)
    assert own.cuda_of("registry.internal:5000/team/vllm:prod") == CudaVersion(12, 8)
    assert BUILT_IN.cuda_of("registry.internal:5000/team/vllm:prod") is None
    assert own.data_center("OUR-GPU")
    assert Tables().cuda(13) is None


def test_drivers_are_as_the_vendor_says() -> None:
    assert [(m, row.min_driver) for m in (13, 12, 11) if (row := BUILT_IN.cuda(m))] == [(13, 580), (12, 525), (11, 450)]
    newest = BUILT_IN.cuda(13)
    assert newest is not None
    assert (newest.min_forward_driver, newest.capability) == (535, (7, 5))


@pytest.mark.parametrize(
    ("product", "yes"),
    [
        ("NVIDIA-L4", True),
        ("NVIDIA-A100-SXM4-80GB", True),
        ("NVIDIA-H100-80GB-HBM3-MIG-1g.10gb", True),
        ("Tesla-V100-SXM2-32GB", True),
        ("NVIDIA-GeForce-RTX-4090", False),
        ("NVIDIA-RTX-A6000", False),
        ("NVIDIA-L400", False),
        ("A-B-C", False),
    ],
)
def test_data_centre_gpus(product: str, yes: bool) -> None:
    assert BUILT_IN.data_center(product) is yes


@pytest.mark.parametrize(
    ("image", "tag", "cuda"),
    [
        ("vllm/vllm-openai:v0.33.0-cu129", "v0.33.0-cu129", CudaVersion(12, 9)),
        ("vllm/vllm-openai:nightly-cu130-x86", "nightly-cu130-x86", CudaVersion(13, 0)),
        ("a/b:0.33.0-cu13", "0.33.0-cu13", CudaVersion(13)),
        ("a/b:cuda12.8-py312", "cuda12.8-py312", CudaVersion(12, 8)),
        ("host:5000/a/b", "", None),
        ("host:5000/a/b:v1", "v1", None),
        ("a/b:cu13@sha256:00cu12", "cu13", CudaVersion(13)),
        ("a/b@sha256:00", "", None),
        ("a/b:focus12", "focus12", None),
        ("a/b:cu2024", "cu2024", None),
    ],
)
def test_what_a_tag_says(image: str, tag: str, cuda: CudaVersion | None) -> None:
    assert tag_of(image) == tag
    assert cuda_in_tag(image) == cuda


@pytest.mark.parametrize(
    ("version", "specifier", "yes"),
    [
        ("0.3.13.post1", ">=0.3.12,<0.3.13", False),
        ("0.3.12.post1", ">=0.3.12,<0.3.13", True),
        ("0.3.12.post1", "==0.3.12", False),
        ("0.33", "==0.33.0", True),
        ("0.33.1rc1", "<=0.33.0", False),
        ("0.28.4", ">=0.28,<0.29", True),
        ("0.4.0", ">0.33", False),
    ],
)
def test_versions_against_tests(version: str, specifier: str, yes: bool) -> None:
    assert fits(version, specifier) is yes


@given(st.tuples(*[st.integers(0, 40)] * 3), st.tuples(*[st.integers(0, 40)] * 3))
def test_versions_compare_as_numbers(left: tuple[int, ...], right: tuple[int, ...]) -> None:
    a, b = (".".join(map(str, version)) for version in (left, right))
    assert fits(a, f"<{b}") is (left < right)
    assert fits(a, f">={b}") is (left >= right)


def test_a_minor_version_that_is_not_given_agrees_with_any() -> None:
    assert cuda_version("12").agrees(cuda_version("12.9"))
    assert not cuda_version("12.4").agrees(cuda_version("12.9"))
    assert not cuda_version("12").agrees(cuda_version("13"))


GROUPS = frozenset({"severalCacheGroups"})


def test_known_bad_rows_mean_what_they_say() -> None:
    def issues(**versions: Any) -> set[str]:
        return {row.issue for row in BUILT_IN.bad(**versions) if row.effect != "note"}

    assert issues(engine="0.33.0", mooncake="0.3.13.post1", backend="mooncake") == set()
    assert issues(engine="0.28.1", mooncake="0.3.12.post1", backend="mooncake") == {"vllm#54870", "Mooncake#3314"}
    assert issues(engine="0.28.1", mooncake=None, backend="native") == set()
    assert issues(engine="0.31.0", mooncake="0.3.13.post1", backend="mooncake", features=GROUPS) == {"vllm#45474"}
    assert issues(engine="0.32.0", mooncake="0.3.13.post1", backend="mooncake", features=GROUPS) == set()
    row = next(row for row in BUILT_IN.known_bad if row.issue == "vllm#45474")
    named = {"engine": "0.31.0", "mooncake": None, "backend": "mooncake", "features": GROUPS}
    assert (row.matches(**named), row.matches(**named, policy="fail")) == (True, False)
