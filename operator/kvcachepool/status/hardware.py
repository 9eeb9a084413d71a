"""HardwareMatched: how many nodes fit and, by reason, why the others do not."""

from collections.abc import Sequence
from typing import Final

from kvcachepool import constants
from kvcachepool.api.status import HardwareStatus
from kvcachepool.hardware import remedies
from kvcachepool.hardware.match import Fit
from kvcachepool.hardware.stages import RDMA, STAGES
from kvcachepool.status.context import Context
from kvcachepool.status.text import capital, listing, plural, sentence
from kvcachepool.status.verdict import Check, Verdict, speaker

_say = speaker("HardwareMatched")
_NAMES: Final = {constants.STORE: "a store pod", constants.MASTER: "the master"}
_NOT_YET: Final = "The device plugin that spec.transport.rdma.devicePlugin asks for has not offered it yet."
_SHOWN_VALUES: Final = 4


def exclusions(fit: Fit) -> tuple[str, ...]:
    """One sentence without a full stop for each kind of objection; what concerns most nodes first."""
    groups: dict[int, list[str]] = {}
    for objection, _ in fit.excluded:
        groups.setdefault(objection.stage, []).append(objection.found)
    ordered = sorted(groups.items(), key=lambda item: (-len(item[1]), item[0]))
    return tuple(
        f"{plural(len(found), 'node')}: {STAGES[stage].text(fit.need)} (found {listing(found, _SHOWN_VALUES)})"
        for stage, found in ordered
    )


def hardware_status(context: Context) -> HardwareStatus | None:
    """None when nodes cannot be read or nothing was matched."""
    hardware = context.plan.hardware
    if hardware is None or hardware.engine.fit is None:
        return None
    return HardwareStatus(
        nodes=hardware.nodes or 0,
        nodes_matched=len(hardware.engine.fit.fitting),
        cuda=hardware.engine.choice.cuda,
        product=hardware.engine.choice.product,
        excluded=list(exclusions(hardware.engine.fit)),
    )


def _not_matched(context: Context) -> Verdict | None:
    if context.plan.hardware is None:
        return _say(
            "NotAccepted", "The spec was not accepted, so that no node is matched with it; see condition Accepted."
        )
    return None


def _not_readable(context: Context) -> Verdict | None:
    hardware = context.plan.hardware
    if hardware is None or hardware.engine.fit is not None:
        return None
    return _say(
        "NodesNotReadable",
        "The operator may not read nodes, so that what they can run is not known. To have it checked, grant get, list "
        "and watch of nodes to its service account (chart value nodes.read=true).",
    )


def _engine(context: Context) -> Verdict | None:
    hardware = context.plan.hardware
    fit = hardware.engine.fit if hardware is not None else None
    if fit is None or fit.fitting:
        return None
    made = " No engine is made." if context.plan.waiting is not None else ""
    return _say(fit.reason, f"{_none_fits(fit, 'an engine')}{_hint(context, fit)}{made}")


def _group(context: Context) -> Verdict | None:
    hardware = context.plan.hardware
    fit = hardware.engine.fit if hardware is not None else None
    if hardware is None or fit is None or fit.room >= hardware.engine.pods:
        return None
    made = " No engine is made." if context.plan.waiting is not None else ""
    others = f" {sentence('; '.join(exclusions(fit)))}" if fit.excluded else ""
    return _say(
        fit.reason,
        f"An engine is {hardware.engine.pods} pods (spec.engines.nodesPerEngine), but there is room for {fit.room}: "
        f"{len(fit.fitting)} of {plural(fit.total, 'node')} can take one.{others}{made}",
    )


def _mixed(context: Context) -> Verdict | None:
    hardware = context.plan.hardware
    if hardware is None or not hardware.engine.mixed:
        return None
    products = ", ".join(f"{name} ({plural(count, 'node')})" for name, count in hardware.engine.mixed)
    made = " No engine is made or changed." if context.plan.waiting is not None else " Engines that run stay."
    return _say(
        "HeterogeneousGPUs",
        f"Nodes that fit have different GPUs: {products}. Engines of one pool need one kind, since another attention "
        "backend may store other bytes under the same key: set spec.engines.gpu.product to one of them, or pin "
        f"spec.schema.attentionBackend.{made}",
    )


def _others(context: Context) -> Verdict | None:
    hardware = context.plan.hardware
    for fit in hardware.others if hardware is not None else ():
        if not fit.fitting:
            return _say(fit.reason, f"{_none_fits(fit, _NAMES[fit.need.component])}{_hint(context, fit)}")
    return None


def _fit(context: Context) -> Verdict:
    hardware = context.plan.hardware
    assert hardware is not None
    assert hardware.engine.fit is not None
    fit, choice = hardware.engine.fit, hardware.engine.choice
    what = ", ".join(part for part in (choice.product, f"CUDA {choice.cuda}" if choice.cuda else "") if part)
    others = f" Not: {'; '.join(exclusions(fit))}." if fit.excluded else ""
    return _say(
        "NodesFit",
        f"{len(fit.fitting)} of {plural(fit.total, 'node')} can take an engine{f' ({what})' if what else ''}.{others}",
    )


def _none_fits(fit: Fit, what: str) -> str:
    if not fit.total:
        return "The cluster has no node."
    return f"0 of {plural(fit.total, 'node')} can take {what}. {sentence('; '.join(exclusions(fit)))}"


def _hint(context: Context, fit: Fit) -> str:
    need, pool = fit.need, context.pool
    most = max((node.allocatable.get(need.device, 0) for node in context.observed.nodes or ()), default=0)
    world = pool.spec.schema_.parallelism.world_size
    ranks = pool.spec.ranks_per_pod
    if need.device and 0 < most < ranks:
        share = f" a pod, {world} in all" if ranks != world else ""
        return (
            f" An engine has {ranks} ranks{share}, and the largest node {most:f} {need.device}: spread it over more "
            "nodes (spec.engines.nodesPerEngine, which needs LeaderWorkerSet)."
        )
    if fit.reason == "NoCompatibleDriver":
        ways = remedies.for_driver(pool, fit, context.observed.nodes or (), context.observed.tables)
        return f" {sentence(capital(', or '.join(ways)))}"
    if fit.reason == "NoRDMANodes":
        return f" {_rdma_hint(context, fit)}"
    return ""


def _rdma_hint(context: Context, fit: Fit) -> str:
    rdma = context.pool.spec.transport.rdma
    if any(objection.stage == RDMA and objection.found.isdecimal() for objection, _ in fit.excluded):
        return "Lower spec.transport.rdma.count, or offer more on a node."
    if rdma is not None and rdma.device_plugin is not None:
        return context.observed.device_plugin_trouble or _NOT_YET
    return (
        f"A device plugin must offer {fit.need.rdma}: correct spec.transport.rdma.resourceName, or run one that does "
        "(spec.transport.rdma.devicePlugin has the operator run it)."
    )


CHECKS: Sequence[Check] = (
    _not_matched,
    _not_readable,
    _engine,
    _mixed,
    _group,
    _others,
    _fit,
)
