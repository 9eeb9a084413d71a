"""What the Mooncake master says about itself over HTTP (port 9003; names as of 0.3.13).

Names drift between versions: what is absent is None, never zero. `/health` answers 200 also when the master does not
serve, so its `service_ready` is what counts.
"""

import asyncio
from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

from kvcachepool.facts import MasterFacts, Segment
from kvcachepool.observe.http import Answer, HttpReader, parse_json, writable
from kvcachepool.observe.metrics_text import parse_page

_FIELDS: Final[Mapping[str, tuple[str, ...]]] = {
    "capacity": ("master_total_capacity_bytes",),
    "allocated": ("master_allocated_bytes",),
    "keys": ("master_key_count",),
    "clients": ("master_active_clients",),
    "evictions_attempted": ("master_attempted_evictions_total",),
    "evictions_done": ("master_successful_evictions_total",),
    "evicted_keys": ("master_evicted_key_count",),
    # engines put in batches, which the plain counters do not see; items are keys, as in the plain ones
    "put_requests": ("master_put_start_requests_total", "master_batch_put_start_items_total"),
    "put_failures": ("master_put_start_failures_total", "master_batch_put_start_failed_items_total"),
    "put_alloc_failures": ("master_put_start_alloc_failures_total",),
}
_NAMES: Final = frozenset(name for names in _FIELDS.values() for name in names)
_MOST: Final = 2**62
"""Of any figure; more is no figure, and does not fit into a status."""
_MAX_SEGMENTS: Final = 20_000
COUNTED_KEYS: Final = 20_000
"""Keys up to which they are listed to be counted by schema: about 3 MB from a master that lists them under its lock."""


async def read_master(http: HttpReader, host: str, port: int) -> MasterFacts:
    """Ask everything at once."""
    health, segments, metrics = await asyncio.gather(
        http.get(host, port, "/health"),
        http.get(host, port, "/get_segments_detail"),
        http.get(host, port, "/metrics"),
    )
    return master_facts(health, segments, metrics)


async def read_keys(http: HttpReader, host: str, port: int) -> Mapping[str, int] | None:
    """Number of keys by what stands before their first `@`, the digest of their schema. None: it could not be read."""
    answer = await http.get(host, port, "/get_all_keys")
    return None if answer.error else keys_by_prefix(answer.text)


def keys_by_prefix(text: str) -> Mapping[str, int]:
    """Counts of a list of keys, one a line; keys without a prefix are left out."""
    return Counter(line.partition("@")[0] for line in text.splitlines() if "@" in line)


def master_facts(health: Answer, segments: Answer, metrics: Answer) -> MasterFacts:
    """The three answers as facts. Reachable means: `/health` answered with JSON.

    `error` is about the first page that could not be read, also when others could.
    """
    document, health_error = parse_json(health)
    ready = document.get("service_ready") if isinstance(document, dict) else None
    if not health_error and not isinstance(document, dict):
        health_error = "not a JSON object"
    listed, segments_error = _segments(segments)
    counters, metrics_error = _counters(metrics)
    failures = (
        f"{page}: {error}"
        for page, error in (
            ("/health", health_error),
            ("/metrics", metrics_error),
            ("/get_segments_detail", segments_error),
        )
        if error
    )
    return MasterFacts(
        reachable=not health_error,
        error=next(failures, ""),
        service_ready=ready if isinstance(ready, bool) else None,
        segments=listed,
        **counters,
    )


def _counters(metrics: Answer) -> tuple[dict[str, int | None], str]:
    if metrics.error:
        return {}, metrics.error
    page = parse_page(metrics.text, _NAMES.__contains__)
    if page is None:
        return {}, "not a metrics page"
    found: dict[str, int | None] = {}
    for field, names in _FIELDS.items():
        values = [value for value in map(page.total, names) if value is not None]
        found[field] = int(sum(values)) if values and 0 <= sum(values) <= _MOST else None
    return found, ""


def _segments(answer: Answer) -> tuple[tuple[Segment, ...] | None, str]:
    document, error = parse_json(answer)
    if error:
        return None, error
    rows = document.get("segments") if isinstance(document, dict) else None
    if not isinstance(rows, list):
        return None, "no list of segments"
    return tuple(_segment(row) for row in rows[:_MAX_SEGMENTS] if isinstance(row, dict)), ""


def _segment(row: Mapping[str, Any]) -> Segment:
    endpoint = _text(row.get("te_endpoint"))
    return Segment(
        name=_text(row.get("segment_name")),
        endpoint=endpoint,
        protocol=_text(row.get("protocol")),
        size=_count(row.get("size_bytes")),
        status=_text(row.get("status")),
        host=endpoint.rpartition(":")[0].strip("[]"),
        used=_count(row.get("allocator_used_bytes")),
    )


def _count(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _MOST else 0


def _text(value: object) -> str:
    return writable(value[:256]) if isinstance(value, str) else ""
