"""Users' own pods: compared by all that can be seen of them, and kept out of the Service while they differ."""

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from kvcachepool import constants
from kvcachepool.api import PoolStatus
from kvcachepool.facts import ContainerFacts, EngineFacts, Observed, PodFacts
from kvcachepool.membership import alike
from kvcachepool.plan import make_plan
from kvcachepool.plan_types import Plan
from kvcachepool.settings import Settings
from kvcachepool.status import make_status, pod_transitions
from tests.pools import NATIVE, pool
from tests.status_scenes import NOW, Case, See, both, healthy, member

OLD = "0123456789ab"


def changed(name: str = "own-0", **changes: Any) -> See:
    """With other facts of a pod."""
    return lambda observed: replace(
        observed, pods=tuple(replace(p, **changes) if p.name == name else p for p in observed.pods)
    )


def main(change: Callable[[ContainerFacts], ContainerFacts], name: str = "own-0") -> See:
    """With another engine container of a pod."""

    def see(observed: Observed) -> Observed:
        (pod,) = [p for p in observed.pods if p.name == name]
        return changed(name, containers=tuple(c if c.init else change(c) for c in pod.containers))(observed)

    return see


def args(*more: str, without: str = "") -> See:
    """With more flags, and without those that begin so."""
    return main(lambda c: replace(c, args=(*(a for a in c.args if not without or not a.startswith(without)), *more)))


def connector(**config: Any) -> See:
    """With another connector."""
    return args(f"--kv-transfer-config={json.dumps(config)}", without="--kv-transfer-config")


def plan(see: See, **spec: Any) -> Plan:
    item = pool(spec)
    return make_plan(item, both(member(), see)(healthy(item)), Settings())


def problems(see: See) -> tuple[str, ...]:
    (found,) = plan(see).members
    return found.problems


def nothing(observed: Observed) -> Observed:
    return observed


def test_a_copy_of_an_engine_is_a_member() -> None:
    made = plan(nothing)
    (found,) = made.members
    assert (found.problems, found.unknown, found.obstacle, found.reported) == ((), (), "", True)
    assert made.routed == {"own-0"}


DIGEST = plan(nothing).schema.digest  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("see", "says"),
    [
        (changed(digest=OLD), f"label kvcachepool.io/schema is {OLD}, the pool has {DIGEST}"),
        (
            changed(labels={constants.LABEL_COMPONENT: "engine"}),
            "label kvcachepool.io/component is engine, expected none on a pod of one's own, since a Service of the pool",
        ),
        (
            changed(labels={constants.LABEL_COMPONENT: "store"}),
            "label kvcachepool.io/component is store, expected none on a pod of one's own",
        ),
        (changed(engine_unclear=True), "the annotation kvcachepool.io/container names"),
        (changed(containers=()), "the annotation kvcachepool.io/container names"),
        (args("-tp=4"), "container engine: tensor is 4, the pool has 1"),
        (args("--hf-overrides={}"), "--hf-overrides is set, expected to be left out"),
        (args("--hf-override.rope_theta=1"), "--hf-override.rope_theta is short for --hf-overrides, expected in full"),
        (args("--kv-transfer-conf={}"), "--kv-transfer-conf is short for --kv-transfer-config"),
        (
            args("--kv-transfer-config.kv_connector_extra_config.cache_prefix=OTHER"),
            "--kv-transfer-config.kv_connector_extra_config.cache_prefix is set, expected to be left out",
        ),
        (args("--lora-modules.path=/x"), "--lora-modules.path is set, expected to be left out"),
        (args("--hf-config-path=/x"), "--hf-config-path is set, expected to be left out"),
        (args("$(X)"), "container engine: $(X) could be any flag"),
        (
            main(lambda c: replace(c, env=dict(c.env) | {"VLLM_MODEL_REDIRECT_PATH": "/x"})),
            "VLLM_MODEL_REDIRECT_PATH is /x, expected to be left out",
        ),
        (args("--config=x.yaml"), "--config is set"),
        (args("--tensor-par=4"), "--tensor-par is short for --tensor-parallel-size, expected in full"),
        (args("--model=org/other", without="--model"), "modelId is org/other, the pool has org/model"),
        (
            main(lambda c: replace(c, command=("vllm", "serve"), args=(*c.args, "org/other"))),
            "modelId is org/other, the pool has org/model",
        ),
        (args(without="--model"), "its model cannot be told from the command line"),
        (args(without="--kv-transfer-config"), "connector is unset, the pool has MooncakeStoreConnector"),
        (args("--kv-transfer-config={", without="--kv-transfer-config"), "connector is unset"),
        (connector(kv_connector="NixlConnector"), "connector is NixlConnector, the pool has MooncakeStoreConnector"),
        (connector(kv_connector="MooncakeStoreConnector"), f"cache_prefix is unset, the pool has {DIGEST}"),
        (
            connector(kv_connector="MooncakeStoreConnector", kv_connector_extra_config={"cache_prefix": OLD}),
            f"cache_prefix is {OLD}, the pool has {DIGEST}",
        ),
        (main(lambda c: replace(c, env=dict(c.env) | {"PYTHONHASHSEED": "7"})), "hashSeed is 7, the pool has 0"),
        (
            main(lambda c: replace(c, env=dict(c.env) | {"VLLM_ALLOW_RUNTIME_LORA_UPDATING": "1"})),
            "VLLM_ALLOW_RUNTIME_LORA_UPDATING is 1, expected to be left out",
        ),
    ],
)
def test_each_difference_names_the_field_and_both_values(see: See, says: str) -> None:
    found = problems(see)
    assert len(found) == 1, found
    assert says in found[0]
    assert plan(see).routed == frozenset()


