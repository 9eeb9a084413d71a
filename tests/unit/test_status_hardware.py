"""HardwareMatched, as it reads."""

import json
from copy import deepcopy
from dataclasses import replace
from typing import Any

import pytest

from kvcachepool.compat.tables import BUILT_IN, parse_tables
from kvcachepool.constants import ANNOTATION_PRODUCT, ENGINE
from tests.nodes import H100, L4, node
from tests.pools import pool
from tests.status_scenes import Case, both, container, gone, healthy, seen

RDMA: dict[str, Any] = {"transport": {"protocol": "RDMA", "rdma": {"resourceName": "rdma/hca_b"}}}
MISSING = "libcudart.so.12 is missing: this image is CUDA 13, install mooncake-transfer-engine-cuda13"
GROUPS: dict[str, Any] = {"schema": {"parallelism": {"tensor": 8, "pipeline": 2}}, "engines": {"nodesPerEngine": 2}}
BAD = """
knownBad:
  - {engine: ==0.33.0, backend: mooncake, effect: refuse, problem: loads end in garbage, remedy: use 0.34,
     issue: vllm#1, source: https://example.com/1, date: 2026-11-29}
"""


def nodes(*given: Any) -> Any:
    """A new pool on these nodes: no engine is there yet."""
    return both(gone(ENGINE), seen(nodes=given))


def unbound(_: Any) -> Any:
    """Engines that were made before their nodes had labels."""
    observed = healthy(pool())
    children = deepcopy(dict(observed.children))
    for child in children.values():
        child["metadata"].get("annotations", {}).pop(ANNOTATION_PRODUCT, None)
    return replace(observed, children=children, nodes=(node("a"), node("b", product=L4)))


