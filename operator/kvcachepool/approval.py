"""Which restart of the master waits for the user, and whether it was approved. Pure.

A restarted master begins with an empty index: whatever was cached is computed again. So it is restarted only for an
annotation of the pool that names this very restart. The name is drawn from the Deployment as it is (uid and
generation) and from the template that would replace it: once applied, or after another edit, it fits nothing any
more, and nobody has to remove it.
"""

from collections.abc import Mapping
from typing import Any

from kvcachepool import constants
from kvcachepool.api import KVCachePool
from kvcachepool.facts import Observed, PodFacts
from kvcachepool.plan_types import MasterRestart
from kvcachepool.render.difference import differences
from kvcachepool.render.hashing import content_hash
from kvcachepool.render.rollout import templates


def restart_by_edit(
    pool: KVCachePool, observed: Observed, desired: Mapping[str, Any], live: Mapping[str, Any] | None
) -> MasterRestart | None:
    """The restart that applying `desired` would cause, unless it costs nothing or was approved."""
    if live is None or _template(desired) == _template(live) or not index_lives(pool, observed):
        return None
    wanted, found = (templates(workload)["template"]["spec"] for workload in (desired, live))
    metadata = live["metadata"]
    approval = content_hash([metadata.get("uid", ""), metadata.get("generation", 0), _template(desired)])
    restart = MasterRestart(
        approval, differences(wanted, found), clients=_seen_by_clients(wanted) != _seen_by_clients(found)
    )
    return None if _approved(pool, restart) else restart


def restart_by_eviction(pool: KVCachePool, observed: Observed) -> MasterRestart | None:
    """The loss that draining the master's node would cause, unless it was approved; None while the node is not
    cordoned. Of several masters the one that leads counts: only it is ready, and its index is lost with it, too. The
    master's PodDisruptionBudget makes the drain wait."""
    pods = [pod for pod in observed.members(constants.MASTER) if pod.ready]
    if len(pods) != 1:
        return None
    cordoned = {node.name for node in observed.nodes or () if node.cordoned}
    if pods[0].node not in cordoned:
        return None
    restart = MasterRestart(_eviction(pods[0]), evicted_from=pods[0].node)
    return None if _approved(pool, restart) else restart


def eviction_approved(pool: KVCachePool, observed: Observed) -> bool:
    """Whether the user has approved that the present pod of the master, or the one that leads, leaves its node."""
    approved = pool.metadata.annotations.get(constants.ANNOTATION_APPROVE, "")
    return any(_eviction(p) == approved for p in observed.members(constants.MASTER) if p.ready)


def index_lives(pool: KVCachePool, observed: Observed) -> bool:
    """Whether a master's process runs that may have an index. While none does, nothing can be lost. Of an external one
    only its answers are seen."""
    if pool.store.master.external is not None:
        return observed.master is not None and observed.master.reachable
    return bool(_living(observed))


def _seen_by_clients(spec: Mapping[str, Any]) -> tuple[Any, ...]:
    """What of a master its clients depend on: its version, and how it is found."""
    container: Mapping[str, Any] = next(iter(spec.get("containers") or ()), {})
    found_by = ("--rpc_address=", "--enable_ha=", "--etcd_endpoints=", "--cluster_id=")
    return container.get("image"), *(arg for arg in container.get("args") or () if arg.startswith(found_by))


def _living(observed: Observed) -> list[PodFacts]:
    pods = observed.members(constants.MASTER)
    return [pod for pod in pods if pod.ready or (pod.main is not None and pod.main.running)]


def _eviction(pod: PodFacts) -> str:
    """The name of that pod's eviction."""
    return content_hash([pod.uid, "eviction"])


def _approved(pool: KVCachePool, restart: MasterRestart) -> bool:
    return pool.metadata.annotations.get(constants.ANNOTATION_APPROVE, "") == restart.approval


def _template(workload: Mapping[str, Any]) -> str:
    return str((workload["metadata"].get("annotations") or {}).get(constants.ANNOTATION_TEMPLATE, ""))
