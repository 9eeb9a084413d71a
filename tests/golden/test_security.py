"""What must hold of every pod that the operator or its chart makes, whatever a golden case is about."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from kvcachepool.credentials import HARMLESS, secret_name
from kvcachepool.negative.job import manifests

ROOT = Path(__file__).resolve().parents[1]
FILES = sorted([*ROOT.glob("golden/cases/*/objects.yaml"), *ROOT.glob("chart/golden/*.yaml")])
SHELLS = {"sh", "bash", "dash", "ash", "zsh", "ksh", "busybox", "env", "sudo", "su"}
Json = dict[str, Any]


def templates(objects: list[Json]) -> Iterator[tuple[str, Json]]:
    """(name, pod spec) of each workload."""
    for item in objects:
        spec = item.get("spec") or {}
        if "leaderWorkerTemplate" in spec:
            for key in ("leaderTemplate", "workerTemplate"):
                if key in spec["leaderWorkerTemplate"]:
                    yield f"{item['metadata']['name']} {key}", spec["leaderWorkerTemplate"][key]["spec"]
        elif isinstance(spec.get("template"), dict) and "containers" in spec["template"].get("spec", {}):
            yield item["metadata"]["name"], spec["template"]["spec"]


def pods() -> Iterator[Any]:
    for path in FILES:
        where = path.parent.name if path.name == "objects.yaml" else f"chart {path.stem}"
        for name, spec in templates([d for d in yaml.safe_load_all(path.read_text()) if d]):
            yield pytest.param(spec, id=f"{where}: {name}")
    for name, spec in templates(manifests("chat", "team-a", "image", [])):
        yield pytest.param(spec, id=f"suite: {name}")


PODS = list(pods())


def containers(spec: Json) -> list[Json]:
    return [*(spec.get("initContainers") or ()), *spec["containers"]]


def rdma(spec: Json) -> bool:
    """Whether a container asks for a network device: extended resources but GPUs."""
    names = {name for c in containers(spec) for name in (c.get("resources") or {}).get("limits") or {}}
    return any("/" in name and not name.startswith(("nvidia.com/gpu", "nvidia.com/mig")) for name in names)


def test_there_is_something_to_look_at() -> None:
    assert len(PODS) > 30
    assert sum(rdma(parameter.values[0]) for parameter in PODS) > 4


@pytest.mark.parametrize("spec", PODS)
def test_confined(spec: Json) -> None:
    pod = spec["securityContext"]
    assert pod["seccompProfile"] == {"type": "RuntimeDefault"}
    assert pod["runAsNonRoot"] is True or (rdma(spec) and pod["runAsUser"] == 0)
    for name in ("hostPID", "hostIPC", "shareProcessNamespace"):
        assert name not in spec
    assert not spec.get("hostNetwork") or rdma(spec)
    assert not [volume for volume in spec.get("volumes") or () if "hostPath" in volume]
    for container in containers(spec):
        security = container["securityContext"]
        assert security["readOnlyRootFilesystem"] is True, container["name"]
        assert security["allowPrivilegeEscalation"] is False, container["name"]
        assert "privileged" not in security
        assert security["capabilities"]["drop"] == ["ALL"]
        added = security["capabilities"].get("add", [])
        assert added == [] or (added == ["IPC_LOCK"] and rdma(spec)), container["name"]


@pytest.mark.parametrize("spec", PODS)
def test_no_shell_stands_before_a_program(spec: Json) -> None:
    """A shell would swallow SIGTERM and hide flags from whoever checks them."""
    for container in containers(spec):
        words = [*(container.get("command") or ()), *(container.get("args") or ())]
        assert words, container["name"]
        assert words[0].rpartition("/")[2] not in SHELLS, container["name"]
        assert words[0] == "python3" or "-c" not in words, container["name"]


@pytest.mark.parametrize("spec", PODS)
def test_no_secret_stands_in_the_open(spec: Json) -> None:
    for container in containers(spec):
        for variable in container.get("env") or ():
            literal = secret_name(variable["name"]) and variable.get("value", "") not in HARMLESS
            assert not literal, f"{container['name']}: {variable['name']}"


def test_only_who_calls_the_api_server_has_a_token() -> None:
    for parameter in PODS:
        spec = parameter.values[0]
        calls = "serviceAccountName" in spec
        assert calls or spec["automountServiceAccountToken"] is False, parameter.id
