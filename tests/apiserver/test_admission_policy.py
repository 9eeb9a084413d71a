"""The admission policy in a real API server, with no operator anywhere."""

import random
import re
from collections.abc import Callable, Iterator
from copy import deepcopy
from typing import Any

import pytest
import yaml

from e2e.cluster.controlplane import ControlPlane
from e2e.cluster.kubectl import Kubectl
from e2e.harness.api import Api
from e2e.harness.latency import admission_latency
from kvcachepool import constants, policy
from kvcachepool.api import KVCachePool
from kvcachepool.api.parse import parse_pool
from kvcachepool.facts import ContainerFacts
from kvcachepool.plan import make_plan
from kvcachepool.schema.flags import SCHEMA_FLAGS, Kind
from kvcachepool.schema.observed import differences
from kvcachepool.settings import Settings
from tests.apiserver.conftest import ROOT, eventually
from tests.members import MASTER_READY, engine_of, member_of, pods_of, schema_of, status_of
from tests.pools import merged, pool

Json = dict[str, Any]
Change = Callable[[Json], object]

NAME = "kvcp-test-schema"


@pytest.fixture(scope="module")
def api(plane: ControlPlane) -> Iterator[Api]:
    """The API server with the policy installed and in force."""
    objects = (policy.policy(NAME), *policy.bindings(NAME))
    plane.kubectl.run("apply", "-f", "-", data=yaml.safe_dump_all(objects))
    api = Api(plane.kubeconfig)
    stranger = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "x", "namespace": "default", "labels": {constants.LABEL_POOL: "none"}},
        "spec": {"containers": [{"name": "x", "image": "x"}]},
    }
    eventually(lambda: api.create_pod(stranger) != "")
    yield api
    for obj in objects:
        plane.kubectl.run("delete", obj["kind"], obj["metadata"]["name"])


class World:
    """A namespace with pools whose operator is gone for good."""

    def __init__(self, api: Api, namespace: str) -> None:
        self.api = api
        self.namespace = namespace

    def pool(self, spec: Json | None = None, *, name: str = "demo", status: Json | None = None) -> KVCachePool:
        """Make a pool; unless another one is given, with the status that an operator would have left."""
        subject = pool(spec, name=name, namespace=self.namespace)
        path = f"/apis/{constants.API_VERSION}/namespaces/{self.namespace}/{constants.PLURAL}"
        manifest = {
            "apiVersion": constants.API_VERSION,
            "kind": constants.KIND,
            "metadata": {"name": name, "namespace": self.namespace},
            "spec": subject.spec.model_dump(mode="json", by_alias=True, exclude_unset=True, exclude_none=True),
        }
        code, answer = self.api.call("POST", path, manifest)
        assert code == 201, answer
        self.status(name, status_of(subject) if status is None else status)
        return subject

    def admits(self, pod: Json) -> None:
        """Wait until the admission plugin knows the pool well enough to let the pod in."""
        said = [""]

        def holds() -> bool:
            said[0] = self.api.create_pod(pod)
            return said[0] == ""

        try:
            eventually(holds)
        except AssertionError:
            pytest.fail(said[0])

    def status(self, name: str, status: Json) -> None:
        """Write a pool's status."""
        path = f"/apis/{constants.API_VERSION}/namespaces/{self.namespace}/{constants.PLURAL}/{name}/status"
        code, answer = self.api.call("PATCH", path, {"status": status}, "application/merge-patch+json")
        assert code == 200, answer


@pytest.fixture
def world(api: Api, namespace: str) -> World:
    return World(api, namespace)


@pytest.fixture
def demo(world: World) -> KVCachePool:
    """The pool of most tests, known to the admission plugin."""
    subject = world.pool()
    world.admits(engine_of(subject))
    return subject


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


def edited(pod: Json, edit: Change) -> Json:
    edit(pod)
    return pod


def first(pod: Json) -> Json:
    container: Json = pod["spec"]["containers"][0]
    return container


def flags(pod: Json) -> list[str]:
    """The engine's arguments but for the model."""
    return [word for word in first(pod)["args"] if not word.startswith("--model=")]


def line(pod: Json, command: list[str] | None, args: list[str]) -> None:
    first(pod).update(command=command, args=args)


