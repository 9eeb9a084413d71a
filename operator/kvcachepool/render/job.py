"""A command of the operator's image as a Job with a role of its own. Pure."""

from collections.abc import Sequence
from typing import Any

from kvcachepool import names

Json = dict[str, Any]


def command_job(
    command: str,
    pool: str,
    namespace: str,
    image: str,
    *,
    arguments: Sequence[str],
    rules: Sequence[Json],
    label: str,
    pull_policy: str = "",
) -> list[Json]:
    """Service account, role, binding and Job of `kvcachepool COMMAND pool POOL`; the report is the Job's log, its
    success the verdict. The pool's NetworkPolicies let pods with `label` in."""
    name = names.child(pool, command)
    labels = {"app.kubernetes.io/name": "kvcachepool", "app.kubernetes.io/component": command}
    meta = {"name": name, "namespace": namespace, "labels": labels}
    container: Json = {
        "name": command,
        "image": image,
        "args": [command, "pool", pool, "--namespace", namespace, *arguments],
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
        {"apiVersion": f"{role}/v1", "kind": "Role", "metadata": meta, "rules": list(rules)},
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
                "template": {"metadata": {"labels": {**labels, label: names.pool_label(pool)}}, "spec": pod},
            },
        },
    ]
