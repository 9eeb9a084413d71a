import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvcachepool.backends.registry import backend_of
from kvcachepool.facts import ContainerFacts
from kvcachepool.render.engine import engine_args, engine_env
from kvcachepool.schema.flags import REFUSED_FLAGS, SCHEMA_FLAGS, WHOLE_FLAGS, abbreviated, hidden, refusal, tokens
from kvcachepool.schema.observed import differences, observed_schema
from tests.pools import pool


def container(*args: str, **env: str) -> ContainerFacts:
    return ContainerFacts(name="engine", args=args, env=env)


@pytest.mark.parametrize(
    "args",
    [
        ("--block-size=16",),
        ("--block-size", "16"),
        ("--block_size=16",),
        ("--block-size=64", "--block-size=16"),
        ("serve", "model", "--enforce-eager", "--block-size", "16"),
    ],
)
def test_every_spelling_of_a_flag_is_read_and_the_last_one_counts(args: tuple[str, ...]) -> None:
    assert observed_schema(container(*args))["blockSize"] == 16


def test_short_flags_and_variables_are_read() -> None:
    seen = observed_schema(container("-tp", "4", "-pp=2", PYTHONHASHSEED="7", VLLM_KV_CACHE_LAYOUT="LBHNC"))
    assert (seen["tensor"], seen["pipeline"], seen["hashSeed"], seen["kvLayout"]) == (4, 2, "7", "LBHNC")


def test_a_flag_left_out_has_the_engines_default_where_that_is_fixed() -> None:
    seen = observed_schema(container())
    assert (seen["tensor"], seen["dtype"], seen["hashAlgorithm"]) == (1, "auto", "sha256")
    assert "blockSize" not in seen


# Each was tried with the engine's own parser (vLLM 0.32.0).
@pytest.mark.parametrize(
    ("args", "field", "value"),
    [
        (("-qawq",), "quantization", "awq"),
        (("-q=awq",), "quantization", "awq"),
        (("--kv-cache-dtype-skip-layers", "0", "2", "--dtype", "half"), "kvCacheDtypeSkipLayers", "0,2"),
        (("--kv-cache-dtype-skip-layers=0", "--dtype", "half"), "kvCacheDtypeSkipLayers", "0"),
        (("--lora-modules", "a=/x", "b=/y"), "loraModules", "a=/x,b=/y"),
        (("--disable-hybrid-kv-cache-manager", "model"), "hybridCacheManager", "Disabled"),
        (("--no-disable-hybrid-kv-cache-manager",), "hybridCacheManager", "Enabled"),
        (("--dcp-kv-cache-interleave-size", "8"), "interleave", 8),
        (("--block-size", "064"), "blockSize", 64),
    ],
)
def test_special_spellings_are_read(args: tuple[str, ...], field: str, value: object) -> None:
    assert observed_schema(container(*args))[field] == value


@pytest.mark.parametrize(
    ("name", "full"),
    [
        ("--tensor-par", "--tensor-parallel-size"),
        ("-t", "-tp"),
        ("-pc", "-pcp"),
        ("--hf-over", "--hf-overrides"),
        ("--conf", "--config"),
        ("--kv-cache-dtype", ""),
        ("--quantization", ""),
        ("-dc", ""),
        ("--hf-override.rope_theta", "--hf-overrides"),
        ("--kv-transfer-conf", "--kv-transfer-config"),
        ("--kv-transfer-conf.kv_role", "--kv-transfer-config"),
        ("--hf-overrides.rope_theta", ""),
        ("--kv-transfer-config", ""),
        ("-.5", ""),
        ("--max-num-seqs", ""),
    ],
)
def test_a_beginning_of_a_flag_is_told_from_a_flag(name: str, full: str) -> None:
    assert abbreviated(name) == full


def test_a_key_behind_a_dot_is_refused_for_every_flag_that_is_compared() -> None:
    """`--lora-modules.path=/x` loads an adapter, and `--kv-transfer-config.kv_role=x` replaces all of that JSON."""
    for name in (*WHOLE_FLAGS, *REFUSED_FLAGS):
        assert refusal(f"{name}.key"), name
    assert refusal("--compilation-config.level") == ""


@pytest.mark.parametrize(
    ("args", "found"),
    [
        (("$(X)",), ["$(X)"]),
        (("model", "$(X)-rest"), ["$(X)"]),
        (("--seed=1", "$(X)"), ["$(X)"]),
        (("--headless", "$(X)"), ["$(X)"]),
        (("--enable_expert_parallel", "$(X)", "$(Y)"), ["$(X)", "$(Y)"]),
        (("--no-async-scheduling", "$(X)"), ["$(X)"]),
        (("--lora-modules", "a=/a", "$(X)"), ["$(X)"]),
        (("--hf$(X)={}", "-$(Y)"), ["--hf$(X)", "-$(Y)"]),
        (("--node-rank=$(LWS_WORKER_INDEX)", "--port", "$(PORT)", "-dp", "$(N)", "$$(X)", "a$(X)"), []),
    ],
)
def test_words_that_may_become_a_flag_are_told(args: tuple[str, ...], found: list[str]) -> None:
    assert list(hidden(args)) == found


