from typing import Any

import pytest

from kvcachepool.api.cache_schema import LoraAdapter
from kvcachepool.checks.lora import check_lora
from kvcachepool.facts import Observed
from kvcachepool.plan import make_plan
from kvcachepool.settings import Settings
from tests.pools import pool


def findings(spec: dict[str, Any]) -> list[str]:
    plan = make_plan(pool(spec), Observed(), Settings())
    if plan.findings:
        assert plan.objects == (), "a pool with findings makes nothing"
    return [finding.message for finding in plan.findings]


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        (["--tensor-parallel-size=4"], "--tensor-parallel-size is not allowed: it is part of the cache schema"),
        (["-tp", "4"], "-tp is not allowed: it is part of the cache schema; use the field tensor of spec.schema"),
        (["--block_size", "16"], "--block-size is not allowed"),
        (["--kv-offloading-size", "4"], "it replaces the connector of --kv-transfer-config"),
        (["--kv-transfer-config", "{}"], "the operator sets it; use spec.backend"),
        (["--no-enable-prefix-caching"], "without prefix caching nothing can be shared"),
        (["--disable_prefix_caching"], "without prefix caching nothing can be shared"),
        (["-sc", "{}"], "use speculative of spec.schema"),
        (["--hf-overrides.rope_theta=1"], "it changes the cached bytes without a trace in the key"),
        (["--enable-lora"], "the operator sets it; use lora of spec.schema"),
        (["-t", "2"], "it abbreviates -tp; write flags in full"),
        (["-pc", "2"], "it abbreviates -pcp; write flags in full"),
        (["-qawq"], "use the field quantization of spec.schema"),
        (["--hf-overrides", '{"rope_theta": 1}'], "it changes the cached bytes without a trace in the key"),
        (["--revision", "main"], "use spec.model.revision"),
        (["--hf-override.rope_theta=1000"], "it abbreviates --hf-overrides"),
        (["--kv-transfer-config.kv_connector_extra_config.cache_prefix=x"], "the operator sets it; use spec.backend"),
        (["--kv-transfer-conf.kv_connector=x"], "it abbreviates --kv-transfer-config"),
        (["--hf-config-path", "/x"], "another model's settings change the cached bytes"),
        (["--seed=1", "$(X)"], "$(X) could be any flag once a variable's value is in its place"),
        (["--served-model-na.x=y"], "it abbreviates --served-model-name"),
        (["--lora-modules.path=/x"], "use the field loraModules of spec.schema"),
        (
            ["--data-parallel-size=2"],
            "several engines in one pod, which has the devices and the memory of one; raise spec",
        ),
        (["-dp", "2"], "raise spec.engines.replicas"),
        (["--data_parallel_size_local", "2"], "raise spec.engines.replicas"),
    ],
)
def test_a_flag_that_contradicts_the_pool_is_refused_with_what_to_use(args: list[str], expected: str) -> None:
    (message,) = findings({"engines": {"extraArgs": args}})
    assert message.startswith("spec.engines.extraArgs: ")
    assert expected in message


@pytest.mark.parametrize("prefix", ["--tensor-par", "--block-s", "--kv-off"])
def test_an_abbreviated_flag_is_still_that_flag(prefix: str) -> None:
    """The engine's parser takes any unambiguous beginning of a flag."""
    assert findings({"engines": {"extraArgs": [f"{prefix}=4"]}})


def test_other_flags_pass() -> None:
    assert (
        findings({"engines": {"extraArgs": ["--max-num-seqs=8", "--max-model-len", "$(LENGTH)", "--seed=$(SEED)"]}})
        == []
    )


# LMCache#1139: a template with another seed than the rest.
def test_another_seed_is_refused_and_the_same_seed_is_rendered_once() -> None:
    (message,) = findings({"engines": {"env": [{"name": "PYTHONHASHSEED", "value": "7"}]}})
    assert "spec.engines.env[0]: PYTHONHASHSEED must be 0 as in spec.schema.hashSeed" in message
    same = {"engines": {"env": [{"name": "PYTHONHASHSEED", "value": "0"}]}}
    assert findings(same) == []


