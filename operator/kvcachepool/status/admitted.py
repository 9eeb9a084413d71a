"""Which schemas pods of a pool may have: what the admission policy compares them with (`policy`).

A schema is announced before the objects that carry it are applied: the API server would refuse their pods otherwise.
It is withdrawn only when nothing of the operator's has it any more, so that an engine of the former schema is replaced
when it dies while the others move.
"""

from collections.abc import Iterator
from typing import Final

from kvcachepool import constants, names
from kvcachepool.api import KVCachePool, PoolStatus
from kvcachepool.api.status import AdmittedSchema
from kvcachepool.facts import Object, Observed
from kvcachepool.plan_types import Plan
from kvcachepool.schema import CacheSchema

MOST: Final = 8
"""Schemas that are kept at most; each takes about a kilobyte of the status."""


def announcement(pool: KVCachePool, plan: Plan) -> PoolStatus | None:
    """The status to write before `plan` is applied; None when it brings no schema that pods may not have yet."""
    if plan.schema is None or not _planned(plan):
        return None
    status = pool.status
    known = status.schema_.admitted
    if any(entry.digest == plan.schema.digest for entry in known):
        return None
    admitted = [_entry(plan.schema), *known][:MOST]
    return status.model_copy(
        update={
            "label": names.pool_label(pool.metadata.name),
            "schema_": status.schema_.model_copy(update={"admitted": admitted}),
        }
    )


def admitted(pool: KVCachePool, plan: Plan, observed: Observed) -> list[AdmittedSchema]:
    """The schema in force first, then former ones that something of the operator's still has. While nothing is
    applied, or engines of a new schema wait for something, it stays as it was."""
    former = pool.status.schema_.admitted
    if plan.schema is None or not plan.objects:
        return former
    known = any(entry.digest == plan.schema.digest for entry in former)
    if not known and not _planned(plan):
        return former
    used = set(_in_use(observed))
    rest = [entry for entry in former if entry.digest != plan.schema.digest and entry.digest in used]
    return [_entry(plan.schema), *rest][:MOST]


def _planned(plan: Plan) -> bool:
    """Whether an object of the plan carries its schema."""
    return plan.schema is not None and any(_digest(obj) == plan.schema.digest for obj in plan.objects)


def _in_use(observed: Observed) -> Iterator[str]:
    yield from (pod.digest for pod in observed.pods if pod.owned)
    for (kind, _), child in observed.children.items():
        if kind in constants.ENGINE_KINDS:
            yield _digest(child)


def _entry(schema: CacheSchema) -> AdmittedSchema:
    return AdmittedSchema(digest=schema.digest, fields=schema.texts)


def _digest(obj: Object) -> str:
    return str((obj["metadata"].get("labels") or {}).get(constants.LABEL_SCHEMA, ""))
