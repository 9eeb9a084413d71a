"""Every field of the schema, by flag and by variable."""

import random
import re
from typing import Any

import pytest
import yaml

from e2e.harness.api import Api
from kvcachepool import constants
from kvcachepool.api import KVCachePool
from kvcachepool.api.parse import parse_pool
from kvcachepool.facts import ContainerFacts
from kvcachepool.schema.flags import SCHEMA_FLAGS, Kind
from kvcachepool.schema.observed import differences
from tests.apiserver.admission.conftest import NAME, World
from tests.apiserver.admission.shapes import first
from tests.apiserver.conftest import ROOT, eventually
from tests.members import engine_of, pods_of, schema_of, status_of
from tests.pools import merged

Json = dict[str, Any]


def test_the_policy_has_no_type_errors(api: Api) -> None:
    path = f"/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies/{NAME}"
    eventually(lambda: "typeChecking" in api.call("GET", path)[1].get("status", {}))
    assert api.call("GET", path)[1]["status"]["typeChecking"] == {}


EVERYTHING: Json = {
    "schema": {
        "parallelism": {"tensor": 4, "pipeline": 2, "decodeContext": 2, "interleave": 8, "layerPartition": [18, 14]},
        "dtype": "bfloat16",
        "kvCacheDtype": "fp8",
        "quantization": "awq",
        "blockSize": 16,
        "hashAlgorithm": "xxhash",
        "hashSeed": "7",
        "attentionBackend": "FLASH_ATTN",
        "kvCacheDtypeSkipLayers": ["2", "0"],
        "prefixMatchUnit": 16,
        "hybrid": {
            "mambaCacheDtype": "float32",
            "mambaSsmCacheDtype": "float32",
            "mambaBlockSize": 512,
            "convStateLayout": "DS",
            "cacheManager": "Enabled",
        },
        "speculative": {"method": "eagle3", "model": "org/draft", "tokens": 2},
        "lora": [{"name": "b", "version": "v1", "path": "/b"}, {"name": "a", "version": "v2", "path": "org/a"}],
    }
}


@pytest.mark.parametrize(
    "spec",
    [
        {},
        EVERYTHING,
        {"schema": {"hybrid": {"cacheManager": "Disabled"}}},
        {"model": {"source": {"image": {"path": "/models/tiny"}}}},
        {"model": {"source": {"pvc": {"claimName": "weights"}}}, "store": {"mode": "Embedded"}},
        {"model": {"revision": None}, "backend": {"mooncake": None, "native": {}}},
        {
            "model": {"revision": None},
            "backend": {"mooncake": None, "native": {}},
            "engines": {"gpu": {"resourceName": ""}, "image": "e:1"},
        },
        {"schema": {"parallelism": {"tensor": 2, "pipeline": 2}}, "engines": {"nodesPerEngine": 2}},
        {"transport": {"protocol": "RDMA", "rdma": {"resourceName": "rdma/hca", "hostNetwork": True}}},
    ],
)
def test_what_the_operator_makes_is_let_in(world: World, spec: Json) -> None:
    subject = world.pool(spec)
    world.admits(engine_of(subject))
    for component, pod in pods_of(subject).items():
        assert world.api.create_pod(pod) == "", component


@pytest.mark.parametrize("path", sorted((ROOT / "docs" / "examples" / "valid").glob("*.yaml")), ids=lambda p: p.stem)
def test_engines_of_every_example_are_let_in(world: World, path: Any) -> None:
    raw = next(d for d in yaml.safe_load_all(path.read_text()) if d["kind"] == constants.KIND)
    parsed = parse_pool(merged(raw, {"metadata": {"namespace": world.namespace, "uid": "u"}}))
    assert isinstance(parsed, KVCachePool)
    manifest = merged(raw, {"metadata": {"namespace": world.namespace}})
    base = f"/apis/{constants.API_VERSION}/namespaces/{world.namespace}/{constants.PLURAL}"
    assert world.api.call("POST", base, manifest)[0] == 201
    world.status(parsed.metadata.name, status_of(parsed))
    pod = pods_of(parsed)[constants.ENGINE]
    for name in ("priorityClassName", "runtimeClassName"):  # there are none of these names here
        pod["spec"].pop(name, None)
    world.admits(pod)


