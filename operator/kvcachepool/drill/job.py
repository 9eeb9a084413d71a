"""Drills as a Job: what `kvcachepool drill job` prints. Pure."""

from collections.abc import Sequence
from typing import Any

from kvcachepool.constants import GROUP, LABEL_DRILL, PLURAL
from kvcachepool.render.job import command_job

Json = dict[str, Any]


def manifests(pool: str, namespace: str, image: str, arguments: Sequence[str], pull_policy: str = "") -> list[Json]:
    """Service account, role, binding and Job."""
    rules = [
        {"apiGroups": [GROUP], "resources": [PLURAL], "verbs": ["get"]},
        {"apiGroups": ["apps"], "resources": ["deployments"], "verbs": ["list"]},
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["list", "delete"]},
        {"apiGroups": [""], "resources": ["services"], "verbs": ["get", "delete"]},
    ]
    return command_job(
        "drill", pool, namespace, image, arguments=arguments, rules=rules, label=LABEL_DRILL, pull_policy=pull_policy
    )