CASES = [
    Case("HardwareMatched", "NodesFit", says=("2 of 2 nodes can take an engine (NVIDIA-H100-80GB-HBM3, CUDA 13).",)),
    Case(
        "HardwareMatched",
        "NodesFit",
        nodes(node("a"), node("b", gpus=0), node("c", cordoned=True)),
        (
            f"1 of 3 nodes can take an engine ({H100}, CUDA 13).",
            "1 node: fewer nvidia.com/gpu than 1 (found none)",
            "1 node: not available for new pods (found cordoned)",
        ),
        id="new",
    ),
    Case("HardwareMatched", "NotAccepted", spec={"engines": {"extraArgs": ["-tp=2"]}}),
    Case("HardwareMatched", "NodesNotReadable", seen(nodes=None), ("grant get, list and watch", "nodes.read=true")),
    Case("HardwareMatched", "NoMatchingNodes", nodes(), ("has no node", "No engine is made"), id="none at all"),
    Case(
        "HardwareMatched",
        "NoMatchingNodes",
        nodes(node("a", gpus=0), node("b", gpus=0), node("c", gpus=0, offers={"nvidia.com/mig-1g.5gb": "7"})),
        (
            "0 of 3 nodes can take an engine",
            "3 nodes: fewer nvidia.com/gpu than 1",
            "none",
            "only nvidia.com/mig-1g.5gb",
        ),
        id="H2 other resource",
    ),
    Case(
        "HardwareMatched",
        "NoMatchingNodes",
        nodes(node("a", product=L4), node("b")),
        ("2 nodes: another nvidia.com/gpu.product than L4", "NVIDIA-H100-80GB-HBM3, NVIDIA-L4"),
        {"engines": {"gpu": {"product": "L4"}}},
        id="llm-d-planner PR#112",
    ),
    Case(
        "HardwareMatched",
        "NoMatchingNodes",
        nodes(node("a", taints=("team=x:NoSchedule",)), node("b", labels={"zone": "b"})),
        ("1 node: taint not tolerated (found team=x:NoSchedule)",),
        {
            "scheduling": {"nodeSelector": {}},
            "engines": {"gpu": {"product": H100}, "resources": {"limits": {"cpu": "999"}}},
        },
        id="aibrix PR#909",
    ),
    Case(
        "HardwareMatched",
        "NoMatchingNodes",
        nodes(node("a"), node("b")),
        ("An engine has 16 ranks, and the largest node 8 nvidia.com/gpu", "spec.engines.nodesPerEngine"),
        {"schema": {"parallelism": {"tensor": 8, "pipeline": 2}}},
        id="over nodes",
    ),
    Case(
        "HardwareMatched",
        "NoMatchingNodes",
        both(nodes(node("a")), seen(leader_worker_sets=True)),
        (
            "An engine is 2 pods (spec.engines.nodesPerEngine), but there is room for 1: 1 of 1 node can take one.",
            "No engine is made.",
        ),
        GROUPS,
        id="a group needs two",
    ),
    Case(
        "HardwareMatched",
        "InsufficientNodeMemory",
        both(nodes(node("a"), node("b", memory="4Gi")), seen(leader_worker_sets=True)),
        ("there is room for 1: 1 of 2 nodes can take one. 1 node: less memory than",),
        GROUPS,
        id="a group and a small node",
    ),
    Case(
        "HardwareMatched",
        "NodesFit",
        both(nodes(node("a", gpus=16)), seen(leader_worker_sets=True)),
        ("1 of 1 node can take an engine",),
        GROUPS,
        id="a group on one large node",
    ),
    Case(
        "HardwareMatched",
        "NoMatchingNodes",
        both(nodes(node("a", gpus=16, offers={"rdma/hca_b": "63"})), seen(leader_worker_sets=True)),
        ("there is room for 1",),
        GROUPS | {"transport": {"protocol": "RDMA", "rdma": {"resourceName": "rdma/hca_b", "hostNetwork": True}}},
        id="a group on the node's ports",
    ),
    Case(
        "HardwareMatched",
        "NoMatchingNodes",
        nodes(node("a", labels={"zone": "b"}), node("b")),
        ("2 nodes: nodeSelector or affinity does not match (found no label zone, zone=b)",),
        {"scheduling": {"nodeSelector": {"zone": "a"}}},
        id="another zone",
    ),
    Case(
        "HardwareMatched",
        "NoMatchingNodes",
        nodes(node("a", offers={"team/disk": "1"})),
        ("1 node: too little of another resource (found 1 of team/disk)",),
        {"engines": {"resources": {"limits": {"team/disk": "2"}}}},
        id="another device",
    ),
    Case(
        "HardwareMatched",
        "NoMatchingNodes",
        nodes(node("a")),
        ("1 node: fewer cores than 999 (found ",),
        {"engines": {"resources": {"requests": {"cpu": "999"}}}},
        id="cores",
    ),
    Case(
        "HardwareMatched",
        "InsufficientNodeMemory",
        nodes(node("a", offers={"hugepages-2Mi": "1Gi"})),
        ("1 node: too few huge pages (found 1Gi of hugepages-2Mi)",),
        {"engines": {"resources": {"limits": {"hugepages-2Mi": "2Gi"}}}},
        id="huge pages",
    ),
    Case(
        "HardwareMatched",
        "NoCompatibleDriver",
        nodes(node("a", labels={"nvidia.com/gpu.compute.major": "7", "nvidia.com/gpu.compute.minor": "0"})),
        (
            "1 node: compute capability below 7.5, which CUDA 13 needs (found 7.0",
            "Use nodes with newer GPUs, or choose CUDA 12 (spec.cuda.version). No engine is made.",
        ),
        {"cuda": {"version": "13"}},
        id="an old GPU",
    ),
    Case(
        "HardwareMatched",
        "NoCompatibleDriver",
        nodes(node("a", driver="550.54"), node("b", driver="535.104", old_labels=True), node("c", gpus=0)),
        (
            "2 nodes: driver below 580, which CUDA 13 needs (found 535.104, 550.54)",
            "Update the driver to 580 or newer, or choose CUDA 12 (spec.cuda.version), or set "
            "spec.cuda.allowForwardCompat, if the image holds the cuda-compat package. No engine is made.",
        ),
        {"cuda": {"version": "13"}},
    ),
    Case(
        "HardwareMatched",
        "NoCompatibleDriver",
        nodes(node("a", driver="550.54", product="NVIDIA-GeForce-RTX-4090")),
        ("Update the driver to 580 or newer, or use an image for CUDA 12 (spec.engines.image). No",),
        {"engines": {"image": "vllm/vllm-openai:v0.33.0"}},
        id="an image for older drivers",
    ),
    Case(
        "HardwareMatched",
        "NoCompatibleDriver",
        nodes(node("a", driver="470.82")),
        ("driver below 525, which CUDA 12 needs (found 470.82). Update the driver to 525 or newer. No",),
        id="nothing else helps",
    ),
    Case(
        "HardwareMatched",
        "NoCompatibleDriver",
        nodes(node("a", driver="550.54")),
        ("or choose CUDA 12 (spec.engines.version), or",),
        {"engines": {"version": "0.33.0+cu130"}},
        id="the version asks for it",
    ),
    Case(
        "HardwareMatched",
        "NoCompatibleDriver",
        nodes(node("a", driver="", labels={"nvidia.com/cuda.driver.major": "unknown"})),
        ("1 node: driver below 580, which CUDA 13 needs (found nvidia.com/cuda.driver.major=unknown)",),
        {"cuda": {"version": "13"}},
        id="no number",
    ),
    Case(
        "HardwareMatched",
        "NoRDMANodes",
        nodes(node("a", offers={"rdma/hca_a": "63"}), node("b")),
        (
            "2 nodes: fewer rdma/hca_b than 1 (found none, only rdma/hca_a)",
            "A device plugin must offer rdma/hca_b: correct spec.transport.rdma.resourceName, or run one that does "
            "(spec.transport.rdma.devicePlugin",
        ),
        RDMA,
        id="aibrix#1012",
    ),
    Case(
        "HardwareMatched",
        "NoRDMANodes",
        nodes(node("a", offers={"rdma/hca_b": "1"}), node("b")),
        ("fewer rdma/hca_b than 2 (found 1, none)", "Lower spec.transport.rdma.count, or offer more on a node."),
        {"transport": {"protocol": "RDMA", "rdma": {"resourceName": "rdma/hca_b", "count": 2}}},
        id="too few of it",
    ),
    Case(
        "HardwareMatched",
        "NoRDMANodes",
        nodes(node("a")),
        ("devicePlugin asks for has not offered it yet",),
        {
            "transport": {
                "protocol": "RDMA",
                "rdma": {"resourceName": "rdma/x", "devicePlugin": {"selectors": {"vendors": ["15b3"]}}},
            }
        },
        id="plugin is starting",
    ),
    Case(
        "HardwareMatched",
        "HeterogeneousGPUs",
        nodes(node("a"), node("b"), node("c", product=L4)),
        (
            f"{H100} (2 nodes), {L4} (1 node)",
            "spec.engines.gpu.product",
            "spec.schema.attentionBackend. No engine is made or changed.",
        ),
    ),
    Case(
        "HardwareMatched",
        "HeterogeneousGPUs",
        unbound,
        (f"{H100} (1 node), {L4} (1 node)", "Engines that run stay."),
        id="engines run on either",
    ),
    Case(
        "EnginesReady",
        "WaitingForNodes",
        unbound,
        ("Engines stay as they are: nodes that fit the changed ones have different GPUs.",),
        {"engines": {"shmSize": "4Gi"}},
        id="a change on either",
    ),
    Case(
        "HardwareMatched",
        "InsufficientNodeMemory",
        nodes(node("a", memory="256Gi")),
        (
            "1 node: less memory than 682.0 GiB",
            "8 × segment 80Gi + 8 × transfer buffer 4Gi + engine 8Gi + /dev/shm 2Gi = 682Gi",
            "(found 256.0 GiB)",
        ),
        {
            "schema": {"parallelism": {"tensor": 8}},
            "store": {"mode": "Embedded", "segmentSize": "80Gi", "localBufferSize": "4Gi"},
        },
        id="sglang PR#10377",
    ),
    Case(
        "HardwareMatched",
        "InsufficientNodeMemory",
        seen(nodes=(node("a", memory="64Gi"),)),
        ("0 of 1 node can take a store pod", "(found 64.0 GiB)"),
        {"store": {"segmentSize": "100Gi"}},
        id="store",
    ),
    Case(
        "EnginesReady",
        "WaitingForNodes",
        nodes(node("a", gpus=0)),
        ("once a node fits them", "No device is held"),
    ),
    Case(
        "EnginesReady",
        "WaitingForNodes",
        lambda _: replace(healthy(pool()), nodes=(node("a"),)),
        ("Engines stay as they are",),
        {"engines": {"gpu": {"product": "NVIDIA-B200"}}},
        id="a change",
    ),
    Case(
        "EnginesReady",
        "PreflightFailed",
        container(ENGINE, init=True, exit_code=1, exit_message=json.dumps({"ok": False, "message": MISSING})),
        (f"Pods demo-engine-0, demo-engine-1: {MISSING}.", "tried again"),
        id="vllm#42511",
    ),
    Case(
        "Accepted",
        "CUDABuildMismatch",
        says=("found 12", "CUDA 13.0"),
        spec={"cuda": {"version": "12"}, "engines": {"image": "vllm/vllm-openai:v0.33.0"}},
        id="vllm#42511",
    ),
    Case(
        "Accepted",
        "KnownBadCombination",
        seen(tables=parse_tables({"own.yaml": BAD}).over(BUILT_IN)),
        ("loads end in garbage (vllm#1); use 0.34", "spec.engines.version"),
    ),
    Case(
        "Accepted",
        "KnownBadCombination",
        says=("the first load that fails ends the engine", "vllm#45474", "use 0.32 or later"),
        spec={
            "schema": {"hybrid": {"mambaBlockSize": 64}},
            "engines": {"version": "0.31.0", "image": "registry.internal/vllm:0.31.0-cu13"},
        },
        id="vllm#45474",
    ),
    Case("Accepted", "VersionSkew", says=("found 0.3.14",), spec={"backend": {"mooncake": {"version": "0.3.14"}}}),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_condition(case: Case) -> None:
    case.check()


def test_ready_does_not_wait_for_nodes_that_may_not_be_read() -> None:
    status = Case("HardwareMatched", "NodesNotReadable", seen(nodes=None)).status()
    ready = status.condition("Ready")
    assert ready is not None
    assert (ready.status, "HardwareMatched" in ready.message) == ("True", False)
    assert status.hardware is None


def test_ready_is_false_for_the_reason_of_the_hardware() -> None:
    ready = Case("HardwareMatched", "NoMatchingNodes", nodes(node("a", gpus=0))).status().condition("Ready")
    assert ready is not None
    assert (ready.status, ready.reason) == ("False", "NoMatchingNodes")


def test_the_figures_say_which_nodes_and_why_not() -> None:
    status = Case("HardwareMatched", "NodesFit", nodes(node("a"), node("b", gpus=0), node("c", gpus=4))).status()
    assert status.hardware is not None
    assert (status.hardware.nodes, status.hardware.nodes_matched) == (3, 2)
    assert (status.hardware.cuda, status.hardware.product) == ("13", H100)
    assert status.hardware.excluded == ["1 node: fewer nvidia.com/gpu than 1 (found none)"]


def test_what_is_known_bad_and_what_is_ignored_is_advised() -> None:
    case = Case("Ready", "x", spec={"engines": {"version": "0.28.1", "image": "registry.internal/vllm:0.28.1-cu13"}})
    assert "vllm#54870" in case.status().advice
    ignored = Case("Ready", "x", seen(tables_error="own.yaml: cudaVersions.0.source: Field required"))
    assert "kvcachepool-compatibility) are ignored: own.yaml: cudaVersions.0" in ignored.status().advice


def test_many_values_are_cut() -> None:
    many = [node(f"n{i}", gpus=1, product=f"NVIDIA-X{i}") for i in range(9)]
    found = Case(
        "HardwareMatched", "NoMatchingNodes", nodes(*many), spec={"engines": {"gpu": {"product": "L4"}}}
    ).found()
    assert "NVIDIA-X0, NVIDIA-X1, NVIDIA-X2, NVIDIA-X3 and 5 more" in found.message
