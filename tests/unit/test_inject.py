"""Completing a user's own pod."""

import json
from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvcachepool import constants
from kvcachepool.api import KVCachePool, PoolStatus
from kvcachepool.api.status import AdmittedSchema, Condition
from kvcachepool.facts import ContainerFacts
from kvcachepool.inject import InjectionRefusedError, complete
from kvcachepool.quantity import parse_bytes
from kvcachepool.schema.observed import differences
from tests.members import schema_of
from tests.pools import NATIVE, merged, pool

Json = dict[str, Any]


def ready(spec: Json | None = None, **options: Any) -> KVCachePool:
    """A pool that takes members."""
    subject = pool(spec, **options)
    schema = schema_of(subject)
    status = PoolStatus(
        conditions=[Condition(type="Accepted", status="True", reason="Valid")],
        schema_={"admitted": [AdmittedSchema(digest=schema.digest, fields=schema.texts)]},  # type: ignore[arg-type]
    )
    return subject.model_copy(update={"status": status})


def user_pod(*args: str, **container: Any) -> Json:
    """As a user writes it, who knows nothing of caches."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "mine",
            "namespace": "team-a",
            "labels": {constants.LABEL_POOL: "demo", constants.LABEL_INJECT: "true", "app": "mine"},
        },
        "spec": {
            "containers": [
                {
                    "name": "vllm",
                    "image": "registry/vllm-openai:v0.33.0",
                    "args": ["org/model", "--max-num-seqs=8", *args],
                    **container,
                }
            ]
        },
    }


def first(pod: Json) -> Json:
    container: Json = pod["spec"]["containers"][0]
    return container


def env_of(container: Json) -> dict[str, str]:
    return {v["name"]: v.get("value", "reference") for v in container["env"]}


def refusal(pod: Json, subject: KVCachePool | None = None) -> str:
    before = deepcopy(pod)
    with pytest.raises(InjectionRefusedError) as error:
        complete(pod, subject or ready())
    assert pod == before, "a refused pod is not touched"
    return str(error.value)


def test_a_plain_engine_gets_all_that_a_member_has() -> None:
    subject = ready()
    pod = user_pod()
    done = complete(pod, subject)
    assert pod == user_pod(), "the request's object is not changed"
    container = first(done)
    assert container["args"][:2] == ["org/model", "--max-num-seqs=8"]
    assert {"--block-size=64", "--prefix-caching-hash-algo=sha256_cbor", "--revision=r1"} <= set(container["args"])
    assert {"--enable-prefix-caching", "--enable-prompt-tokens-details"} <= set(container["args"])
    digest = schema_of(subject).digest
    (config,) = [a.partition("=")[2] for a in container["args"] if a.startswith("--kv-transfer-config=")]
    assert json.loads(config)["kv_connector_extra_config"]["cache_prefix"] == digest
    variables = env_of(container)
    assert variables["PYTHONHASHSEED"] == "0"
    assert variables["MOONCAKE_CONFIG_PATH"] == "/etc/kvcachepool/mooncake.json"
    assert variables["MC_FORCE_TCP"] == "true"
    assert variables["POD_IP"] == variables["VLLM_HOST_IP"] == "reference"
    assert done["metadata"]["labels"][constants.LABEL_SCHEMA] == digest
    assert done["metadata"]["labels"]["app"] == "mine"
    assert "demo-master.team-a.svc" in done["metadata"]["annotations"]["kvcachepool.io/mooncake.json"]
    (wait,) = done["spec"]["initContainers"]
    assert wait["image"] == container["image"]
    assert "demo-master.team-a.svc" in wait["command"]
    assert container["resources"]["limits"] == {"nvidia.com/gpu": "1"}
    assert container["resources"]["requests"] == {"memory": "1Gi", "nvidia.com/gpu": "1"}


SPECS: list[Json] = [
    {},
    {
        "schema": {
            "parallelism": {"tensor": 2, "pipeline": 2, "layerPartition": [18, 14]},
            "kvCacheDtype": "fp8",
            "attentionBackend": "FLASH_ATTN",
            "kvCacheDtypeSkipLayers": ["0", "2"],
            "hybrid": {"cacheManager": "Enabled", "convStateLayout": "DS"},
            "speculative": {"method": "eagle3", "model": "org/draft", "tokens": 2},
            "lora": [{"name": "a", "version": "v1", "path": "/a"}],
        }
    },
    {"store": {"mode": "Embedded"}},
]


@pytest.mark.parametrize("spec", SPECS)
def test_what_comes_out_has_the_pools_schema(spec: Json) -> None:
    subject = ready(spec)
    container = first(complete(user_pod(), subject))
    facts = ContainerFacts(
        name="vllm",
        args=tuple(container["args"]),
        env={v["name"]: v["value"] for v in container["env"] if "value" in v},
    )
    assert differences(schema_of(subject), facts) == ()


@pytest.mark.parametrize("spec", SPECS)
def test_completing_twice_changes_nothing(spec: Json) -> None:
    subject = ready(spec)
    once = complete(user_pod(resources={"limits": {"memory": "20Gi"}}), subject)
    assert complete(once, subject) == once


def test_a_native_pool_needs_neither_master_nor_files() -> None:
    subject = ready(base=NATIVE, name="demo")
    done = complete(user_pod(), subject)
    assert "initContainers" not in done["spec"]
    (volume,) = done["spec"]["volumes"]
    assert volume["emptyDir"] == {"medium": "Memory", "sizeLimit": "10Gi"}, "vLLM keeps the offloaded blocks there"
    assert {"name": volume["name"], "mountPath": "/dev/shm"} in done["spec"]["containers"][0]["volumeMounts"]
    assert complete(done, subject) == done
    own = {"name": "mine", "mountPath": "/dev/shm/"}
    given = user_pod()
    given["spec"]["containers"][0]["volumeMounts"] = [own]
    done = complete(given, subject)
    assert "volumes" not in done["spec"], "a mount of the user's is the user's to size"
    assert not [a for a in first(done)["args"] if a.startswith("--revision")]
    assert first(done)["resources"]["requests"]["memory"] == "8Gi"


def test_what_was_injected_is_recorded() -> None:
    done = complete(user_pod(), ready())
    record = json.loads(done["metadata"]["annotations"][constants.ANNOTATION_INJECTED])
    added = [a for a in first(done)["args"] if a not in first(user_pod())["args"]]
    assert record["args"] == added
    assert record["env"] == [v["name"] for v in first(done)["env"]]
    assert (record["pool"], record["container"], record["memory"]) == ("demo", "vllm", 2**30)
    assert record["devices"] == {"nvidia.com/gpu": "1"}
    assert record["schema"] == done["metadata"]["labels"][constants.LABEL_SCHEMA]


def test_flags_and_variables_that_agree_stay_as_they_are_and_are_not_repeated() -> None:
    pod = user_pod(
        "--block_size", "64", "-tp=1", "--enable-prefix-caching", env=[{"name": "PYTHONHASHSEED", "value": "0"}]
    )
    container = first(complete(pod, ready()))
    assert [a for a in container["args"] if "block" in a or "tensor" in a] == ["--block_size"]
    assert container["args"].count("--enable-prefix-caching") == 1
    assert [v["name"] for v in container["env"]].count("PYTHONHASHSEED") == 1


# LMCache#1139, LMCache#1095, LMCache#1739, vllm#42625: a seed of the user's own, and nothing ever hits.
def test_another_seed_is_refused_with_both_values() -> None:
    pod = user_pod(env=[{"name": "PYTHONHASHSEED", "value": "7"}])
    assert "hashSeed (PYTHONHASHSEED) is 7, the pool has 0" in refusal(pod)


# vllm PR#51875, kserve PR#5484, LMCache#2136: another hash algorithm or block size.
@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("--prefix-caching-hash-algo", "sha256"), "hashAlgorithm (--prefix-caching-hash-algo) is sha256"),
        (("--block-size=16",), "blockSize (--block-size) is 16, the pool has 64"),
        (("-tp", "4"), "tensor (-tp) is 4, the pool has 1"),
        (("-pp", "2"), "pipeline (-pp) is 2, the pool has 1"),
        (("-dcp", "2"), "decodeContext (-dcp) is 2, the pool has 1"),
        (("--kv-cache-dtype=fp8",), "kvCacheDtype (--kv-cache-dtype) is fp8_e4m3, the pool has auto"),
        (("--dtype", "float16"), "dtype (--dtype) is float16, the pool has auto"),
        (("--quantization=awq",), "quantization (--quantization) is awq, the pool has unset"),
        (("--lora-modules", "a=/a"), "loraModules (--lora-modules) is a=/a, the pool has unset"),
        (("--hf-overrides", "{}"), "it changes the cached bytes without a trace in the key"),
        (("--no-enable-prefix-caching",), "without prefix caching nothing can be shared"),
        (("--tensor-par", "1"), "--tensor-par abbreviates --tensor-parallel-size"),
        (("--kv-transfer-config", '{"kv_connector": "NixlConnector"}'), "--kv-transfer-config is the user's own"),
        (("--hf-override.rope_theta=1000",), "--hf-override.rope_theta abbreviates --hf-overrides"),
        (("--attention-conf.backend=TRITON_ATTN",), "--attention-conf.backend abbreviates --attention-config"),
        (("--speculative-conf.method=ngram",), "--speculative-conf.method abbreviates --speculative-config"),
        (("--hf-config-path=/x",), "another model's settings change the cached bytes"),
        (("$(X)",), "$(X) could be any flag once a variable's value is in its place"),
        (("--kv-transfer-conf={}",), "--kv-transfer-conf abbreviates --kv-transfer-config"),
        (("--kv-transfer-conf.kv_role=x",), "--kv-transfer-conf.kv_role abbreviates --kv-transfer-config"),
        (("--lora-modules.path=/x",), "--lora-modules.path is not allowed: a key behind a dot"),
        (("--kv-transfer-config.kv_role", "kv_both"), "--kv-transfer-config.kv_role is the user's own"),
        (("--model", "org/other"), "modelId is org/other, the pool has org/model"),
    ],
)
def test_a_flag_that_contradicts_the_pool_is_refused_with_the_fix(args: tuple[str, ...], message: str) -> None:
    said = refusal(user_pod(*args))
    assert message in said
    assert said.startswith("container vllm: ")
    assert "Remove what differs" in said


def test_expert_and_data_parallelism_are_the_users_choice() -> None:
    complete(user_pod("--enable-expert-parallel", "-dp", "2", "--gpu-memory-utilization=0.5"), ready())


def test_all_contradictions_are_named_at_once() -> None:
    said = refusal(user_pod("-tp", "2", "--block-size=16", "--dtype=half"))
    assert all(field in said for field in ("tensor", "blockSize", "dtype"))


def edited(edit: Callable[[Json], object]) -> Json:
    pod = user_pod()
    edit(pod)
    return pod


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (
            lambda p: first(p).update(command=["/bin/bash", "-c"], args=["vllm serve org/model"]),
            "container vllm starts through a shell (/bin/bash), whose text cannot be edited safely. Give command and args",
        ),
        (lambda p: first(p).pop("args"), "container vllm has neither command nor args"),
        (lambda p: first(p)["args"].append("--"), "has a bare -- in its arguments"),
        (
            lambda p: p["spec"]["containers"].append({"name": "second", "image": "x/vllm:1"}),
            "more than one container looks like an engine (found vllm, second). Name the engine's container in the "
            "annotation kvcachepool.io/container",
        ),
        (
            lambda p: p["spec"].update(containers=[{"name": n, "image": "x", "args": ["y"]} for n in "ab"]),
            "none of the containers looks like an engine (found a, b)",
        ),
        (
            lambda p: p["metadata"].update(annotations={constants.ANNOTATION_CONTAINER: "nope"}),
            "there is no container nope (found vllm)",
        ),
        (
            lambda p: p["metadata"]["labels"].update({constants.LABEL_SCHEMA: "0123456789ab"}),
            "label kvcachepool.io/schema is 0123456789ab, the pool has ",
        ),
        (
            lambda p: p["metadata"]["labels"].update({constants.LABEL_COMPONENT: "engine"}),
            "label kvcachepool.io/component is engine, which only pods of the operator's own workloads have",
        ),
        (
            lambda p: first(p).update(env=[{"name": "MOONCAKE_CONFIG_PATH", "value": "/etc/secret-place"}]),
            "MOONCAKE_CONFIG_PATH is set otherwise than the pool needs it",
        ),
        (
            lambda p: first(p).update(env=[{"name": "VLLM_KV_CACHE_LAYOUT", "value": "HND"}]),
            "kvLayout (VLLM_KV_CACHE_LAYOUT) is HND, the pool has unset",
        ),
        (
            lambda p: first(p).update(env=[{"name": "VLLM_ALLOW_RUNTIME_LORA_UPDATING", "value": "true"}]),
            "list adapters in lora of spec.schema",
        ),
        (
            lambda p: first(p).update(env=[{"name": "VLLM_MODEL_REDIRECT_PATH", "value": "/x"}]),
            "VLLM_MODEL_REDIRECT_PATH is not allowed: its file puts other weights behind the model's name",
        ),
        (
            lambda p: first(p).update(env=[{"name": "VLLM_ROCM_SHUFFLE_KV_CACHE_LAYOUT", "value": "True"}]),
            "VLLM_ROCM_SHUFFLE_KV_CACHE_LAYOUT is not allowed: it changes the order of the cached bytes",
        ),
        (
            lambda p: first(p).update(volumeMounts=[{"name": "mine", "mountPath": "/etc/kvcachepool/"}]),
            "container vllm mounts mine at /etc/kvcachepool",
        ),
        (
            lambda p: first(p).update(resources={"limits": {"memory": "1x"}}),
            "resources.limits.memory: '1x' is not a size",
        ),
    ],
)
def test_what_cannot_be_done_safely_is_refused_with_the_reason(edit: Callable[[Json], object], message: str) -> None:
    assert message in refusal(edited(edit))


def test_a_value_that_may_be_secret_is_not_shown() -> None:
    assert "secret-place" not in refusal(
        edited(lambda p: first(p).update(env=[{"name": "MOONCAKE_CONFIG_PATH", "value": "/etc/secret-place"}]))
    )


def test_the_annotation_chooses_among_several_engines() -> None:
    pod = user_pod()
    pod["spec"]["containers"].insert(0, {"name": "second", "image": "x/vllm:1", "args": ["a"]})
    pod["metadata"]["annotations"] = {constants.ANNOTATION_CONTAINER: "vllm"}
    done = complete(pod, ready())
    assert done["spec"]["containers"][0] == pod["spec"]["containers"][0]
    assert "--block-size=64" in done["spec"]["containers"][1]["args"]


def test_sidecars_and_other_volumes_stay_as_they_are() -> None:
    pod = user_pod(volumeMounts=[{"name": "weights", "mountPath": "/weights"}])
    pod["spec"] |= {
        "volumes": [{"name": "weights", "emptyDir": {}}],
        "initContainers": [{"name": "fetch", "image": "x"}],
    }
    pod["spec"]["containers"].append({"name": "istio-proxy", "image": "istio/proxyv2"})
    done = complete(pod, ready())
    assert done["spec"]["containers"][1] == {"name": "istio-proxy", "image": "istio/proxyv2"}
    assert [v["name"] for v in done["spec"]["volumes"]] == ["weights", "kvcachepool-config"]
    assert [c["name"] for c in done["spec"]["initContainers"]] == ["fetch", constants.WAIT_CONTAINER]


def test_memory_of_the_cache_comes_on_top_of_the_users() -> None:
    pod = user_pod(resources={"requests": {"memory": "20Gi", "cpu": "4"}, "limits": {"memory": "24Gi"}})
    resources = first(complete(pod, ready({"store": {"mode": "Embedded", "segmentSize": "8Gi"}})))["resources"]
    assert resources["requests"]["memory"] == "29Gi"
    assert resources["limits"]["memory"] == "33Gi"
    assert resources["requests"]["cpu"] == "4"


@pytest.mark.parametrize(
    "resources",
    [
        {"limits": {"nvidia.com/gpu": "4"}},
        {"limits": {"nvidia.com/mig-3g.40gb": "1"}},
        {"claims": [{"name": "gpu"}]},
    ],
)
def test_devices_that_the_user_asks_for_are_the_users_choice(resources: Json) -> None:
    done = first(complete(user_pod(resources=resources), ready({"schema": {"parallelism": {"tensor": 2}}})))
    assert done["resources"].get("limits", {}) == resources.get("limits", {})


RDMA: Json = {"protocol": "RDMA", "rdma": {"resourceName": "rdma/hca_shared_devices_a", "count": 2}}


def test_a_pool_over_rdma_brings_devices_and_the_right_to_lock_memory() -> None:
    subject = ready({"transport": RDMA})
    done = complete(user_pod(resources={"limits": {"nvidia.com/gpu": "1"}}), subject)
    assert first(done)["resources"]["limits"] == {"nvidia.com/gpu": "1", "rdma/hca_shared_devices_a": "2"}
    assert first(done)["securityContext"]["capabilities"] == {"add": ["IPC_LOCK"]}
    assert complete(done, subject) == done
    assert first(complete(user_pod(), ready())).get("securityContext") is None


def test_a_pool_on_secondary_networks_brings_their_annotation() -> None:
    networks = "k8s.v1.cni.cncf.io/networks"
    subject = ready({"transport": merged(RDMA, {"rdma": {"networks": ["ib0"]}})})
    assert complete(user_pod(), subject)["metadata"]["annotations"][networks] == "ib0"
    pod = user_pod()
    pod["metadata"]["annotations"] = {networks: "eth9"}
    assert "annotation k8s.v1.cni.cncf.io/networks is eth9, the pool has ib0" in refusal(pod, subject)


def test_a_pool_on_the_nodes_network_brings_it() -> None:
    subject = ready({"transport": {"protocol": "RDMA", "rdma": {**RDMA["rdma"], "hostNetwork": True}}})
    spec = complete(user_pod(), subject)["spec"]
    assert (spec["hostNetwork"], spec["dnsPolicy"]) == (True, "ClusterFirstWithHostNet")
    pod = user_pod()
    pod["spec"]["dnsPolicy"] = "Default"
    assert complete(pod, subject)["spec"]["dnsPolicy"] == "Default"


def test_an_engine_on_the_cpu_gets_memory_and_no_connector() -> None:
    subject = ready({"engines": {"gpu": {"resourceName": ""}}}, base=NATIVE, name="demo")
    done = first(complete(user_pod(), subject))
    assert not [a for a in done["args"] if a.startswith("--kv-transfer-config")]
    assert env_of(done)["VLLM_CPU_KVCACHE_SPACE"] == "8"
    own = user_pod("--kv-transfer-config", '{"kv_connector": "NixlConnector"}')
    assert "--kv-transfer-config is the user's own, the pool has none" in refusal(own, subject)


def test_an_engine_of_several_ranks_gets_as_many_devices() -> None:
    done = first(complete(user_pod(), ready({"schema": {"parallelism": {"tensor": 2, "pipeline": 2}}})))
    assert done["resources"]["limits"] == {"nvidia.com/gpu": "4"}
    assert parse_bytes(done["resources"]["requests"]["memory"]) == 4 * 2**30


def test_a_model_from_a_directory_gets_no_revision() -> None:
    pod = user_pod()
    first(pod)["args"][0] = "/models/tiny"
    assert not [a for a in first(complete(pod, ready()))["args"] if a.startswith("--revision")]


@pytest.mark.parametrize(
    ("status", "message"),
    [
        ({}, "takes no members yet: its condition Accepted is not True"),
        (
            {
                "conditions": [
                    Condition(type="Accepted", status="False", reason="SecretNotFound", message="no hf-token")
                ]
            },
            "its condition Accepted is not True (SecretNotFound: no hf-token)",
        ),
        (
            {"conditions": [Condition(type="Accepted", status="True", reason="Valid")]},
            "is not in force. It will be once the pool's engines are made; try again then",
        ),
    ],
)
def test_a_pool_that_is_not_ready_takes_no_members(status: Json, message: str) -> None:
    subject = pool().model_copy(update={"status": PoolStatus(**status)})
    assert message in refusal(user_pod(), subject)


def test_a_pass_that_failed_keeps_nobody_from_joining_the_schema_that_is_in_force() -> None:
    failed = Condition(type="Accepted", status="False", reason="InternalError")
    subject = ready()
    joined = subject.model_copy(update={"status": subject.status.model_copy(update={"conditions": [failed]})})
    assert complete(user_pod(), joined) == complete(user_pod(), subject)
    never = pool().model_copy(update={"status": PoolStatus(conditions=[failed])})
    assert "is not in force" in refusal(user_pod(), never)


# A7, vllm#44250, LMCache#2961: another version of an adapter is another prefix for every member that joins.
def test_another_version_of_an_adapter_gives_joining_pods_another_prefix() -> None:
    def prefix(version: str) -> str:
        subject = ready({"schema": {"lora": [{"name": "a", "version": version, "path": "/a"}]}})
        container = first(complete(user_pod(), subject))
        assert {"--enable-lora", "--lora-modules", "a=/a"} <= set(container["args"])
        (config,) = [a.partition("=")[2] for a in container["args"] if a.startswith("--kv-transfer-config=")]
        found: str = json.loads(config)["kv_connector_extra_config"]["cache_prefix"]
        return found

    assert prefix("v1") != prefix("v2")


words = st.text(alphabet='abcdef-_=.0123456789/{}"', max_size=12)


@given(
    st.lists(words, max_size=6),
    st.lists(st.tuples(st.sampled_from(["A", "PYTHONHASHSEED", "MC_FORCE_TCP", "HOME"]), words), max_size=3),
)
def test_any_pod_is_completed_for_good_or_refused_with_a_message(args: list[str], env: list[tuple[str, str]]) -> None:
    subject = ready()
    names = dict(env)
    pod = user_pod(*args, env=[{"name": name, "value": value} for name, value in names.items()])
    try:
        done = complete(pod, subject)
    except InjectionRefusedError as error:
        done, said = None, str(error)
    if done is None:
        assert len(said) > 20
        return
    assert complete(done, subject) == done
    assert {v["name"] for v in first(done)["env"]} >= set(names)
