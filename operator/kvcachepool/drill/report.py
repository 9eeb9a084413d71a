"""The rows as a table for people, as Markdown for documentation, or as JSON for machines. Pure."""

import json
from collections.abc import Mapping, Sequence

from kvcachepool.drill.verdict import FAILED, NOT_RUN, Row
from kvcachepool.status.text import columns

_HEAD = (
    "drill", "verdict", "requests", "failed", "wrong", "excepted", "fault held", "longest without", "longest",
    "stall", "reuse again after", "keys lost",
)  # fmt: skip
LEGEND = (
    "excepted: without an answer, at an engine that the drill killed, until it answered again.",
    "longest without / longest: the longest request before the fault, and during and after it; stall: the difference.",
    "reuse again after: from the fault's end to the first reuse of a prompt stored after it.",
    "keys lost: stored before the fault and gone at the end; in a pool that is nearly full, eviction takes some, too.",
)


def table(rows: Sequence[Row]) -> str:
    """Aligned columns, the legend, details, and a sentence."""
    lines = [tuple(cell.upper() for cell in _HEAD), *(_cells(row) for row in rows)]
    text = columns(lines)
    details = [f"{row.drill}: {row.detail}" for row in rows if row.detail]
    return "\n".join([*text, "", *LEGEND, *([""] if details else []), *details, "", conclusion(rows)])


def markdown(rows: Sequence[Row], meanings: Mapping[str, str]) -> str:
    """A table whose first column explains itself, and the details below."""
    lines = [f"| {' | '.join(_HEAD)} |", "|" + "---|" * len(_HEAD)]
    for row in rows:
        name, *cells = _cells(row)
        meaning = meanings.get(row.drill, "")
        lines.append(f"| **{name}**{': ' if meaning else ''}{meaning} | {' | '.join(cells)} |")
    lines += ["", *(f"- {line}" for line in LEGEND)]
    lines += [f"- {row.drill}: {row.detail}." for row in rows if row.detail]
    return "\n".join([*lines, "", conclusion(rows)])


def _cells(row: Row) -> tuple[str, ...]:
    if row.verdict == NOT_RUN:
        return (row.drill, row.verdict, *("-" for _ in _HEAD[2:]))
    lost = "-" if row.keys_lost is None else f"{row.keys_lost} of {row.keys_before}"
    return (
        row.drill, row.verdict, str(row.requests), str(row.failed), str(row.wrong), str(row.excepted),
        _seconds(row.held) if row.held else "-", _seconds(row.usual), _seconds(row.longest), _seconds(row.stall),
        _seconds(row.reuse_after), lost,
    )  # fmt: skip


def line(row: Row) -> str:
    """One drill in one line."""
    named = [f"{head} {cell}" for head, cell in zip(_HEAD[2:], _cells(row)[2:], strict=True) if cell != "-"]
    text = f"{row.drill}: {', '.join([row.verdict, *named])}"
    return f"{text} ({row.detail})" if row.detail else text


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f} s"


def conclusion(rows: Sequence[Row]) -> str:
    """One sentence."""
    tried = [row for row in rows if row.verdict != NOT_RUN]
    failed = [row.drill for row in rows if row.verdict == FAILED]
    if failed:
        return f"FAILED: {len(failed)} of {len(tried)} drills: {', '.join(failed)}."
    if not tried:
        return "NOTHING PROVED: no drill was run."
    return (
        f"PASSED: {len(tried)} of {len(tried)} drills, no request failed on an engine that lived, no answer was wrong."
    )


def document(rows: Sequence[Row]) -> str:
    """JSON: the rows, and whether all is well."""
    return json.dumps({"passed": passed(rows), "rows": [row.dump() for row in rows]}, indent=2)


def passed(rows: Sequence[Row]) -> bool:
    """Whether at least one drill was run, and none failed."""
    return any(row.verdict != NOT_RUN for row in rows) and not any(row.verdict == FAILED for row in rows)
