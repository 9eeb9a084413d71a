"""`spec.schema`: what must be identical in every pod that joins the pool."""

from typing import Annotated, Literal

from pydantic import ConfigDict, Field, model_validator

from kvcachepool.api.base import ApiModel
from kvcachepool.api.rules import Matching, Rule, rules

Dtype = Literal["auto", "float16", "bfloat16", "float32"]
KvCacheDtype = Literal["auto", "float16", "bfloat16", "fp8", "fp8_e4m3", "fp8_e5m2", "fp8_ds_mla", "nvfp4"]
HashAlgorithm = Literal["sha256_cbor", "sha256", "xxhash_cbor", "xxhash"]
KvLayout = Literal["LBNHC", "LBHNC", "LHBNC", "BLHNC", "BLNHC", "BHLNC"]
HashSeed = Annotated[
    str,
    Matching(
        # up to 4294967295, the largest seed that Python takes
        r"^(0|[1-9][0-9]{0,8}|[1-3][0-9]{9}|4[01][0-9]{8}|42[0-8][0-9]{7}|429[0-3][0-9]{6}|4294[0-8][0-9]{5}"
        r"|42949[0-5][0-9]{4}|429496[0-6][0-9]{3}|4294967[01][0-9]{2}|42949672[0-8][0-9]|429496729[0-5])$",
        'a string "0" to "4294967295" without leading zeros',
        max_length=10,
    ),
]
Count = Annotated[int, Field(ge=1, le=1024)]


class Parallelism(ApiModel):
    """How one engine is cut over devices. Expert and data parallelism are free: they change no cache key or
    byte."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            Rule(
                "self.tensor % self.decodeContext == 0",
                "decodeContext must divide tensor, whose devices it reuses",
                found=("decodeContext %d and tensor %d", "self.decodeContext", "self.tensor"),
                field=".decodeContext",
            )
        )
    )

    tensor: Count = 1
    """Tensor parallel size."""
    pipeline: Count = 1
    """Pipeline parallel size."""
    decode_context: Count = 1
    """Decode context parallel size; reuses the tensor-parallel devices."""
    prefill_context: Count = 1
    """Prefill context parallel size; multiplies the devices."""
    interleave: Count = 1
    """KV cache interleave size of context parallelism."""

    @model_validator(mode="after")
    def _divides(self) -> "Parallelism":
        if self.tensor % self.decode_context:
            raise ValueError(
                "decodeContext must divide tensor, whose devices it reuses, "
                f"found decodeContext {self.decode_context} and tensor {self.tensor}"
            )
        return self

    @property
    def world_size(self) -> int:
        """Ranks, and so devices, of one engine."""
        return self.tensor * self.pipeline * self.prefill_context


class Schema(ApiModel):
    """The declared cache schema. Everything here is in the digest; a change makes the cache start anew."""

    parallelism: Parallelism = Parallelism()
    dtype: Dtype = "auto"
    """Type of weights and activations; `auto` takes the model's own."""
    kv_cache_dtype: KvCacheDtype = "auto"
    """Type of the cached keys and values; `fp8` means `fp8_e4m3`. fp8 halves what a load must carry."""
    quantization: Annotated[str, Field(pattern=r"^[a-z0-9_.-]+$", max_length=64)] | None = None
    """Weight quantization method; the model's own when left out."""
    block_size: Annotated[int, Field(ge=1, le=1024)] = 64
    """Tokens per cache block. Larger blocks mean fewer keys and faster lookups."""
    hash_algorithm: HashAlgorithm = "sha256_cbor"
    """How blocks are named. The ones that end in `_cbor` do not depend on the Python version."""
    hash_seed: HashSeed = "0"
    """PYTHONHASHSEED of every container that hashes, as the exact string: "0" to "4294967295"."""
    attention_backend: Annotated[str, Field(pattern=r"^[A-Z0-9_]+$", max_length=64)] | None = None
    """Attention implementation, such as FLASH_ATTN; the engine's own choice when left out."""
    kv_layout: KvLayout | None = None
    """Order of the cached tensor's axes: L layer, B block, H head, N token, C content. With B outermost a
    block is one large slice, which TCP carries several times faster. When left out, the operator takes such a
    layout where the pinned attentionBackend is known to read it; else the engine chooses."""
