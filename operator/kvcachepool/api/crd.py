"""The CustomResourceDefinition, generated from the models.

Pydantic gives JSON Schema; Kubernetes wants a *structural* schema: no `$ref`, no `anyOf` with null, no
`title`, no `additionalProperties: false` (unknown fields are refused by the API server's field validation).
Defaults are written so that the API server fills them in and stores them: an object as `default: {}`, whose
fields then get their own defaults. So an operator upgrade with other defaults changes no stored pool.

Source: kubernetes.io, "Extend the Kubernetes API with CustomResourceDefinitions" (structural schema,
defaulting).
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final, get_args

from pydantic import BaseModel
from pydantic.alias_generators import to_camel
from pydantic.fields import FieldInfo

from kvcachepool.api.pool import KVCachePool, PoolSpec
from kvcachepool.api.status import PoolStatus
from kvcachepool.constants import GROUP, KIND, PLURAL, SHORT_NAME, VERSION

Json = dict[str, Any]

CRD_NAME: Final = f"{PLURAL}.{GROUP}"

_ORDER: Final = (
    "description",
    "type",
    "format",
    "enum",
    "default",
    "pattern",
    "minimum",
    "maximum",
    "minLength",
    "maxLength",
    "minItems",
    "maxItems",
    "minProperties",
    "maxProperties",
    "anyOf",
    "items",
    "additionalProperties",
    "required",
    "properties",
)
"""The keywords we use, in the order in which they are good to read; x-kubernetes-… follow."""
_DROPPED: Final = frozenset({"title", "default", "$defs"})
"""Of pydantic's schema; `_default` says what the API server should fill in."""

COLUMNS: Final = (  # name, type, path, meaning
    ("READY", "string", '.status.conditions[?(@.type=="Ready")].status', "The pool is as it was asked for."),
    ("REASON", "string", '.status.conditions[?(@.type=="Ready")].reason', "Why it is, or is not."),
    ("BACKEND", "string", ".status.backend", "What keeps the cache."),
    ("SCHEMA", "string", ".status.schema.digest", "Digest of the cache schema."),
    ("ENGINES", "string", ".status.engines.summary", "Ready and wanted engines."),
    ("HIT%", "integer", ".status.hitRate.total", "Share of prompt tokens that came from the cache."),
    (
        "VERIFIED",
        "string",
        '.status.conditions[?(@.type=="ReuseVerified")].status',
        "One engine reused what another one computed.",
    ),
    ("AGE", "date", ".metadata.creationTimestamp", "Time since the pool was made."),
)
WIDE_COLUMNS: Final = (
    ("MODEL", "string", ".spec.model.id", "Model that the engines serve."),
    ("CAPACITY", "string", ".status.store.capacity", "Memory of the shared store."),
    ("USED%", "integer", ".status.store.usedPercent", "Share of the capacity in use."),
    ("ADVICE", "string", ".status.advice", "What would help."),
)


def crd() -> Json:
    """The whole manifest, ready to be written as YAML."""
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": CRD_NAME},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {
                "kind": KIND,
                "listKind": f"{KIND}List",
                "plural": PLURAL,
                "singular": KIND.lower(),
                "shortNames": [SHORT_NAME],
                "categories": ["all"],
            },
            "versions": [
                {
                    "name": VERSION,
                    "served": True,
                    "storage": True,
                    "additionalPrinterColumns": _columns(),
                    "schema": {"openAPIV3Schema": root_schema()},
                    "subresources": {
                        "status": {},
                        "scale": {
                            "specReplicasPath": ".spec.engines.replicas",
                            "statusReplicasPath": ".status.replicas",
                            "labelSelectorPath": ".status.engines.selector",
                        },
                    },
                }
            ],
        },
    }


def root_schema() -> Json:
    """Structural schema of a KVCachePool."""
    return {
        "type": "object",
        "description": words(KVCachePool.__doc__ or ""),
        "required": ["spec"],
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"type": "object"},
            "spec": structural(PoolSpec),
            "status": structural(PoolStatus, defaults=False),
        },
    }


