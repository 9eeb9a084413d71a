"""What one pod asks of a node."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from kvcachepool.api.pods import Scheduling
from kvcachepool.compat.tables import CudaRow
from kvcachepool.quantity import parse_amount


@dataclass(frozen=True, slots=True)
class Need:
    """The need of one component's pod. Amounts are those of the rendered pod, so that they are what the scheduler
    sees."""

    component: str
    requests: Mapping[str, Decimal]
    scheduling: Scheduling = field(default_factory=Scheduling)
    device: str = ""
    """GPU resource; empty for none."""
    product: str = ""
    """Value that the label nvidia.com/gpu.product must have; empty for any."""
    cuda: CudaRow | None = None
    """What the build's CUDA needs; None without GPU, or where it is not known."""
    forward_compat: bool = False
    """Drivers from `cuda.min_forward_driver` on are good enough."""
    rdma: str = ""
    """RDMA resource; empty for none."""
    alone: bool = False
    """Its ports are the node's: one such pod a node."""
    arithmetic: str = field(default="", compare=False)
    """How the memory was computed."""

    @property
    def min_driver(self) -> int:
        """Oldest driver that runs the build; 0 without a requirement."""
        if self.cuda is None:
            return 0
        forward = self.cuda.min_forward_driver if self.forward_compat else None
        return forward or self.cuda.min_driver


def pod_requests(pod_spec: Mapping[str, Any]) -> Mapping[str, Decimal]:
    """What the scheduler counts for a pod: the sum of its containers, or the largest init container if that is more."""
    total = _sum(pod_spec.get("containers") or ())
    for container in pod_spec.get("initContainers") or ():
        for name, amount in _sum((container,)).items():
            total[name] = max(total.get(name, Decimal(0)), amount)
    return total


def _sum(containers: Any) -> dict[str, Decimal]:
    total: dict[str, Decimal] = {}
    for container in containers:
        resources = container.get("resources") or {}
        for name, value in {**(resources.get("limits") or {}), **(resources.get("requests") or {})}.items():
            total[name] = total.get(name, Decimal(0)) + parse_amount(value)
    return total
