"""What all API models share: camelCase, no unknown fields, frozen; sizes and helpers for CRD keywords."""

from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema
from pydantic.alias_generators import to_camel

from kvcachepool import quantity


class ApiModel(BaseModel):
    """Base of every spec model: unknown fields are errors, values are never changed after parsing."""

    model_config = ConfigDict(
        alias_generator=to_camel, populate_by_name=True, extra="forbid", frozen=True, use_attribute_docstrings=True
    )


class StatusModel(BaseModel):
    """Base of every status model: written by the operator only, so unknown fields of another version pass."""

    model_config = ConfigDict(
        alias_generator=to_camel, populate_by_name=True, extra="ignore", frozen=True, use_attribute_docstrings=True
    )


def _size(value: Any) -> Any:
    if isinstance(value, int | str) and not isinstance(value, bool):
        quantity.parse_bytes(value)
        return str(value)
    return value


Size = Annotated[
    str,
    BeforeValidator(_size),
    WithJsonSchema(
        {
            "anyOf": [{"type": "integer"}, {"type": "string"}],
            "x-kubernetes-int-or-string": True,
            "pattern": quantity.PATTERN,
            "maxLength": 32,
        }
    ),
]
"""A Kubernetes quantity of bytes, kept as written; `quantity.parse_bytes` gives the number."""

ResourceValue = Annotated[
    str,
    BeforeValidator(lambda v: str(v) if isinstance(v, int | float) and not isinstance(v, bool) else v),
    WithJsonSchema({"anyOf": [{"type": "integer"}, {"type": "string"}], "x-kubernetes-int-or-string": True}),
]
"""Any Kubernetes quantity (cpu, memory, devices)."""

Object = Annotated[
    dict[str, Any], WithJsonSchema({"type": "object", "x-kubernetes-preserve-unknown-fields": True})
]
"""A Kubernetes object passed through as it is; the API server checks it when the child is applied."""

QualifiedName = Annotated[str, Field(pattern=r"^[a-z0-9.-]+/[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=253)]
"""An extended resource such as `nvidia.com/gpu`: domain, slash, name."""

DnsName = Annotated[str, Field(pattern=r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$", max_length=253)]


def rules(*pairs: tuple[str, str]) -> dict[str, Any]:
    """`json_schema_extra` with CEL rules: (rule, message the user gets)."""
    return {"x-kubernetes-validations": [{"rule": rule, "message": message} for rule, message in pairs]}