def _columns() -> list[Json]:
    columns: list[Json] = [
        {"name": name, "type": kind, "jsonPath": path, "description": meaning} for name, kind, path, meaning in COLUMNS
    ]
    columns[-1:-1] = [  # before AGE, as kubectl users expect
        {"name": name, "type": kind, "jsonPath": path, "description": meaning, "priority": 1}
        for name, kind, path, meaning in WIDE_COLUMNS
    ]
    return columns


def structural(model: type[BaseModel], *, defaults: bool = True) -> Json:
    """Structural schema of one model. Status has no defaults: the operator alone writes it.

    Raises ValueError that names the keyword if a model uses JSON Schema that Kubernetes does not know.
    """
    source = model.model_json_schema(by_alias=True)
    nested = {found.__name__: found for found in nested_models(model)}
    schema = _convert(source, nested, defaults)
    if defaults:
        for name, field in model.model_fields.items():
            alias = field.alias or to_camel(name)
            target = schema["properties"][alias]
            default = _default(field, target)
            if default is not None:
                schema["properties"][alias] = _sorted(target | {"default": default})
    return schema


def _convert(node: Mapping[str, Any], nested: Mapping[str, type[BaseModel]], defaults: bool) -> Json:
    node = _without_null(node)
    if "$ref" in node:
        result = structural(nested[node["$ref"].rpartition("/")[2]], defaults=defaults)
        if "description" in node:
            result["description"] = words(node["description"])
        return result
    result = {}
    for key, value in node.items():
        if key in _DROPPED:
            continue
        if key == "properties":
            result[key] = {name: _convert(child, nested, defaults) for name, child in value.items()}
        elif isinstance(value, Mapping) and key in ("items", "additionalProperties"):
            result[key] = _convert(value, nested, defaults)
        elif key == "const":
            result["enum"] = [value]
        elif key == "description":
            result[key] = words(value)
        elif key in _ORDER or key.startswith("x-kubernetes-"):
            result[key] = value
        else:
            raise ValueError(f"{key} is not a keyword of a structural schema, found in {node}")
    if isinstance(result.get("additionalProperties"), bool):
        del result["additionalProperties"]
    if "anyOf" in result and not result.get("x-kubernetes-int-or-string"):
        raise ValueError(f"a union needs one type in a structural schema, found {result['anyOf']}")
    return _sorted(result)


def _sorted(schema: Json) -> Json:
    def position(key: str) -> int:
        return _ORDER.index(key) if key in _ORDER else len(_ORDER)

    return {key: schema[key] for key in sorted(schema, key=position)}


def _without_null(node: Mapping[str, Any]) -> Mapping[str, Any]:
    """`anyOf: [X, null]` becomes X: in Kubernetes an optional field is left out, not null."""
    options = [option for option in node.get("anyOf", ()) if option != {"type": "null"}]
    if len(options) != 1:
        return node
    around = {key: value for key, value in node.items() if key != "anyOf"}
    return {**options[0], **around}


def nested_models(model: type[BaseModel]) -> Iterator[type[BaseModel]]:
    """Models that the fields of `model` hold, in order; one may come twice."""
    for field in model.model_fields.values():
        yield from models_in(field.annotation)


def models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    """Models inside an annotation such as `list[EnvVar] | None`."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in get_args(annotation):
        yield from models_in(argument)


def _default(field: FieldInfo, schema: Mapping[str, Any]) -> Any:
    """What the API server has to fill in, or None for nothing."""
    if field.is_required():
        return None
    value = field.get_default(call_default_factory=True)
    if isinstance(value, BaseModel):
        # what the default sets itself; the rest comes from the defaults of the nested fields
        value = value.model_dump(mode="json", by_alias=True, exclude_unset=True)
        whole = filled(schema, value)
        # the API server runs an object's CEL rules on its default before it fills in nested defaults
        return (whole if "x-kubernetes-validations" in schema else value) if whole else None
    return None if value in ([], {}) else value  # None, too, means no default


def filled(schema: Mapping[str, Any], value: Mapping[str, Any]) -> Json:
    """`value` with the defaults that the API server would add by `schema`."""
    result = dict(value)
    for name, child in schema.get("properties", {}).items():
        if name not in result and "default" in child:
            result[name] = child["default"]
        if isinstance(result.get(name), Mapping):
            result[name] = filled(child, result[name])
    return result


def words(text: str) -> str:
    """A docstring as one line: white space in descriptions would only bloat the CRD."""
    return " ".join(text.split())
