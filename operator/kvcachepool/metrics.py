"""Metrics of the operator and, per pool, the figures of its status.

A figure that is unknown has no series: never 0. Series of a deleted pool are removed.
"""

import math
from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from kvcachepool.api.status import MembersStatus, PoolStatus
from kvcachepool.quantity import parse_bytes

Key = tuple[str, str]
_POOL = ("namespace", "name")
_PASS_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 120)


class Metrics:
    """All metrics, in a registry of their own."""

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        self.registry = registry or CollectorRegistry()
        prefix = "kvcachepool_operator_"
        self.passes = Histogram(
            f"{prefix}pass_seconds", "Duration of a pass by result.", ["result"],
            buckets=_PASS_BUCKETS, registry=self.registry,
        )  # fmt: skip
        self.calls = Counter(
            f"{prefix}api_calls", "Calls to the API server; code 0: no answer.", ["verb", "kind", "code"],
            registry=self.registry,
        )  # fmt: skip
        self.injections = Counter(
            f"{prefix}injections", "Pods that asked to be completed, by result.", ["result"], registry=self.registry
        )
        self.conflict = Gauge(
            f"{prefix}namespace_conflict", "1: another installation owns the namespace.", ["namespace"],
            registry=self.registry,
        )  # fmt: skip
        self._pool = {
            name: Gauge(f"kvcachepool_{name}", help_text, _POOL, registry=self.registry)
            for name, help_text in {
                "ready": "1: condition Ready is True.",
                "engines_desired": "Engines that are wanted.",
                "engines_ready": "Engine pods that are ready.",
                "members_joined": "Users' own pods that have the pool's schema.",
                "members_serving": "Of these, pods that get traffic from the pool's Service.",
                "members_mismatched": "Users' own pods with the pool's label and another schema.",
                "engines_former": "Ready engines of a former schema, while engines move.",
                "store_segments": "Segments that the master lists.",
                "store_members": "Segments that are expected.",
                "store_capacity_bytes": "Capacity of the shared store.",
                "store_used_ratio": "Used share of the shared store.",
                "hit_ratio_local": "Share of prompt tokens from the engine's own cache, in the window.",
                "hit_ratio_pool": "Share of prompt tokens from the shared pool, in the window.",
                "reuse_verified": "1: the last probe saw one engine reuse another's cache.",
                "probe_recompute_seconds": "Time to first token without a cache, last probe.",
                "probe_reuse_seconds": "Time to first token by reuse from the pool, last probe.",
                "probe_last_timestamp_seconds": "When the last probe ended.",
            }.items()
        }

    def watch_state(
        self,
        *,
        depth: Callable[[], int],
        leads: Callable[[], bool],
        pools: Callable[[], int],
        idle: Callable[[], float],
        undeclared: Callable[[], int],
    ) -> None:
        """Gauges that are read when Prometheus asks."""
        for name, help_text, read in (
            ("queue_depth", "Pools that wait for a worker.", depth),
            ("leader", "1: this replica holds the Lease.", leads),
            ("pools", "Known pools.", pools),
            ("crd_undeclared_fields", "Status fields that the installed CRD is too old for.", undeclared),
            ("last_pass_age_seconds", "Seconds since a pass ended; NaN before the first.", idle),
        ):
            gauge = Gauge(f"kvcachepool_operator_{name}", help_text, registry=self.registry)
            gauge.set_function(lambda read=read: float(read()))  # type: ignore[misc]

    def call(self, verb: str, kind: str, code: int) -> None:
        """Counts one call to the API server."""
        self.calls.labels(verb, kind, str(code)).inc()

    def publish(self, key: Key, status: PoolStatus) -> None:
        """Takes the figures of a pool from its status."""
        ready = status.condition("Ready")
        members = status.members or MembersStatus()
        store, hits, probe = status.store, status.hit_rate, status.verification
        figures: dict[str, float | None] = {
            "ready": None if ready is None else float(ready.status == "True"),
            "engines_desired": status.engines.desired,
            "engines_ready": status.engines.ready,
            "members_joined": members.joined,
            "members_serving": members.serving,
            "members_mismatched": members.mismatched,
            "engines_former": sum(g.ready for g in status.engines.generations if g.digest != status.schema_.digest),
            "store_segments": store.segments if store else None,
            "store_members": store.members if store else None,
            "store_capacity_bytes": parse_bytes(store.capacity) if store and store.capacity else None,
            "store_used_ratio": _scaled(store.used_percent if store else None, 100),
            "hit_ratio_local": _scaled(hits.local, 100),
            "hit_ratio_pool": _scaled(hits.pool, 100),
            "reuse_verified": None if probe.verified is None else float(probe.verified),
            "probe_recompute_seconds": _scaled(probe.ttft_recompute_ms, 1000),
            "probe_reuse_seconds": _scaled(probe.ttft_reuse_ms, 1000),
            "probe_last_timestamp_seconds": _timestamp(probe.last_time),
        }
        for name, value in figures.items():
            if value is None:
                self._remove(name, key)
            else:
                self._pool[name].labels(*key).set(value)

    def forget(self, key: Key | None = None) -> None:
        """Removes the series of a pool, or of all pools: a follower reports none."""
        for name, gauge in self._pool.items():
            if key is None:
                gauge.clear()
            else:
                self._remove(name, key)

    def _remove(self, name: str, key: Key) -> None:
        self._pool[name].remove_by_labels(dict(zip(_POOL, key, strict=True)))


def _scaled(value: int | None, by: int) -> float | None:
    return None if value is None else value / by


def _timestamp(text: str | None) -> float | None:
    from datetime import datetime

    if not text:
        return None
    try:
        seconds = datetime.fromisoformat(text).timestamp()
    except ValueError:
        return None
    return seconds if math.isfinite(seconds) else None
