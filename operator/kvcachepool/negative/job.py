"""The suite as a Job: what `kvcachepool negative job` prints. Pure."""

from collections.abc import Sequence
from typing import Any

from kvcachepool.constants import GROUP, LABEL_NEGATIVE, PLURAL
from kvcachepool.render.job import command_job

Json = dict[str, Any]


def manifests(pool: str, namespace: str, image: str, arguments: Sequence[str], pull_policy: str = "") -> list[Json]:
    """Service account, role, binding and Job."""
    rules = [
        {"apiGroups": [GROUP], "resources": [PLURAL], "verbs": ["get"]},
        {"apiGroups": ["apps"], "resources": ["deployments"], "verbs": ["get"]},
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "create", "delete"]},
        {"apiGroups": [""], "resources": ["pods/log"], "verbs": ["get"]},
    ]
    return command_job(
        "negative",
        pool,
        namespace,
        image,
        arguments=arguments,
        rules=rules,
        label=LABEL_NEGATIVE,
        pull_policy=pull_policy,
    )
