"""The CRD: structural, small, and with the defaults of the models."""

import json
import re
from collections.abc import Iterator
from typing import Annotated, Any

import pytest
from pydantic import Field, ValidationError

from kvcachepool.api import KVCachePool, PoolSpec
from kvcachepool.api.base import ApiModel
from kvcachepool.api.crd import crd, filled, root_schema, structural
from kvcachepool.compat.pins import PINS
from kvcachepool.constants import GROUP, KIND, SHORT_NAME

CRD = crd()
VERSION = CRD["spec"]["versions"][0]
SPEC = root_schema()["properties"]["spec"]
BUDGET = 100 * 1024
"""Client-side apply keeps the whole CRD in an annotation of at most 262,144 bytes (kserve#3487)."""


def nodes(schema: dict[str, Any], path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Every schema below this one, with its path."""
    yield path, schema
    for name, child in schema.get("properties", {}).items():
        yield from nodes(child, f"{path}.{name}")
    for key in ("items", "additionalProperties"):
        if isinstance(schema.get(key), dict):
            yield from nodes(schema[key], f"{path}[]")


ALL_NODES = list(nodes(root_schema()))


def test_names() -> None:
    names = CRD["spec"]["names"]
    assert (CRD["spec"]["group"], names["kind"], names["shortNames"]) == (GROUP, KIND, [SHORT_NAME])
    assert CRD["metadata"]["name"] == f"{names['plural']}.{GROUP}"


def test_it_fits_client_side_apply_with_room() -> None:
    assert len(json.dumps(CRD, separators=(",", ":")).encode()) < BUDGET


@pytest.mark.parametrize("word", ["$ref", "$defs", "title", "oneOf", "allOf", '"null"', "exclusiveMinimum"])
def test_no_keyword_that_a_structural_schema_must_not_have(word: str) -> None:
    quoted = word if word.startswith('"') else f'"{word}"'
    assert quoted not in json.dumps(CRD)


def test_every_node_has_one_type() -> None:
    for path, node in ALL_NODES:
        if node.get("x-kubernetes-int-or-string"):
            assert "type" not in node, path
        else:
            assert node["type"] in {"object", "array", "string", "integer", "boolean"}, path


def test_every_node_says_what_it_is() -> None:
    silent = [path for path, node in ALL_NODES if "description" not in node and not path.endswith("[]")]
    assert silent == [".apiVersion", ".kind", ".metadata"]


def test_free_objects_keep_their_fields_and_no_others_do() -> None:
    free = {path for path, node in ALL_NODES if node.get("x-kubernetes-preserve-unknown-fields")}
    assert free == {
        path
        for path, _ in ALL_NODES
        if re.search(r"\.(affinity|topologySpreadConstraints\[\]|valueFrom|clients\[\])$", path)
    }


def test_defaults_fill_in_what_the_models_would() -> None:
    """An object that the API server filled in means the same as the one that the user wrote."""
    for given in (
        {"model": {"id": "m", "revision": "r"}, "backend": {"mooncake": {}}},
        {"model": {"id": "m"}, "backend": {"native": {}}},
        {
            "model": {"id": "m", "revision": "r", "source": {"pvc": {"claimName": "c"}}},
            "backend": {"mooncake": {}},
            "store": {"master": {"resources": {}}},
            "engines": {"identity": {"fsGroup": 5}},
            "schema": {"parallelism": {"tensor": 2}},
        },
    ):
        assert PoolSpec.model_validate(filled(SPEC, given)) == PoolSpec.model_validate(given)


def test_versions_are_filled_in_so_that_an_upgrade_changes_no_pool() -> None:
    spec = filled(SPEC, {"model": {"id": "m"}, "backend": {"mooncake": {}}})
    assert spec["engines"]["version"] == PINS.engine_version
    assert spec["backend"]["mooncake"]["version"] == PINS.mooncake_version
    assert spec["schema"]["hashAlgorithm"] == "sha256_cbor"
    assert spec["schema"]["hashSeed"] == "0"
    assert spec["schema"]["parallelism"]["tensor"] == 1
    assert spec["model"]["source"] == {"hub": {}}


def test_nothing_is_filled_in_that_says_nothing() -> None:
    spec = filled(SPEC, {"model": {"id": "m"}, "backend": {"native": {}}})
    assert "store" not in spec  # it would be refused with native
    assert not {"scheduling", "imagePullSecrets", "rolloutToken"} & set(spec)
    assert not {"env", "extraArgs", "resources", "scheduling", "image"} & set(spec["engines"])


def test_status_has_no_defaults() -> None:
    assert not [path for path, node in ALL_NODES if path.startswith(".status") and "default" in node]


def test_conditions_are_a_map_by_type() -> None:
    conditions = root_schema()["properties"]["status"]["properties"]["conditions"]
    assert conditions["x-kubernetes-list-type"] == "map"
    assert conditions["x-kubernetes-list-map-keys"] == ["type"]


def test_columns() -> None:
    columns = [column["name"] for column in VERSION["additionalPrinterColumns"] if not column.get("priority")]
    assert columns == ["READY", "REASON", "BACKEND", "SCHEMA", "ENGINES", "HIT%", "VERIFIED", "AGE"]


def test_paths_of_columns_and_scale_exist() -> None:
    known = {path for path, _ in ALL_NODES}
    paths = [column["jsonPath"] for column in VERSION["additionalPrinterColumns"]]
    paths += VERSION["subresources"]["scale"].values()
    for path in paths:
        plain = re.sub(r"\[\?.*\]", "[]", path)
        assert plain in known or plain == ".metadata.creationTimestamp", path


def test_enumerations_and_limits_survive() -> None:
    schema = SPEC["properties"]["schema"]["properties"]
    assert "builtin" not in schema["hashAlgorithm"]["enum"]  # LMCache#2511
    assert (schema["blockSize"]["minimum"], schema["blockSize"]["maximum"]) == (1, 1024)
    assert SPEC["properties"]["transport"]["properties"]["protocol"]["enum"] == ["TCP", "RDMA"]  # no auto


def test_what_cel_reads_is_bounded_so_that_the_api_server_takes_its_cost() -> None:
    for path, node in ALL_NODES:
        rules = node.get("x-kubernetes-validations", [])
        if rules and node.get("type") != "object":
            assert "maxLength" in node, path
        assert not any("+ string(" in rule.get("messageExpression", "") for rule in rules), path


def test_a_rule_points_at_a_field_that_exists() -> None:
    known = {path for path, _ in ALL_NODES}
    for path, node in ALL_NODES:
        for rule in node.get("x-kubernetes-validations", []):
            assert f"{path}{rule.get('fieldPath', '')}" in known


def test_a_keyword_that_kubernetes_does_not_know_is_an_error_and_not_lost() -> None:
    class Odd(ApiModel):
        share: Annotated[float, Field(gt=0)] = 1.0

    with pytest.raises(ValueError, match="exclusiveMinimum"):
        structural(Odd)


def test_a_union_of_two_types_is_an_error() -> None:
    class Either(ApiModel):
        value: int | bool = 1

    with pytest.raises(ValueError, match="union"):
        structural(Either)


@pytest.mark.parametrize("value", ["4294967295", "4294967290", "4294900000", "999999999", "1", "0", "3999999999"])
def test_seeds_up_to_the_largest_are_taken(value: str) -> None:
    spec = {"model": {"id": "m"}, "backend": {"native": {}}, "schema": {"hashSeed": value}}
    assert PoolSpec.model_validate(spec).schema_.hash_seed == value


@pytest.mark.parametrize("value", ["4294967296", "4294967300", "5000000000", "10000000000", "01", "-1", "", "1\n", "²"])
def test_other_seeds_are_refused(value: str) -> None:
    spec = {"model": {"id": "m"}, "backend": {"native": {}}, "schema": {"hashSeed": value}}
    with pytest.raises(ValidationError, match="without leading zeros"):
        PoolSpec.model_validate(spec)


def test_the_root_is_the_pool() -> None:
    assert set(root_schema()["properties"]) == {"apiVersion", "kind", "metadata", "spec", "status"}
    assert set(SPEC["properties"]) == {f.alias for f in PoolSpec.model_fields.values()}
    assert KVCachePool.__doc__
