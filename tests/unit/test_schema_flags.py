import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvcachepool.backends.registry import backend_of
from kvcachepool.facts import ContainerFacts
from kvcachepool.render.engine import engine_args, engine_env
from kvcachepool.schema.flags import tokens
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
    assert (seen["tensor"], seen["dtype"]) == (1, "auto")
    assert "blockSize" not in seen


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
