"""StoreReady: the master serves and every store member lends its segment."""

from collections.abc import Mapping, Sequence
from typing import Final

from kvcachepool import constants
from kvcachepool.plan_types import MasterRestart
from kvcachepool.quantity import human_bytes
from kvcachepool.status import masters
from kvcachepool.status.context import Context
from kvcachepool.status.creation import creation_check
from kvcachepool.status.faults import Fault, Kind, find_fault
from kvcachepool.status.memory import oom_arithmetic
from kvcachepool.status.text import capital, listing, plural, quote, roughly, sentence, shorten, window
from kvcachepool.status.verdict import Check, Verdict, not_accepted, speaker

_say = speaker("StoreReady")

_MASTER_FAULTS: Final[Mapping[Kind, str]] = {
    "Unschedulable": "MasterUnschedulable",
    "NotStartable": "MasterImageBroken",
    "OOMKilled": "MasterOOMKilled",
    "CrashLoop": "MasterCrashLoop",
}
_STORE_FAULTS: Final[Mapping[Kind, str]] = {
    "Unschedulable": "StoreUnschedulable",
    "NotStartable": "StoreImageBroken",
    "OOMKilled": "StoreOOMKilled",
    "CrashLoop": "StoreCrashLoop",
}
_FULL_PERCENT: Final = 97


def _no_store(context: Context) -> Verdict | None:
    if context.shared:
        return None
    return _say(
        "NoStore", f"Backend {context.pool.spec.backend.name} has no shared store: each engine keeps its own cache."
    )


def _faulty(context: Context, fault: Fault, reason: str, component: str) -> Verdict:
    tail = f" {oom_arithmetic(context, component)}" if fault.kind == "OOMKilled" else ""
    return _say(reason, sentence(str(fault)) + tail)


def _master_fault(context: Context) -> Verdict | None:
    if masters.elected(context):  # of those that stand by `advice` tells
        return None
    fault = find_fault(context.members(constants.MASTER))
    return _faulty(context, fault, _MASTER_FAULTS[fault.kind], constants.MASTER) if fault else None


def _master_not_ready(context: Context) -> Verdict | None:
    pods = context.members(constants.MASTER)
    if context.pool.store.master.external is not None:
        return None
    if not pods:
        return _say("MasterNotReady", "The master's pod does not exist yet.")
    if context.pending(constants.MASTER):
        return _say(
            "MasterNotReady", "The master is being replaced, because its settings changed; its index starts empty."
        )
    waiting = [p for p in pods if not p.ready]
    if not waiting or masters.elected(context):
        return None
    if told := masters.nobody_leads(context):
        return _say("MasterNotReady", told)
    main = waiting[0].main
    ended = f"; its last run ended with exit code {main.exit_code}" if main and main.exit_code is not None else ""
    where = f" on node {waiting[0].node}" if waiting[0].node else ""
    yet = "" if main and main.started else " yet"
    cause = " Its only address is an IPv6 one, and Mooncake listens on IPv4." if ":" in waiting[0].ip else ""
    return _say(
        "MasterNotReady",
        f"Pod {waiting[0].name}{where} does not accept connections on its RPC port{yet}{ended}.{cause}",
    )


def _master_restarted(context: Context) -> Verdict | None:
    """In the first pass that sees another start of the master, also when its members were faster."""
    former = context.pool.status.store
    before, started = former.master_start if former is not None else None, masters.master_start(context)
    if not before or not started or before == started:
        return None
    what = "Another master leads now" if masters.elected(context) else "The master started anew"
    return _say("MasterRestarted", f"{what}, at {started}, with an empty index{_lost(context)}.")


def _lost(context: Context) -> str:
    """What was lost, as a part of a sentence."""
    trend = context.observed.store_trend
    if trend.lost_keys is None:
        return ""
    size = f" ({human_bytes(trend.lost_bytes)})" if trend.lost_bytes else ""
    return f"; {roughly(trend.lost_keys)} blocks{size} were lost"