def test_a_connector_inside_a_multi_connector_counts() -> None:
    ours = {"kv_connector": "MooncakeStoreConnector", "kv_connector_extra_config": {"cache_prefix": DIGEST}}
    both_of_them = {"connectors": [{"kv_connector": "NixlConnector"}, ours]}
    assert problems(connector(kv_connector="MultiConnector", kv_connector_extra_config=both_of_them)) == ()


def test_a_native_pool_asks_for_no_prefix() -> None:
    item = pool(base=NATIVE)
    made = make_plan(item, member()(healthy(item)), Settings())
    assert made.members[0].problems == ()


def test_a_member_under_another_name_gets_no_traffic_but_shares() -> None:
    made = plan(args("--served-model-name", "chat", "large", without="--served-model-name"))
    (found,) = made.members
    assert (found.problems, made.routed) == ((), frozenset())
    assert found.obstacle == "it serves chat, large, the pool serves org/model"
    see = both(member(), args("--served-model-name=chat", without="--served-model-name"))
    says = "Pod own-0 gets no traffic: it serves chat, the pool serves org/model."
    Case("SchemaHomogeneous", "AllAlike", see, (says,)).check()
    assert plan(args("--served-model-name", "chat", "org/model", without="--served-model-name")).routed == {"own-0"}


def slices(made: Plan) -> list[Any]:
    return [obj for obj in made.objects if obj["kind"] == "EndpointSlice"]


def test_members_stand_behind_the_service_in_a_slice_of_their_own() -> None:
    (found,) = slices(plan(both(changed(node="n1"), member("own-1", ip="fd00::1", node="n2"), nothing)))[:1]
    assert found["metadata"]["name"] == "demo-engines-members"
    assert found["metadata"]["labels"]["kubernetes.io/service-name"] == "demo-engines"
    assert found["metadata"]["labels"]["endpointslice.kubernetes.io/managed-by"] == constants.FIELD_MANAGER
    assert found["addressType"] == "IPv4"
    (endpoint,) = found["endpoints"]
    assert endpoint["addresses"] == ["10.0.9.9"]
    assert endpoint["targetRef"] == {"kind": "Pod", "namespace": "team-a", "name": "own-0", "uid": "own-0"}
    assert found["ports"] == [{"name": "http", "port": 8000, "protocol": "TCP"}]
    other = slices(plan(both(changed(ip="fd00::1"), nothing)))
    assert [(s["addressType"], s["metadata"]["name"]) for s in other] == [("IPv6", "demo-engines-members-v6")]


@pytest.mark.parametrize("see", [changed(ready=False), changed(deleting=True), changed(phase="Failed"), changed(ip="")])
def test_a_member_that_does_not_serve_gets_no_traffic(see: See) -> None:
    assert slices(plan(see)) == []


def with_slice(uid: str) -> See:
    live = {
        "kind": "EndpointSlice",
        "metadata": {"name": "demo-engines-members", "labels": {}},
        "endpoints": [{"addresses": ["10.0.9.9"], "targetRef": {"uid": uid}}],
    }
    return lambda observed: replace(
        observed, children=dict(observed.children) | {("EndpointSlice", "demo-engines-members"): live}
    )


