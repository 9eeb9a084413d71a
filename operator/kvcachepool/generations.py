"""How engines move from one cache schema to the next. Pure arithmetic.

A *generation* is the engines of one schema: one Deployment, named by the digest. A change of schema or model revision
makes another generation; the spec's is the *current* one, all others are *former* ones. Each pass makes at most one
step towards `wanted` engines in the current generation and none elsewhere, by the rules of a Deployment's rolling
update, applied over several Deployments:

* Never more than `wanted + surge` engines hold a device; one that ends holds it until its pod is gone.
* Never fewer than `wanted - 1` engines serve because of the move; with a surge never fewer than `wanted`.
* An engine of the current generation that is not well stops the move: no former engine that serves goes for it.
* Former engines that have not served yet need not be spared: they go at once.
* Of several former generations the one with the fewest engines goes first, and the current one begins when only one is
  left, so that two Deployments have engines. (It begins earlier only where the second rule leaves no other way.)

A former engine can also be one of a schema that comes back: its Deployment is the current one then, and grows again.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from kvcachepool import constants
from kvcachepool.facts import Observed, PodFacts, WorkloadFacts

RESTARTS: Final = 3
"""An engine of the current generation that is ready but was restarted so often is not well: it comes and goes."""


@dataclass(frozen=True, slots=True)
class Generation:
    """The engines of one schema at one moment."""

    name: str
    """Of its Deployment."""
    digest: str = ""
    replicas: int = 0
    """Engines that its Deployment asks for; 0 where there is no Deployment yet."""
    present: int = 0
    """Pods that hold a device: those that end, too."""
    ready: int = 0
    starting: int = 0
    """Engines asked for that have not served since their start: without a pod yet, loading, crashed."""
    well: int = 0
    """Ready engines that do not restart again and again; 0 while its Deployment replaces pods."""
    created: str = ""

    @property
    def drained(self) -> bool:
        """Whether nothing of it is left but the Deployment."""
        return self.replicas == 0 and self.present == 0


@dataclass(frozen=True, slots=True)
class Step:
    """Engines to ask for next."""

    current: int
    formers: Mapping[str, int] = field(default_factory=dict)
    """By name of the Deployment."""


def unsteady(pod: PodFacts) -> bool:
    """Whether its engine was restarted so often that being ready just now says little."""
    return pod.main is not None and pod.main.restarts >= RESTARTS


def generations(observed: Observed, current: str) -> tuple[Generation, tuple[Generation, ...]]:
    """The current generation, whose Deployment has that name, and all others, the oldest first."""
    workloads = observed.workloads_of(constants.ENGINE)
    formers = tuple(_generation(observed, w) for w in workloads if w.name != current)
    here = observed.workloads.get(current)
    return (Generation(current) if here is None else _generation(observed, here)), formers


def _generation(observed: Observed, workload: WorkloadFacts) -> Generation:
    pods = [
        p
        for p in observed.pods
        if p.component == constants.ENGINE and p.owned and p.digest == workload.digest and not p.ended
    ]
    staying = [p for p in pods if not p.deleting]
    ready = sum(p.ready for p in staying)
    started = sum(p.ready or (p.main is not None and p.main.started) for p in staying)
    seen = workload.observed_generation >= workload.generation and workload.updated >= workload.replicas
    return Generation(
        name=workload.name,
        digest=workload.digest,
        replicas=workload.replicas,
        present=len(pods),
        ready=min(ready, workload.replicas),
        starting=max(workload.replicas - started, 0),
        well=min(sum(p.ready and not unsteady(p) for p in staying), workload.replicas) if seen else 0,
        created=workload.created,
    )


def next_step(wanted: int, surge: int, current: Generation, formers: Sequence[Generation]) -> Step:
    """Engines to ask for of each generation."""
    if all(former.drained for former in formers):
        return Step(wanted, {former.name: 0 for former in formers})
    counts = _shrunk(wanted, surge, current, formers)
    held = sum(max(former.present, counts[former.name]) for former in formers)
    room = wanted + surge - held - max(current.present, current.replicas)
    if current.drained and _another_goes_first(formers, counts):
        return Step(0, counts)
    return Step(min(wanted, current.replicas + max(room, 0)), counts)


def resized(wanted: int, surge: int, current: Generation, formers: Sequence[Generation]) -> Step:
    """As they are, but as many as are wanted: while a move, or a new template, waits for something, engines may still
    be scaled. In the middle of a move its surge may stay."""
    there = [generation for generation in (current, *formers) if generation.replicas]
    counts = {generation.name: generation.replicas for generation in (current, *formers)}
    if len(there) == 1:
        counts[there[0].name] = wanted
    else:
        surplus = sum(counts.values()) - wanted - surge
        for generation in (*_first_to_go(formers), current):
            gone = min(max(surplus, 0), generation.replicas)
            counts[generation.name], surplus = counts[generation.name] - gone, surplus - gone
    return Step(counts.pop(current.name), counts)


def _another_goes_first(formers: Sequence[Generation], counts: Mapping[str, int]) -> bool:
    """Whether two former generations still have engines, and one of them is going."""
    live = [former for former in formers if not former.drained]
    return len(live) > 1 and any(max(former.present, former.replicas) > counts[former.name] for former in live)


def _shrunk(wanted: int, surge: int, current: Generation, formers: Sequence[Generation]) -> dict[str, int]:
    """Engines to leave in each former generation."""
    floor = max(wanted if surge else wanted - 1, 0)
    asked = current.replicas + sum(former.replicas for former in formers)
    unwell = current.replicas - current.well
    starting = sum(former.starting for former in formers)
    # Nobody misses an engine that has not served. While the current generation is unwell they too are kept, but for
    # those that stand in the way of its surge.
    free = starting if not unwell else min(starting, max(asked - floor - unwell, 0))
    headroom = max(asked - free - floor - unwell, 0)
    spare = max(current.ready + sum(former.ready for former in formers) - floor, 0)
    counts = {}
    for former in _first_to_go(formers):
        idle = min(former.starting, free)
        limping = min(former.replicas - former.starting - former.ready, headroom)
        serving = min(former.ready, spare, headroom - limping)
        counts[former.name] = former.replicas - idle - limping - serving
        free, spare, headroom = free - idle, spare - serving, headroom - limping - serving
    return counts


def _first_to_go(formers: Iterable[Generation]) -> Sequence[Generation]:
    """The fewest engines first; of equal ones the youngest, since the older ones have proved themselves for longer."""
    by_age = sorted(formers, key=lambda former: former.created, reverse=True)
    return sorted(by_age, key=lambda former: former.replicas)
