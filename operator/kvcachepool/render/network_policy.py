"""Who may reach a pool's pods over the pod network.

Nothing in Mooncake is authenticated: who reaches the master or a store pod reads and forges every block. So members
reach the master's RPC port and each other, the operator, drills and whoever reads metrics the ports with figures, and
everybody (or the clients that the pool names) the engines' HTTP port.

Only the operator's own pods are selected: what ports a user's pod serves besides is not known here, and a policy closes
all that it does not name. A policy sees addresses and ports: it cannot tell /metrics from the master's admin paths on
the same port, nor an engine's completions from its /reset_prefix_cache, which engines do not serve (see `REFUSED_ENV`).
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from kvcachepool import constants, names
from kvcachepool.api import KVCachePool
from kvcachepool.ports import engine_port, on_host_network
from kvcachepool.render import metadata
from kvcachepool.settings import Settings

Json = dict[str, Any]
KIND: Final = "NetworkPolicy"


def network_policies(pool: KVCachePool, settings: Settings, components: Iterable[str]) -> list[Json]:
    """One policy for the engines, and one for each of `components` beside them; none where they are switched off.

    Pods on the node's network come from the node's address, which no selector knows: a policy for the master would
    shut its members out, and pods there are beyond any policy.
    """
    given = pool.spec.network_policy
    if not settings.network_policies or not given.enabled or on_host_network(pool):
        return []
    members = _members(pool)
    drill = {"podSelector": {"matchLabels": {constants.LABEL_DRILL: names.pool_label(pool.metadata.name)}}}
    watchers = [*_operator(settings), *settings.metrics_peers]
    rules = {
        constants.MASTER: [
            _allow(members, constants.MASTER_RPC_PORT),
            # a store pod that leaves asks the master to move its blocks
            _allow([*watchers, drill, *_stores(pool)], constants.MASTER_HTTP_PORT),
        ],
        # the transfer engine takes whatever port is free
        constants.STORE: [_allow(members)],
    }
    clients = [*given.clients, *watchers, drill] if given.clients else []
    engines = [_allow(members), _allow(clients, engine_port(pool), everybody=not given.clients)]
    return [
        *(_policy(pool, component, [component], rules[component]) for component in components),
        _policy(pool, constants.ENGINE, [constants.ENGINE, constants.WORKER], engines),
    ]


def _members(pool: KVCachePool) -> list[Json]:
    """Pods of the pool in its namespace, and those of its negative suite, which must reach the store to miss there."""
    label = names.pool_label(pool.metadata.name)
    return [
        {"podSelector": {"matchLabels": {name: label}}} for name in (constants.LABEL_POOL, constants.LABEL_NEGATIVE)
    ]


def _stores(pool: KVCachePool) -> list[Json]:
    """Store pods of the pool."""
    if pool.store.mode != "Dedicated" or not pool.store.drain_seconds:
        return []
    return [{"podSelector": {"matchLabels": metadata.selector(pool, constants.STORE)}}]


def _operator(settings: Settings) -> list[Json]:
    """The operator's pods; nobody while it runs outside the cluster."""
    if not settings.lease_namespace or not settings.pod_labels:
        return []
    labels = dict(label.split("=", 1) for label in settings.pod_labels)
    return [
        {
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": settings.lease_namespace}},
            "podSelector": {"matchLabels": labels},
        }
    ]


def _allow(peers: Iterable[Mapping[str, Any]], port: int = 0, *, everybody: bool = False) -> Json | None:
    """A rule; None without a peer, since a rule without `from` lets everybody in."""
    allowed = list(peers)
    if not allowed and not everybody:
        return None
    rule: Json = {} if everybody else {"from": allowed}
    return rule | ({"ports": [{"port": port, "protocol": "TCP"}]} if port else {})


def _policy(pool: KVCachePool, component: str, selected: list[str], rules: Iterable[Json | None]) -> Json:
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": KIND,
        "metadata": metadata.metadata(pool, component, names.child(pool.metadata.name, component)),
        "spec": {
            "podSelector": {
                "matchLabels": {constants.LABEL_POOL: names.pool_label(pool.metadata.name)},
                "matchExpressions": [{"key": constants.LABEL_COMPONENT, "operator": "In", "values": selected}],
            },
            "policyTypes": ["Ingress"],
            "ingress": [rule for rule in rules if rule is not None],
        },
    }
