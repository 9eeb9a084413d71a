"""docs/reference: complete, and the same as what the API server checks."""

import re
import tomllib
from pathlib import Path

from hack.generate import outputs, permissions_reference
from kvcachepool import rbac
from kvcachepool.api.crd import nested_models, structural
from kvcachepool.api.pool import PoolSpec
from kvcachepool.api.reference import api_reference
from kvcachepool.api.status import PoolStatus

PAGE = api_reference()


def section(name: str) -> str:
    """Text below one heading."""
    match = re.search(rf"^#+ {name}\n(.*?)(?=^#|\Z)", PAGE, re.MULTILINE | re.DOTALL)
    assert match, name
    return match[1]


def test_every_field_of_every_model_is_there() -> None:
    waiting = [("spec", PoolSpec), ("status", PoolStatus)]
    seen = set()
    while waiting:
        name, model = waiting.pop()
        if name in seen:
            continue
        seen.add(name)
        for field in structural(model)["properties"]:
            assert f"| `{field}` |" in section(name), (name, field)
        waiting += [(inner.__name__, inner) for inner in nested_models(model)]
    assert len(seen) > 20


def test_links_lead_somewhere() -> None:
    headings = {heading.lower() for heading in re.findall(r"^#+ (\w+)$", PAGE, re.MULTILINE)}
    assert set(re.findall(r"\]\(#(\w+)\)", PAGE)) <= headings


def test_defaults_limits_and_rules_are_shown() -> None:
    assert "| `blockSize` | integer | `64` |" in section("Schema")
    assert "1 to 1024." in section("Schema")
    assert "Must be a size of at least 64Mi" in section("Store")
    assert "exactly one of native and mooncake must be set" in section("Backend")
    assert "| `id` | string | required |" in section("Model")
    assert "| `env` | list of [EnvVar](#envvar) |" in section("Engines")


def test_tables_are_whole() -> None:
    for line in PAGE.splitlines():
        if line.startswith("| `"):
            assert len(re.findall(r"(?<!\\)\|", line)) == 5, line


def test_permissions_name_every_rule() -> None:
    page = permissions_reference()
    assert all(rule.why in page for rule in rbac.RULES)


def test_all_pages_of_the_reference_are_generated() -> None:
    assert {str(path) for path in outputs() if path.parts[0] == "docs"} == {
        "docs/reference/api.md",
        "docs/reference/cache-schema.md",
        "docs/reference/compatibility.md",
        "docs/reference/conditions.md",
        "docs/reference/permissions.md",
    }


def test_the_layers_that_the_docs_show_are_those_that_are_checked() -> None:
    root = Path(__file__).parents[2]
    contract = tomllib.loads((root / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"][0]
    assert "```text\n" + "\n".join(contract["layers"]) + "\n```" in (root / "docs" / "architecture.md").read_text()
