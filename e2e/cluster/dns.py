"""Cluster DNS: CoreDNS as a pod from an image of our own."""

from __future__ import annotations

from typing import Any

from .images import COREDNS
from .settings import Network

NAMESPACE = "kube-system"
_LABELS = {"k8s-app": "kube-dns"}
SELECTOR = "k8s-app=kube-dns"
READY_PORT = 8181
_NAME = "coredns"

# Names outside the cluster are answered at once with "no such name": nothing
# outside can be reached, and a forwarder would make each look-up wait.
COREFILE = """\
cluster.local in-addr.arpa ip6.arpa {
    errors
    health
    ready
    kubernetes cluster.local in-addr.arpa ip6.arpa {
        pods insecure
        ttl 5
    }
    cache 5
}
. {
    errors
    template ANY ANY {
        rcode NXDOMAIN
    }
}
"""


def manifests(network: Network) -> list[dict[str, Any]]:
    """All objects, in an order in which each finds what it refers to."""
    return [_account(), _role(), _binding(), _config(), _service(network), _deployment()]


def _meta(name: str, *, namespaced: bool = True) -> dict[str, Any]:
    meta: dict[str, Any] = {"name": name, "labels": dict(_LABELS)}
    return {**meta, "namespace": NAMESPACE} if namespaced else meta


def _account() -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": _meta(_NAME)}


def _role() -> dict[str, Any]:
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": _meta("system:coredns", namespaced=False),
        "rules": [
            {
                "apiGroups": [""],
                "resources": ["endpoints", "services", "pods", "namespaces"],
                "verbs": ["list", "watch"],
            },
            {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": ["list", "watch"]},
        ],
    }


def _binding() -> dict[str, Any]:
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": _meta("system:coredns", namespaced=False),
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "system:coredns"},
        "subjects": [{"kind": "ServiceAccount", "name": _NAME, "namespace": NAMESPACE}],
    }


def _config() -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": _meta(_NAME), "data": {"Corefile": COREFILE}}


def _service(network: Network) -> dict[str, Any]:
    ports = [
        {"name": name, "port": 53, "protocol": protocol} for name, protocol in (("dns", "UDP"), ("dns-tcp", "TCP"))
    ]
    spec = {"clusterIP": network.dns_ip, "selector": dict(_LABELS), "ports": ports}
    return {"apiVersion": "v1", "kind": "Service", "metadata": _meta("kube-dns"), "spec": spec}


def _deployment() -> dict[str, Any]:
    container = {
        "name": _NAME,
        "image": COREDNS,
        "imagePullPolicy": "Never",
        "args": ["-conf", "/etc/coredns/Corefile"],
        "resources": {"requests": {"cpu": "10m", "memory": "30Mi"}, "limits": {"memory": "170Mi"}},
        "ports": [
            {"name": "dns", "containerPort": 53, "protocol": "UDP"},
            {"name": "dns-tcp", "containerPort": 53, "protocol": "TCP"},
        ],
        "readinessProbe": {
            "httpGet": {"path": "/ready", "port": READY_PORT},
            "periodSeconds": 1,
            "failureThreshold": 60,
        },
        "livenessProbe": {"httpGet": {"path": "/health", "port": 8080}, "initialDelaySeconds": 30},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"add": ["NET_BIND_SERVICE"], "drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
        },
        "volumeMounts": [{"name": "config", "mountPath": "/etc/coredns", "readOnly": True}],
    }
    pod = {
        "serviceAccountName": _NAME,
        "priorityClassName": "system-cluster-critical",
        "dnsPolicy": "Default",
        "terminationGracePeriodSeconds": 1,
        "containers": [container],
        "volumes": [{"name": "config", "configMap": {"name": _NAME}}],
    }
    spec = {
        "replicas": 1,
        "selector": {"matchLabels": dict(_LABELS)},
        "template": {"metadata": {"labels": dict(_LABELS)}, "spec": pod},
    }
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": _meta(_NAME), "spec": spec}
