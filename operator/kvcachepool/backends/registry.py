"""All backends by name."""

from kvcachepool.api import KVCachePool
from kvcachepool.backends.base import Backend
from kvcachepool.backends.mooncake import MooncakeBackend
from kvcachepool.backends.native import NativeBackend

BACKENDS: dict[str, Backend] = {backend.name: backend for backend in (NativeBackend(), MooncakeBackend())}


def backend_of(pool: KVCachePool) -> Backend:
    """The backend that the pool's spec chooses."""
    return BACKENDS[pool.spec.backend.name]
