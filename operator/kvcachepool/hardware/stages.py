"""Why a node does not fit, as data: one stage after the other, the first that objects is the node's reason.

The order is from what nobody can change for this pool (the node is gone) to what is nearly right (memory): when no
node fits, the reason of the pool is that of the nodes that got furthest.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Final

from kvcachepool.facts import NodeFacts
from kvcachepool.hardware import labels
from kvcachepool.hardware.need import Need
from kvcachepool.hardware.placement import mismatch, untolerated
from kvcachepool.quantity import format_bytes, human_bytes


@dataclass(frozen=True, slots=True)
class Objection:
    """What a stage has against a node. Equal ones are counted together."""

    stage: int
    found: str


@dataclass(frozen=True, slots=True)
class Stage:
    """One question to a node."""

    reason: str
    """Reason of HardwareMatched when no node gets further."""
    found: Callable[[Need, NodeFacts], str | None]
    """None: no objection. Otherwise the value that was found."""
    text: Callable[[Need], str]
    """Completes "2 nodes: …"; the values found follow in brackets."""


def objection(need: Need, node: NodeFacts, hosting: Collection[str] = ()) -> Objection | None:
    """The first objection; None when the node fits. A node in `hosting` runs such a pod already: that it is cordoned
    or tainted now sends nobody away."""
    for number, stage in enumerate(STAGES):
        if number in _ONLY_FOR_NEW and node.name in hosting:
            continue
        found = stage.found(need, node)
        if found is not None:
            return Objection(number, found)
    return None


def _state(_: Need, node: NodeFacts) -> str | None:
    if not node.ready:
        return "not ready"
    return "cordoned" if node.cordoned else None


def _place(need: Need, node: NodeFacts) -> str | None:
    return mismatch(need.scheduling, node) or None


def _taint(need: Need, node: NodeFacts) -> str | None:
    taint = untolerated(need.scheduling.tolerations or (), node)
    return None if taint is None else str(taint)


def _device(need: Need, node: NodeFacts) -> str | None:
    if not need.device or node.allocatable.get(need.device, 0) >= need.requests.get(need.device, 0):
        return None
    return offered(node, need.device, is_gpu)


def _product(need: Need, node: NodeFacts) -> str | None:
    if not need.product or labels.product(node.labels) == need.product:
        return None
    return labels.product(node.labels) or "no such label"


def _capability(need: Need, node: NodeFacts) -> str | None:
    found = labels.capability(node.labels)
    if need.cuda is None or found is None or found >= need.cuda.capability:
        return None
    name = labels.product(node.labels)
    return f"{found[0]}.{found[1]}{f' of {name}' if name else ''}"


def _driver(need: Need, node: NodeFacts) -> str | None:
    """A driver that no label tells is no objection: without GPU feature discovery no node would ever fit. A label that
    is no number is one, since the engines' affinity (affinity.py) can only compare numbers."""
    if need.cuda is None:
        return None
    driver = labels.driver(node.labels)
    if driver is None:
        return labels.unreadable_driver(node.labels)
    return None if driver[0] >= need.min_driver else driver[1]


def _rdma(need: Need, node: NodeFacts) -> str | None:
    if not need.rdma or node.allocatable.get(need.rdma, 0) >= need.requests.get(need.rdma, 0):
        return None
    return offered(node, need.rdma, is_network)


def _other_device(need: Need, node: NodeFacts) -> str | None:
    for name, amount in need.requests.items():
        if "/" in name and name not in (need.device, need.rdma) and node.allocatable.get(name, 0) < amount:
            return f"{node.allocatable.get(name, 0)} of {name}"
    return None


def _cores(need: Need, node: NodeFacts) -> str | None:
    found = node.allocatable.get("cpu", Decimal(0))
    return None if found >= need.requests.get("cpu", 0) else f"{found:f}"


def _hugepages(need: Need, node: NodeFacts) -> str | None:
    for name, amount in need.requests.items():
        if name.startswith("hugepages-") and node.allocatable.get(name, 0) < amount:
            return f"{format_bytes(int(node.allocatable.get(name, 0)))} of {name}"
    return None


def _memory(need: Need, node: NodeFacts) -> str | None:
    found = node.allocatable.get("memory", Decimal(0))
    return None if found >= need.requests.get("memory", 0) else human_bytes(float(found))


def offered(node: NodeFacts, name: str, kind: Callable[[str], bool]) -> str:
    """How much of a resource there is or, where there is none, the resources of that kind that do exist."""
    there = node.allocatable.get(name, Decimal(0))
    if there:
        return f"{there:f}"
    others = sorted(other for other, amount in node.allocatable.items() if amount and other != name and kind(other))
    return f"only {', '.join(others)}" if others else "none"


def is_gpu(resource: str) -> bool:
    """By what the vendors call theirs."""
    return "/" in resource and any(part in resource for part in ("gpu", "mig-", "xe", "i915", "npu", "tpu", "neuron"))


def is_network(resource: str) -> bool:
    """Free-form, so: whatever a device plugin offers and is not a GPU."""
    return "/" in resource and not is_gpu(resource)


def _amount(need: Need, name: str) -> str:
    amount = need.requests.get(name, Decimal(0))
    return f"{amount:f}"


def _memory_text(need: Need) -> str:
    size = human_bytes(float(need.requests.get("memory", 0)))
    return f"less memory than {size}{f', which is {need.arithmetic}' if need.arithmetic else ''}"


def _driver_text(need: Need) -> str:
    major = need.cuda.major if need.cuda else 0
    how = f"CUDA {major} with forward compatibility" if need.forward_compat else f"CUDA {major}"
    return f"driver below {need.min_driver}, which {how} needs"


STAGES: Final[Sequence[Stage]] = (
    Stage("NoMatchingNodes", _state, lambda _: "not available for new pods"),
    Stage("NoMatchingNodes", _place, lambda _: "nodeSelector or affinity does not match"),
    Stage("NoMatchingNodes", _device, lambda need: f"fewer {need.device} than {_amount(need, need.device)}"),
    Stage("NoMatchingNodes", _product, lambda need: f"another {labels.PRODUCT} than {need.product}"),
    Stage("NoMatchingNodes", _taint, lambda _: "taint not tolerated"),
    Stage(
        "NoCompatibleDriver",
        _capability,
        lambda need: (
            f"compute capability below {need.cuda.min_capability if need.cuda else ''}, "
            f"which CUDA {need.cuda.major if need.cuda else ''} needs"
        ),
    ),
    Stage("NoCompatibleDriver", _driver, _driver_text),
    Stage("NoRDMANodes", _rdma, lambda need: f"fewer {need.rdma} than {_amount(need, need.rdma)}"),
    Stage("NoMatchingNodes", _other_device, lambda _: "too little of another resource"),
    Stage("NoMatchingNodes", _cores, lambda need: f"fewer cores than {_amount(need, 'cpu')}"),
    Stage("InsufficientNodeMemory", _hugepages, lambda _: "too few huge pages"),
    Stage("InsufficientNodeMemory", _memory, _memory_text),
)

_ONLY_FOR_NEW: Final = frozenset(number for number, stage in enumerate(STAGES) if stage.found in (_state, _taint))

RDMA: Final = next(number for number, stage in enumerate(STAGES) if stage.found is _rdma)
"""The stage that looks for the RDMA resource."""
