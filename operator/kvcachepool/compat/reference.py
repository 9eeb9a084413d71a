"""The compatibility tables as a page of the documentation. Pure: `make generate` writes it."""

from collections.abc import Iterable, Sequence
from typing import Any

from kvcachepool.compat.tables import BUILT_IN


def markdown() -> str:
    """The whole page."""
    tables = BUILT_IN
    parts = [
        "# Compatibility tables",
        "",
        "<!-- Generated from operator/kvcachepool/compat/*.yaml; edit there. -->",
        "",
        "What the operator knows about versions, drivers and GPUs. A cluster can add rows: see",
        "[hardware.md](../hardware.md).",
        "",
        *_table(
            "CUDA and drivers",
            ("CUDA", "driver", "driver with forward compatibility", "compute capability"),
            tables.cuda_versions,
            lambda row: (row.major, f"≥ {row.min_driver}", _least(row.min_forward_driver), f"≥ {row.min_capability}"),
        ),
        *_table(
            "GPUs",
            ("product (regular expression)", "data-centre GPU"),
            tables.gpu_classes,
            lambda row: (f"`{row.products}`", "yes" if row.data_center else "no"),
        ),
        *_table(
            "Engine images",
            ("image", "vLLM", "CUDA", "Mooncake inside"),
            tables.engine_builds,
            lambda row: (f"`{row.image}`", row.engine, row.cuda, row.mooncake or "not known"),
        ),
        *_table("Mooncake wheels", ("wheel", "CUDA"), tables.wheels, lambda row: (f"`{row.package}`", row.cuda)),
        *_table(
            "LMCache wheels",
            ("version", "CUDA", "pins"),
            tables.lmcache,
            lambda row: (row.version, row.cuda, ", ".join(f"{name} {pin}" for name, pin in sorted(row.pins.items()))),
        ),
        *_table(
            "Known faults",
            ("engine", "Mooncake", "backend", "policy", "with", "effect", "fault", "what to do", "report"),
            tables.known_bad,
            lambda row: (
                _any(row.engine), _any(row.mooncake), _any(row.backend), _any(row.policy), row.feature or "",
                row.effect, row.problem, row.remedy, row.issue,
            ),
        ),
    ]  # fmt: skip
    return "\n".join(parts)


def _table(title: str, headings: Sequence[str], rows: Iterable[Any], cells: Any) -> list[str]:
    lines = [f"## {title}", "", f"| {' | '.join(headings)} | source, read on |", "|---" * (len(headings) + 1) + "|"]
    for row in rows:
        values = [*cells(row), f"{row.source}, {row.date}"]
        lines.append(f"| {' | '.join(str(value).replace('|', chr(92) + '|') for value in values)} |")
    return [*lines, ""]


def _least(number: int | None) -> str:
    return "not known" if number is None else f"≥ {number}"


def _any(text: str | None) -> str:
    return text or "any"
