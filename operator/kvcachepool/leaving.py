"""One member with a segment at a time. Pure.

Whoever lends memory to the pool takes blocks along when it goes. So the next member goes only when the master has seen
the last one leave, and its successor arrive. Scale-in is made in steps of one; a rolling update is the Deployment
controller's own, which `paused` holds between two pods. Should no operator run, `minReadySeconds` still keeps two pods
further apart than a silent member stays in the master's list.

A master that does not run has no index, so nothing waits for it.
"""

from collections.abc import Collection, Mapping
from typing import Any, Final

from kvcachepool.facts import Observed, PodFacts

Json = dict[str, Any]

ARRIVES_WITHIN: Final = 120
"""Seconds for which a ready member's missing segment is waited for. Later it is a fault of that member, and replacing
members may be its cure."""
SETTLE_SECONDS: Final = 5
"""On top of the time after which the master drops a silent member."""


def obstacle(observed: Observed, pods: Collection[PodFacts]) -> str:
    """Why no further member of `pods` may go now; "" when one may."""
    if observed.master is None or observed.master.segments is None:
        return "the master cannot be asked for its segments"
    listed, components = {segment.host for segment in observed.master.segments}, {pod.component for pod in pods}
    # a pod of a lost node may stay for ever; what counts is that nobody reads from it any more
    ending = sorted(p.name for p in observed.pods if p.deleting and p.component in components and p.ip in listed)
    if ending:
        return f"{ending[0]} is still leaving"
    if observed.departed:
        return f"the master still lists the segment of {min(observed.departed.values())}"
    names = {pod.name for pod in pods if pod.ready}
    arriving = sorted(name for name, seconds in observed.absent.items() if name in names and seconds < ARRIVES_WITHIN)
    return f"the master does not list the segment of {arriving[0]} yet" if arriving else ""


def scaled(wanted: int, live: Mapping[str, Any] | None, present: int, waits: str) -> int:
    """Replicas to ask for now; `present` are the pods that are not leaving."""
    if live is None:
        return wanted
    have = int(live["spec"].get("replicas", 1))
    if wanted >= have:
        return wanted
    return have if waits or present > have else have - 1


def rolled(desired: Json, *, replaces: bool, full: bool, waits: str) -> Json:
    """`desired`, paused while its pods are being replaced and the next one must wait. `full`: every pod it asks for
    exists; a Deployment that is paused before would make the missing one from the former template."""
    if not (replaces and full and waits):
        return desired
    return desired | {"spec": desired["spec"] | {"paused": True}}