def test_no_flag_is_both_in_the_schema_and_refused() -> None:
    assert not [name for flag in SCHEMA_FLAGS for name in flag.names if refusal(name)]
    names = [name for flag in SCHEMA_FLAGS for name in flag.names]
    assert len(names) == len(set(names))


def test_a_default_spelled_out_is_no_difference() -> None:
    member = rendered()
    spelled = ContainerFacts(
        name="engine",
        args=(*member.args, "--mamba-cache-dtype", "auto", "-pcp", "1", "--cp-kv-cache-interleave-size=1"),
        env={**member.env, "VLLM_SSM_CONV_STATE_LAYOUT": "SD"},
    )
    subject = pool()
    assert differences(backend_of(subject).schema(subject), spelled) == ()


@given(st.lists(st.text(max_size=20), max_size=12))
def test_any_command_line_is_read_without_an_error(args: list[str]) -> None:
    list(tokens(tuple(args)))
    observed_schema(container(*args))


def rendered(spec: dict[str, object] | None = None) -> ContainerFacts:
    subject = pool(spec)
    backend = backend_of(subject)
    schema = backend.schema(subject)
    parts = backend.engine(subject, schema.digest)
    literal = {v["name"]: v["value"] for v in engine_env(subject, schema, parts) if "value" in v}
    return ContainerFacts(name="engine", args=tuple(engine_args(subject, schema, parts)), env=literal)


@pytest.mark.parametrize(
    "spec",
    [
        {},
        {"schema": {"parallelism": {"tensor": 8, "decodeContext": 2, "interleave": 16}, "kvCacheDtype": "fp8"}},
        {
            "schema": {
                "attentionBackend": "FLASH_ATTN",
                "dtype": "bfloat16",
                "hashAlgorithm": "xxhash",
                "quantization": "awq",
            }
        },
        {"model": {"source": {"image": {"path": "/models/tiny"}}}},
        {
            "schema": {
                "parallelism": {"pipeline": 2, "layerPartition": [18, 14]},
                "kvCacheDtypeSkipLayers": ["2", "0", "sliding_window"],
                "prefixMatchUnit": 16,
                "hybrid": {
                    "mambaCacheDtype": "float32",
                    "mambaSsmCacheDtype": "float32",
                    "mambaBlockSize": 512,
                    "convStateLayout": "DS",
                    "cacheManager": "Enabled",
                },
                "speculative": {"method": "eagle3", "model": "org/draft", "tokens": 2},
                "lora": [
                    {"name": "b", "version": "v1", "path": "/b"},
                    {"name": "a", "version": "v1", "path": "org/a"},
                ],
            }
        },
        {"schema": {"hybrid": {"cacheManager": "Disabled"}}},
    ],
)
def test_what_is_rendered_reads_back_as_declared(spec: dict[str, object]) -> None:
    subject = pool(spec)
    assert differences(backend_of(subject).schema(subject), rendered(spec)) == ()


# vllm's mooncake/store/data.py, sglang PR#38362, lmdeploy#4930: the key lacks these; equal keys, other bytes.
@pytest.mark.parametrize(
    ("args", "field", "actual"),
    [
        (("-tp", "4"), "tensor", "4"),
        (("--pipeline-parallel-size=2",), "pipeline", "2"),
        (("--kv-cache-dtype=fp8",), "kvCacheDtype", "fp8_e4m3"),
        (("--dtype", "float16"), "dtype", "float16"),
        (("--block-size=16",), "blockSize", "16"),
        (("--prefix-caching-hash-algo=sha256",), "hashAlgorithm", "sha256"),
        (("-dcp", "2"), "decodeContext", "2"),
        (("--mamba-ssm-cache-dtype=float32",), "mambaSsmCacheDtype", "float32"),
        (("--spec-method", "ngram"), "speculativeMethod", "ngram"),
        (("--lora-modules", "a=/x"), "loraModules", "a=/x"),
    ],
)
def test_a_member_that_differs_is_named_by_field_and_both_values(
    args: tuple[str, ...], field: str, actual: str
) -> None:
    subject = pool()
    member = rendered()
    changed = ContainerFacts(name="engine", args=(*member.args, *args), env=member.env)
    (difference,) = differences(backend_of(subject).schema(subject), changed)
    assert (difference.field, difference.actual) == (field, actual)


def test_expert_and_data_parallelism_are_free() -> None:
    member = rendered()
    free = ContainerFacts(name="engine", args=(*member.args, "-dp", "2", "--enable-expert-parallel"), env=member.env)
    subject = pool()
    assert differences(backend_of(subject).schema(subject), free) == ()


# LMCache#1139, LMCache#1095: one member without the seed, and nothing ever hits.
def test_a_member_without_the_seed_differs() -> None:
    member = rendered()
    env = {name: value for name, value in member.env.items() if name != "PYTHONHASHSEED"}
    subject = pool()
    (difference,) = differences(
        backend_of(subject).schema(subject), ContainerFacts(name="engine", args=member.args, env=env)
    )
    assert str(difference) == "hashSeed is unset, the pool has 0"
