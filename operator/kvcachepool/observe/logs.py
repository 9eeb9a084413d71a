"""The one line of a crashed container's log that tells what to do.

The end of such a log is shutdown noise, and an engine's log ends with the consequence in the API server process,
not with the cause in the engine process (vllm#44376). So the first error counts, with two exceptions: a library the
loader cannot find is the cause of whatever follows, also where the program masks it ("Please install mooncake",
vllm#42511), and noise is never an answer while there is anything else.
"""

import re
from collections.abc import Iterator
from typing import Final

from kvcachepool.credentials import redact

MAX_LENGTH: Final = 300
_MAX_LINES: Final = 5_000
_MAX_LINE: Final = 2_000

_ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_PREFIX = re.compile(
    r"^(?:\((?:[\w.:-]{1,40} ){0,4}(?:[\w.:-]{1,40}|pid=\d{1,9})?\)\s{0,4})?"  # (EngineCore_DP0 pid=123)
    r"(?:(?P<level>DEBUG|INFO|WARNING|ERROR|CRITICAL|FATAL)\s{1,4}"  # ERROR 11-29 15:24:14 [core.py:123]
    r"\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d{1,6})? \[[^\]]{1,80}\] ?)?"
)
"""What vLLM puts before each line, tracebacks included."""
_LOADER = re.compile(r"error while loading shared libraries|cannot open shared object file|symbol lookup error")
_TRACEBACK = "Traceback (most recent call last):"
_EXCEPTION = re.compile(r"^[A-Za-z_][\w.]{0,120}(?:Error|Exception|Exit|Interrupt|Failure|Timeout|Refused)\b(?::|$)")
_LEVEL = re.compile(
    r"^(?:[EF]\d{4} \d\d:\d\d:\d\d"  # glog: E1129 15:20:11
    r"|[EF]\d{8} \d\d:\d\d:\d\d"  # glog with the year, as Mooncake writes it
    r"|(?:\S{1,40} ){0,3}\[?(?:ERROR|CRITICAL|FATAL)\b"
    r"|(?:\S{1,80}: ){0,2}(?:error|fatal|panic|Unknown command line flag|ERROR): )"
)
_NOISE = re.compile(
    r"See root cause above|Engine core initialization failed|Engine core proc\w* .{0,40}died|EngineDeadError"
    r"|WorkerProc initialization failed due to|KeyboardInterrupt|SystemExit|CancelledError"
    r"|resource_tracker|leaked semaphore|destroy_process_group|Broken pipe|BrokenPipeError"
    r"|[Ss]hutting down|[Ss]hutdown|EngineCore failed to start|EngineCore encountered a fatal error"
    r"|WorkerProc failed to start|non-default args"
)


def actionable_line(log: str) -> str:
    """The first actionable error of a log, redacted and cut to `MAX_LENGTH`; the last line that is not noise where
    nothing looks like an error; empty for an empty log."""
    lines = [_clean(line) for line in log[: _MAX_LINES * _MAX_LINE].split("\n", _MAX_LINES)[:_MAX_LINES]]
    texts = [text for _, text in lines]
    for candidates in (
        (text for text in texts if _LOADER.search(text)),
        _last_lines_of_tracebacks(texts),
        (text for level, text in lines if text and (level in ("ERROR", "CRITICAL", "FATAL") or _LEVEL.match(text))),
        (text for text in texts if _EXCEPTION.match(text)),
        (text for text in reversed(texts) if any(map(str.isalnum, text)) and not text.startswith("  File ")),
    ):
        for text in candidates:
            if not _NOISE.search(text) and text.strip() != _TRACEBACK:
                return _short(text)
    return _short(next((text for text in reversed(texts) if text.strip()), ""))


def _clean(line: str) -> tuple[str, str]:
    """(level, text) without colours and vLLM's prefix."""
    line = _ANSI.sub("", line[:_MAX_LINE]).rstrip()
    match = _PREFIX.match(line)
    if match is None or not match.group(0):
        return "", line
    return match["level"] or "", line[match.end() :]


def _last_lines_of_tracebacks(texts: list[str]) -> Iterator[str]:
    """The exception that ends each traceback, in order: of chained ones the first is the cause.

    A validation error says what is wrong only in the lines below its first one, so these are joined on.
    """
    inside = False
    for number, text in enumerate(texts):
        if text.strip() == _TRACEBACK:
            inside = True
        elif inside and text and not text[0].isspace() and text[0] not in "+|^~":
            inside = False
            detail = ""
            if "validation error" in text:
                detail = " ".join(line.strip() for line in texts[number + 1 : number + 4] if line[:1].isspace())
            yield f"{text}: {detail}" if detail else text


def _short(text: str) -> str:
    text = redact(" ".join(text.split()))
    return text if len(text) <= MAX_LENGTH else text[: MAX_LENGTH - 1] + "…"