# vllm's mooncake/store/data.py, sglang PR#38362, lmdeploy#4930: equal keys, other bytes. LMCache#1139: no seed.
# vllm PR#51875: other hash algorithm or block size.
REFUSED: dict[str, tuple[tuple[str, ...], dict[str, str | None], str]] = {
    "tp": (("--tensor-parallel-size=4",), {}, "tensor (--tensor-parallel-size) is 4, the pool has 2"),
    "tp short": (("-tp", "4"), {}, "tensor (--tensor-parallel-size) is 4, the pool has 2"),
    "tp short with equals": (("-tp=4",), {}, "tensor (--tensor-parallel-size) is 4, the pool has 2"),
    "tp with underscores": (("--tensor_parallel_size", "4"), {}, "tensor (--tensor-parallel-size) is 4"),
    "pp": (("-pp", "2"), {}, "pipeline (--pipeline-parallel-size) is 2, the pool has 1"),
    "dcp": (("--decode-context-parallel-size=2",), {}, "decodeContext (--decode-context-parallel-size) is 2"),
    "kv dtype": (("--kv-cache-dtype", "fp8"), {}, "kvCacheDtype (--kv-cache-dtype) is fp8_e4m3, the pool has auto"),
    "dtype": (("--dtype=float16",), {}, "dtype (--dtype) is float16, the pool has bfloat16"),
    "hash": (("--prefix-caching-hash-algo=sha256",), {}, "is sha256, the pool has sha256_cbor"),
    "block": (("--block-size=16",), {}, "blockSize (--block-size) is 16, the pool has 64"),
    "quantization glued": (("-qawq",), {}, "quantization (--quantization) is awq, the pool has unset"),
    "revision": (("--revision", "main"), {}, "modelRevision (--revision) is main, the pool has r1"),
    "model": (("--model=org/other",), {}, "modelId is org/other, the pool has org/model"),
    "adapters": (
        ("--lora-modules", "a=/x", "b=/y"),
        {},
        "loraModules (--lora-modules) is a=/x,b=/y, the pool has unset",
    ),
    "layers": (("--kv-cache-dtype-skip-layers", "0", "2"), {}, "is 0,2, the pool has unset"),
    "hybrid": (("--no-disable-hybrid-kv-cache-manager",), {}, "is Enabled, the pool has unset"),
    "abbreviated": (("--tensor-par", "4"), {}, "--tensor-par abbreviates --tensor-parallel-size"),
    "abbreviated short": (("-pc", "2"), {}, "-pc abbreviates -pcp"),
    "file of flags": (("--config", "/etc/x.yaml"), {}, "--config is not allowed: a file could set any flag unseen"),
    "overrides": (("--hf-overrides.rope_theta", "1"), {}, "--hf-overrides.rope-theta is not allowed"),
    "overrides short": (("--hf-override.rope_theta=1",), {}, "--hf-override.rope-theta abbreviates --hf-overrides"),
    "backend short": (("--attention-conf.backend=X",), {}, "--attention-conf.backend abbreviates --attention-config"),
    "connector short": (("--kv-transfer-conf={}",), {}, "--kv-transfer-conf abbreviates --kv-transfer-config"),
    "connector dotted": (
        ("--kv-transfer-config.kv_connector_extra_config.cache_prefix", "mine"),
        {},
        "--kv-transfer-config.kv-connector-extra-config.cache-prefix is not allowed: a key behind a dot replaces",
    ),
    "adapter dotted": (("--lora-modules.path=/x",), {}, "--lora-modules.path is not allowed: a key behind a dot"),
    "other settings": (("--hf-config-path=/x",), {}, "another model's settings change the cached bytes"),
    "other weights": ((), {"VLLM_MODEL_REDIRECT_PATH": "/x"}, "its file puts other weights behind the model's name"),
    "shuffled": ((), {"VLLM_ROCM_SHUFFLE_KV_CACHE_LAYOUT": "1"}, "it changes the order of the cached bytes"),
    "variable": (("$(X)",), {"X": "--hf-overrides={}"}, "$(X) could be any flag once a variable's value is in its"),
    "variable behind a switch": (("--enable_lora", "$(X)"), {}, "$(X) could be any flag once"),
    "variable in a flag": (("--hf$(X)=1",), {}, "--hf$(X) could be any flag once"),
    "no caching": (("--no-enable-prefix-caching",), {}, "without prefix caching nothing can be shared"),
    "no seed": ((), {"PYTHONHASHSEED": None}, "hashSeed (PYTHONHASHSEED) is unset, the pool has 0"),
    "other seed": ((), {"PYTHONHASHSEED": "7"}, "hashSeed (PYTHONHASHSEED) is 7, the pool has 0"),
    "seed with zeros": ((), {"PYTHONHASHSEED": "00"}, "hashSeed (PYTHONHASHSEED) is 00, the pool has 0"),
    "layout": ((), {"VLLM_KV_CACHE_LAYOUT": "HND"}, "kvLayout (VLLM_KV_CACHE_LAYOUT) is LBHNC, the pool has unset"),
    "runtime adapters": ((), {"VLLM_ALLOW_RUNTIME_LORA_UPDATING": "1"}, "list adapters in lora of spec.schema"),
    "connector": (
        ('--kv-transfer-config={"kv_connector": "OffloadingConnector"}',),
        {},
        "the connector of --kv-transfer-config is another one, the pool has MooncakeStoreConnector",
    ),
    "prefix": (
        ('--kv-transfer-config={"kv_connector":"MooncakeStoreConnector","x":{"cache_prefix": "mine"}}',),
        {},
        '"cache_prefix": "mine" of --kv-transfer-config, the pool has',
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_an_engine_that_differs_is_refused_by_field_with_both_values(world: World, case: str) -> None:
    args, env, message = REFUSED[case]
    subject = world.pool({"schema": {"parallelism": {"tensor": 2}, "dtype": "bfloat16"}})
    world.admits(engine_of(subject))
    said = world.api.create_pod(engine_of(subject, *args, **env))
    assert message in said
    assert f"not the schema of pool {subject.metadata.name}: container engine: " in said


@pytest.mark.parametrize(
    ("args", "env"),
    [
        (("--enable-expert-parallel", "-dp", "2"), {}),
        (("--gpu-memory-utilization=0.5", "--max-num-seqs", "4"), {}),
        (("--dtype", "auto", "--kv-cache-dtype=auto", "-pcp", "1", "--mamba-cache-dtype=auto"), {}),
        (("--max-num-seqs", "$(N)", "--port=$(PORT)", "-dp", "$(N)"), {}),
        (("--seed", "-1"), {"VLLM_SSM_CONV_STATE_LAYOUT": "SD"}),
        (("--override-generation-config", '{"a": "--tensor-parallel-size=4"}'), {}),
    ],
)
def test_what_changes_no_key_and_no_byte_is_free(
    world: World, demo: KVCachePool, args: tuple[str, ...], env: dict[str, str | None]
) -> None:
    assert world.api.create_pod(engine_of(demo, *args, **env)) == ""


def test_the_alias_fp8_is_let_in_where_the_pool_says_fp8_e4m3(world: World) -> None:
    subject = world.pool({"schema": {"kvCacheDtype": "fp8_e4m3", "attentionBackend": "FLASHINFER"}})
    world.admits(engine_of(subject))
    assert world.api.create_pod(engine_of(subject, "--kv-cache-dtype=fp8", "--attention-backend", "flashinfer")) == ""
    assert "is fp8_e5m2, the pool has fp8_e4m3" in world.api.create_pod(engine_of(subject, "--kv-cache-dtype=fp8_e5m2"))


SAMPLES: dict[Kind, tuple[str, ...]] = {
    Kind.NUMBER: ("1", "2", "16", "64", "064", "x"),
    Kind.TEXT: ("auto", "half", "float16", "fp8", "fp8_e4m3", "sha256", "sha256_cbor", "r1", "flash_attn"),
    Kind.LIST: ("0", "a=/x"),
    Kind.SWITCH: ("",),
}


def random_words(generator: random.Random) -> dict[str, list[str]]:
    """By field: its flag in some spelling with some value."""
    words: dict[str, list[str]] = {}
    for flag in generator.sample(SCHEMA_FLAGS, generator.randint(0, 4)):
        name = generator.choice(flag.names)
        if name.startswith("--") and generator.random() < 0.3:
            name = "--" + name[2:].replace("-", "_")
        value = generator.choice(SAMPLES[flag.kind])
        if flag.kind is Kind.SWITCH:
            words[flag.field] = [name]
        elif flag.kind is Kind.LIST:
            words[flag.field] = [name, *generator.sample(("0", "2", "a=/x"), generator.randint(1, 3))]
        elif len(name) == 2 and generator.random() < 0.5:
            words[flag.field] = [name + value]
        else:
            words[flag.field] = [name, value] if generator.random() < 0.5 else [f"{name}={value}"]
        if generator.random() < 0.3:
            words[flag.field] += generator.choice((["--enforce-eager"], ["-dp", "2"], ["--seed", "-1"], ["-x=4"]))
    return words


def test_the_api_server_and_the_operator_judge_any_command_line_alike(world: World) -> None:
    """Both read the same table; this holds the two readers together."""
    subject = world.pool({"schema": {"kvCacheDtypeSkipLayers": ["0"], "attentionBackend": "FLASH_ATTN"}})
    world.admits(engine_of(subject))
    expected, generator = schema_of(subject), random.Random(4)
    verdicts = []
    for _ in range(150):
        pod, words = engine_of(subject), random_words(generator)
        names = tuple(flag.name + "=" for flag in SCHEMA_FLAGS if flag.field in words)
        container = first(pod)
        rest = [a for a in container["args"] if not a.startswith(names)]
        lists = [i for i, a in enumerate(rest) if a == "--kv-cache-dtype-skip-layers"]
        if lists and "kvCacheDtypeSkipLayers" in words:
            del rest[lists[0] : lists[0] + 2]
        container["args"] = [*rest, *(word for group in words.values() for word in group)]
        literal = {v["name"]: v["value"] for v in container["env"] if "value" in v}
        facts = ContainerFacts(
            name="engine", command=tuple(container["command"]), args=tuple(container["args"]), env=literal
        )
        said = world.api.create_pod(pod)
        named = set(re.findall(r"(\w+) \((?:--|[A-Z])", said))
        assert {difference.field for difference in differences(expected, facts)} == named, (facts.args, said)
        verdicts.append(said == "")
    assert any(verdicts)
    assert not all(verdicts)
