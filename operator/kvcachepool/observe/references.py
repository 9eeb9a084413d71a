"""References of a pool's spec to objects it does not own, and whether these exist.

A missing Secret or claim is a pod that never starts, with the reason only in an event. Checks are remembered, so that
a steady pass asks the API server nothing. Of a Secret only the names of its keys are looked at, and only where
a key must exist.
"""

import asyncio
import logging
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, Protocol

from kvcachepool.api import KVCachePool
from kvcachepool.observe.memory import PoolMemory

_LOG = logging.getLogger(__name__)
RECHECK_MISSING_SECONDS: Final = 60.0
RECHECK_PRESENT_SECONDS: Final = 600.0


class ReferenceReader(Protocol):
    """Existence checks of the cluster. Both may raise; an answer is then unknown and nothing counts as missing."""

    async def exists(self, kind: str, namespace: str, name: str) -> bool:
        """Whether there is such an object. Reads nothing of its content."""
        ...

    async def keys(self, kind: str, namespace: str, name: str) -> frozenset[str] | None:
        """Names of the data keys of a Secret or ConfigMap, never values; None when there is no such object."""
        ...


@dataclass(frozen=True, slots=True)
class Reference:
    """`key` is empty where the object itself is enough."""

    field: str
    kind: str
    name: str
    key: str = ""

    @property
    def what(self) -> str:
        """For a message: the name, with the key where one is needed."""
        return f"{self.name} (key {self.key})" if self.key else self.name


def references(pool: KVCachePool) -> tuple[Reference, ...]:
    """All references that must resolve before pods can start; those marked optional are left out."""
    return tuple(_references(pool))


def _references(pool: KVCachePool) -> Iterator[Reference]:
    source = pool.spec.model.source
    if source.hub is not None and source.hub.token_secret_ref is not None:
        secret = source.hub.token_secret_ref
        yield Reference("model.source.hub.tokenSecretRef", "Secret", secret.name, secret.key)
    if source.pvc is not None:
        yield Reference("model.source.pvc.claimName", "PersistentVolumeClaim", source.pvc.claim_name)
    for number, secret_name in enumerate(pool.spec.image_pull_secrets):
        yield Reference(f"imagePullSecrets[{number}].name", "Secret", secret_name.name)
    for number, variable in enumerate(pool.spec.engines.env):
        for member, kind in (("secretKeyRef", "Secret"), ("configMapKeyRef", "ConfigMap")):
            reference: Any = (variable.value_from or {}).get(member)
            if not isinstance(reference, dict) or reference.get("optional") is True:
                continue
            name, key = reference.get("name"), reference.get("key")
            if isinstance(name, str) and name and isinstance(key, str):
                yield Reference(f"engines.env[{number}].valueFrom.{member}", kind, name, key)


async def missing(
    pool: KVCachePool, reader: ReferenceReader, memory: PoolMemory, now: float
) -> tuple[tuple[str, str, str], ...]:
    """(field, kind, what is missing) of references that do not resolve."""
    wanted = references(pool)
    known = {(r.kind, r.name, r.key) for r in wanted}
    for gone in memory.references.keys() - known:
        del memory.references[gone]
    due = {(r.kind, r.name, r.key): r for r in wanted if _due(memory.references.get((r.kind, r.name, r.key)), now)}
    answers = await asyncio.gather(*(_there(reader, pool.metadata.namespace, r) for r in due.values()))
    for identity, there in zip(due, answers, strict=True):
        if there is not None:
            memory.references[identity] = (now, there)
    return tuple(
        (r.field, r.kind, r.what)
        for r in wanted
        if memory.references.get((r.kind, r.name, r.key), (0, True))[1] is False
    )


def _due(checked: tuple[float, bool] | None, now: float) -> bool:
    if checked is None:
        return True
    when, there = checked
    return now - when >= (RECHECK_PRESENT_SECONDS if there else RECHECK_MISSING_SECONDS)


async def _there(reader: ReferenceReader, namespace: str, reference: Reference) -> bool | None:
    try:
        if not reference.key:
            return await reader.exists(reference.kind, namespace, reference.name)
        keys = await reader.keys(reference.kind, namespace, reference.name)
    except Exception as error:  # any failure of the API server: unknown is not missing
        _LOG.info("cannot check %s %s/%s: %s", reference.kind, namespace, reference.name, error)
        return None
    return keys is not None and reference.key in keys
