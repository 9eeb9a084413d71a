"""The report of drills: rows as JSON, and from them a page of the documentation.

A run updates the rows of the drills that it ran, so that one of them can be measured anew.
"""

from __future__ import annotations

import datetime
import json
import os
import platform
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from e2e.harness.install import REPOSITORY
from kvcachepool.compat.pins import PINS
from kvcachepool.drill.report import markdown
from kvcachepool.drill.verdict import Row

ROWS = REPOSITORY / "docs" / "drills-report.json"
PAGE = REPOSITORY / "docs" / "drills-report.md"
Known = dict[str, dict[str, dict[str, Any]]]
"""Backend, drill, row with `date`, `machine` and `meaning`."""


def machine() -> str:
    """What the figures depend on."""
    cpuinfo = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    model = next((line.partition(":")[2].strip() for line in cpuinfo.splitlines() if line.startswith("model name")), "")
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return f"{os.cpu_count()} cores ({model}), {memory:.0f} GiB, Linux {platform.release().partition('-')[0]}"


def record(backend: str, row: Row, meanings: Mapping[str, str]) -> None:
    """Puts the row into the report, in the order of `meanings`, and writes the page."""
    known: Known = json.loads(ROWS.read_text(encoding="utf-8")) if ROWS.exists() else {}
    about = {
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "machine": machine(),
        "load": round(os.getloadavg()[1], 1),
        "meaning": meanings[row.drill],
    }
    found = known.get(backend, {}) | {row.drill: row.dump() | about}
    order = [*meanings, *found]
    known[backend] = dict(sorted(found.items(), key=lambda item: order.index(item[0])))
    ROWS.write_text(json.dumps(known, indent=1) + "\n", encoding="utf-8")
    PAGE.write_text(page(known), encoding="utf-8")


def page(known: Known) -> str:
    """The Markdown page."""
    every = [row for rows in known.values() for row in rows.values()]
    dates = sorted({row["date"] for row in every})
    machines = {row["machine"] for row in every}
    loads = [row["load"] for row in every]
    parts = [
        "# Drills: what requests notice when a part of the pool breaks",
        "",
        "Written by `make drill`; do not edit. What drills are, and how to run them: "
        "[operations](operations.md#drills).",
        "",
        f"- {' to '.join(dict.fromkeys((dates[0], dates[-1])))}, {' and '.join(sorted(machines))}; "
        f"load {min(loads)} to {max(loads)}. Engines, store, master, operator and control plane share these cores.",
        f"- Two engines, one store pod of 512 MiB (Embedded: 512 MiB of each engine), Mooncake {PINS.mooncake_version} "
        "over TCP; prompts of 1,024 tokens, answers of 16. The native pool has one engine.",
    ]
    names = {field.name for field in fields(Row)}
    for backend, rows in known.items():
        made = [Row(**{name: value for name, value in row.items() if name in names}) for row in rows.values()]
        parts += ["", f"## Backend {backend}", "", markdown(made, {name: row["meaning"] for name, row in rows.items()})]
    return "\n".join(parts) + "\n"
