"""The ways in which command lines and pods may be written."""

from collections.abc import Callable
from typing import Any

import pytest

from kvcachepool import constants
from kvcachepool.api import KVCachePool
from tests.apiserver.admission.conftest import World
from tests.apiserver.admission.shapes import edited, first, flags, line
from tests.members import engine_of

Json = dict[str, Any]
Change = Callable[[Json], object]


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
