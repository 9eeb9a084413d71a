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
    "Likely causes, in this order: the pod sees no RDMA device (/sys/class/infiniband in the pod: look at the device "
    "plugin, and at spec.transport.rdma.networks or hostNetwork); memory could not be locked (IPC_LOCK does nothing "
    "for another user than root: raise the runtime's memlock limit or set runAsUser 0); the image has no RDMA "
    "libraries (libibverbs); a port is down or spec.transport.rdma.gidIndex is wrong."
)
_NAMES: Final = {"EFA": "RDMA"}
"""What the master calls a protocol, where spec.transport calls it otherwise."""


def protocols(context: Context) -> str:
    """Protocols that members use, in capitals; "" when not measured."""
    return ", ".join(sorted(set(_used(context).values())))


def _used(context: Context) -> dict[str, str]:
    """Protocol by segment, or by pod where it lends none: what the pod's log says that it has installed, else what the
    master lists, which is what the member was told to use."""
    names = {pod.ip: pod.name for pod in context.segment_owners if pod.ip}
    rest = dict(context.observed.transports)
    used = {}
    for segment in context.segments or ():
        pod = names.get(segment.host, "")
        protocol = context.observed.transports.get(pod) or _name(segment)
        rest.pop(pod, None)
        if protocol:
            used[f"{segment.name} ({pod})" if pod else segment.name] = protocol
    return used | rest


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
    wrong = {who: protocol for who, protocol in _used(context).items() if protocol != asked}
    if not wrong:
        return None
    used = ", ".join(sorted(set(wrong.values())))
    causes = f" {_CAUSES}" if asked == "RDMA" else ""
    return _say(
        "TransportDowngraded", f"spec.transport.protocol is {asked}, but {used} is used by {listing(wrong)}.{causes}"
    )


def _as_asked(context: Context) -> Verdict:
    asked, count = context.pool.spec.transport.protocol, len(context.segments or ())
    silent = [pod.name for pod in context.segment_owners if pod.name not in context.observed.transports]
    note = ""
    if asked == "RDMA" and silent:
        note = (
            f" That is what the master lists; the log of {listing(silent)} does not tell what was installed, such as "
            "after it was rotated."
        )
    return _say("AsAsked", f"{plural(count, 'segment')} over {asked}.{note}")


CHECKS: Sequence[Check] = (
    _no_shared,
    not_accepted(_say, constants.MASTER, constants.STORE),
    _not_measured,
    _downgraded,
    _as_asked,
)
