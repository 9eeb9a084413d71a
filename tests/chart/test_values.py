"""values.schema.json: what is refused, and that the refusal names the key."""

import json
from typing import Any

import jsonschema
import pytest
import yaml

from tests.chart import helm

pytestmark = helm.needs_helm()
SCHEMA = json.loads((helm.CHART / "values.schema.json").read_text())
VALUES = yaml.safe_load((helm.CHART / "values.yaml").read_text())

REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"tolerationz": []}, "tolerationz"),
    ({"image": {"registri": "x"}}, "registri"),
    ({"operator": {"worker": 3}}, "worker"),
    ({"tolerations": {"key": "x"}}, "/tolerations"),
    ({"tolerations": [{"keys": "x"}]}, "/tolerations/0"),
    ({"replicas": "two"}, "/replicas"),
    ({"replicas": -1}, "/replicas"),
    ({"image": "kvcachepool/operator:1"}, "/image"),
    ({"image": {"tag": 1.0}}, "/image/tag"),
    ({"image": {"digest": "0123"}}, "/image/digest"),
    ({"image": {"pullPolicy": "Sometimes"}}, "/image/pullPolicy"),
    ({"imagePullSecrets": "regcred"}, "/imagePullSecrets"),
    ({"imagePullSecrets": [{"secret": "regcred"}]}, "/imagePullSecrets/0"),
    ({"scope": "namespace"}, "/scope"),
    ({"namespaces": ["team-a"]}, "/namespaces"),
    ({"scope": "namespaces", "namespaces": "team-a"}, "/namespaces"),
    ({"scope": "namespaces", "namespaces": ["Team_A"]}, "/namespaces/0"),
    ({"crds": {"keep": "yes"}}, "/crds/keep"),
    ({"operator": {"resyncSeconds": 0}}, "/operator/resyncSeconds"),
    ({"operator": {"logLevel": "trace"}}, "/operator/logLevel"),
    ({"resources": {"limits": {"cpu": ["1"]}}}, "/resources/limits/cpu"),
    ({"nodeSelector": {"gpu": True}}, "/nodeSelector/gpu"),
    ({"metrics": {"podMonitor": {"interval": "30"}}}, "/metrics/podMonitor/interval"),
    ({"networkPolicy": {"apiServerPorts": []}}, "/networkPolicy/apiServerPorts"),
]


@pytest.mark.parametrize(("values", "named"), REFUSED, ids=lambda value: json.dumps(value)[:60])
def test_refused_with_the_key_named(values: dict[str, Any], named: str) -> None:
    with pytest.raises(helm.RefusedError) as refusal:
        helm.template(values)
    assert named in str(refusal.value)


def test_lint_is_clean() -> None:
    output = helm.run("lint", str(helm.CHART), "--strict", f"--kube-version={helm.KUBE_VERSION}")
    assert "[WARNING]" not in output
    assert "[ERROR]" not in output


def test_a_cluster_that_is_too_old_is_refused() -> None:
    with pytest.raises(helm.RefusedError, match=r"incompatible with Kubernetes v1\.29"):
        helm.run("template", "kvcp", str(helm.CHART), "--kube-version=1.29.0")


def test_values_that_a_parent_chart_passes_on_are_taken() -> None:
    assert helm.template({"global": {"anything": {"at": "all"}}}) == list(helm.defaults())


def test_the_schema_is_one() -> None:
    jsonschema.Draft7Validator.check_schema(SCHEMA)


def test_every_value_is_in_the_schema_and_has_a_default() -> None:
    def resolve(node: dict[str, Any]) -> dict[str, Any]:
        reference = node.get("$ref", "")
        return SCHEMA["definitions"][reference.rpartition("/")[2]] if reference else node

    def compare(values: dict[str, Any], node: dict[str, Any], path: str) -> None:
        properties = dict(resolve(node).get("properties", {}))
        if not path:
            properties.pop("global")  # comes from Helm
        if not properties:
            return
        if path not in (".resources",):
            assert resolve(node)["additionalProperties"] is False, path
        assert set(values) == set(properties), path
        for name, child in properties.items():
            if isinstance(values[name], dict):
                compare(values[name], child, f"{path}.{name}")

    compare(VALUES, SCHEMA, "")
