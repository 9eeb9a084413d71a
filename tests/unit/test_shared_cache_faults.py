"""Faults that people who share KV caches have met in public, each with its input and what this operator does of it."""

import json
from typing import Any

import pytest

from kvcachepool import constants
from kvcachepool.facts import ContainerFacts, Observed
from kvcachepool.plan import make_plan
from kvcachepool.schema.member import words
from kvcachepool.schema.observed import differences
from kvcachepool.settings import Settings
from tests.members import MASTER_READY, engine_of, pods_of, schema_of, status_of
from tests.pools import invalid, pool

Json = dict[str, Any]


def seeds(pod: Json) -> list[str]:
    return [v["value"] for c in pod["spec"]["containers"] for v in c.get("env", ()) if v["name"] == "PYTHONHASHSEED"]


def facts(pod: Json) -> ContainerFacts:
    container = pod["spec"]["containers"][0]
    literal = {v["name"]: v["value"] for v in container["env"] if "value" in v}
    return ContainerFacts(name=container["name"], args=words(container), env=literal)


# LMCache#1139, LMCache#1095, LMCache#1739, vllm#42625
def test_without_a_seed_in_the_spec_every_container_that_hashes_gets_one_and_the_same() -> None:
    pods = pods_of(pool({"engines": {"replicas": 2}}))
    assert seeds(pods[constants.ENGINE]) == ["0"]
    assert seeds(pods[constants.STORE]) == [], "a store hashes nothing, and another seed must not empty it"
    again = pods_of(pool({"engines": {"replicas": 2}}))
    assert again == pods, "the same after a restart and at every pass"


def test_a_seed_in_the_engines_environment_is_refused_and_never_rendered_twice() -> None:
    own = {"engines": {"env": [{"name": "PYTHONHASHSEED", "value": "7"}]}}
    plan = make_plan(pool(own), MASTER_READY, Settings())
    (finding,) = plan.findings
    assert "PYTHONHASHSEED must be 0 as in spec.schema.hashSeed" in finding.message
    assert plan.objects == ()
    same = {"engines": {"env": [{"name": "PYTHONHASHSEED", "value": "0"}]}}
    assert seeds(pods_of(pool(same))[constants.ENGINE]) == ["0"]


# vllm PR#51875, kserve PR#5484, LMCache#2136
def test_hash_algorithm_seed_and_block_size_are_one_triple_that_a_router_can_read() -> None:
    subject = pool({"schema": {"hashAlgorithm": "xxhash", "blockSize": 16}})
    assert seeds(engine_of(subject)) == ["0"], "a seed also with xxhash, which is random without one"
    (published,) = status_of(subject)["schema"]["admitted"]
    triple = {name: published["fields"][name] for name in ("hashAlgorithm", "hashSeed", "blockSize")}
    assert triple == {"hashAlgorithm": "xxhash", "hashSeed": "0", "blockSize": "16"}
    assert {"hashAlgorithm", "hashSeed", "blockSize"} <= json.loads(schema_of(subject).canonical).keys()


@pytest.mark.parametrize(
    ("args", "field", "expected", "actual"),
    [
        (("--prefix-caching-hash-algo", "sha256"), "hashAlgorithm", "sha256_cbor", "sha256"),
        (("--block-size", "16"), "blockSize", "64", "16"),
    ],
)
def test_a_member_with_another_hash_is_named_by_field(
    args: tuple[str, ...], field: str, expected: str, actual: str
) -> None:
    subject = pool()
    (difference,) = differences(schema_of(subject), facts(engine_of(subject, *args)))
    assert (difference.field, difference.expected, difference.actual) == (field, expected, actual)


# LMCache#2511, LMCache#1897, LMCache#1842
def test_pythons_own_hash_is_refused_for_sharing() -> None:
    (message,) = invalid({"schema": {"hashAlgorithm": "builtin"}})
    assert message.startswith("spec.schema.hashAlgorithm: found 'builtin'")


POOL = {"schema": {"parallelism": {"tensor": 2}, "dtype": "bfloat16"}}


# vllm's mooncake/store/data.py, sglang PR#38362, InternLM/lmdeploy#4930
@pytest.mark.parametrize(
    ("args", "named"),
    [
        (("--tensor-parallel-size=4",), {"tensor": ("2", "4")}),
        (("--pipeline-parallel-size=2",), {"pipeline": ("1", "2")}),
        (("--decode-context-parallel-size=2",), {"decodeContext": ("1", "2")}),
        (("--kv-cache-dtype=fp8",), {"kvCacheDtype": ("auto", "fp8_e4m3")}),
        (("--dtype=float16",), {"dtype": ("bfloat16", "float16")}),
        (("--enable-expert-parallel", "--all2all-backend=naive"), {}),
        (("--data-parallel-size=2",), {}),
    ],
)
def test_equal_keys_for_other_bytes_are_caught_by_what_the_arguments_say(
    args: tuple[str, ...], named: dict[str, tuple[str, str]]
) -> None:
    subject = pool(POOL)
    member = engine_of(subject, *args)  # its label is the pool's: copied by hand
    assert member["metadata"]["labels"][constants.LABEL_SCHEMA] == schema_of(subject).digest
    found = {d.field: (d.expected, d.actual) for d in differences(schema_of(subject), facts(member))}
    assert found == named


def test_two_names_of_one_kv_type_are_one_schema() -> None:
    digests = {schema_of(pool({"schema": {"kvCacheDtype": name}})).digest for name in ("fp8", "fp8_e4m3")}
    assert len(digests) == 1
    subject = pool({"schema": {"kvCacheDtype": "fp8_e4m3"}})
    assert differences(schema_of(subject), facts(engine_of(subject, "--kv-cache-dtype=fp8"))) == ()


def test_the_prefix_of_every_key_is_the_digest_of_everything() -> None:
    for spec in ({}, POOL, {"schema": {"kvCacheDtype": "fp8"}}):
        subject = pool(spec)
        (config,) = [w.partition("=")[2] for w in words(engine_of(subject)["spec"]["containers"][0])
                     if w.startswith("--kv-transfer-config=")]  # fmt: skip
        assert json.loads(config)["kv_connector_extra_config"]["cache_prefix"] == schema_of(subject).digest


# vllm#44250, LMCache#2961, vllm#42125
def test_a_new_version_of_an_adapter_changes_the_prefix_under_the_same_name() -> None:
    def lora(version: str) -> Json:
        adapters = [{"name": n, "version": v, "path": f"/adapters/{n}"} for n, v in (("a", version), ("b", "v1"))]
        return {"schema": {"lora": adapters}}

    one, two = schema_of(pool(lora("v1"))), schema_of(pool(lora("v2")))
    assert one.digest != two.digest
    assert [(d.field, d.expected, d.actual) for d in one.diff(two)] == [("lora", "a@v1,b@v1", "a@v2,b@v1")]
    assert not make_plan(pool(lora("v1")), Observed(), Settings()).findings
