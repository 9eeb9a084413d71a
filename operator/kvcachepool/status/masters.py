"""Which master a pool has: one, one of several that lead in turn, or somebody else's."""

from kvcachepool import constants
from kvcachepool.facts import PodFacts
from kvcachepool.status.context import Context
from kvcachepool.status.faults import find_fault
from kvcachepool.status.text import listing, plural, sentence


def leader(context: Context) -> PodFacts | None:
    """The master that serves: readiness follows leadership."""
    return next((pod for pod in context.members(constants.MASTER) if pod.ready), None)


def master_start(context: Context) -> str | None:
    """When the process that serves started; None while it is not known which one does."""
    serving = leader(context)
    if serving is None and context.pool.store.master.ha is not None:
        return None
    candidates = context.members(constants.MASTER) if serving is None else (serving,)
    return next((pod.started for pod in candidates if pod.started), None)


def elected(context: Context) -> bool:
    """Whether one of several masters leads, so that the others are right not to be ready."""
    return context.pool.store.master.ha is not None and leader(context) is not None


def who(context: Context) -> str:
    """The master in a message."""
    external = context.pool.store.master.external
    if external is not None:
        return f"The external master {external.address}"
    pod = leader(context)
    return f"Pod {pod.name}" if pod is not None else "The master"


def nobody_leads(context: Context) -> str:
    """A sentence while masters elect one; "" otherwise."""
    ha, pods = context.pool.store.master.ha, context.members(constants.MASTER)
    if ha is None or not pods or leader(context) is not None:
        return ""
    return (
        f"None of {plural(len(pods), 'master')} leads yet. One takes over within about 12 s as long as etcd "
        f"({listing(ha.etcd.endpoints)}) answers them; otherwise their logs tell what it said."
    )


def no_successor(context: Context) -> str:
    """A sentence when nobody could take over from the leader; "" otherwise."""
    if not elected(context):
        return ""
    others = [pod for pod in context.members(constants.MASTER) if not pod.ready]
    fault = find_fault(others)
    able = [pod for pod in others if pod.main is not None and pod.main.running]
    if able and fault is None:
        return ""
    why = sentence(str(fault)) if fault is not None else "No other master runs."
    return f"No other master could take over from the leader now. {why}"