SHAPES: dict[str, tuple[Change, str]] = {
    "no label": (
        lambda p: p["metadata"]["labels"].pop(constants.LABEL_SCHEMA),
        "label kvcachepool.io/schema is unset, pool demo has ",
    ),
    "other label": (
        lambda p: p["metadata"]["labels"].update({constants.LABEL_SCHEMA: "0123456789ab"}),
        "label kvcachepool.io/schema is 0123456789ab, pool demo has ",
    ),
    "shell": (
        lambda p: first(p).update(command=["/bin/sh", "-c"], args=["vllm serve x --tensor-parallel-size 4"]),
        "it starts through a shell, so that its flags cannot be checked",
    ),
    "seed by reference": (
        lambda p: first(p).update(
            env=[{"name": "PYTHONHASHSEED", "valueFrom": {"configMapKeyRef": {"name": "c", "key": "k"}}}]
        ),
        "hashSeed (PYTHONHASHSEED) is a reference, the pool has 0",
    ),
    "no configuration": (
        lambda p: first(p).update(args=[a for a in first(p)["args"] if not a.startswith("--kv-transfer")]),
        "--kv-transfer-config is unset, the pool has the connector MooncakeStoreConnector",
    ),
    "no flags": (
        lambda p: first(p).update(command=None, args=None),
        "blockSize (--block-size) is unset, the pool has 64",
    ),
    "revision left out": (
        lambda p: first(p).update(args=[a for a in first(p)["args"] if not a.startswith("--revision")]),
        "modelRevision (--revision) is unset, the pool has r1",
    ),
    "model as a word": (
        lambda p: first(p).update(
            command=["vllm", "serve", "org/other"], args=[a for a in first(p)["args"] if not a.startswith("--model=")]
        ),
        "modelId is org/other, the pool has org/model",
    ),
    "model behind a flag": (
        lambda p: line(p, ["vllm", "serve"], ["--max-num-seqs=8", "evil/model", *flags(p)]),
        "modelId is evil/model, the pool has org/model",
    ),
    "model behind a flag, of an image's command": (
        lambda p: line(p, None, ["-tp=1", "evil/model", *flags(p)]),
        "modelId is evil/model, the pool has org/model",
    ),
    "model behind a flag without a revision": (
        lambda p: line(p, None, ["-tp=1", "org/model", *(f for f in flags(p) if not f.startswith("--revision"))]),
        "modelRevision (--revision) is unset, the pool has r1",
    ),
    "model that may be the value of a flag": (
        lambda p: line(p, ["vllm", "serve"], ["--max-num-seqs", "8", "org/model", *flags(p)]),
        "its model cannot be told from the command line; give it as the first word",
    ),
    "model of the image": (lambda p: line(p, None, flags(p)), "its model cannot be told from the command line"),
    "module that takes no word": (
        lambda p: line(p, first(p)["command"], ["org/model", *flags(p)]),
        "its model cannot be told from the command line",
    ),
    "too many words": (lambda p: first(p)["args"].extend(["x"] * 300), "its command line has more than 256 words"),
    "several containers": (
        lambda p: p["spec"].update(containers=[{"name": n, "image": "registry/x:1"} for n in ("a", "b")]),
        "none of several containers looks like an engine: name the engine in the annotation kvcachepool.io/container",
    ),
    "container that is not there": (
        lambda p: p["metadata"].setdefault("annotations", {}).update({constants.ANNOTATION_CONTAINER: "nope"}),
        "there is no container nope",
    ),
    "sidecar with another seed": (
        lambda p: p["spec"]["containers"].append(
            {"name": "router", "image": "r", "env": [{"name": "PYTHONHASHSEED", "value": "9"}]}
        ),
        "hashSeed (PYTHONHASHSEED) must be 0 in every container that hashes",
    ),
    "engine in disguise": (
        lambda p: (
            p["metadata"]["labels"].update({constants.LABEL_COMPONENT: constants.STORE})
            or first(p)["args"].append("--block-size=16")
        ),
        "blockSize (--block-size) is 16, the pool has 64",
    ),
}


@pytest.mark.parametrize("case", SHAPES)
def test_a_pod_of_another_shape_is_refused_with_what_to_do(world: World, demo: KVCachePool, case: str) -> None:
    edit, message = SHAPES[case]
    assert message in world.api.create_pod(edited(engine_of(demo), edit))


