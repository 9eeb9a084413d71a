"""What a pass would see of a pool that is well, and how tests make something wrong with it.

Pods and Deployments are raw objects out of the plan, read back by the real parsers, so that a check sees here what it
would see in a cluster.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from kvcachepool import constants
from kvcachepool.api import Condition, KVCachePool, PoolStatus
from kvcachepool.api.status import VerificationStatus
from kvcachepool.facts import (
    ContainerFacts,
    EngineFacts,
    MasterFacts,
    Observed,
    PodFacts,
    Rates,
    Segment,
    StoreTrend,
    WorkloadFacts,
)
from kvcachepool.observe.pods import pod_facts, workload_facts
from kvcachepool.plan import make_plan
from kvcachepool.plan_types import Plan
from kvcachepool.settings import Settings
from kvcachepool.status import make_status
from tests.nodes import node
from tests.pools import MOONCAKE, pool

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
STARTED = "2026-03-01T11:00:00Z"
GIB = 2**30
NODES = (node("gpu-1"), node("gpu-2"))
READY_MASTER = PodFacts("demo-master-1", "u", constants.MASTER, "", ready=True)
VERIFIED = VerificationStatus(
    last_time="2026-03-01T11:30:00Z",
    verified=True,
    writer="demo-engine-0",
    reader="demo-engine-1",
    prompt_tokens=8192,
    reused_tokens=8128,
    negative_reused_tokens=0,
    ttft_recompute_ms=115,
    ttft_local_ms=28,
    ttft_reuse_ms=62,
    gigabytes_per_second="8.9",
    break_even_gigabytes_per_second="3.5",
    outcome="Verified",
    detail="demo-engine-1 reused 8128 of 8192 prompt tokens that demo-engine-0 computed, with the same answer",
)
TRAFFIC = Rates(
    window_seconds=600,
    tokens=200_000,
    local=0.12,
    pool=0.41,
    external_queries=150_000,
    saved_keys=900,
    save_failed_keys=0,
    load_keys=1_500,
    load_failed_keys=0,
)


def planned(item: KVCachePool) -> Plan:
    """The plan once the master answers."""
    return make_plan(item, Observed(pods=(READY_MASTER,), nodes=NODES), Settings())


def healthy(item: KVCachePool) -> Observed:
    """Everything runs, answers, is used, and was probed."""
    plan = planned(item)
    children = {(obj["kind"], obj["metadata"]["name"]): obj for obj in plan.objects}
    pods: list[PodFacts] = []
    workloads: dict[str, WorkloadFacts] = {}
    for obj in plan.objects:
        if obj["kind"] == "Deployment":
            count = obj["spec"]["replicas"]
            facts = workload_facts(obj | {"status": {"updatedReplicas": count, "readyReplicas": count}})
            workloads[facts.name] = facts
            serial = len(pods)
            pods += [_pod(obj, number, serial + number) for number in range(count)]
    engines = [p for p in pods if p.component == constants.ENGINE]
    owners = engines if item.store.mode == "Embedded" else [p for p in pods if p.component == constants.STORE]
    return Observed(
        pods=tuple(pods),
        workloads=workloads,
        children=children,
        master=_master(owners, plan) if any(w.component == constants.MASTER for w in workloads.values()) else None,
        engines={p.name: EngineFacts(True, healthy=True, cache_config=_cache_config(plan)) for p in engines},
        rates=TRAFFIC,
        store_trend=StoreTrend(
            window_seconds=600,
            put_requests=900.0,
            put_failures=0.0,
            put_alloc_failures=0.0,
            evictions_done=0.0,
            most_clients=3,
        ),
        verification=VERIFIED,
        nodes=NODES,
    )


def _pod(deployment: dict[str, Any], number: int, serial: int) -> PodFacts:
    template, name = deployment["spec"]["template"], deployment["metadata"]["name"]
    labels = template["metadata"]["labels"] | {"pod-template-hash": "abc"}
    running = {"ready": True, "restartCount": 0, "state": {"running": {"startedAt": STARTED}}}
    done = {"ready": True, "restartCount": 0, "state": {"terminated": {"exitCode": 0, "reason": "Completed"}}}
    spec = template["spec"]
    raw = {
        "metadata": {
            "name": f"{labels['app.kubernetes.io/instance']}-{labels[constants.LABEL_COMPONENT]}-{number}",
            "uid": f"uid-{serial}",
            "labels": labels,
            "ownerReferences": [{"controller": True, "kind": "ReplicaSet", "name": f"{name}-abc"}],
        },
        "spec": spec | {"nodeName": f"node-{number}"},
        "status": {
            "phase": "Running",
            "podIP": f"10.0.0.{serial + 1}",
            "conditions": [{"type": "Ready", "status": "True"}],
            "initContainerStatuses": [{"name": c["name"]} | done for c in spec.get("initContainers", ())],
            "containerStatuses": [{"name": c["name"]} | running for c in spec["containers"]],
        },
    }
    return pod_facts(raw, [name])


def _master(owners: list[PodFacts], plan: Plan) -> MasterFacts:
    size = plan.segment_bytes
    return MasterFacts(
        True,
        service_ready=True,
        capacity=size * len(owners),
        allocated=size * len(owners) // 4,
        keys=123_456,
        clients=3,
        segments=tuple(Segment(f"{p.ip}:13000", f"{p.ip}:16000", "tcp", size, "OK", p.ip) for p in owners),
        evictions_done=0,
        put_requests=5_000,
        put_failures=0,
        put_alloc_failures=0,
    )


def _cache_config(plan: Plan) -> dict[str, str]:
    return {"cache_dtype": "auto", "num_gpu_blocks": "4096", "sliding_window": "None"} | dict(
        plan.expected_engine_settings
    )


See = Callable[[Observed], Observed]


def both(*changes: See) -> See:
    """One change after the other."""

    def see(observed: Observed) -> Observed:
        for change in changes:
            observed = change(observed)
        return observed

    return see


def seen(**changes: Any) -> See:
    """With other top-level facts."""
    return lambda observed: replace(observed, **changes)


def rates(**changes: Any) -> See:
    """With other rates."""
    return lambda observed: replace(observed, rates=replace(observed.rates, **changes))


def trend(**changes: Any) -> See:
    """With another trend of the store."""
    return lambda observed: replace(observed, store_trend=replace(observed.store_trend, **changes))


def probed(**changes: Any) -> See:
    """With another probe result."""
    return seen(verification=VERIFIED.model_copy(update=changes))


def master(**changes: Any) -> See:
    """With other answers of the master."""
    return lambda observed: replace(observed, master=observed.master and replace(observed.master, **changes))


def workload(component: str, **changes: Any) -> See:
    """With other counts of a Deployment."""
    return lambda observed: replace(
        observed,
        workloads={n: replace(w, **changes) if w.component == component else w for n, w in observed.workloads.items()},
    )


def pods(component: str, *, only: int | None = None, **changes: Any) -> See:
    """With other facts of the component's pods, or of the one with that number."""

    def see(observed: Observed) -> Observed:
        number = -1
        changed = []
        for pod in observed.pods:
            number += pod.component == component
            hit = pod.component == component and only in {None, number}
            changed.append(replace(pod, **changes) if hit else pod)
        return replace(observed, pods=tuple(changed))

    return see


