"""What all API models share: camelCase, no unknown fields, frozen; sizes and names."""

import re
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema
from pydantic.alias_generators import to_camel

from kvcachepool.api.rules import Matching, Quantity
from kvcachepool.quantity import parse_amount


class ApiModel(BaseModel):
    """Base of every spec model: unknown fields are errors, values are never changed after parsing."""

    model_config = ConfigDict(
        alias_generator=to_camel,
        populate_by_name=True,
        extra="forbid",
        frozen=True,
        use_attribute_docstrings=True,
    )


class StatusModel(BaseModel):
    """Base of every status model: written by the operator only, so unknown fields of another version pass."""

    model_config = ConfigDict(
        alias_generator=to_camel,
        populate_by_name=True,
        extra="ignore",
        frozen=True,
        use_attribute_docstrings=True,
    )


Size = Annotated[str, Quantity()]
"""A Kubernetes quantity of bytes, kept as written; `quantity.parse_bytes` gives the number."""

_NUMBER = r"(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))"
_ANY_QUANTITY = rf"^{_NUMBER}(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?[0-9]{{1,3}}))?$"
"""As the API server checks a pod's resources (k8s.io/apimachinery, resource.Quantity); exponents are whole numbers."""


def _quantity(value: str) -> str:
    expected = ValueError(f"found {value[:64]!r}, expected a quantity such as 500m, 2 or 1Gi")
    if not re.fullmatch(_ANY_QUANTITY, value):
        raise expected
    try:
        parse_amount(value)
    except ValueError as error:  # longer than anybody writes
        raise expected from error
    return value


ResourceValue = Annotated[
    str,
    BeforeValidator(lambda v: str(v) if isinstance(v, int | float) and not isinstance(v, bool) else v),
    AfterValidator(_quantity),
    WithJsonSchema(
        {
            "anyOf": [{"type": "integer"}, {"type": "string"}],
            "x-kubernetes-int-or-string": True,
            "pattern": _ANY_QUANTITY,
        }
    ),
]
"""Any Kubernetes quantity (cpu, memory, devices)."""

Object = Annotated[dict[str, Any], WithJsonSchema({"type": "object", "x-kubernetes-preserve-unknown-fields": True})]
"""A Kubernetes object passed through as it is; the API server checks it when the child is applied."""

DeviceResource = Annotated[
    str,
    Matching(
        r"^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/[A-Za-z0-9]([-A-Za-z0-9._]*[A-Za-z0-9])?)?$",
        'a resource name with its domain, such as nvidia.com/gpu, or "" for the CPU',
        max_length=253,
    ),
]
"""An extended resource: domain, slash, name; empty for none."""

DnsName = Annotated[str, Field(pattern=r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$", max_length=253)]


def map_list(key: str) -> dict[str, Any]:
    """`json_schema_extra` of a list whose items are told apart by `key`, in which no two may be equal."""
    return {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": [key]}
