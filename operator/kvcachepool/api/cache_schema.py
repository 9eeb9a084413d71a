"""`spec.schema`: what must be identical in every pod that joins the pool."""

from typing import Annotated, Literal

from pydantic import ConfigDict, Field, field_validator, model_validator

from kvcachepool.api.base import ApiModel, map_list
from kvcachepool.api.rules import Matching, Rule, rules

Dtype = Literal["auto", "float16", "bfloat16", "float32"]
KvCacheDtype = Literal[
    "auto",
    "float16",
    "bfloat16",
    "fp8",
    "fp8_e4m3",
    "fp8_e5m2",
    "fp8_ds_mla",
    "fp8_per_token_head",
    "int8_per_token_head",
    "int4_per_token_head",
    "nvfp4",
    "nvfp4_4over6",
    "nvfp4_ds_mla",
]
MambaDtype = Literal["float32", "float16", "bfloat16"]
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
            ),
            Rule(
                "!has(self.layerPartition) || size(self.layerPartition) == self.pipeline",
                "layerPartition needs one number for each pipeline stage",
                found=("%d for %d stages", "size(self.layerPartition)", "self.pipeline"),
                field=".layerPartition",
            ),
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
    layer_partition: Annotated[list[Count], Field(min_length=1, max_length=1024)] | None = None
    """Layers of each pipeline stage, such as [18, 14]; even shares when left out."""

    @model_validator(mode="after")
    def _divides(self) -> "Parallelism":
        if self.tensor % self.decode_context:
            raise ValueError(
                "decodeContext must divide tensor, whose devices it reuses, "
                f"found decodeContext {self.decode_context} and tensor {self.tensor}"
            )
        if self.layer_partition is not None and len(self.layer_partition) != self.pipeline:
            raise ValueError(
                "layerPartition needs one number for each pipeline stage, "
                f"found {len(self.layer_partition)} for {self.pipeline} stages"
            )
        return self

    @property
    def world_size(self) -> int:
        """Ranks, and so devices, of one engine."""
        return self.tensor * self.pipeline * self.prefill_context


class Hybrid(ApiModel):
    """Models that mix attention with state-space (Mamba) or sliding-window layers. Whether their states are cached
    follows from prefix caching, which is always on."""

    mamba_cache_dtype: MambaDtype | None = None
    """Type of the cached convolution and state-space states; the model's own when left out."""
    mamba_ssm_cache_dtype: MambaDtype | None = None
    """Type of the state-space state alone; as mambaCacheDtype when left out."""
    mamba_block_size: Annotated[int, Field(ge=1, le=1048576)] | None = None
    """Tokens between two cached states; the engine's own choice when left out."""
    conv_state_layout: Literal["SD", "DS"] | None = None
    """Order of the convolution state's axes: S state length, D dimension; SD when left out."""
    cache_manager: Literal["Enabled", "Disabled"] | None = None
    """Whether each kind of layer has cache blocks of its own; the engine's own choice when left out."""

    @property
    def several_groups(self) -> bool:
        """Whether what is declared here makes cache blocks of more than one kind."""
        return self != Hybrid() and self.cache_manager != "Disabled"


class Speculative(ApiModel):
    """Speculative decoding. A draft's layers have cache blocks, too, and those are stored with the others."""

    method: Annotated[str, Field(pattern=r"^[a-z0-9_]+$", max_length=64)]
    """How tokens are guessed, such as eagle3, mtp or ngram."""
    model: Annotated[str, Field(pattern=r"^[A-Za-z0-9/][A-Za-z0-9._/-]*$", max_length=512)] | None = None
    """Draft model: a name on the hub or a directory; not needed by every method."""
    tokens: Annotated[int, Field(ge=1, le=64)]
    """Tokens guessed in one step."""


class LoraAdapter(ApiModel):
    """One adapter that every engine serves under the same name."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=128)]
    """Name that clients ask for as the model."""
    version: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=128)]
    """Commit or tag of the adapter's weights. A new version makes the cache start anew: the engine's own key has
    only the name and the path."""
    path: Annotated[str, Field(pattern=r"^[A-Za-z0-9/][A-Za-z0-9._/-]*$", max_length=512)]
    """Directory of the adapter inside the engine, or its name on the hub."""


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
    kv_cache_dtype_skip_layers: list[Annotated[str, Field(pattern=r"^[A-Za-z0-9_.]+$", max_length=64)]] = Field(
        default_factory=list, max_length=256
    )
    """Layers whose cache stays in the model's own type although kvCacheDtype is smaller: indexes, or kinds such as
    sliding_window. The order does not matter."""
    prefix_match_unit: Annotated[int, Field(ge=1, le=1048576)] | None = None
    """Tokens between two places at which a cached prefix may end; one block when left out."""
    hybrid: Hybrid = Hybrid()
    speculative: Speculative | None = None
    lora: list[LoraAdapter] = Field(default_factory=list, max_length=64, json_schema_extra=map_list("name"))
    """Adapters that every engine serves. The whole set is part of the schema; none can be loaded later."""

    @field_validator("lora")
    @classmethod
    def _distinct(cls, lora: list[LoraAdapter]) -> list[LoraAdapter]:
        """The API server refuses the second one, too: `lora` is a map keyed by name."""
        names = [adapter.name for adapter in lora]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"each adapter may be named once, found more of {', '.join(twice)}")
        return lora
