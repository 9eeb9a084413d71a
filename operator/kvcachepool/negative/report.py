"""The rows as a table for people, or as JSON for machines."""

import json
from collections.abc import Sequence

from kvcachepool.negative.verdict import MEANING, NOT_RUN, Row
from kvcachepool.status.text import columns

_HEAD = ("FIELD", "CHANGED TO", "PREFIX", "REUSED", "ANSWER", "VERDICT")


def table(rows: Sequence[Row]) -> str:
    """Aligned columns, then what the verdicts mean and details of what could not be tried."""
    lines = [_HEAD, *(_cells(row) for row in rows)]
    text = columns(lines)
    verdicts = dict.fromkeys(row.verdict for row in rows)
    text += ["", *(f"{verdict}: {MEANING[verdict]}" for verdict in verdicts)]
    details = [f"{row.case}{'' if row.prefix else ' (raw)'}: {row.detail}" for row in rows if row.detail]
    return "\n".join([*text, *([""] if details else []), *details, "", conclusion(rows)])


def _cells(row: Row) -> tuple[str, ...]:
    reused = "-" if row.reused_tokens is None else f"{row.reused_tokens} of {row.prompt_tokens}"
    answer = {None: "-", True: "equal", False: "other"}[row.answer_equal]
    return row.field, row.changed_to, "digest" if row.prefix else "none", reused, answer, row.verdict.upper()


def conclusion(rows: Sequence[Row]) -> str:
    """One sentence."""
    tried = [row for row in rows if row.prefix and row.verdict != NOT_RUN]
    failed = [row for row in rows if row.failed]
    if failed:
        return f"FAILED: {len(failed)} of {len(tried)} cases are not isolated: {', '.join(row.case for row in failed)}."
    if rows and not any(row.prefix for row in rows):
        return "This is what happens without the digest in front of the keys; it proves nothing about a pool."
    if not tried:
        return "NOTHING PROVED: no case with the digest in front of the keys was tried."
    return f"PASSED: {len(tried)} of {len(tried)} cases reuse nothing and answer as without a cache."


def document(rows: Sequence[Row]) -> str:
    """JSON: the rows, and whether all is well."""
    return json.dumps({"passed": passed(rows), "rows": [row.dump() for row in rows]}, indent=2)


def passed(rows: Sequence[Row]) -> bool:
    """Whether at least one case with the digest was tried, and none failed."""
    return any(row.prefix and row.verdict != NOT_RUN for row in rows) and not any(row.failed for row in rows)
