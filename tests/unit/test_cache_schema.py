from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvcachepool.backends.registry import backend_of
from kvcachepool.schema import CacheSchema
from kvcachepool.schema.declared import schema_from_texts
from kvcachepool.schema.values import canonical
from tests.pools import merged, pool

SCHEMA_CHANGES: dict[str, dict[str, Any]] = {
    "modelId": {"model": {"id": "other/model"}},
    "modelRevision": {"model": {"revision": "r2"}},
    "engineVersion": {"engines": {"version": "0.32.0"}},
    "storeVersion": {"backend": {"mooncake": {"version": "0.3.14"}}},
    "tensor": {"schema": {"parallelism": {"tensor": 4}}},
    "pipeline": {"schema": {"parallelism": {"pipeline": 2}}},
    "prefillContext": {"schema": {"parallelism": {"prefillContext": 2}}},
    "interleave": {"schema": {"parallelism": {"interleave": 16}}},
    "dtype": {"schema": {"dtype": "float16"}},
    "kvCacheDtype": {"schema": {"kvCacheDtype": "fp8"}},
    "quantization": {"schema": {"quantization": "awq"}},
    "blockSize": {"schema": {"blockSize": 16}},
    "hashAlgorithm": {"schema": {"hashAlgorithm": "sha256"}},
    "hashSeed": {"schema": {"hashSeed": "7"}},
    "attentionBackend": {"schema": {"attentionBackend": "TRITON_MLA"}},
    "kvLayout": {"schema": {"kvLayout": "LBHNC"}},
    "layerPartition": {"schema": {"parallelism": {"layerPartition": [32]}}},
    "kvCacheDtypeSkipLayers": {"schema": {"kvCacheDtypeSkipLayers": ["0", "sliding_window"]}},
    "prefixMatchUnit": {"schema": {"prefixMatchUnit": 16}},
    "mambaCacheDtype": {"schema": {"hybrid": {"mambaCacheDtype": "float32"}}},
    "mambaSsmCacheDtype": {"schema": {"hybrid": {"mambaSsmCacheDtype": "float32"}}},
    "mambaBlockSize": {"schema": {"hybrid": {"mambaBlockSize": 512}}},
    "convStateLayout": {"schema": {"hybrid": {"convStateLayout": "DS"}}},
    "hybridCacheManager": {"schema": {"hybrid": {"cacheManager": "Disabled"}}},
}
SETS: dict[frozenset[str], dict[str, Any]] = {
    frozenset({"speculativeMethod", "speculativeTokens"}): {"schema": {"speculative": {"method": "mtp", "tokens": 1}}},
    frozenset({"speculativeMethod", "speculativeTokens", "speculativeModel"}): {
        "schema": {"speculative": {"method": "eagle3", "tokens": 2, "model": "org/draft"}}
    },
    frozenset({"lora", "loraModules"}): {"schema": {"lora": [{"name": "a", "version": "v1", "path": "/adapters/a"}]}},
}
"""Changes that concern several fields at once."""
FREE_CHANGES: list[dict[str, Any]] = [
    {"engines": {"replicas": 7}},
    {"engines": {"extraArgs": ["--gpu-memory-utilization=0.8", "--max-num-seqs", "64", "--enable-expert-parallel"]}},
    {"engines": {"extraArgs": ["--data-parallel-size=2"]}},
    {"engines": {"resources": {"limits": {"cpu": "8"}}}},
    {"store": {"segmentSize": "1Gi", "replicas": 3}},
    {"store": {"mode": "Embedded"}},
    {"verification": {"enabled": False}},
    {"model": {"servedName": "chat"}},
    {"rolloutToken": "2"},
]


def schema_of(spec: dict[str, Any] | None = None, **metadata: Any) -> CacheSchema:
    subject = pool(spec, **metadata)
    return backend_of(subject).schema(subject)


