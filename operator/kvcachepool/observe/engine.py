"""What a vLLM engine says about itself over HTTP (port 8000; names as of vLLM 0.32 and 0.33).

Counters are summed over label sets: one page has a set for each data-parallel engine. What is absent is None.
"""

import asyncio
from collections.abc import Mapping
from typing import Final

from kvcachepool import constants
from kvcachepool.facts import EngineFacts, StoreOperation
from kvcachepool.observe.http import Answer, HttpReader, parse_json, writable
from kvcachepool.observe.metrics_text import Page, parse_page

TOKENS: Final = "vllm:prompt_tokens_by_source_total"
EXTERNAL_QUERIES: Final = "vllm:external_prefix_cache_queries_total"
EXTERNAL_HITS: Final = "vllm:external_prefix_cache_hits_total"
CACHE_CONFIG: Final = "vllm:cache_config_info"
STARTED: Final = "process_start_time_seconds"
CALLS: Final = "vllm:mooncake_store_operation_total"
KEYS: Final = "vllm:mooncake_store_operation_keys_total"
BYTES: Final = "vllm:mooncake_store_operation_bytes_total"
FAILED_KEYS: Final = "vllm:mooncake_store_operation_failed_keys_total"
COMPUTED: Final = "local_compute"
LOCAL: Final = "local_cache_hit"
POOL: Final = "external_kv_transfer"
SOURCES: Final = frozenset({COMPUTED, LOCAL, POOL})
OPERATIONS: Final = frozenset({"save_put", "load_get"})
"""Label values that are kept: what others a page has is no question here, and a page may have thousands."""
_NAMES: Final = frozenset(
    {TOKENS, EXTERNAL_QUERIES, EXTERNAL_HITS, CACHE_CONFIG, STARTED, CALLS, KEYS, BYTES, FAILED_KEYS}
)


async def read_engine(http: HttpReader, host: str, port: int = 0) -> EngineFacts:
    """Ask for health and metrics at once; `port` 0 is the well-known one."""
    port = port or constants.ENGINE_PORT
    health, metrics = await asyncio.gather(http.get(host, port, "/health"), http.get(host, port, "/metrics"))
    return engine_facts(health, metrics)


def engine_facts(health: Answer, metrics: Answer) -> EngineFacts:
    """Both answers as facts. Reachable means: there is a metrics page. `healthy` says nothing of the store: an engine
    whose store is gone recomputes and stays healthy."""
    healthy = True if health.ok else (False if health.error.startswith("HTTP ") else None)
    if metrics.error:
        return EngineFacts(reachable=False, error=f"/metrics: {metrics.error}", healthy=healthy)
    page = parse_page(metrics.text, _NAMES.__contains__)
    if page is None:
        return EngineFacts(reachable=False, error="/metrics: not a metrics page", healthy=healthy)
    return EngineFacts(
        reachable=True,
        healthy=healthy,
        tokens=_by_source(page),
        external_queries=page.total(EXTERNAL_QUERIES),
        external_hits=page.total(EXTERNAL_HITS),
        operations=_operations(page),
        cache_config=next((sample.labels for sample in page.samples if sample.name == CACHE_CONFIG), None),
        started=page.total(STARTED),
    )


def _by_source(page: Page) -> dict[str, float] | None:
    totals: dict[str, float] = {}
    for sample in page.samples:
        source = sample.labels.get("source", "")
        if sample.name == TOKENS and source in SOURCES:
            totals[source] = totals.get(source, 0.0) + sample.value
    return totals or None


def _operations(page: Page) -> Mapping[str, StoreOperation] | None:
    """Empty, not None, for a store connector that has done nothing yet: its counters are declared from the start."""
    if CALLS not in page.declared and not any(sample.name == CALLS for sample in page.samples):
        return None
    sums: dict[str, dict[str, float]] = {}
    for sample in page.samples:
        operation = sample.labels.get("operation", "")
        if operation not in OPERATIONS:
            continue
        if sample.name == CALLS:
            field = "calls_ok" if sample.labels.get("status") == "ok" else "calls_failed"
        elif sample.name in _OPERATION_FIELDS:
            field = _OPERATION_FIELDS[sample.name]
        else:
            continue
        values = sums.setdefault(operation, {})
        values[field] = values.get(field, 0.0) + sample.value
    return {operation: StoreOperation(**values) for operation, values in sums.items()}


_OPERATION_FIELDS: Final[Mapping[str, str]] = {KEYS: "keys", BYTES: "bytes", FAILED_KEYS: "failed_keys"}


async def read_models(http: HttpReader, host: str, port: int = 0) -> tuple[dict[str, int], str]:
    """(maximum context length by served model name, "") or ({}, why not)."""
    return served_models(await http.get(host, port or constants.ENGINE_PORT, "/v1/models"))


def served_models(answer: Answer) -> tuple[dict[str, int], str]:
    """Parses `/v1/models`; adapters are listed there too, with their base's length or none."""
    document, error = parse_json(answer)
    if error:
        return {}, error
    rows = document.get("data") if isinstance(document, dict) else None
    if not isinstance(rows, list):
        return {}, "no list of models"
    return {
        writable(row["id"]): row["max_model_len"]
        for row in rows
        if isinstance(row, dict) and isinstance(row.get("id"), str) and isinstance(row.get("max_model_len"), int)
    }, ""
