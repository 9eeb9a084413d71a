"""Pieces of messages: short, the same at every pass, and without secrets."""

import re
from collections.abc import Iterable, Sequence
from typing import Final

from kvcachepool.credentials import redact

_UNSTEADY: Final = (
    # The name of a pod that could not be created is drawn anew at each attempt.
    (re.compile(r'pods? "([a-z0-9.-]*?)-[a-z0-9]{5}"'), r'pod "\1-…"'),
    # The kubelet alternates between the error and its own waiting for the next attempt.
    (re.compile(r'^Back-off pulling image "[^"]*"(: \w+: )?'), ""),
    (re.compile(r"^rpc error: code = \w+ desc = "), ""),
    # What engine and master put before a line: process, level, date, source.
    (re.compile(r"^\([^)]*pid=\d+[^)]*\)\s*"), ""),
    (
        re.compile(
            r"^(?:ERROR|CRITICAL|FATAL|WARNING|INFO|DEBUG)\s+\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d+)?\s+\[[^\]]*\]\s*"
        ),
        "",
    ),
    (re.compile(r"^[IWEF]\d{4,8} \d\d:\d\d:\d\d\.\d+\s+\d+ \S+\]\s*"), ""),
    (re.compile(r"^\[?\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?Z?\]?\s*"), ""),
    (re.compile(r"\b0x[0-9a-f]{6,}\b"), "0x…"),
)
"""What changes although nothing has changed. A status that repeats it would be written at every pass."""

_LONGEST_ERROR: Final = 200
_QUOTED: Final = re.compile(r"""(['"]).*\1""")
"""From the first quotation mark to the last: a quoted value may have some inside."""


def shorten(text: str, longest: int) -> str:
    """At most that many characters, cut with an ellipsis."""
    return text if len(text) <= longest else text[: longest - 1].rstrip() + "…"


def quote(text: str, longest: int = 300) -> str:
    """Somebody else's sentence for one of our messages: one line, no secrets, nothing that changes by itself."""
    line = " ".join(text.split())
    for _ in range(2):  # a log prefix can follow another one
        for pattern, replacement in _UNSTEADY:
            line = pattern.sub(replacement, line)
    return shorten(redact(line.strip()), longest)


def describe(error: Exception) -> str:
    """An unexpected error: its type, and the first line of its message. Values that it quotes are left out, since one
    may be a secret out of the spec; these two kinds quote names of types and fields only."""
    first = next(iter(str(error).splitlines()), "")
    if not isinstance(error, TypeError | AttributeError):
        first = _QUOTED.sub("'…'", first)
    return f"{type(error).__name__}: {quote(first, _LONGEST_ERROR)}" if first else type(error).__name__


def sentence(text: str) -> str:
    """With a full stop at its end, so that another sentence can follow."""
    return text if not text or text[-1] in ".!?…" else f"{text}."


def capital(text: str) -> str:
    """With a capital first letter."""
    return text[:1].upper() + text[1:]


def listing(items: Iterable[str], limit: int = 3) -> str:
    """Sorted and cut: `a, b, c and 2 more`."""
    names = sorted(set(items))
    shown = ", ".join(names[:limit])
    return shown if len(names) <= limit else f"{shown} and {len(names) - limit} more"


def columns(rows: Sequence[Sequence[str]]) -> list[str]:
    """Lines whose cells stand below each other."""
    widths = [max(map(len, cells)) for cells in zip(*rows, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def plural(count: int, noun: str) -> str:
    """`1 engine`, `2 engines`."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def step(value: float) -> int:
    """The largest of 1, 2, 5, 10, 20, 50, … that is not above `value`; 0 below 1."""
    whole = int(value)
    if whole < 1:
        return 0
    unit = int(10 ** (len(str(whole)) - 1))
    return next(factor * unit for factor in (5, 2, 1) if factor * unit <= whole)


def roughly(value: float) -> str:
    """A count that rises all the time, in steps: `0`, `5`, `over 200`."""
    reached = step(value)
    return str(reached) if value <= reached or value < 1 else f"over {reached}"


def percent(share: float) -> str:
    """`42 %`; `under 1 %` for what would round to nothing but is something."""
    return "under 1 %" if 0 < share < 0.005 else f"{round(100 * share)} %"


def window(seconds: int) -> str:
    """`in the last 10 min`, in steps, since a window grows until it is full."""
    minutes = step(seconds / 60)
    return f"in the last {minutes} min" if minutes else "in the last minute"
