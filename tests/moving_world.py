"""A small cluster for moves between generations: the real plan, a Deployment controller of a few lines, and pods whose
fate the test decides."""

from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

from kvcachepool import constants
from kvcachepool.api import KVCachePool
from kvcachepool.facts import ContainerFacts, Observed, PodFacts, WorkloadFacts
from kvcachepool.observe.pods import workload_facts
from kvcachepool.plan import make_plan
from kvcachepool.plan_types import Plan
from kvcachepool.settings import Settings
from tests.pools import pool

MASTER = PodFacts("demo-master-1", "u1", constants.MASTER, "", ready=True)


@dataclass
class Pod:
    """One engine pod."""

    name: str
    digest: str
    template: str
    ready: bool = False
    restarts: int = 0
    deleting: bool = False


@dataclass
class World:
    """What the API server and the kubelets would know."""

    replicas: int = 2
    surge: int = 0
    deployments: dict[str, dict[str, Any]] = field(default_factory=dict)
    pods: list[Pod] = field(default_factory=list)
    spec: dict[str, Any] = field(default_factory=dict)
    serial: int = 0
    most_live: int = 0
    created: int = 0
    lenient: bool = False

    def pool(self) -> KVCachePool:
        """The pool as the user wants it now."""
        engines = {"replicas": self.replicas, "maxSurge": self.surge} | self.spec.get("engines", {})
        return pool(self.spec | {"engines": engines})

    def digest(self) -> str:
        """Digest of the current schema."""
        schema = make_plan(self.pool(), Observed(), Settings()).schema
        assert schema is not None
        return schema.digest

    def observed(self, *, master: bool = True) -> Observed:
        """Facts of this moment."""
        return Observed(
            pods=(*([MASTER] if master else []), *(_facts(p) for p in self.pods)),
            workloads={name: self.workload(name) for name in self.deployments},
            children={("Deployment", name): obj for name, obj in self.deployments.items()},
        )

    def workload(self, name: str) -> WorkloadFacts:
        """A Deployment as its controller reports it."""
        live = self.deployments[name]
        pods = [p for p in self.of(live["metadata"]["labels"][constants.LABEL_SCHEMA]) if not p.deleting]
        current = [p for p in pods if p.template == _template(live)]
        counts = {"updatedReplicas": len(current), "readyReplicas": sum(p.ready for p in pods)}
        return workload_facts(live | {"status": counts | {"observedGeneration": 1}})

    def of(self, digest: str) -> list[Pod]:
        """Pods of one generation."""
        return [p for p in self.pods if p.digest == digest]

    def step(self, *, master: bool = True) -> Plan:
        """One pass: plan, apply, prune."""
        plan = make_plan(self.pool(), self.observed(master=master), Settings())
        for obj in plan.objects:
            if obj["kind"] == "Deployment" and constants.LABEL_SCHEMA in obj["metadata"]["labels"]:
                name = obj["metadata"]["name"]
                if name not in self.deployments:
                    self.created += 1
                stamp = f"2026-01-01T00:00:{self.created:02}Z"
                before = self.deployments.get(name, {"metadata": {"creationTimestamp": stamp}})
                created = before["metadata"]["creationTimestamp"]
                self.deployments[name] = deepcopy(dict(obj))
                self.deployments[name]["metadata"] |= {"creationTimestamp": created, "generation": 1}
        for kind, name in plan.prune:
            if kind == "Deployment":
                del self.deployments[name]
        self.most_live = max(self.most_live, self.live())
        return plan

    def live(self) -> int:
        """Generations that have engines or ask for some."""
        asked = {d["metadata"]["labels"][constants.LABEL_SCHEMA] for d in self.deployments.values() if _replicas(d)}
        return len(asked | {p.digest for p in self.pods})

    def controller(self) -> None:
        """Deletes surplus pods, unready ones first, replaces one outdated pod, and makes missing ones."""
        for live in self.deployments.values():
            digest, template = live["metadata"]["labels"][constants.LABEL_SCHEMA], _template(live)
            pods = [p for p in self.of(digest) if not p.deleting]
            surplus = sorted(pods, key=lambda p: p.ready)[: max(len(pods) - _replicas(live), 0)]
            outdated = [p for p in pods if p.template != template and p not in surplus]
            if outdated and all(p.ready for p in pods if p.template == template):
                surplus.append(sorted(outdated, key=lambda p: p.ready)[0])
            for pod in surplus:
                pod.deleting, pod.ready = True, False
            for _ in range(_replicas(live) - len([p for p in self.of(digest) if not p.deleting])):
                self.serial += 1
                self.pods.append(Pod(f"engine-{self.serial}", digest, template))

    def ended(self, pod: Pod | None = None) -> None:
        """Pods that were being deleted are gone."""
        self.pods = [p for p in self.pods if not p.deleting or (pod is not None and p is not pod)]

    def settle(self, *, broken: frozenset[str] = frozenset(), rounds: int = 60) -> None:
        """Passes until nothing changes; engines get ready except those of `broken` templates or digests."""
        for _ in range(rounds):
            before = deepcopy((self.deployments, self.pods))
            self.step()
            self.controller()
            self.check()
            self.step()
            self.ended()
            self.check()
            for pod in self.pods:
                pod.ready = pod.ready or not {pod.digest, pod.template} & broken
            self.step()
            if before == (self.deployments, self.pods):
                return
        raise AssertionError(f"still moving: {self.pods}")

    def check(self) -> None:
        """Never more devices than allowed while engines move. A Deployment's own controller does not wait for pods that
        end: what it does within one generation, and a lower wish, are not the move's doing."""
        alone = self.lenient or self.live() < 2
        assert alone or len(self.pods) <= self.replicas + self.surge, self.pods

    def engines(self) -> dict[str, tuple[int, int]]:
        """(engines, ready) by digest."""
        return {
            digest: (len(self.of(digest)), sum(p.ready for p in self.of(digest)))
            for digest in sorted({p.digest for p in self.pods})
        }


def _facts(pod: Pod) -> PodFacts:
    main = ContainerFacts("engine", ready=pod.ready, running=True, started=pod.ready, restarts=pod.restarts)
    return PodFacts(
        pod.name, pod.name, constants.ENGINE, pod.digest, phase="Running", ready=pod.ready, deleting=pod.deleting,
        containers=(main,),
    )  # fmt: skip


def _template(live: dict[str, Any]) -> str:
    return str(live["metadata"]["annotations"][constants.ANNOTATION_TEMPLATE])


def _replicas(live: dict[str, Any]) -> int:
    return int(live["spec"]["replicas"])