@pytest.mark.parametrize(
    "edit",
    [
        lambda p: first(p).update(command=None, args=["org/model", *first(p)["args"][1:]]),
        lambda p: first(p).update(command=["vllm", "serve", "org/model"], args=first(p)["args"][1:]),
        lambda p: first(p).update(command=["/usr/bin/tini", "--", "vllm", "serve"]),
        lambda p: line(p, ["vllm", "serve"], ["--max-num-seqs", "8", "--seed=1", "org/model", *flags(p)]),
        lambda p: line(p, None, ["vllm", "serve", "-tp=1", "org/model", *flags(p)]),
        lambda p: line(p, ["vllm", "serve", "--headless"], ["org/model", *flags(p)]),
        lambda p: line(p, ["/start.sh"], ["--fast", "org/other", *flags(p)]),
        lambda p: p["spec"]["containers"].append({"name": "istio-proxy", "image": "istio/proxyv2:1", "args": ["-x"]}),
        lambda p: (
            p["spec"]["containers"].append({"name": "other", "image": "x/vllm-router:1"})
            or p["metadata"].setdefault("annotations", {}).update({constants.ANNOTATION_CONTAINER: "engine"})
        ),
        lambda p: first(p).update(args=[w for a in first(p)["args"] for w in (a.split("=", 1))]),
    ],
)
def test_the_ways_in_which_users_write_engines_are_let_in(world: World, demo: KVCachePool, edit: Change) -> None:
    assert world.api.create_pod(edited(engine_of(demo), edit)) == ""


def test_several_differences_are_named_at_once(world: World, demo: KVCachePool) -> None:
    said = world.api.create_pod(engine_of(demo, "-tp", "2", "--dtype=half", PYTHONHASHSEED="1"))
    assert "tensor (--tensor-parallel-size) is 2, the pool has 1; dtype (--dtype) is float16, the pool has auto" in said
    assert "hashSeed (PYTHONHASHSEED) is 1, the pool has 0" in said


def test_a_store_pod_needs_neither_seed_nor_schema_label_but_no_other_seed(world: World, demo: KVCachePool) -> None:
    store = pods_of(demo)[constants.STORE]
    assert constants.LABEL_SCHEMA not in store["metadata"]["labels"]
    assert world.api.create_pod(store) == ""
    first(store)["env"].append({"name": "PYTHONHASHSEED", "value": "7"})
    assert "hashSeed (PYTHONHASHSEED) must be 0" in world.api.create_pod(store)


def test_while_engines_move_to_a_new_schema_both_are_let_in_and_each_is_held_to_its_own(world: World) -> None:
    old = world.pool()
    new = pool({"schema": {"blockSize": 16}}, name="demo", namespace=world.namespace)
    world.status("demo", status_of(new, old))
    world.admits(engine_of(new))
    assert world.api.create_pod(engine_of(old)) == ""
    mixed = engine_of(new)
    mixed["metadata"]["labels"][constants.LABEL_SCHEMA] = schema_of(old).digest
    assert "blockSize (--block-size) is 16, the pool has 64" in world.api.create_pod(mixed)
    world.status("demo", status_of(new))
    eventually(lambda: world.api.create_pod(engine_of(old)) != "")
    said = world.api.create_pod(engine_of(old))
    assert f"label kvcachepool.io/schema is {schema_of(old).digest}, pool demo has {schema_of(new).digest}" in said


def test_a_pool_without_a_schema_in_force_lets_no_engine_in_but_its_store(world: World) -> None:
    subject = world.pool(status={"backend": "mooncake"})
    eventually(lambda: "no params found" not in world.api.create_pod(engine_of(subject)))
    assert "pool demo has no schema in force yet: wait until its condition Accepted is True" in world.api.create_pod(
        engine_of(subject)
    )
    pods = pods_of(subject)
    assert [world.api.create_pod(pods[c]) for c in (constants.MASTER, constants.STORE)] == ["", ""]