def _master_unreachable(context: Context) -> Verdict | None:
    master, who, external = context.observed.master, masters.who(context), context.pool.store.master.external
    if external is not None:
        state, where = "", "{}:{}".format(*external.http)
    else:
        state, where = "is ready but ", f"port {constants.MASTER_HTTP_PORT}"
    if master is None:
        return _say("MasterUnreachable", f"{who} {state}has not been asked over HTTP yet ({where}).")
    if not master.reachable:
        return _say("MasterUnreachable", f"{who} {state}does not answer on {where}: {sentence(master.error)}")
    if master.service_ready is False:
        return _say("MasterNotReady", f"{who} answers on {where} but says that its service is not ready.")
    return None


def _store_fault(context: Context) -> Verdict | None:
    fault = find_fault(context.members(constants.STORE))
    return _faulty(context, fault, _STORE_FAULTS[fault.kind], constants.STORE) if fault else None


def _store_not_ready(context: Context) -> Verdict | None:
    if context.pool.store.mode != "Dedicated":
        return None
    leaving = _leaving(context)
    if leaving is not None or context.settled(constants.STORE):
        return leaving
    pods, workload = context.members(constants.STORE), context.workload(constants.STORE)
    wanted = workload.replicas if context.refused and workload else context.pool.store.replicas
    ready = [p for p in pods if p.ready]
    waiting = [p.name for p in pods if not p.ready]
    names = f" Not ready: {listing(waiting)}." if waiting else ""
    count = f"{min(len(ready), wanted)} of {plural(wanted, 'store pod')} ready and up to date."
    return _say("StoreNotReady", f"{count}{names}{_next_waits(context)}")


def _leaving(context: Context) -> Verdict | None:
    """Store pods above what is wanted: they go one at a time."""
    workload, wanted = context.workload(constants.STORE), context.pool.store.replicas
    if workload is None or context.refused or workload.replicas <= wanted:
        return None
    return _say(
        "StoreNotReady",
        f"{plural(workload.replicas, 'store pod')} now, {wanted} wanted; they go one at a time, after moving their "
        f"blocks to the others.{_next_waits(context)}",
    )


def _next_waits(context: Context) -> str:
    return f" The next one waits: {context.plan.steps[0]}." if context.plan.steps else ""


def _not_measured(context: Context) -> Verdict | None:
    if context.segments is not None or not context.plan.expected_segments:
        return None
    master = context.observed.master
    told = f": {master.error}" if master and master.error else ""
    return _say("NotMeasured", sentence(f"The master answers but does not list its segments{told}"))


def _segments_missing(context: Context) -> Verdict | None:
    segments, expected = context.segments or (), context.plan.expected_segments
    if len(segments) >= expected:
        return None
    hosts = {segment.host for segment in segments}
    without = [p.name for p in context.segment_owners if p.ip not in hosts]
    names = f" Without a segment: {listing(without)}." if without else ""
    found = f"The master lists {len(segments)} of {plural(expected, 'segment')}.{names}"
    master, trend = context.observed.master, context.observed.store_trend
    if trend.master_restarted:
        what = (
            "Another one leads now: the index is lost"
            if masters.elected(context)
            else "It restarted and lost its index"
        )
        return _say("MasterRestarted", f"{found} {what}{_lost(context)}. Members register anew within seconds.")
    if master and master.clients is not None and (trend.most_clients or 0) > master.clients:
        ttl, setting = f"{context.pool.store.master.client_ttl_seconds} s", "spec.store.master.clientTtlSeconds"
        if context.pool.store.master.external is not None:
            ttl, setting = "its --client_ttl", "that"
        return _say(
            "ClientsExpired",
            f"{found} It knows {plural(master.clients, 'client')}, there were {trend.most_clients}; who is silent "
            f"for {ttl} is dropped. If it happens again, raise {setting}.",
        )
    return _say(
        "SegmentsMissing", f"{found} Look into their logs; a member mounts its segment when it reaches the master."
    )


