"""The cache schema: canonical form, digest and field diff."""

from kvcachepool.schema.cache_schema import CacheSchema, Difference

__all__ = ["CacheSchema", "Difference"]
