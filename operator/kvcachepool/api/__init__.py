"""The `kvcachepool.io/v1alpha1` API: pydantic models from which CRD and API reference are generated."""

from kvcachepool.api.pool import KVCachePool, PoolSpec
from kvcachepool.api.status import Condition, PoolStatus

__all__ = ["Condition", "KVCachePool", "PoolSpec", "PoolStatus"]