def _pool_full(context: Context) -> Verdict | None:
    master, trend = context.observed.master, context.observed.store_trend
    if master is None or not master.capacity or master.allocated is None:
        return None
    used = round(100 * master.allocated / master.capacity)
    failures, evictions, when = trend.put_alloc_failures, trend.evictions_done, window(trend.window_seconds)
    if failures is None or evictions is None:
        # Right after the operator's start there is no trend; a master that never evicted tells as much.
        failures, evictions, when = master.put_alloc_failures, master.evictions_done, "since its start"
    if used < _FULL_PERCENT or not failures or evictions is None or evictions > 0:
        return None
    watermark = context.pool.store.master.eviction_high_watermark
    lower = f"spec.store.master.evictionHighWatermark (now {watermark})"
    if context.pool.store.master.external is not None:
        lower = "the external master's --eviction_high_watermark_ratio"
    size = "spec.store.segmentSize"
    more = size if context.pool.store.mode == "Embedded" else f"spec.store.replicas or {size}"
    return _say(
        "PoolFull",
        f"{used} % of {human_bytes(master.capacity)} used, {roughly(failures)} blocks refused and 0 evictions {when}. "
        f"Lower {lower}, or raise {more}.",
    )


def _serving(context: Context) -> Verdict:
    count = len(context.segments or ())
    wanted = f" of {context.plan.expected_segments}" if context.plan.expected_segments else ""
    text = f"The master serves and lists {count}{wanted} segments."
    trend = context.observed.store_trend
    if trend.lost_keys is not None:
        size = f" ({human_bytes(trend.lost_bytes)})" if trend.lost_bytes else ""
        text += f" {capital(roughly(trend.lost_keys))} blocks{size} were lost a short time ago; the pool fills anew."
    return _say("Serving", text)


def _pending_restart(context: Context) -> Verdict | None:
    held = context.plan.held
    if held is None or held.evicted_from:
        return None
    return _say("PendingMasterRestart", f"The master serves on as it is. {_held(context, held)}")


def _held(context: Context, held: MasterRestart) -> str:
    """What waits, what it costs and how to approve it."""
    name, namespace = context.pool.metadata.name, context.pool.metadata.namespace
    approve = (
        f"kubectl annotate kvpool {name} -n {namespace} --overwrite {constants.ANNOTATION_APPROVE}={held.approval}"
    )
    master = context.observed.master
    keys = f"{roughly(master.keys)} cached blocks" if master is not None and master.keys else "the pool's content"
    if held.evicted_from:
        return f"Node {held.evicted_from} is cordoned; moving the master costs {keys}. To let it go: {approve}"
    shown = "; ".join(quote(text, 80) for text in held.differences[:4])
    more = f" and {len(held.differences) - 4} more" if len(held.differences) > 4 else ""
    return f"Its restart costs {keys}, so it waits for approval. Restart it once: {approve} (Waiting: {shown}{more}.)"


def _told_of_restart(check: Check) -> Check:
    """The check, with what waits added to whatever else it says."""

    def told(context: Context) -> Verdict | None:
        verdict, held = check(context), context.plan.held
        if verdict is None or held is None or verdict.reason == "PendingMasterRestart":
            return verdict
        return _say(verdict.reason, f"{shorten(sentence(verdict.message), 300)} {_held(context, held)}")

    return told


CHECKS: Sequence[Check] = tuple(
    _told_of_restart(check)
    for check in (
        _no_store,
        not_accepted(_say, constants.MASTER, constants.STORE),
        creation_check(_say, constants.MASTER),
        _master_fault,
        _master_not_ready,
        _master_restarted,
        _master_unreachable,
        creation_check(_say, constants.STORE),
        _store_fault,
        _store_not_ready,
        _not_measured,
        _segments_missing,
        _pool_full,
        _pending_restart,
        _serving,
    )
)
