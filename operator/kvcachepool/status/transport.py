"""TransportMatched: the protocol that members really installed is the one asked for."""

from collections.abc import Sequence
from typing import Final

from kvcachepool import constants
from kvcachepool.facts import Segment
from kvcachepool.status.context import Context
from kvcachepool.status.text import listing, plural
from kvcachepool.status.verdict import Check, Verdict, not_accepted, speaker

_say = speaker("TransportMatched")


_CAUSES: Final = (
    "Likely causes, in this order: the pod sees no such device (spec.transport.rdma.devices against "
    "/sys/class/infiniband in the pod); memory could not be locked (IPC_LOCK does nothing for another user than root: "
    "raise the runtime's memlock limit or set runAsUser 0); the image has no RDMA libraries (libibverbs); a port is "
    "down or spec.transport.rdma.gidIndex is wrong."
)
_NAMES: Final = {"EFA": "RDMA"}
"""What the master calls a protocol, where spec.transport calls it otherwise."""


def protocols(context: Context) -> str:
    """Protocols of the members' segments, in capitals; "" when not measured."""
    return ", ".join(sorted({_name(s) for s in context.segments or () if s.protocol}))


def _name(segment: Segment) -> str:
    name = segment.protocol.upper()
    return _NAMES.get(name, name)


def _no_shared(context: Context) -> Verdict | None:
    if context.shared:
        return None
    return _say("NoSharedTransport", f"Backend {context.pool.spec.backend.name} shares nothing between pods.")


def _not_measured(context: Context) -> Verdict | None:
    if protocols(context):
        return None
    return _say("NotMeasured", "The master has not listed a segment with its protocol yet.")


def _downgraded(context: Context) -> Verdict | None:
    asked = context.pool.spec.transport.protocol.upper()
    names = {pod.ip: pod.name for pod in context.segment_owners if pod.ip}
    wrong = [s for s in context.segments or () if s.protocol and _name(s) != asked]
    if not wrong:
        return None
    used = ", ".join(sorted({_name(s) for s in wrong}))
    shown = listing(f"{s.name} ({names[s.host]})" if s.host in names else s.name for s in wrong)
    causes = f" {_CAUSES}" if asked == "RDMA" else ""
    return _say(
        "TransportDowngraded", f"spec.transport.protocol is {asked}, but {used} is used by segments {shown}.{causes}"
    )


def _as_asked(context: Context) -> Verdict:
    count = len(context.segments or ())
    return _say("AsAsked", f"{plural(count, 'segment')} over {context.pool.spec.transport.protocol}.")


CHECKS: Sequence[Check] = (
    _no_shared,
    not_accepted(_say, constants.MASTER, constants.STORE),
    _not_measured,
    _downgraded,
    _as_asked,
)
