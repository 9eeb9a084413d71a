"""What the nodes of a cluster could run: the rows of `kvcachepool inventory`. Pure.

For pools the very match of the operator's passes is used, as if no engine existed yet.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from kvcachepool.api import KVCachePool
from kvcachepool.api.parse import parse_pool
from kvcachepool.compat.tables import Tables
from kvcachepool.facts import NodeFacts, Object
from kvcachepool.hardware import labels
from kvcachepool.hardware.stages import STAGES, is_gpu, is_network
from kvcachepool.plan import make_plan
from kvcachepool.preview import STARTED
from kvcachepool.quantity import human_bytes
from kvcachepool.settings import Settings
from kvcachepool.status.text import describe


@dataclass(frozen=True, slots=True)
class Row:
    """One node."""

    node: str
    state: str
    """ready, cordoned or not ready."""
    gpu: str
    """Product; "" when unknown."""
    gpus: Mapping[str, int]
    """Devices by resource."""
    driver: str
    cuda: str
    """Major versions that the driver and the GPU run, the newest first; with + those by forward compatibility."""
    rdma: Mapping[str, int]
    """Other devices: what RDMA resources are cannot be told from their names."""
    memory: str
    hugepages: Mapping[str, str]
    taints: Sequence[str]
    pools: Mapping[str, str] = field(default_factory=dict)
    """By namespace/name: `yes`, or why not."""

    def dump(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def inventory(nodes: Sequence[NodeFacts], pools: Iterable[Object], tables: Tables) -> list[Row]:
    """One row a node, by name. Pools whose spec is refused, or that cannot be judged, have that as their answer."""
    answers = {}
    for raw in pools:
        try:
            answer = _answers(raw, nodes, tables)
        except Exception as error:  # one pool must not hide the others
            answer = dict.fromkeys((node.name for node in nodes), f"unknown: {describe(error)}")
        answers[f"{raw['metadata']['namespace']}/{raw['metadata']['name']}"] = answer
    return [
        _row(node, tables, {name: answers[name].get(node.name, "") for name in sorted(answers)})
        for node in sorted(nodes, key=lambda node: node.name)
    ]


def _row(node: NodeFacts, tables: Tables, pools: Mapping[str, str]) -> Row:
    driver = labels.driver(node.labels)
    devices = {name: int(amount) for name, amount in node.allocatable.items() if "/" in name and amount}
    return Row(
        node=node.name,
        state="not ready" if not node.ready else "cordoned" if node.cordoned else "ready",
        gpu=labels.product(node.labels),
        gpus={name: devices[name] for name in sorted(devices) if is_gpu(name)},
        driver=driver[1] if driver is not None else "",
        cuda=_cuda(node, tables),
        rdma={name: devices[name] for name in sorted(devices) if is_network(name)},
        memory=human_bytes(float(node.allocatable.get("memory", 0))),
        hugepages={
            name: human_bytes(float(amount))
            for name, amount in sorted(node.allocatable.items())
            if name.startswith("hugepages-") and amount
        },
        taints=[str(taint) for taint in node.taints],
        pools=pools,
    )


def _cuda(node: NodeFacts, tables: Tables) -> str:
    driver, capability = labels.driver(node.labels), labels.capability(node.labels)
    product = labels.product(node.labels)
    if driver is None:
        newest = labels.newest_cuda(node.labels)
        return f"{newest} and older" if newest is not None else ""
    found = []
    for major in sorted({row.major for row in tables.cuda_versions}, reverse=True):
        row = tables.cuda(major)
        if row is None or (capability is not None and capability < row.capability):
            continue
        if driver[0] >= row.min_driver:
            found.append(str(major))
        elif driver[0] >= (row.min_forward_driver or row.min_driver) and tables.data_center(product):
            found.append(f"{major}+")
    return ", ".join(found)


def _answers(raw: Object, nodes: Sequence[NodeFacts], tables: Tables) -> dict[str, str]:
    """By node."""
    pool = parse_pool(raw)
    if not isinstance(pool, KVCachePool):
        return dict.fromkeys((node.name for node in nodes), f"refused: {pool.findings[0].message}")
    plan = make_plan(pool, replace(STARTED, nodes=tuple(nodes), tables=tables), Settings())
    if plan.hardware is None or plan.hardware.engine.fit is None:
        return dict.fromkeys((node.name for node in nodes), f"refused: {plan.findings[0].message}")
    fit = plan.hardware.engine.fit
    yes = "yes, but GPUs are mixed" if plan.hardware.engine.mixed else "yes"
    return {node.name: yes for node in fit.fitting} | {
        name: f"{STAGES[against.stage].text(fit.need)} (found {against.found})" for against, name in fit.excluded
    }
