"""The pool that a command works in."""

from typing import Any, Protocol

from kvcachepool import constants
from kvcachepool.api import KVCachePool
from kvcachepool.api.parse import Invalid, parse_pool


class PoolReader(Protocol):
    """What is needed of the API server; see `cluster.Cluster`."""

    async def get(self, kind: str, namespace: str, name: str) -> dict[str, Any] | None: ...  # noqa: D102


class CannotRunError(Exception):
    """A command cannot do its work in this pool; the message says why and what to do."""


async def find_pool(api: PoolReader, namespace: str, name: str) -> KVCachePool:
    """The pool. Raises CannotRunError."""
    raw = await api.get(constants.KIND, namespace, name)
    if raw is None:
        raise CannotRunError(f"there is no {constants.KIND} {namespace}/{name}")
    pool = parse_pool(raw)
    if isinstance(pool, Invalid):
        raise CannotRunError(f"the pool's spec is not accepted: {pool.findings[0].message}")
    return pool