def silent(observed: Observed) -> Observed:
    return replace(observed, engines=dict(observed.engines) | {"own-0": EngineFacts(False, error="timed out")})


def test_an_engine_that_is_silent_keeps_its_traffic_but_does_not_get_it_so() -> None:
    assert plan(silent).routed == frozenset()
    assert plan(both(silent, with_slice("own-0"))).routed == {"own-0"}
    assert plan(both(silent, with_slice("another"))).routed == frozenset()


def test_a_list_without_members_goes_at_once() -> None:
    without = changed(deleting=True)
    assert ("EndpointSlice", "demo-engines-members") in plan(both(without, with_slice("own-0"))).prune
    assert plan(with_slice("own-0")).prune == ()


def test_members_that_differ_are_counted_and_named_in_the_status() -> None:
    see = both(member(), member("own-1", digest=OLD), member("own-2", ready=False))
    status = Case("SchemaHomogeneous", "SchemaMismatch", see).status()
    assert status.members is not None
    found = status.members
    assert (found.joined, found.serving, found.mismatched) == (2, 1, 1)
    assert [(m.name, OLD in m.difference) for m in found.mismatches] == [("own-1", True)]
    assert status.engines.ready == 2, "own pods are not the operator's engines"
    assert Case("SchemaHomogeneous", "AllAlike").status().members is None


def test_members_stay_in_the_status_while_a_spec_is_refused() -> None:
    before = Case("SchemaHomogeneous", "AllAlike", member()).status()
    spec = {"engines": {"extraArgs": ["--dtype=half"]}}
    case = Case("Accepted", "InvalidSpec", lambda _: member()(healthy(pool())), spec=spec, previous=before)
    assert case.status().members == before.members


def events(see: See, previous: PoolStatus) -> tuple[list[tuple[str, str, str, str]], PoolStatus]:
    item = pool().model_copy(update={"status": previous})
    observed = see(healthy(item))
    made = make_plan(item, observed, Settings())
    status = make_status(item, made, observed, NOW)
    told = [(e.pod, e.uid, e.type, e.reason) for e in pod_transitions(previous, status, made)]
    return told, status


def test_a_pod_that_differs_is_told_once_and_again_when_it_is_well() -> None:
    wrong = both(member(), args("-tp=4"))
    told, status = events(wrong, PoolStatus())
    assert told == [("own-0", "own-0", "Warning", "SchemaMismatch")]
    assert events(wrong, status)[0] == []
    assert events(both(member(), args("-tp=2")), status)[0] == told, "another difference"
    assert events(member(), status)[0] == [("own-0", "own-0", "Normal", "AllAlike")]
    assert events(nothing, status)[0] == [], "it has left"


@pytest.mark.parametrize(
    ("component", "traffic", "event"),
    [
        (
            "engine",
            "Requests reach own-0 by the label kvcachepool.io/component: remove it.",
            "is not probed, but gets requests",
        ),
        (
            "master",
            "Requests reach own-0 by the label kvcachepool.io/component: remove it.",
            "is not probed, but gets requests",
        ),
        ("store", "No traffic or probe goes to own-0.", "gets no traffic and is not probed"),
    ],
)
def test_of_a_copy_that_a_service_selects_nobody_says_that_it_gets_no_traffic(
    component: str, traffic: str, event: str
) -> None:
    item = pool()
    observed = both(member(), changed(labels={constants.LABEL_COMPONENT: component}))(healthy(item))
    made = make_plan(item, observed, Settings())
    status = make_status(item, made, observed, NOW)
    said = next(c.message for c in status.conditions if c.type == "SchemaHomogeneous")
    assert traffic in said
    assert ("No traffic" in said) == (component == "store")
    (told,) = pod_transitions(PoolStatus(), status, made)
    assert f"The pod {event}." in told.message


def test_pods_that_differ_take_no_part_in_probes() -> None:
    item = pool()
    observed = both(member(), member("own-1", digest=OLD))(healthy(item))
    found = alike(observed, make_plan(item, observed, Settings()).members)
    assert [p.name for p in found.pods if not p.owned] == ["own-0"]
    assert alike(found, make_plan(item, found, Settings()).members) is found


def test_a_sidecar_is_not_taken_for_the_engine() -> None:
    pod = PodFacts(
        "p",
        "u",
        "",
        "",
        containers=(ContainerFacts("proxy"), ContainerFacts("server", args=("-tp=2",))),
        engine="server",
    )
    assert pod.main is not None
    assert pod.main.name == "server"
