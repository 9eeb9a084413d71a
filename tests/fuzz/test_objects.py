"""Objects of the cluster that others write: pods, nodes, workloads, ConfigMaps, and pods that ask to join."""

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from kvcachepool import constants
from kvcachepool.api.parse import parse_pool
from kvcachepool.api.status import PoolStatus
from kvcachepool.compat.tables import BUILT_IN, FILES, TableError, Tables, parse_tables
from kvcachepool.facts import Observed
from kvcachepool.hardware import labels as gpu_labels
from kvcachepool.inject import InjectionRefusedError, complete
from kvcachepool.inventory import inventory
from kvcachepool.observe.nodes import node_facts
from kvcachepool.observe.pods import owned_by, pod_facts, workload_facts
from kvcachepool.plan import make_plan
from kvcachepool.settings import Settings
from kvcachepool.status import make_status
from kvcachepool.watchcache import WatchCache
from tests.fuzz.strategies import json_values, mutated, sayable, scalars, spoiled, texts
from tests.members import MASTER_READY, engine_of, status_of
from tests.nodes import raw_node
from tests.pools import pool, raw
from tests.status_scenes import NOW

POOL = pool()
LIVE_POD = {
    **engine_of(POOL),
    "status": {
        "phase": "Running",
        "podIP": "10.0.0.1",
        "conditions": [{"type": "Ready", "status": "True"}, {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}],
        "containerStatuses": [
            {
                "name": "engine",
                "ready": True,
                "restartCount": 3,
                "state": {"running": {"startedAt": "2026-03-01T11:00:00Z"}},
                "lastState": {"terminated": {"exitCode": 1, "message": '{"message": "x"}', "startedAt": "2026-01-01T00:00:00Z"}},
            }
        ],
    },
}  # fmt: skip
DEPLOYMENT = next(dict(o) for o in make_plan(POOL, MASTER_READY, Settings()).objects if o["kind"] == "Deployment")
TABLES = """
engine_builds:
- {image: "acme/vllm:1-cu129", engine: 0.33.0, cuda: "12.9", source: "https://acme", date: 2026-01-02}
gpu_classes:
- {products: "NVIDIA-A[0-9]+.*", data_center: true, source: "https://acme", date: 2026-01-02}
known_bad:
- {engine: ">=0.28,<0.29", effect: warn, problem: "it is slow", remedy: upgrade, issue: "a/b#1", source: "https://acme", date: 2026-01-02}
"""
"""Rows as the ConfigMap of a cluster would have them."""


def seen(*pods: Any) -> None:
    """A plan and a status can be made of what is seen."""
    observed = Observed(pods=tuple(pod_facts(p) for p in pods), leader_worker_sets=True)
    plan = make_plan(POOL, observed, Settings())
    for condition in make_status(POOL, plan, observed, NOW).conditions:
        sayable(condition.message)


@given(value=st.one_of(spoiled(LIVE_POD), spoiled(LIVE_POD, scalars, most=8), st.dictionaries(texts, json_values)))
def test_any_pod_is_facts(value: dict[str, Any]) -> None:
    seen(value)
    owned_by(value, "u")


@given(value=st.one_of(spoiled(DEPLOYMENT), st.dictionaries(texts, json_values)))
def test_any_workload_is_facts(value: dict[str, Any]) -> None:
    facts = workload_facts(value)
    assert isinstance(facts.replicas, int)


@given(message=st.one_of(texts, json_values.map(json.dumps), st.just("[" * 4000)), init=st.booleans())
def test_any_last_words_of_a_container(message: str, init: bool) -> None:
    """A termination message, as the preflight writes it too."""
    name = constants.PREFLIGHT_CONTAINER if init else "engine"
    status = {
        "name": name,
        "state": {"waiting": {"reason": "CrashLoopBackOff", "message": message}},
        "lastState": {"terminated": {"exitCode": 1, "reason": message[:100], "message": message}},
    }
    pod = engine_of(POOL)
    pod["metadata"]["ownerReferences"] = []
    pod["status"] = {"initContainerStatuses" if init else "containerStatuses": [status]}
    seen(pod)


@given(words=st.lists(texts, max_size=6), variables=st.dictionaries(texts, texts, max_size=3))
def test_any_command_line_of_a_member(words: list[str], variables: dict[str, str]) -> None:
    pod = engine_of(POOL, *words, **variables)
    pod["metadata"]["labels"].pop(constants.LABEL_COMPONENT)
    pod["status"] = LIVE_POD["status"]
    seen(pod)


