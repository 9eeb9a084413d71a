"""Metrics of pools: unknown is absent, and what is gone leaves nothing."""

import math

from prometheus_client import generate_latest

from kvcachepool.api.status import (
    Condition,
    EnginesStatus,
    HitRateStatus,
    PoolStatus,
    StoreStatus,
    VerificationStatus,
)
from kvcachepool.metrics import Metrics

KEY = ("ns", "demo")


def status(**more) -> PoolStatus:
    ready = Condition(type="Ready", status="True", reason="Ready")
    return PoolStatus(conditions=[ready], engines=EnginesStatus(desired=2, ready=1), **more)


def value(metrics: Metrics, name: str, key=KEY) -> float | None:
    return metrics.registry.get_sample_value(f"kvcachepool_{name}", {"namespace": key[0], "name": key[1]})


def test_figures_of_a_pool():
    metrics = Metrics()
    metrics.publish(
        KEY,
        status(
            store=StoreStatus(capacity="2Gi", used_percent=50, segments=2, members=3),
            hit_rate=HitRateStatus(local=10, pool=0),
            verification=VerificationStatus(
                verified=False, ttft_recompute_ms=1500, ttft_reuse_ms=250, last_time="1970-01-01T00:01:00Z"
            ),
        ),
    )
    figures = {
        "ready": 1,
        "engines_desired": 2,
        "engines_ready": 1,
        "engines_former": 0,
        "store_capacity_bytes": 2 * 2**30,
        "store_used_ratio": 0.5,
        "store_segments": 2,
        "store_members": 3,
        "hit_ratio_local": 0.1,
        "hit_ratio_pool": 0,
        "reuse_verified": 0,
        "probe_recompute_seconds": 1.5,
        "probe_reuse_seconds": 0.25,
        "probe_last_timestamp_seconds": 60,
    }
    assert {name: value(metrics, name) for name in figures} == figures


def test_what_becomes_unknown_has_no_series():
    metrics = Metrics()
    metrics.publish(KEY, status(hit_rate=HitRateStatus(local=10, pool=20)))
    assert value(metrics, "hit_ratio_pool") == 0.2
    metrics.publish(KEY, status())
    assert value(metrics, "hit_ratio_pool") is None
    assert value(metrics, "reuse_verified") is None


def test_a_deleted_pool_leaves_no_series():
    metrics = Metrics()
    metrics.publish(KEY, status())
    metrics.publish(("ns", "other"), status())
    metrics.forget(KEY)
    metrics.forget(KEY)
    assert b'name="demo"' not in generate_latest(metrics.registry)
    assert value(metrics, "ready", ("ns", "other")) == 1
    metrics.forget()
    assert b'name="other"' not in generate_latest(metrics.registry)


def test_state_is_read_when_asked():
    metrics, depth = Metrics(), [3]
    metrics.watch_state(
        depth=lambda: depth[0], leads=lambda: True, pools=lambda: 7, idle=lambda: math.nan, undeclared=lambda: 0
    )
    depth[0] = 5
    read = metrics.registry.get_sample_value
    assert read("kvcachepool_operator_queue_depth") == 5
    assert read("kvcachepool_operator_leader") == 1
    assert read("kvcachepool_operator_pools") == 7
    metrics.call("apply", "Service", 201)
    labels = {"verb": "apply", "kind": "Service", "code": "201"}
    assert read("kvcachepool_operator_api_calls_total", labels) == 1
