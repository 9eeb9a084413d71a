"""What the operator may do, as data: the chart's roles are generated from this.

No wildcard, of cluster-scoped resources only nodes (read) and the operator's own webhook configuration, nothing written
to a KVCachePool but its status. Server-side apply needs `create` and `patch` together. Children carry
`blockOwnerDeletion: false`, so no `finalizers` subresource is needed where OwnerReferencesPermissionEnforcement is on
(OpenShift).
"""

from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from kvcachepool.constants import COMPATIBILITY_CONFIG_MAP, GROUP, PLURAL

CLAIM_LEASE: Final = "kvcachepool-operator-claim"
"""Lease in a watched namespace that says which installation works there."""

WEBHOOK: Final = "WEBHOOK"
"""Stands for the name of the installation's own webhook configuration and Secret, which the chart knows."""


DEVICE_PLUGIN: Final = "kvcachepool-rdma-device-plugin"
"""DaemonSet and ConfigMap of the RDMA device plugin, in the operator's own namespace."""

DEVICE_PLUGIN_OWNER: Final = f"{DEVICE_PLUGIN}-owner"
"""ConfigMap of the chart that owns both."""


class Scope(Enum):
    """Where a rule is granted."""

    WATCHED = "watched"
    """Everywhere the operator looks for pools: the cluster, or each watched namespace."""
    CLAIMED = "claimed"
    """In each watched namespace, of an installation that is limited to namespaces."""
    CLUSTER = "cluster"
    """In the whole cluster: by the role of WATCHED or, of an installation that is limited to namespaces, by a role of
    its own where the chart is told so."""
    DEVICE_PLUGIN = "device-plugin"
    """In the operator's own namespace, where the chart is told to let it run the RDMA device plugin."""
    OWN = "own"
    """In the operator's own namespace."""
    OWN_WEBHOOK = "webhook"
    """In the operator's own namespace, while it keeps the webhook's certificate."""
    CLUSTER_WEBHOOK = "webhook-cluster"
    """In the cluster, while it keeps the webhook's certificate."""


@dataclass(frozen=True, slots=True)
class Rule:
    """One RBAC rule and its reason."""

    scope: Scope
    group: str
    resources: tuple[str, ...]
    verbs: tuple[str, ...]
    why: str
    names: tuple[str, ...] = ()
    """Limits the rule to objects of these names. Not for `create`, which RBAC cannot limit so."""

    def dump(self) -> dict[str, Any]:
        """As it stands in a Role."""
        rule: dict[str, Any] = {"apiGroups": [self.group], "resources": list(self.resources)}
        if self.names:
            rule["resourceNames"] = list(self.names)
        return rule | {"verbs": list(self.verbs)}


_READ: Final = ("get", "list", "watch")
_CHILD: Final = (*_READ, "create", "patch", "delete")

RULES: Final = (
    Rule(Scope.WATCHED, GROUP, (PLURAL,), _READ, "the pools"),
    Rule(Scope.WATCHED, GROUP, (f"{PLURAL}/status",), ("patch",), "their status, by server-side apply"),
    Rule(Scope.WATCHED, "apps", ("deployments",), _CHILD, "children: master, store and engines"),
    Rule(
        Scope.WATCHED,
        "leaderworkerset.x-k8s.io",
        ("leaderworkersets",),
        _CHILD,
        "children: engines over several nodes, where the cluster has this kind",
    ),
    Rule(Scope.WATCHED, "", ("services", "configmaps"), _CHILD, "children: addresses and configuration"),
    Rule(Scope.WATCHED, "discovery.k8s.io", ("endpointslices",), _CHILD, "users' own engines behind a pool's Service"),
    Rule(
        Scope.WATCHED, "policy", ("poddisruptionbudgets",), _CHILD, "children: how many pods a drain may take at a time"
    ),
    Rule(Scope.WATCHED, "networking.k8s.io", ("networkpolicies",), _CHILD, "children: who may reach a pool's pods"),
    Rule(Scope.WATCHED, "", ("pods",), _READ, "what runs"),
    Rule(
        Scope.WATCHED,
        "",
        ("pods/eviction",),
        ("create",),
        "an engine that has lost the store, where spec.engines.restartWhenStranded allows it",
    ),
    Rule(Scope.WATCHED, "", ("pods/log",), ("get",), "the first line of a crashed engine that says why"),
    Rule(Scope.WATCHED, "", ("secrets", "persistentvolumeclaims"), ("get",), "does a referenced one exist"),
    Rule(Scope.WATCHED, "", ("events",), ("create",), "transitions of conditions"),
    Rule(
        Scope.WATCHED,
        "coordination.k8s.io",
        ("leases",),
        ("get",),
        "the claim of another installation on the namespace",
        names=(CLAIM_LEASE,),
    ),
    Rule(Scope.CLAIMED, "coordination.k8s.io", ("leases",), ("create",), "the claim on the namespace"),
    Rule(
        Scope.CLAIMED,
        "coordination.k8s.io",
        ("leases",),
        ("update",),
        "the claim on the namespace",
        names=(CLAIM_LEASE,),
    ),
    Rule(
        Scope.OWN_WEBHOOK,
        "",
        ("secrets",),
        ("get", "patch"),
        "the webhook's certificate, in a Secret that the chart makes",
        names=(WEBHOOK,),
    ),
    Rule(
        Scope.CLUSTER_WEBHOOK,
        "admissionregistration.k8s.io",
        ("mutatingwebhookconfigurations",),
        ("get", "patch"),
        "tell the API server of the certificate's authority",
        names=(WEBHOOK,),
    ),
    *(
        Rule(Scope.DEVICE_PLUGIN, group, (resource,), verbs, why, names=names)
        for group, resource, why in (
            ("apps", "daemonsets", "the RDMA device plugin, while a pool asks for it"),
            ("", "configmaps", "its configuration"),
        )
        for verbs, names in ((("create",), ()), (("get", "patch", "delete"), (DEVICE_PLUGIN,)))
    ),
    Rule(
        Scope.DEVICE_PLUGIN,
        "",
        ("configmaps",),
        ("get",),
        "the owner with which the device plugin goes when the release is uninstalled",
        names=(DEVICE_PLUGIN_OWNER,),
    ),
    Rule(Scope.CLUSTER, "", ("nodes",), _READ, "which nodes fit a pool, by labels, taints and allocatable resources"),
    Rule(
        Scope.OWN,
        "",
        ("configmaps",),
        ("get",),
        "the cluster's own rows of the compatibility tables",
        names=(COMPATIBILITY_CONFIG_MAP,),
    ),
    Rule(Scope.OWN, "coordination.k8s.io", ("leases",), ("get", "create", "update"), "leader election"),
)


def rules(scope: Scope) -> tuple[Rule, ...]:
    """The rules that are granted in one place."""
    return tuple(rule for rule in RULES if rule.scope is scope)
