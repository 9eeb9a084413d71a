"""A fake API server, a client for it, and a small pool whose plan is known."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import replace
from datetime import datetime
from typing import Any

import pytest
from kubernetes.aio.client import ApiClient, Configuration

from kvcachepool import names
from kvcachepool.api import Condition, KVCachePool, PoolStatus
from kvcachepool.api.parse import parse_pool
from kvcachepool.facts import Observed
from kvcachepool.findings import Finding
from kvcachepool.plan_types import Plan
from kvcachepool.reconcile import Steps
from kvcachepool.status import failed_status
from tests.wiring.fake_api import FakeApi


@pytest.fixture
def api() -> Iterator[FakeApi]:
    with FakeApi().running() as server:
        yield server


@pytest.fixture
async def client(api: FakeApi) -> AsyncIterator[ApiClient]:
    configuration = Configuration(host=api.url)
    async with ApiClient(configuration) as opened:
        yield opened


@pytest.fixture
def kubeconfig(api: FakeApi, tmp_path: Any) -> str:
    path = tmp_path / "kubeconfig"
    path.write_text(
        json.dumps(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "current-context": "c",
                "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
                "clusters": [{"name": "c", "cluster": {"server": api.url}}],
                "users": [{"name": "u", "user": {"token": "not-a-secret"}}],
            }
        )
    )
    return str(path)


def pool(name: str = "demo", *, namespace: str = "ns", **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "kvcachepool.io/v1alpha1",
        "kind": "KVCachePool",
        "metadata": {"name": name, "namespace": namespace, "generation": 1},
        "spec": {"model": {"id": "m", "revision": "r"}, "backend": {"native": {"cpuBytes": "1Gi"}}} | spec,
    }


def child(of: KVCachePool, kind: str, suffix: str, **content: Any) -> dict[str, Any]:
    return {
        "apiVersion": "apps/v1" if kind == "Deployment" else "v1",
        "kind": kind,
        "metadata": {
            "name": names.child(of.metadata.name, suffix),
            "namespace": of.metadata.namespace,
            "labels": {"kvcachepool.io/pool": names.pool_label(of.metadata.name)},
            "ownerReferences": [of.owner_reference()],
        },
    } | content


def plan(of: KVCachePool, _observed: Observed) -> Plan:
    """Two children, that follow the spec."""
    replicas = of.spec.engines.replicas
    return Plan(
        None,
        objects=(
            child(of, "Service", "engines", spec={"ports": [{"port": 8000}]}),
            child(of, "Deployment", "engines", spec={"replicas": replicas, "template": {}}),
        ),
    )


def status(of: KVCachePool, _plan: Plan, observed: Observed, _now: datetime) -> PoolStatus:
    errors = observed.apply_errors
    ready = Condition(
        type="Ready",
        status="False" if errors else "True",
        reason="ApplyFailed" if errors else "Fine",
        message=errors[0][2] if errors else "",
    )
    return PoolStatus(observed_generation=of.metadata.generation, conditions=[ready])


def invalid(before: PoolStatus, generation: int, findings: tuple[Finding, ...], _now: datetime) -> PoolStatus:
    accepted = Condition(type="Accepted", status="False", reason="InvalidSpec", message=findings[0].message)
    return before.model_copy(update={"observed_generation": generation, "conditions": [accepted]})


def transitions(before: PoolStatus, after: PoolStatus) -> list[Any]:
    class Event:
        type = "Normal"

        def __init__(self, condition: Condition) -> None:
            self.reason, self.message = condition.reason, condition.message

    return [Event(c) for c in after.conditions if (old := before.condition(c.type)) is None or old.status != c.status]


async def observe(_pool: KVCachePool) -> Observed:
    return Observed()


STEPS = Steps(
    parse=parse_pool,
    observe=observe,
    plan=plan,
    announce=lambda _pool, _plan: None,
    status=status,
    invalid_status=invalid,
    failed_status=failed_status,
    transitions=transitions,
    pod_transitions=lambda _before, _after, _plan: (),
    verify=lambda _pool, _status, _observed, _changed: None,
    forget=lambda _key: None,
)


def steps(**changes: Any) -> Steps:
    return replace(STEPS, **changes)


async def until(true: Callable[[], Any], seconds: float = 20.0) -> None:
    """Waits for something that happens soon; a generous limit for a slow machine."""
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "it did not happen"
        await asyncio.sleep(0.01)