def container(component: str, *, only: int | None = None, init: bool = False, **changes: Any) -> See:
    """With other facts of a container; its pod is not ready. The component's Deployment counts it out."""

    def see(observed: Observed) -> Observed:
        for number, pod in enumerate(p for p in observed.pods if p.component == component):
            if only in {None, number}:
                state = {"ready": False, "running": False} | changes
                containers = tuple(replace(c, **state) if c.init == init else c for c in pod.containers)
                observed = pods(component, only=number, ready=False, containers=containers)(observed)
        ready = sum(p.ready for p in observed.pods if p.component == component)
        return workload(component, ready=ready)(observed)

    return see


def gone(*components: str) -> See:
    """Without the components' pods, Deployments and answers."""
    return lambda observed: replace(
        observed,
        pods=tuple(p for p in observed.pods if p.component not in components),
        workloads={n: w for n, w in observed.workloads.items() if w.component not in components},
        children={
            key: raw
            for key, raw in observed.children.items()
            if raw["metadata"]["labels"][constants.LABEL_COMPONENT] not in components
        },
        master=None if constants.MASTER in components else observed.master,
        engines={} if constants.ENGINE in components else observed.engines,
    )


def member(name: str = "own-0", **changes: Any) -> See:
    """With a member that the user made: a copy of the first engine."""

    def see(observed: Observed) -> Observed:
        engine = next(p for p in observed.pods if p.component == constants.ENGINE)
        labels = {key: value for key, value in engine.labels.items() if key != constants.LABEL_COMPONENT}
        own = replace(engine, name=name, uid=name, component="", labels=labels, owned=False, ip="10.0.9.9")
        engines = dict(observed.engines) | {name: observed.engines[engine.name]}
        return replace(observed, pods=(*observed.pods, replace(own, **changes)), engines=engines)

    return see


def main_with(component: str, change: Callable[[ContainerFacts], ContainerFacts], only: int = 0) -> See:
    """With another main container of one pod, which stays ready."""

    def see(observed: Observed) -> Observed:
        pod = [p for p in observed.pods if p.component == component][only]
        containers = tuple(c if c.init else change(c) for c in pod.containers)
        return pods(component, only=only, containers=containers)(observed)

    return see


@dataclass(frozen=True)
class Case:
    """A scene, and what one condition must say about it."""

    condition: str
    reason: str
    see: See = lambda observed: observed
    says: tuple[str, ...] = ()
    """Parts of the message."""
    spec: dict[str, Any] = field(default_factory=dict)
    base: dict[str, Any] = field(default_factory=lambda: MOONCAKE)
    previous: PoolStatus = field(default_factory=PoolStatus)
    id: str = ""

    @property
    def name(self) -> str:
        """For the test's id."""
        return f"{self.condition}-{self.reason}" + (f"-{self.id}" if self.id else "")

    def pool(self) -> KVCachePool:
        """The pool of the scene."""
        return pool(self.spec, base=self.base).model_copy(update={"status": self.previous})

    def status(self) -> PoolStatus:
        """The status of the scene."""
        item = self.pool()
        observed = self.see(healthy(item))
        return make_status(item, make_plan(item, observed, Settings()), observed, NOW)

    def found(self) -> Condition:
        """The condition that the case is about."""
        condition = self.status().condition(self.condition)
        assert condition is not None
        return condition

    def check(self) -> None:
        """Reason, status by the table, and the message's parts."""
        from kvcachepool.status.reasons import BY_TYPE

        found = self.found()
        table = {reason.name: reason.status for reason in BY_TYPE[self.condition].reasons}
        assert found.reason == self.reason, found.message
        assert found.status == table[self.reason]
        missing = [part for part in self.says if part not in found.message]
        assert not missing, found.message
        assert len(found.message) <= 700