def test_a_pool_with_a_name_too_long_for_a_label_is_found_by_its_short_one(world: World) -> None:
    name = "x" * 80
    subject = pool(name=name, namespace=world.namespace)
    label = pods_of(subject)[constants.ENGINE]["metadata"]["labels"][constants.LABEL_POOL]
    world.pool(name=name, status=status_of(subject) | {"label": label})
    world.admits(engine_of(subject))
    assert "tensor (--tensor-parallel-size) is 2" in world.api.create_pod(engine_of(subject, "-tp=2"))


def test_each_pod_is_held_to_the_pool_it_names_and_to_no_other(world: World, demo: KVCachePool) -> None:
    other = world.pool({"schema": {"blockSize": 16}}, name="other")
    world.admits(engine_of(other))
    assert world.api.create_pod(engine_of(demo)) == ""


def test_a_labelled_pod_in_a_namespace_without_a_pool_is_refused(api: Api, namespace: str) -> None:
    said = api.create_pod(engine_of(pool(namespace=namespace)))
    assert "no params found for policy binding" in said
    assert "new-pods-need-a-pool-in-their-namespace" in said


def test_pods_without_the_label_are_never_touched(world: World, demo: KVCachePool, api: Api) -> None:
    bad = engine_of(demo, "-tp=4", PYTHONHASHSEED=None)
    for label in (constants.LABEL_POOL, constants.LABEL_SCHEMA, constants.LABEL_COMPONENT):
        bad["metadata"]["labels"].pop(label)
    assert world.api.create_pod(bad) == ""
    assert api.create_pod(merged(bad, {"metadata": {"namespace": "default"}})) == ""


def running(world: World, subject: KVCachePool, name: str) -> None:
    """A stored pod, made while it still fitted."""
    pod = member_of(subject)
    pod["metadata"] |= {"name": name, "finalizers": ["tests.kvcachepool.io/hold"]}
    assert world.api.create_pod(pod, keep=True) == ""


def owned(pod: Json, component: str = constants.ENGINE, **owner: Any) -> Json:
    """With another component label, and other words about its controller."""
    pod["metadata"]["labels"][constants.LABEL_COMPONENT] = component
    pod["metadata"]["ownerReferences"] = [pod["metadata"]["ownerReferences"][0] | owner]
    return pod


COPY = "which only pods of the operator's own workloads have: remove it"


def test_a_copy_of_the_operators_pod_cannot_stand_behind_its_services(world: World, demo: KVCachePool) -> None:
    name = engine_of(demo)["metadata"]["ownerReferences"][0]["name"]
    copies = [
        owned(engine_of(demo), name="copy-5d4f"),
        owned(engine_of(demo), name=name.replace("-5d4f", "-copy-5d4f")),
        owned(engine_of(demo), name=name.replace("demo-", "other-")),
        owned(engine_of(demo), name=name.replace("-5d4f", "-5d4e")),
        owned(engine_of(demo), name=name.replace("-5d4f", ""), kind="StatefulSet"),
        owned(engine_of(demo), kind="Job"),
        owned(engine_of(demo), controller=False),
    ]
    for component in (constants.ENGINE, constants.MASTER):
        copy = member_of(demo)
        copy["metadata"]["labels"][constants.LABEL_COMPONENT] = component
        copies.append(copy)
    for copy in copies:
        component = copy["metadata"]["labels"][constants.LABEL_COMPONENT]
        assert f"label kvcachepool.io/component is {component}, {COPY}" in world.api.create_pod(copy), copy["metadata"]
    assert world.api.create_pod(member_of(demo)) == ""


def test_by_their_real_controllers_the_operators_pods_are_made_and_copies_are_not(
    world: World, demo: KVCachePool, kubectl: Kubectl
) -> None:
    made = [o for o in make_plan(demo, MASTER_READY, Settings()).objects if o["kind"] == "Deployment"]
    assert {o["metadata"]["labels"][constants.LABEL_COMPONENT] for o in made} == {"engine", "master", "store"}
    base = f"/apis/apps/v1/namespaces/{world.namespace}/deployments"
    for deployment in made:
        for name in (deployment["metadata"]["name"], deployment["metadata"]["name"] + "-copy"):
            manifest = deepcopy(dict(deployment)) | {"metadata": {"name": name}}
            manifest["spec"] |= {"replicas": 1, "selector": {"matchLabels": {"of": name}}}
            manifest["spec"]["template"]["metadata"]["labels"]["of"] = name
            code, answer = world.api.call("POST", base, manifest)
            assert code == 201, answer

    def became() -> dict[str, str]:
        """By Deployment: its pod, or why there is none."""
        found = {}
        for item in world.api.call("GET", base)[1]["items"]:
            name, conditions = item["metadata"]["name"], item.get("status", {}).get("conditions", ())
            pods = kubectl.run("get", "pods", "-n", world.namespace, "-l", f"of={name}", "-o", "name")
            found[name] = pods or " ".join(c["message"] for c in conditions if c["type"] == "ReplicaFailure")
        return found

    eventually(lambda: all(became().values()))
    for name, result in became().items():
        assert (COPY in result) if name.endswith("-copy") else result.startswith("pod/"), (name, result)


