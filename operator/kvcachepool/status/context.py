"""What every check is given: the pool, its plan and what was observed, with the questions they ask of it."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from kvcachepool import constants
from kvcachepool.api import KVCachePool
from kvcachepool.api.status import VerificationStatus
from kvcachepool.backends.registry import backend_of
from kvcachepool.facts import RATE_WINDOW_SECONDS, EngineFacts, Observed, PodFacts, Segment, WorkloadFacts
from kvcachepool.plan_types import Plan
from kvcachepool.render.rollout import other_template


@dataclass(frozen=True, slots=True)
class Context:
    """One pool at one moment. `pool.status` is the previous status."""

    pool: KVCachePool
    plan: Plan
    observed: Observed
    now: datetime

    @property
    def shared(self) -> bool:
        """Whether engines can read each other's cache."""
        return backend_of(self.pool).shared

    @property
    def accepted(self) -> bool:
        """Whether the spec is valid and its references resolve."""
        return not (self.plan.findings or self.observed.missing)

    @property
    def refused(self) -> bool:
        """Whether nothing is applied, so that what runs still follows the former spec."""
        return not self.accepted and not self.plan.objects

    @property
    def digest(self) -> str:
        """Digest of the schema in force: the planned one, or the former one while a spec is refused."""
        if self.plan.schema is None or (self.refused and self.pool.status.schema_.digest):
            return self.pool.status.schema_.digest
        return self.plan.schema.digest

    @property
    def previous_digest(self) -> str:
        """Digest of the schema before the one in force; empty when there was none."""
        schema = self.pool.status.schema_
        if schema.digest and schema.digest != self.digest:
            return schema.digest
        return schema.previous_digest or (self.formers[-1].digest if self.formers else "")

    @property
    def desired(self) -> int:
        """Engines that are wanted; while a spec is refused, those of the former one."""
        workloads = self.observed.workloads_of(constants.ENGINE)
        return sum(w.replicas for w in workloads) if self.refused and workloads else self.pool.spec.engines.replicas

    def members(self, component: str) -> tuple[PodFacts, ...]:
        """Pods of the component that are neither ended nor being deleted, by name."""
        pods = (p for p in self.observed.members(component) if not p.ended)
        return tuple(sorted(pods, key=lambda p: p.name))

    @property
    def ready_engines(self) -> tuple[PodFacts, ...]:
        """Engine pods that serve."""
        return tuple(p for p in self.members(constants.ENGINE) if p.ready)

    @property
    def sharing(self) -> int:
        """Engines that could reuse each other's prefixes: the wanted ones and the user's own members."""
        return self.desired + sum(not m.problems for m in self.plan.members) if self.shared else self.desired

    @property
    def segment_owners(self) -> tuple[PodFacts, ...]:
        """Pods that lend memory to the pool."""
        if self.pool.store.mode == "Dedicated":
            return self.members(constants.STORE)
        return self.members(constants.ENGINE) + self.members(constants.WORKER)

    @property
    def segments(self) -> tuple[Segment, ...] | None:
        """Segments that can be used, of an external master those of the pool's own pods; None when the master did not
        list any."""
        master = self.observed.master
        if master is None or not master.reachable or master.segments is None:
            return None
        usable = tuple(s for s in master.segments if s.status.upper() in {"", "OK"})
        if self.pool.store.master.external is None:
            return usable
        own = {pod.ip for pod in self.segment_owners}
        return tuple(s for s in usable if s.host in own)

    def workload(self, component: str) -> WorkloadFacts | None:
        """The component's Deployment; of engines that of the schema in force."""
        digest = self.digest if component == constants.ENGINE else ""
        return next((w for w in self.observed.workloads_of(component) if w.digest == digest), None)

    @property
    def formers(self) -> tuple[WorkloadFacts, ...]:
        """Deployments of engines that move away from a former schema, the oldest first."""
        return tuple(w for w in self.observed.workloads_of(constants.ENGINE) if w.digest != self.digest)

    def engine(self, pod: PodFacts) -> EngineFacts | None:
        """What that pod's engine said, if it could be asked."""
        facts = self.observed.engines.get(pod.name)
        return facts if facts is not None and facts.reachable else None

    def planned(self, component: str) -> Mapping[str, Any] | None:
        """The Deployment that this pass applies for the component; of engines that of the schema in force."""
        digest = self.digest if component == constants.ENGINE else ""
        for item in self.plan.objects:
            labels = item.get("metadata", {}).get("labels", {})
            found = (labels.get(constants.LABEL_COMPONENT), labels.get(constants.LABEL_SCHEMA, ""))
            if item.get("kind") in constants.ENGINE_KINDS and found == (component, digest):
                return item
        return None

    def live(self, component: str) -> Mapping[str, Any] | None:
        """The component's Deployment as it was observed, before this pass applied anything."""
        planned = self.planned(component)
        return planned and self.observed.children.get((planned["kind"], planned["metadata"]["name"]))

    def outdated(self, component: str) -> bool:
        """Whether the Deployment as observed has another template than the one that this pass applies."""
        planned, live = self.planned(component), self.live(component)
        return planned is not None and live is not None and other_template(planned, live)

    def pending(self, component: str) -> bool:
        """Whether the Deployment as observed is not yet the one that this pass applies.

        A pass observes before it applies: without this, the first pass after a change would call the former
        pods ready for the new generation.
        """
        planned, live = self.planned(component), self.live(component)
        if planned is None:
            return False
        if live is None:
            return self.workload(component) is None
        return self.outdated(component) or planned["spec"].get("replicas") != live.get("spec", {}).get("replicas")

    def settled(self, component: str) -> bool:
        """Whether the component's Deployment is the planned one and no pod is being replaced."""
        workload = self.workload(component)
        if workload is None or (component == constants.ENGINE and self.formers):
            return False
        return workload.settled and not self.pending(component)

    @property
    def rates_begin(self) -> bool:
        """Whether engines tell their counters, but the window is not full yet, as after a change of the leader."""
        told = any(facts.tokens for facts in self.observed.engines.values())
        return told and self.observed.rates.window_seconds < RATE_WINDOW_SECONDS

    @property
    def verification(self) -> VerificationStatus | None:
        """The newest probe's result; None when there is none of the current schema and pods."""
        result = self.observed.verification or self.pool.status.verification
        if not result.outcome:
            return None
        tested = {name for name in (result.writer, result.reader) if name}
        current = {p.name for p in self.members(constants.ENGINE) if p.digest == self.digest}
        current |= {m.pod.name for m in self.plan.members if not m.problems}
        return result if not tested or tested & current else None
