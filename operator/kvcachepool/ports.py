"""Ports of a pool's processes.

In a pod with a network of its own they are the well-known ones. On the node's network two pools would collide, so each
pool gets its own there, the same at every pass. They become host ports, so that the scheduler never puts two pods
with one port on a node: of one pool, one engine and one store pod fit on each.
"""

import hashlib
from typing import Final

from kvcachepool import constants
from kvcachepool.api import KVCachePool

STORE_PORT: Final = 8081
"""REST port of the store service; its readiness follows the mounted segment."""
_FIRST: Final = 20000
"""Below the node ports (30000) and the kernel's own choice (32768), above what Mooncake takes (12300 to 17000)."""
_PAIRS: Final = 4900
_FIRST_RANKS: Final = 17100
_RANKS: Final = 2800
"""Above what Mooncake takes, below the pairs."""


def engine_port(pool: KVCachePool) -> int:
    """HTTP port of the engines."""
    return _own_pair(pool) if on_host_network(pool) else constants.ENGINE_PORT


def store_port(pool: KVCachePool) -> int:
    """HTTP port of the store pods."""
    return _own_pair(pool) + 1 if on_host_network(pool) else STORE_PORT


def ranks_port(pool: KVCachePool) -> int:
    """Where the ranks of an engine over several nodes meet, at the first one's address."""
    return _FIRST_RANKS + _number(pool) % _RANKS if on_host_network(pool) else constants.RANKS_PORT


def on_host_network(pool: KVCachePool) -> bool:
    """Whether engines and store pods use the node's network. The master never does."""
    rdma = pool.spec.transport.active_rdma
    return rdma is not None and rdma.host_network


def _own_pair(pool: KVCachePool) -> int:
    return _FIRST + 2 * (_number(pool) % _PAIRS)


def _number(pool: KVCachePool) -> int:
    return int(hashlib.sha256("/".join(pool.key).encode()).hexdigest()[:8], 16)