@pytest.mark.parametrize("field", SCHEMA_CHANGES)
def test_a_changed_field_changes_the_digest_and_the_diff_names_just_it(field: str) -> None:
    before, after = schema_of(), schema_of(SCHEMA_CHANGES[field])
    assert before.digest != after.digest
    assert [difference.field for difference in before.diff(after)] == [field]


@pytest.mark.parametrize("fields", SETS, ids=lambda fields: "+".join(sorted(fields)))
def test_a_change_of_several_fields_is_named_in_full(fields: frozenset[str]) -> None:
    before, after = schema_of(), schema_of(SETS[fields])
    assert before.digest != after.digest
    assert {difference.field for difference in before.diff(after)} == fields


def test_decode_context_parallelism_is_in_the_schema() -> None:
    base = {"schema": {"parallelism": {"tensor": 4}}}
    after = schema_of(merged(base, {"schema": {"parallelism": {"decodeContext": 2}}}))
    assert [d.field for d in schema_of(base).diff(after)] == ["decodeContext"]


@pytest.mark.parametrize("change", FREE_CHANGES)
def test_what_changes_no_key_and_no_byte_is_not_in_the_digest(change: dict[str, Any]) -> None:
    assert schema_of(change).digest == schema_of().digest


@given(
    st.lists(st.sampled_from(sorted(SCHEMA_CHANGES)), unique=True),
    st.lists(st.sampled_from(sorted(SCHEMA_CHANGES)), unique=True),
)
def test_digests_are_equal_exactly_when_every_field_is(one: list[str], other: list[str]) -> None:
    def apply(fields: list[str]) -> CacheSchema:
        spec: dict[str, Any] = {}
        for field in fields:
            spec = merged(spec, SCHEMA_CHANGES[field])
        if {"pipeline", "layerPartition"} <= set(fields):  # one number for each stage
            spec["schema"]["parallelism"]["layerPartition"] = [18, 14]
        return schema_of(spec)

    first, second = apply(one), apply(other)
    assert (first.digest == second.digest) == (set(one) == set(other))
    # a pinned attention backend may bring a layout of its own along, none of the changes above does
    expected = set(one) ^ set(other)
    if "pipeline" in expected and "layerPartition" in one and "layerPartition" in other:
        expected.add("layerPartition")  # two stages need two numbers
    assert {d.field for d in first.diff(second)} == expected


@given(st.lists(st.sampled_from(sorted(SCHEMA_CHANGES)), unique=True))
def test_the_texts_that_the_status_keeps_are_the_whole_schema(fields: list[str]) -> None:
    spec: dict[str, Any] = {}
    for field in fields:
        spec = merged(spec, SCHEMA_CHANGES[field])
    if {"pipeline", "layerPartition"} <= set(fields):
        spec["schema"]["parallelism"]["layerPartition"] = [18, 14]
    for more in ({}, *SETS.values()):
        schema = schema_of(merged(spec, more))
        assert schema_from_texts(schema.texts) == schema


@given(st.permutations(sorted(SCHEMA_CHANGES)))
def test_field_order_does_not_matter(order: list[str]) -> None:
    fields: dict[str, str | int | None] = {name: f"v-{name}" for name in order}
    assert CacheSchema.of(fields).digest == CacheSchema.of(dict(sorted(fields.items()))).digest


def test_a_default_spelled_out_is_the_same_schema() -> None:
    spelled = {
        "schema": {
            "parallelism": {"tensor": 1, "pipeline": 1, "decodeContext": 1, "prefillContext": 1, "interleave": 1},
            "dtype": "auto",
            "kvCacheDtype": "auto",
            "blockSize": 64,
            "hashAlgorithm": "sha256_cbor",
            "hashSeed": "0",
        }
    }
    assert schema_of(spelled).digest == schema_of().digest


def test_the_alias_fp8_is_fp8_e4m3_but_not_e5m2() -> None:
    def digest(dtype: str) -> str:
        return schema_of({"schema": {"kvCacheDtype": dtype}}).digest

    assert digest("fp8") == digest("fp8_e4m3") != digest("fp8_e5m2")


