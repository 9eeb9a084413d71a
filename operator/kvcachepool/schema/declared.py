"""The cache schema that a pool declares."""

from collections.abc import Iterable, Mapping

from kvcachepool.api import KVCachePool
from kvcachepool.schema.cache_schema import CacheSchema
from kvcachepool.schema.flags import NUMBERS


def declared_schema(
    pool: KVCachePool, *, connector: str, store_version: str | None, kv_layout: str | None
) -> CacheSchema:
    """All fields that must agree. Expert and data parallelism, memory utilisation and batch limits are not in
    it: they change neither a key nor a byte of the cache.

    `kv_layout` is the one in force: the user's, or the one the operator sets for this engine version.
    """
    spec, schema, cut = pool.spec, pool.spec.schema_, pool.spec.schema_.parallelism
    hybrid, draft = schema.hybrid, schema.speculative
    return CacheSchema.of(
        {
            "modelId": spec.model.id,
            "modelRevision": spec.model.revision,
            "engine": "vllm",
            "engineVersion": spec.engines.version,
            "connector": connector,
            "storeVersion": store_version,
            "tensor": cut.tensor,
            "pipeline": cut.pipeline,
            "decodeContext": cut.decode_context,
            "prefillContext": cut.prefill_context,
            "interleave": cut.interleave,
            "dtype": schema.dtype,
            "kvCacheDtype": schema.kv_cache_dtype,
            "quantization": schema.quantization,
            "blockSize": schema.block_size,
            "hashAlgorithm": schema.hash_algorithm,
            "hashSeed": schema.hash_seed,
            "attentionBackend": schema.attention_backend,
            "kvLayout": kv_layout,
            "layerPartition": _joined(cut.layer_partition),
            "kvCacheDtypeSkipLayers": _joined(schema.kv_cache_dtype_skip_layers),
            "prefixMatchUnit": schema.prefix_match_unit,
            "mambaCacheDtype": hybrid.mamba_cache_dtype,
            "mambaSsmCacheDtype": hybrid.mamba_ssm_cache_dtype,
            "mambaBlockSize": hybrid.mamba_block_size,
            "convStateLayout": hybrid.conv_state_layout,
            "hybridCacheManager": hybrid.cache_manager,
            "speculativeMethod": draft.method if draft else None,
            "speculativeModel": draft.model if draft else None,
            "speculativeTokens": draft.tokens if draft else None,
            "lora": _joined(f"{a.name}@{a.version}" for a in schema.lora),
            "loraModules": _joined(f"{a.name}={a.path}" for a in schema.lora),
        }
    )


def schema_from_texts(texts: Mapping[str, str]) -> CacheSchema:
    """The schema whose `texts` these are."""
    return CacheSchema.of(
        {n: int(text) if n in NUMBERS and text.isdecimal() and len(text) < 10 else text for n, text in texts.items()}
    )


def _joined(items: Iterable[object] | None) -> str | None:
    """None for nothing: an empty list is as good as none."""
    return ",".join(str(item) for item in items or ()) or None
