"""The suite as a Job: what `kvcachepool negative --job` prints. Pure."""

from collections.abc import Sequence
from typing import Any

from kvcachepool import names
from kvcachepool.constants import GROUP, LABEL_NEGATIVE, PLURAL

Json = dict[str, Any]


def manifests(pool: str, namespace: str, image: str, arguments: Sequence[str], pull_policy: str = "") -> list[Json]:
    """Service account, role, binding and Job; the report is the Job's log, its success the verdict."""
    name = names.child(pool, "negative")
    labels = {"app.kubernetes.io/name": "kvcachepool", "app.kubernetes.io/component": "negative"}
    meta = {"name": name, "namespace": namespace, "labels": labels}
    rules = [
        {"apiGroups": [GROUP], "resources": [PLURAL], "verbs": ["get"]},
        {"apiGroups": ["apps"], "resources": ["deployments"], "verbs": ["get"]},
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "create", "delete"]},
        {"apiGroups": [""], "resources": ["pods/log"], "verbs": ["get"]},
    ]
    container: Json = {
        "name": "negative",
        "image": image,
        "args": ["negative", "pool", pool, "--namespace", namespace, *arguments],
        "resources": {"requests": {"cpu": "50m", "memory": "128Mi"}},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
    }
    if pull_policy:
        container["imagePullPolicy"] = pull_policy
    pod = {
        "serviceAccountName": name,
        "restartPolicy": "Never",
        "enableServiceLinks": False,
        "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [container],
    }
    role = "rbac.authorization.k8s.io"
    return [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta},
        {"apiVersion": f"{role}/v1", "kind": "Role", "metadata": meta, "rules": rules},
        {
            "apiVersion": f"{role}/v1",
            "kind": "RoleBinding",
            "metadata": meta,
            "roleRef": {"apiGroup": role, "kind": "Role", "name": name},
            "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": namespace}],
        },
        {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": meta,
            "spec": {
                "backoffLimit": 0,
                "ttlSecondsAfterFinished": 86400,
                # the pool's NetworkPolicies let pods with this label in
                "template": {
                    "metadata": {"labels": {**labels, LABEL_NEGATIVE: names.pool_label(pool)}},
                    "spec": pod,
                },
            },
        },
    ]
