"""Pods are replaced because the user's spec asks for it, and for no other reason."""

from collections.abc import Iterator
from copy import deepcopy
from typing import Any

import pytest

from kvcachepool import constants
from kvcachepool.facts import Observed, PodFacts, WorkloadFacts
from kvcachepool.plan import make_plan
from kvcachepool.plan_types import Plan
from kvcachepool.render.rollout import edited_by_hand, keep_running
from kvcachepool.settings import Settings
from tests.pools import merged, pool

READY_MASTER = (PodFacts("demo-master-1", "u1", constants.MASTER, "", ready=True),)


def plan_for(
    spec: dict[str, Any] | None = None, live: dict[str, Any] | None = None, settings: Settings | None = None
) -> Plan:
    observed = Observed(
        pods=READY_MASTER, children={("Deployment", d["metadata"]["name"]): d for d in (live or {}).values()}
    )
    return make_plan(pool(spec), observed, settings or Settings())


def deployments(plan: Plan) -> dict[str, Any]:
    return {
        obj["metadata"]["labels"][constants.LABEL_COMPONENT]: deepcopy(dict(obj))
        for obj in plan.objects
        if obj["kind"] == "Deployment"
    }


def rolls(before: dict[str, Any], after: dict[str, Any]) -> set[str]:
    """Components whose pod template differs: exactly those that a Deployment controller would replace."""
    return {name for name in before if before[name]["spec"]["template"] != after[name]["spec"]["template"]}


RDMA: dict[str, Any] = {"transport": {"protocol": "RDMA", "rdma": {"resourceName": "rdma/hca"}}}