@pytest.mark.parametrize("name", ["VLLM_HOST_IP", "MOONCAKE_CONFIG_PATH", "MC_FORCE_TCP"])
def test_a_variable_that_the_operator_sets_is_refused_without_showing_its_value(name: str) -> None:
    (message,) = findings({"engines": {"env": [{"name": name, "value": "s3cret"}]}})
    assert f"{name} is set by the operator; remove it" in message
    assert "s3cret" not in message


def test_a_layout_by_variable_is_sent_to_the_schema() -> None:
    (message,) = findings({"engines": {"env": [{"name": "VLLM_KV_CACHE_LAYOUT", "value": "LBHNC"}]}})
    assert "use the field kvLayout of spec.schema" in message


def test_expandable_segments_are_refused_with_a_connector() -> None:
    variable = {"name": "PYTORCH_CUDA_ALLOC_CONF", "value": "expandable_segments:True"}
    (message,) = findings({"engines": {"env": [variable]}})
    assert "expandable_segments:True" in message


# sglang PR#10377, LMCache PR#941: the segment is lent by each rank, so eight ranks need eight times as much.
def test_a_limit_below_the_need_is_refused_with_the_sum() -> None:
    (message,) = findings(
        {
            "schema": {"parallelism": {"tensor": 8}},
            "store": {"mode": "Embedded", "segmentSize": "80Gi", "localBufferSize": "4Gi"},
            "engines": {"resources": {"limits": {"memory": "512Gi"}}},
        }
    )
    assert message == (
        "spec.engines.resources.limits.memory: found 512Gi, expected at least 682Gi: "
        "8 × segment 80Gi + 8 × transfer buffer 4Gi + engine 8Gi + /dev/shm 2Gi = 682Gi"
    )


# production-stack#923: limit equal to the segment leaves nothing for anything else.
def test_a_store_pod_needs_more_than_its_segment() -> None:
    (message,) = findings({"store": {"segmentSize": "10Gi", "resources": {"limits": {"memory": "10Gi"}}}})
    assert message == (
        "spec.store.resources.limits.memory: found 10Gi, expected at least 11776Mi: "
        "segment 10Gi + transfer buffer 1Gi + overhead 512Mi = 11776Mi"
    )


def test_a_device_count_of_the_users_own_must_match_the_parallelism() -> None:
    (message,) = findings(
        {"schema": {"parallelism": {"tensor": 2}}, "engines": {"resources": {"limits": {"nvidia.com/gpu": 1}}}}
    )
    assert "found 1 of nvidia.com/gpu, expected 2" in message


# vllm#44250, LMCache#2961, vllm#42125: adapter B hit what adapter A had computed.
def test_adapters_are_refused_with_a_connector_that_does_not_tell_them_apart() -> None:
    adapters = [LoraAdapter(name=name, version="v1", path=f"/{name}") for name in ("a", "b")]
    (finding,) = check_lora(adapters, "LMCacheMPConnector")
    assert finding.message.startswith(
        "spec.schema.lora: found a, b with the connector LMCacheMPConnector, expected none"
    )
    assert "one would read what another one computed" in finding.message
    assert list(check_lora([], "LMCacheMPConnector")) == []


def test_adapters_are_accepted_with_the_pools_backends() -> None:
    assert findings({"schema": {"lora": [{"name": "a", "version": "v1", "path": "/a"}]}}) == []


def test_adapters_cannot_be_loaded_later() -> None:
    def env(value: str) -> dict[str, Any]:
        return {"engines": {"env": [{"name": "VLLM_ALLOW_RUNTIME_LORA_UPDATING", "value": value}]}}

    (message,) = findings(env("true"))
    assert "list adapters in lora of spec.schema" in message
    assert findings(env("0")) == []


def test_the_engines_development_mode_is_refused() -> None:
    (message,) = findings({"engines": {"env": [{"name": "VLLM_SERVER_DEV_MODE", "value": "1"}]}})
    assert "VLLM_SERVER_DEV_MODE is not allowed: it serves /reset_prefix_cache" in message