def test_a_running_member_cannot_put_the_component_label_on(world: World, demo: KVCachePool) -> None:
    running(world, demo, "climber")
    patch = {"metadata": {"labels": {constants.LABEL_COMPONENT: constants.ENGINE}}}
    assert COPY in world.api.patch_pod(world.namespace, "climber", patch)


def test_a_label_of_a_running_pod_cannot_be_changed_to_what_it_is_not(world: World, demo: KVCachePool) -> None:
    running(world, demo, "member")
    patch = {"metadata": {"labels": {constants.LABEL_SCHEMA: "0123456789ab"}}}
    assert "label kvcachepool.io/schema is 0123456789ab" in world.api.patch_pod(world.namespace, "member", patch)
    gone = {"metadata": {"labels": {constants.LABEL_SCHEMA: None}}}
    assert "label kvcachepool.io/schema is unset" in world.api.patch_pod(world.namespace, "member", gone)
    assert world.api.patch_pod(world.namespace, "member", {"metadata": {"labels": {"team": "a"}}}) == ""
    leave = {"metadata": {"labels": {constants.LABEL_POOL: None}}}
    assert world.api.patch_pod(world.namespace, "member", leave) == ""


def test_a_running_pod_that_never_fitted_cannot_put_the_label_on(world: World, demo: KVCachePool) -> None:
    stranger = member_of(demo, "-tp=4")
    stranger["metadata"] |= {"name": "stranger", "labels": {}}
    assert world.api.create_pod(stranger, keep=True) == ""
    labels = member_of(demo)["metadata"]["labels"]
    said = world.api.patch_pod(world.namespace, "stranger", {"metadata": {"labels": labels}})
    assert "tensor (--tensor-parallel-size) is 4, the pool has 1" in said


def test_status_annotations_finalizers_and_deletion_pass_whatever_became_of_the_pool(
    world: World, demo: KVCachePool, kubectl: Kubectl
) -> None:
    running(world, demo, "late")
    other = pool({"schema": {"blockSize": 16}}, name="demo", namespace=world.namespace)
    world.status("demo", status_of(other))
    eventually(lambda: world.api.create_pod(engine_of(demo)) != "")
    change: Callable[..., str] = world.api.patch_pod
    assert change(world.namespace, "late", {"metadata": {"annotations": {"a": "b"}}}) == ""
    assert change(world.namespace, "late", {"metadata": {"labels": {"team": "b"}}}) == ""
    assert change(world.namespace, "late", {"status": {"phase": "Running"}}, "/status") == ""
    kubectl.run("delete", "kvcachepool", "demo", "-n", world.namespace)
    eventually(lambda: "no params found" in world.api.create_pod(engine_of(demo)))
    assert change(world.namespace, "late", {"metadata": {"labels": {"team": "c"}}}) == ""
    kubectl.run("delete", "pod", "late", "-n", world.namespace, "--wait=false", "--grace-period=0", "--force")
    assert change(world.namespace, "late", {"metadata": {"finalizers": None}}) == ""


def test_the_latency_of_both_kinds_of_pods_can_be_measured(demo: KVCachePool, api: Api) -> None:
    figures = admission_latency(api, engine_of(demo), count=20)
    print(f"labelled {figures.labelled:.1f} ms, unlabelled {figures.unlabelled:.1f} ms")
    assert figures.labelled > 0
    with pytest.raises(ValueError, match="blockSize"):
        admission_latency(api, engine_of(demo, "--block-size=1"), count=1)


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
