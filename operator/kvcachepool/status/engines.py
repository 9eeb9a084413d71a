"""EnginesReady: all engines of this generation are ready."""

import json
from collections.abc import Mapping, Sequence
from typing import Final

from kvcachepool import constants
from kvcachepool.generations import unsteady
from kvcachepool.status.context import Context
from kvcachepool.status.creation import creation_check
from kvcachepool.status.faults import Kind, Startup, crash_line, find_fault
from kvcachepool.status.memory import oom_arithmetic
from kvcachepool.status.text import capital, listing, plural, quote, sentence
from kvcachepool.status.verdict import Check, Verdict, not_accepted, speaker

_say = speaker("EnginesReady")
_FAULTS: Final[Mapping[Kind, str]] = {
    "Unschedulable": "Unschedulable",
    "NotStartable": "ImageNotStartable",
    "OOMKilled": "EngineCrashLoop",
    "StartupTimeout": "StartupTimeout",
    "CrashLoop": "EngineCrashLoop",
}


def _waiting(context: Context) -> Verdict | None:
    waiting = context.plan.waiting
    if waiting is not None and waiting.reason == "WaitingForNodes" and context.members(constants.ENGINE):
        mixed = context.plan.hardware is not None and context.plan.hardware.engine.mixed
        why = "nodes that fit the changed ones have different GPUs" if mixed else "no node fits the changed ones"
        return _say(waiting.reason, f"Engines stay as they are: {why}. See HardwareMatched.")
    # what waits for the master's restart has engines of a former schema meanwhile, unless none are wanted
    if waiting is not None and waiting.reason != "PendingMasterRestart" and not context.members(constants.ENGINE):
        return _say(waiting.reason, sentence(capital(waiting.message)) + " No device is held meanwhile.")
    waits = [
        (p, c)
        for p in context.members(constants.ENGINE)
        for c in p.containers
        if c.name == constants.WAIT_CONTAINER and not c.ready
    ]
    given_up = [(p, crash_line(p, c)) for p, c in waits if c.exit_code]
    if given_up:
        names, line = listing(p.name for p, _ in given_up), given_up[0][1]
        return _say("MasterUnreachable", sentence(f"Pods {names} waited for the master in vain. {line}".rstrip()))
    running = [p.name for p, c in waits if c.running]
    if running:
        return _say("WaitingForMaster", f"Pods {listing(running)} wait until the master accepts connections.")
    return None


def _preflight(context: Context) -> Verdict | None:
    """What the script found, by the reason that concerns most pods."""
    told: dict[str, list[str]] = {}
    for pod in (*context.members(constants.ENGINE), *context.members(constants.WORKER)):
        for container in pod.containers:
            failed = container.name == constants.PREFLIGHT_CONTAINER and not container.ready and container.exit_code
            message = _preflight_message(container.exit_message) if failed else ""
            if message:
                told.setdefault(message, []).append(pod.name)
    if not told:
        return None
    message, pods = max(told.items(), key=lambda item: (len(item[1]), item[0]))
    return _say(
        "PreflightFailed", f"Pods {listing(pods)}: {sentence(quote(message, 400))} It is tried again with pauses."
    )


def _preflight_message(line: str) -> str:
    try:
        result = json.loads(line)
        return str(result["message"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return ""  # the script did not come so far: see the general faults


def _fault(context: Context) -> Verdict | None:
    engines = context.pool.spec.engines
    startup = Startup(context.now, engines.startup_seconds, engines.shutdown_seconds, "spec.engines.startupSeconds")
    members = (*context.members(constants.ENGINE), *context.members(constants.WORKER))
    newest = [p for p in members if p.digest == context.digest]
    fault = find_fault(newest, startup) or find_fault(members, startup)
    if fault is None:
        return None
    tail = f" {oom_arithmetic(context, constants.ENGINE)}" if fault.kind == "OOMKilled" else ""
    return _say(_FAULTS[fault.kind], sentence(str(fault)) + tail + _stopped(context))


def _stopped(context: Context) -> str:
    """What a fault means for a move between generations."""
    if not context.formers:
        return ""
    serving = [p for p in context.ready_engines if p.digest != context.digest]
    former = serving[0].digest if serving else context.formers[-1].digest
    return (
        f" The move to schema {context.digest} has stopped; {plural(len(serving), 'engine')} of schema {former} "
        "serve on. Correct the spec, or put the former one back."
    )


def _scaled_to_zero(context: Context) -> Verdict | None:
    if context.desired or context.members(constants.ENGINE) or context.pending(constants.ENGINE):
        return None
    return _say("ScaledToZero", "No engine is wanted: spec.engines.replicas is 0.")


def _moving(context: Context) -> Verdict | None:
    """Engines of more than one schema."""
    pods = context.members(constants.ENGINE)
    former = [p for p in pods if p.owned and p.digest != context.digest]
    if not context.formers and not former:
        return None
    moved = [p for p in pods if p.digest == context.digest]
    ready, restless = len(context.ready_engines), [p.name for p in moved if unsteady(p)]
    loading = [p.name for p in moved if not p.ready]
    ending = [p.name for p in context.observed.pods if p.component == constants.ENGINE and p.deleting]
    if context.plan.waiting is not None:
        tail = f" The move waits: {sentence(context.plan.waiting.message)}"
    elif restless:
        tail = f" The move waits, since pods restart again and again: {listing(restless)}."
    elif loading:
        tail = f" Loading, at most {context.pool.spec.engines.startup_seconds} s each: {listing(loading)}."
    else:
        tail = f" Ending: {listing(ending)}." if ending else ""
    digests = listing(sorted({p.digest for p in former} or {w.digest for w in context.formers}))
    return _say(
        "RollingOut",
        f"{len(moved)} of {plural(context.desired, 'engine')} run schema {context.digest}, {len(former)} still "
        f"{digests}; {ready} ready in all.{tail}",
    )


def _rolling_out(context: Context) -> Verdict | None:
    workload, pods = context.workload(constants.ENGINE), context.members(constants.ENGINE)
    if workload is None or not pods:
        return None
    updated = 0 if context.outdated(constants.ENGINE) else workload.updated
    if len(pods) <= updated:
        return None
    ready, moved = len(context.ready_engines), min(updated, context.desired)
    return _say(
        "RollingOut", f"{moved} of {plural(context.desired, 'engine')} run the current template; {ready} ready in all."
    )


def _progressing(context: Context) -> Verdict | None:
    ready = len(context.ready_engines)
    if context.settled(constants.ENGINE) and ready >= context.desired:
        return None
    loading = [p.name for p in context.members(constants.ENGINE) if not p.ready]
    limit = context.pool.spec.engines.startup_seconds
    if loading:
        tail = f" Loading, at most {limit} s each: {listing(loading)}."
    else:
        tail = "" if ready < context.desired else " The controller has not seen the last change yet."
    return _say("Progressing", f"{min(ready, context.desired)} of {plural(context.desired, 'engine')} ready.{tail}")


def _all_ready(context: Context) -> Verdict:
    return _say("AllReady", f"{context.desired} of {plural(context.desired, 'engine')} ready.")


CHECKS: Sequence[Check] = (
    not_accepted(_say, constants.ENGINE),
    creation_check(_say, constants.ENGINE, rest=True),
    _preflight,
    _waiting,
    _fault,
    _scaled_to_zero,
    _moving,
    _rolling_out,
    _progressing,
    _all_ready,
)
