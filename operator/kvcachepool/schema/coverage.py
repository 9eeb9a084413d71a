"""The table `coverage.yaml`, typed, and the reference page made of it."""

from functools import cache
from importlib import resources
from typing import Literal

import yaml
from pydantic import BaseModel, ConfigDict

from kvcachepool.schema.flags import SCHEMA_ENV, SCHEMA_FLAGS
from kvcachepool.schema.values import ALIASES, UNORDERED, UPPER_CASE

Mismatch = Literal["none", "miss", "error", "corruption"]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Coverage(_Strict):
    """One field with the shared store; `mismatch` is what happens without the prefix, the worst last."""

    covered: Literal["yes", "partly", "no"]
    mismatch: tuple[Mismatch, ...]
    source: str
    note: str = ""


class Table(_Strict):
    """All of coverage.yaml."""

    versions: dict[str, str]
    key: dict[str, str]
    sources: dict[str, str]
    fields: dict[str, Coverage]
    elsewhere: dict[str, str]

    def of(self, field: str, backend: str) -> Coverage:
        """The field's row for a backend. Native blocks never leave their engine."""
        row = self.fields[field]
        return row if backend == "mooncake" else row.model_copy(update={"mismatch": ("none",), "note": ""})


class _Loader(yaml.SafeLoader):
    """YAML whose `yes` and `no` stay words."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, regexp) for tag, regexp in found if tag != "tag:yaml.org,2002:bool"]
    for first, found in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


@cache
def table() -> Table:
    """The checked table."""
    text = resources.files("kvcachepool.schema").joinpath("coverage.yaml").read_text(encoding="utf-8")
    return Table.model_validate(yaml.load(text, Loader=_Loader))  # noqa: S506 - a SafeLoader


def carriers(field: str) -> tuple[str, ...]:
    """Flags and variables that carry the field, in their main spelling."""
    flags = (flag.name for flag in SCHEMA_FLAGS if flag.field == field)
    return (*flags, *(name for name, carried in SCHEMA_ENV.items() if carried == field))


def schema_reference() -> str:
    """Documentation of every field of the cache schema."""
    data = table()
    lines = [
        "# The cache schema, field by field",
        "",
        "Everything here must be the same in every member of a pool. The digest of all of it is a label of every "
        "engine and the prefix of every key, so that a member that differs misses. The columns on the right say why "
        "that is needed: what the engine's own key covers, and what would happen to members that differ if they shared "
        "keys.",
        "",
        *(f"- `{backend}` ({data.versions[backend]}): `{key}`" for backend, key in data.key.items()),
        "",
        "With `native` every block stays in its engine; nothing can be mixed up, and the columns are about `mooncake`.",
        "",
        "- **miss**: not found, computed again.",
        "- **error**: found, but it cannot be loaded. Writers skip keys that exist, so that it stays until evicted.",
        "- **corruption**: loaded, and not what the engine takes it for: wrong answers without an error.",
        "",
        "| Field | Flag or variable | In the engine's own key | Without the prefix, a difference means | Why |",
        "|---|---|---|---|---|",
    ]
    for field, row in data.fields.items():
        names = ", ".join(f"`{name}`" for name in carriers(field)) or "–"
        lines.append(f"| {field} | {names} | {row.covered} | {', '.join(row.mismatch)} | {row.note} |")
    lines += ["", "## Settings without a field", "", "| Setting | Why |", "|---|---|"]
    lines += [f"| {name} | {why} |" for name, why in data.elsewhere.items()]
    lines += ["", "## One spelling for each value", ""]
    lines += [
        f"- {field}: {', '.join(f'`{other}` is `{one}`' for other, one in names.items())}"
        for field, names in ALIASES.items()
    ]
    lines += [
        f"- {', '.join(sorted(UPPER_CASE))}: upper and lower case are the same",
        f"- {', '.join(sorted(UNORDERED))}: the order does not matter",
        "- A flag that is left out reads as the engine's fixed default, where it has one; a default spelled out is no "
        "difference.",
        "",
        "## Sources",
        "",
        *(f"- {name}: {source}" for name, source in data.sources.items()),
        "",
    ]
    return "\n".join(lines)
