"""What NetworkPolicies let through, by the rules of networking.k8s.io/v1 (ingress of TCP; no ipBlock, no named port).

Source: k8s.io/api/networking/v1, the comments of NetworkPolicySpec, NetworkPolicyIngressRule and NetworkPolicyPeer.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

Labels = Mapping[str, str]


@dataclass(frozen=True)
class Pod:
    """A pod, or (namespace empty) a peer outside the cluster."""

    labels: Labels = field(default_factory=dict)
    namespace: str = "team-a"


def reaches(policies: Iterable[Any], source: Pod, target: Pod, port: int) -> bool:
    """Whether a connection gets through."""
    on_target = [
        policy
        for policy in policies
        if policy["metadata"]["namespace"] == target.namespace
        and "Ingress" in policy["spec"].get("policyTypes", ["Ingress"])
        and _selected(policy["spec"]["podSelector"], target.labels)
    ]
    rules = [rule for policy in on_target for rule in policy["spec"].get("ingress") or ()]
    return not on_target or any(_lets(rule, source, port, target.namespace) for rule in rules)


def _lets(rule: Any, source: Pod, port: int, namespace: str) -> bool:
    ports = [entry["port"] for entry in rule.get("ports") or () if entry.get("protocol", "TCP") == "TCP"]
    peers = rule.get("from") or ()
    return (not rule.get("ports") or port in ports) and (
        not peers or any(_is(peer, source, namespace) for peer in peers)
    )


def _is(peer: Any, source: Pod, namespace: str) -> bool:
    assert set(peer) <= {"podSelector", "namespaceSelector"}, "not evaluated here"
    if not source.namespace:
        return False
    if "namespaceSelector" in peer:
        there = _selected(peer["namespaceSelector"], {"kubernetes.io/metadata.name": source.namespace})
    else:
        there = source.namespace == namespace
    return there and _selected(peer.get("podSelector", {}), source.labels)


def _selected(selector: Any, labels: Labels) -> bool:
    assert set(selector) <= {"matchLabels", "matchExpressions"}
    wanted = (selector.get("matchLabels") or {}).items()
    for expression in selector.get("matchExpressions") or ():
        assert expression["operator"] == "In", "not evaluated here"
        if labels.get(expression["key"]) not in expression["values"]:
            return False
    return all(labels.get(name) == value for name, value in wanted)
