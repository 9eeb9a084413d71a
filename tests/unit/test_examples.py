"""Examples of the documentation, as the operator reads them. tests/apiserver applies the same files."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from kvcachepool.api import KVCachePool
from kvcachepool.api.parse import Invalid, parse_pool
from kvcachepool.preview import preview
from kvcachepool.settings import Settings

EXAMPLES = Path(__file__).resolve().parents[2] / "docs" / "examples"
VALID = sorted((EXAMPLES / "valid").glob("*.yaml"))
INVALID = sorted((EXAMPLES / "invalid").glob("*.yaml"))


@dataclass(frozen=True)
class Refusal:
    """An invalid example: what the API server says (`expect`) and what the operator says."""

    manifest: dict[str, Any]
    expect: str
    operator: str


def read(path: Path) -> dict[str, Any]:
    """An example, as it comes from the API server."""
    manifest: dict[str, Any] = yaml.safe_load(path.read_text())
    manifest["metadata"] |= {"namespace": "default", "uid": "u", "generation": 1}
    return manifest


def refusal(path: Path) -> Refusal:
    """An invalid example with the comments of its first two lines."""
    first, second, *_ = path.read_text().splitlines()
    assert first.startswith("# expect: "), path
    assert second.startswith("# operator: "), path
    return Refusal(read(path), first.removeprefix("# expect: "), second.removeprefix("# operator: "))


@pytest.mark.parametrize("path", VALID, ids=lambda path: path.stem)
def test_valid_examples_are_understood(path: Path) -> None:
    pool = parse_pool(read(path))
    assert isinstance(pool, KVCachePool), getattr(pool, "findings", None)


@pytest.mark.parametrize("path", VALID, ids=lambda path: path.stem)
def test_valid_examples_have_a_plan(path: Path) -> None:
    objects = [yaml.safe_load(document) for document in preview(path.read_text(), Settings())]
    assert {"Deployment", "Service"} <= {item["kind"] for item in objects}


@pytest.mark.parametrize("path", INVALID, ids=lambda path: path.stem)
def test_invalid_examples_are_refused_with_the_message_they_name(path: Path) -> None:
    example = refusal(path)
    pool = parse_pool(example.manifest)
    assert isinstance(pool, Invalid)
    messages = [finding.message for finding in pool.findings]
    assert [example.operator in message for message in messages] == [True], messages


def test_values_of_variables_are_never_shown() -> None:
    example = refusal(EXAMPLES / "invalid" / "env-value-and-reference.yaml")
    pool = parse_pool(example.manifest)
    assert isinstance(pool, Invalid)
    assert "not-a-real-token" not in str(pool.findings)


def test_names_are_distinct_so_that_all_can_be_applied_at_once() -> None:
    for group in (VALID, INVALID):
        names = [read(path)["metadata"]["name"] for path in group]
        assert len(set(names)) == len(names)
