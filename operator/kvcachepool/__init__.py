"""KVCachePool: a KV cache shared by vLLM replicas, proven."""

__version__ = "0.1.0"
