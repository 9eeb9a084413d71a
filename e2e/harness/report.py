"""The report of all drills, as a page of the documentation."""

from __future__ import annotations

import datetime
import os
import platform
from collections.abc import Mapping, Sequence
from pathlib import Path

from e2e.harness.install import REPOSITORY
from kvcachepool.compat.pins import PINS
from kvcachepool.drill.report import markdown
from kvcachepool.drill.verdict import Row

PAGE = REPOSITORY / "docs" / "drills-report.md"


def machine() -> str:
    """What the figures depend on."""
    cpuinfo = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    model = next((line.partition(":")[2].strip() for line in cpuinfo.splitlines() if line.startswith("model name")), "")
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    load = os.getloadavg()[1]
    return f"{os.cpu_count()} cores ({model}), {memory:.0f} GiB, Linux {platform.release()}, load {load:.1f} at the end"


def drills_report(rows: Mapping[str, Sequence[Row]], meanings: Mapping[str, str]) -> None:
    """Writes the page; `rows` by backend."""
    date = datetime.datetime.now(datetime.UTC).date().isoformat()
    parts = [
        "# Drills: what requests notice when a part of the pool breaks",
        "",
        "Written by `make drill`; do not edit. What the drills are and how to run them: "
        "[operations](operations.md#drills).",
        "",
        f"- {date}, {machine()}. Engines, store, master, operator and control plane share these cores.",
        f"- Two engines, one store pod of 512 MiB, Mooncake {PINS.mooncake_version} over TCP; prompts of 1,024 tokens, "
        "answers of 16; the native pool has one engine.",
    ]
    for backend, found in rows.items():
        parts += ["", f"## Backend {backend}", "", markdown(found, meanings)]
    PAGE.write_text("\n".join(parts) + "\n", encoding="utf-8")
