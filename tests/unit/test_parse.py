from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvcachepool.api import KVCachePool
from kvcachepool.api.parse import Invalid, parse_pool
from tests.pools import MOONCAKE, NATIVE, invalid, merged, pool, raw


def test_the_smallest_pool_has_two_engines_with_one_device_each() -> None:
    spec = pool().spec
    assert spec.engines.replicas == 2
    assert spec.schema_.parallelism.world_size == 1
    assert (spec.schema_.hash_seed, spec.schema_.hash_algorithm, spec.schema_.block_size) == ("0", "sha256_cbor", 64)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (
            {"backend": {"native": {}}},
            "spec.backend: exactly one of native and mooncake must be set, found ['native', 'mooncake']",
        ),
        ({"backend": {"mooncake": None}}, "spec.backend: exactly one of native and mooncake must be set, found none"),
        ({"model": {"revision": None}}, "spec: model.revision is required with a shared backend"),
        ({"model": {"id": None}}, "spec.model.id is required, found none"),
        ({"tolerationz": []}, "spec.tolerationz is not a field of this API version"),
        # LMCache#2511: Python's own hash() differs between processes, whatever the seed.
        ({"schema": {"hashAlgorithm": "builtin"}}, "spec.schema.hashAlgorithm: found 'builtin'; expected"),
        ({"schema": {"hashSeed": "007"}}, "spec.schema.hashSeed: must be"),
        (
            {"schema": {"hashSeed": "4294967296"}},
            'spec.schema.hashSeed: must be a string "0" to "4294967295" without leading zeros, found \'4294967296\'',
        ),
        ({"schema": {"blockSize": 0}}, "spec.schema.blockSize: found 0"),
        ({"schema": {"parallelism": {"tensor": 4, "decodeContext": 3}}}, "found decodeContext 3 and tensor 4"),
        (
            {"store": {"segmentSize": "-1"}},
            "spec.store.segmentSize: must be a size of at least 64Mi such as 80Gi, 500M or 1e9, found '-1'",
        ),
        (
            {"store": {"segmentSize": "0"}},
            "spec.store.segmentSize: must be a size of at least 64Mi such as 80Gi, 500M or 1e9, found '0'",
        ),
        (
            {"store": {"localBufferSize": 0}},
            "spec.store.localBufferSize: must be a size of at least 16Mi such as 80Gi, 500M or 1e9, found '0'",
        ),
        ({"store": {"mode": "Embedded", "replicas": 3}}, "found 3 with mode Embedded"),
        # Mooncake#2187: a watermark that can never be reached means that nothing is ever evicted.
        (
            {"store": {"master": {"evictionHighWatermark": "1.5"}}},
            "spec.store.master.evictionHighWatermark: must be a share above 0 and up to 1, as a string such as \"0.05\", found '1.5'",
        ),
        (
            {"store": {"master": {"evictionHighWatermark": "0"}}},
            "spec.store.master.evictionHighWatermark: must be a share above 0 and up to 1, as a string such as \"0.05\", found '0'",
        ),
        (
            {"store": {"master": {"evictionRatio": "0"}}},
            "spec.store.master.evictionRatio: must be a share above 0 and up to 1, as a string such as \"0.05\", found '0'",
        ),
        (
            {"store": {"master": {"evictionRatio": "1.2"}}},
            "spec.store.master.evictionRatio: must be a share above 0 and up to 1, as a string such as \"0.05\", found '1.2'",
        ),
        # vllm PR#51875 and aibrix#1012: names are free-form but must be qualified.
        ({"engines": {"gpu": {"resourceName": "gpu"}}}, "spec.engines.gpu.resourceName"),
        (
            {"engines": {"env": [{"name": "A", "value": "1"}, {"name": "A", "value": "2"}]}},
            "spec.engines.env: each variable may be named once, found more of A",
        ),
        ({"transport": {"protocol": "auto"}}, "spec.transport.protocol: found 'auto'"),
    ],
)
def test_a_wrong_spec_is_refused_with_field_found_and_expected(spec: dict[str, Any], message: str) -> None:
    messages = invalid(spec)
    assert any(message.replace("; expected", "") in text for text in messages), messages


def test_a_store_makes_no_sense_with_the_native_backend() -> None:
    assert invalid({"store": {}}, base=NATIVE) == [
        "spec: store belongs to a shared backend, found it with backend.native"
    ]


def test_a_value_of_an_environment_variable_is_never_shown() -> None:
    (message,) = invalid({"engines": {"env": [{"name": "TOKEN", "value": ["hf_secret"]}]}})
    assert "hf_secret" not in message
    assert "spec.engines.env[0].value" in message


def test_a_status_that_cannot_be_read_is_made_anew() -> None:
    parsed = parse_pool(merged(MOONCAKE, {"status": {"conditions": "none", "observedGeneration": 3}}))
    assert isinstance(parsed, KVCachePool)
    assert parsed.status.observed_generation == 0


def test_a_status_field_of_a_newer_operator_is_passed_over() -> None:
    parsed = parse_pool(merged(MOONCAKE, {"status": {"observedGeneration": 3, "fromTheFuture": 1}}))
    assert isinstance(parsed, KVCachePool)
    assert parsed.status.observed_generation == 3


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=30),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=12), inner, max_size=4),
    max_leaves=12,
)


@given(
    st.dictionaries(st.sampled_from(["model", "schema", "backend", "store", "engines", "transport", "x"]), json_values)
)
def test_any_spec_parses_or_is_refused_with_a_message(spec: dict[str, Any]) -> None:
    parsed = parse_pool(raw() | {"spec": spec})
    if isinstance(parsed, Invalid):
        assert parsed.findings
        assert all(finding.message and len(finding.message) < 2000 for finding in parsed.findings)