@given(node=st.one_of(spoiled(raw_node()), spoiled(raw_node(), texts, most=8), st.dictionaries(texts, json_values)))
def test_any_node_is_facts_and_is_matched(node: dict[str, Any]) -> None:
    facts = node_facts(node)
    for read in (gpu_labels.product, gpu_labels.driver, gpu_labels.newest_cuda, gpu_labels.capability):
        read(facts.labels)
    observed = Observed(pods=MASTER_READY.pods, nodes=(facts,))
    plan = make_plan(POOL, observed, Settings())
    for condition in make_status(POOL, plan, observed, NOW).conditions:
        sayable(condition.message)
    for row in inventory((facts,), [raw()], BUILT_IN):
        json.dumps(row.dump())


@given(
    text=st.one_of(mutated(TABLES), texts, st.sampled_from(["[" * 5000, "a: &a [*a]", "x: 2026-99-99", "? [a]\n: b"]))
)
def test_any_table_is_used_or_refused(text: str) -> None:
    try:
        tables = parse_tables({"rows.yaml": text})
    except TableError as error:
        sayable(str(error), 2048)
        return
    assert isinstance(tables, Tables)
    tables.over(BUILT_IN).bad(engine="0.33.0", mooncake="0.3.13", backend="mooncake")
    tables.data_center("NVIDIA-" + "A" * 56)


def test_the_tables_to_be_spoiled_are_good() -> None:
    assert parse_tables({"rows.yaml": TABLES}).known_bad
    assert FILES


@st.composite
def asking(draw: st.DrawFn) -> dict[str, Any]:
    """A pod as the API server sends it: of the right types, with anything in its texts."""
    pod = engine_of(POOL)
    pod["metadata"]["labels"].pop(constants.LABEL_COMPONENT)
    container = pod["spec"]["containers"][0]
    container["args"] = draw(st.lists(st.one_of(texts, st.sampled_from(container["args"])), max_size=6))
    container["env"] = [
        {"name": name, "value": value} for name, value in draw(st.dictionaries(texts, texts, max_size=3)).items()
    ]
    container["image"] = draw(texts)
    memory = draw(st.one_of(texts, st.sampled_from(["1Gi", "1e400", "1E", "-1"])))
    container["resources"] = {"requests": {"memory": memory}, "limits": {draw(texts): draw(texts)}}
    record = draw(
        st.one_of(texts, json_values.map(json.dumps), spoiled({"args": [], "memory": 1, "env": []}).map(json.dumps))
    )
    pod["metadata"]["annotations"] = {constants.ANNOTATION_INJECTED: record, draw(texts): draw(texts)}
    if draw(st.booleans()):
        pod["metadata"]["annotations"][constants.ANNOTATION_CONTAINER] = draw(texts)
    return pod


@given(pod=asking())
def test_a_pod_that_asks_to_join_is_completed_or_refused(pod: dict[str, Any]) -> None:
    accepted = {"type": "Accepted", "status": "True", "reason": "Valid"}
    status = PoolStatus.model_validate({**status_of(POOL), "conditions": [accepted]})
    try:
        completed = complete(pod, POOL.model_copy(update={"status": status}))
    except InjectionRefusedError as refusal:
        sayable(str(refusal), 100_000)
        return
    assert complete(completed, POOL.model_copy(update={"status": status})) == completed


@given(
    objects=st.lists(
        spoiled({"metadata": {"labels": {"kvcachepool.io/pool": "demo"}, "annotations": {}}, "spec": {}}), max_size=4
    )
)
def test_the_cache_takes_whatever_a_watch_brings(objects: list[Any]) -> None:
    """Kind, name, namespace, uid, version and the types of labels and annotations are the API server's own."""
    cache = WatchCache()
    for index, value in enumerate(objects):
        metadata = value.get("metadata")
        metadata = metadata if isinstance(metadata, dict) else {}
        labels = metadata.get("labels")
        fixed: dict[str, Any] = {"name": "a", "namespace": "team-a", "uid": "u", "resourceVersion": str(index)}
        fixed["annotations"] = {"a": str(metadata.get("annotations"))}
        fixed["labels"] = {str(k): str(v) for k, v in labels.items()} if isinstance(labels, dict) else None
        cache.event("MODIFIED", {**value, "kind": "Pod", "metadata": {**metadata, **fixed}})
    cache.event("MODIFIED", raw() | {"kind": constants.KIND})
    cache.pods(("team-a", "demo"))
    assert parse_pool(raw())