def test_the_digest_of_a_known_pool_never_changes() -> None:
    """An operator that computed another digest for the same pool would empty every cache it finds."""
    schema = schema_of()
    assert schema.canonical == (
        '{"blockSize":64,"connector":"MooncakeStoreConnector","decodeContext":1,"dtype":"auto","engine":"vllm",'
        '"engineVersion":"0.33.0","hashAlgorithm":"sha256_cbor","hashSeed":"0","interleave":1,"kvCacheDtype":"auto",'
        '"modelId":"org/model","modelRevision":"r1","pipeline":1,"prefillContext":1,"storeVersion":"0.3.13.post1",'
        '"tensor":1}'
    )
    assert schema.digest == "85ca6bf099ec"


def test_lists_are_the_same_schema_in_any_order() -> None:
    def digest(**schema: Any) -> str:
        return schema_of({"schema": schema}).digest

    a = {"name": "a", "version": "v1", "path": "/a"}
    b = {"name": "b", "version": "v1", "path": "/b"}
    assert digest(lora=[a, b]) == digest(lora=[b, a]) != digest(lora=[a])
    assert digest(kvCacheDtypeSkipLayers=["2", "0"]) == digest(kvCacheDtypeSkipLayers=["0", "2"])
    assert digest(kvCacheDtypeSkipLayers=[], lora=[], hybrid={}) == digest()


# vllm#44250, LMCache#2961: one name, other weights; the adapter's version is in no engine's key.
def test_another_version_of_an_adapter_is_another_schema() -> None:
    def adapters(version: str) -> dict[str, Any]:
        return {"schema": {"lora": [{"name": "a", "version": version, "path": "/adapters/a"}]}}

    (difference,) = schema_of(adapters("v1")).diff(schema_of(adapters("v2")))
    assert str(difference) == "lora is a@v2, the pool has a@v1"


@pytest.mark.parametrize(
    ("field", "other", "same"),
    [
        ("kvCacheDtype", "fp8", "fp8_e4m3"),
        ("dtype", "half", "float16"),
        ("dtype", "float", "float32"),
        ("kvLayout", "HND", "LBHNC"),
        ("kvLayout", "NHD", "LBNHC"),
        ("attentionBackend", "flash_attn", "FLASH_ATTN"),
    ],
)
def test_every_alias_has_one_spelling(field: str, other: str, same: str) -> None:
    assert CacheSchema.of({field: other}) == CacheSchema.of({field: same})


@given(st.sampled_from(["dtype", "kvCacheDtype", "kvLayout", "attentionBackend", "lora", "hashSeed"]), st.text())
def test_the_one_spelling_is_stable(field: str, value: str) -> None:
    assert canonical(field, canonical(field, value)) == canonical(field, value)


def test_a_field_that_no_one_set_is_left_out_so_that_later_fields_change_nothing() -> None:
    assert CacheSchema.of({"a": 1, "b": None}).digest == CacheSchema.of({"a": 1}).digest


def test_a_difference_reads_as_a_sentence() -> None:
    (difference,) = schema_of().diff(schema_of({"schema": {"blockSize": 16}}))
    assert str(difference) == "blockSize is 16, the pool has 64"


def test_a_layout_with_few_large_slices_is_chosen_only_where_the_backend_is_known_to_read_it() -> None:
    assert schema_of({"schema": {"attentionBackend": "FLASH_ATTN"}}).get("kvLayout") == "BLHNC"
    assert schema_of({"schema": {"attentionBackend": "FLASHINFER", "kvLayout": "LBHNC"}}).get("kvLayout") == "LBHNC"
    assert (
        schema_of({"schema": {"attentionBackend": "FLASH_ATTN"}, "engines": {"version": "0.31.0"}}).get("kvLayout")
        is None
    )
    assert schema_of({"schema": {"attentionBackend": "CPU_ATTN"}}).get("kvLayout") is None
    assert schema_of().get("kvLayout") is None
