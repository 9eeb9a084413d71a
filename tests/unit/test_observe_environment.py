"""Environment of users' pods out of ConfigMaps and Secrets."""

from typing import Any

import pytest

from kvcachepool.facts import ContainerFacts, PodFacts
from kvcachepool.observe.environment import REREAD_SECONDS, resolved
from kvcachepool.observe.memory import PoolMemory
from kvcachepool.observe.pods import pod_facts


class Reader:
    def __init__(self) -> None:
        self.maps: dict[str, dict[str, str]] = {}
        self.secrets: dict[str, frozenset[str]] = {}
        self.calls: list[str] = []
        self.down = False

    async def config(self, namespace: str, name: str) -> dict[str, str] | None:
        assert namespace == "ns"
        self.calls.append(f"ConfigMap {name}")
        if self.down:
            raise RuntimeError("no answer")
        return self.maps.get(name)

    async def keys(self, kind: str, namespace: str, name: str) -> frozenset[str] | None:
        assert (kind, namespace) == ("Secret", "ns")
        self.calls.append(f"Secret {name}")
        return self.secrets.get(name)


def raw(env: list[Any] | None = None, env_from: list[Any] | None = None) -> dict[str, Any]:
    container = {"name": "server", "image": "vllm", "env": env or [], "envFrom": env_from or []}
    return {"metadata": {"name": "p", "uid": "u"}, "spec": {"containers": [container]}}


def reference(kind: str, name: str, key: str) -> dict[str, Any]:
    return {"name": "PYTHONHASHSEED", "valueFrom": {kind: {"name": name, "key": key}}}


async def seen(
    pod: dict[str, Any], reader: Reader, memory: PoolMemory | None = None, now: float = 0.0
) -> ContainerFacts:
    (found,) = await resolved([pod_facts(pod)], "ns", reader, memory or PoolMemory(), now)
    assert found.main is not None
    return found.main


@pytest.mark.parametrize(
    ("env", "env_from", "value", "unreadable"),
    [
        ([reference("configMapKeyRef", "c", "seed")], [], "7", None),
        ([reference("configMapKeyRef", "c", "none")], [], None, None),
        ([reference("configMapKeyRef", "none", "seed")], [], None, "ConfigMap none"),
        ([reference("secretKeyRef", "any", "seed")], [], None, "Secret any"),
        ([reference("fieldRef", "", "")], [], None, "a field of the pod"),
        ([], [{"configMapRef": {"name": "c"}}], "3", None),
        ([], [{"configMapRef": {"name": "c"}}, {"configMapRef": {"name": "later"}}], "9", None),
        ([], [{"configMapRef": {"name": "c"}, "prefix": "PYTHON"}], "5", None),
        ([], [{"configMapRef": {"name": "c"}, "prefix": "OTHER"}], None, None),
        ([], [{"secretRef": {"name": "s"}}], None, "Secret s"),
        ([], [{"secretRef": {"name": "harmless"}}], None, None),
        ([], [{"configMapRef": {"name": "c"}}, {"secretRef": {"name": "s"}}], None, "Secret s"),
        ([], [{"secretRef": {"name": "s"}}, {"configMapRef": {"name": "c"}}], "3", None),
        ([{"name": "PYTHONHASHSEED", "value": "0"}], [{"secretRef": {"name": "s"}}], "0", None),
        ([reference("configMapKeyRef", "c", "seed")], [{"secretRef": {"name": "s"}}], "7", None),
    ],
)
async def test_what_a_container_gets(
    env: list[Any], env_from: list[Any], value: str | None, unreadable: str | None
) -> None:
    reader = Reader()
    reader.maps = {"c": {"seed": "7", "PYTHONHASHSEED": "3", "HASHSEED": "5"}, "later": {"PYTHONHASHSEED": "9"}}
    reader.secrets = {"s": frozenset({"PYTHONHASHSEED"}), "harmless": frozenset({"HF_TOKEN"})}
    main = await seen(raw(env, env_from), reader)
    assert main.env.get("PYTHONHASHSEED") == value
    assert main.unreadable.get("PYTHONHASHSEED") == unreadable


async def test_objects_are_read_once_a_minute_and_only_what_is_asked_of_them_is_kept() -> None:
    reader, memory = Reader(), PoolMemory()
    reader.maps = {"c": {"seed": "7", "password": "x"}}
    pod = raw([reference("configMapKeyRef", "c", "seed")])
    for now in (0.0, REREAD_SECONDS - 1):
        assert (await seen(pod, reader, memory, now)).env["PYTHONHASHSEED"] == "7"
    assert reader.calls == ["ConfigMap c"]
    assert memory.sources["ConfigMap", "c"].values == {"seed": "7"}
    reader.maps["c"]["seed"] = "8"
    assert (await seen(pod, reader, memory, REREAD_SECONDS)).env["PYTHONHASHSEED"] == "8"
    await seen(raw(), reader, memory, REREAD_SECONDS)
    assert memory.sources == {}


async def test_an_api_server_that_does_not_answer_leaves_the_variable_unknown() -> None:
    reader = Reader()
    reader.down = True
    main = await seen(raw([reference("configMapKeyRef", "c", "seed")]), reader)
    assert main.unreadable == {"PYTHONHASHSEED": "ConfigMap c"}


async def test_variables_that_carry_no_schema_field_are_not_looked_up() -> None:
    reader = Reader()
    token = {"name": "HF_TOKEN", "valueFrom": {"secretKeyRef": {"name": "hf", "key": "t"}}}
    assert (await seen(raw([token]), reader)).unreadable == {}
    assert reader.calls == []


async def test_the_operators_own_pods_are_not_looked_at() -> None:
    reader = Reader()
    own = PodFacts("e", "u", "engine", "", containers=pod_facts(raw([reference("secretKeyRef", "s", "k")])).containers)
    assert await resolved([own], "ns", reader, PoolMemory(), 0.0) == [own]
    assert reader.calls == []


@pytest.mark.parametrize(
    ("annotations", "containers", "engine", "unclear"),
    [
        ({}, [{"name": "any"}], "any", False),
        ({}, [{"name": "proxy"}, {"name": "x", "image": "vllm/vllm-openai:v1"}], "x", False),
        ({}, [{"name": "proxy"}, {"name": "x", "args": ["--kv-transfer-config={}"]}], "x", False),
        ({}, [{"name": "a", "image": "vllm"}, {"name": "b", "image": "vllm"}], "a", True),
        ({}, [{"name": "a"}, {"name": "b"}], "", True),
        ({"kvcachepool.io/container": "b"}, [{"name": "a", "image": "vllm"}, {"name": "b"}], "b", False),
        ({"kvcachepool.io/container": 3}, [{"name": "a"}], "a", False),
    ],
)
def test_which_container_is_the_engine(annotations: Any, containers: list[Any], engine: str, unclear: bool) -> None:
    facts = pod_facts({"metadata": {"annotations": annotations}, "spec": {"containers": containers}})
    assert (facts.engine, facts.engine_unclear, facts.component) == (engine, unclear, "")
