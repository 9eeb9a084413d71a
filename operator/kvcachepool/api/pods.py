"""What users may say about the pods of a component: resources, env, placement."""

import json
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, model_validator

from kvcachepool.api.base import ApiModel, DnsName, Object, ResourceValue
from kvcachepool.api.rules import Rule, rules
from kvcachepool.credentials import HARMLESS, NAME_PATTERN, secret_name

ImageRef = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._:/@-]*$", max_length=512)]
IN_THE_OPEN = (
    "a variable of this name holds a secret, which whoever reads the pool could read here: put it into a Secret and "
    "name that in valueFrom.secretKeyRef"
)
PullPolicy = Literal["Always", "IfNotPresent", "Never"]


class Resources(ApiModel):
    """Requests and limits of the component's container, as in a pod."""

    requests: dict[str, ResourceValue] = Field(default_factory=dict)
    """What the scheduler sets aside, by resource name."""
    limits: dict[str, ResourceValue] = Field(default_factory=dict)
    """What the container may not exceed, by resource name."""


class EnvVar(ApiModel):
    """One environment variable, as in a pod: a value, or a reference."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            Rule(
                "!has(self.value) || !has(self.valueFrom)",
                "only one of value and valueFrom may be set, found both",
            ),
            Rule(
                f"!has(self.value) || !self.name.matches({json.dumps(NAME_PATTERN)}) || "
                f"self.value in {json.dumps(HARMLESS)} || self.value.startsWith('$(')",
                IN_THE_OPEN,
            ),
        )
    )

    name: Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$", max_length=253)]
    """Name of the variable."""
    value: str | None = None
    """The value as it is; `$(NAME)` refers to a variable set before."""
    value_from: Object | None = None
    """secretKeyRef, configMapKeyRef, fieldRef or resourceFieldRef. Secrets belong here, never in value."""

    @model_validator(mode="after")
    def _one(self) -> "EnvVar":
        if self.value is not None and self.value_from is not None:
            raise ValueError("only one of value and valueFrom may be set, found both")
        value = self.value or ""
        if secret_name(self.name) and value not in HARMLESS and not value.startswith("$("):
            raise ValueError(IN_THE_OPEN)
        return self


class Toleration(ApiModel):
    """A toleration, as in a pod."""

    key: str | None = None
    """Key of the taint; every taint when left out with operator Exists."""
    operator: Literal["Exists", "Equal", "Lt", "Gt"] | None = None
    """How key and value are compared; Equal when left out."""
    value: str | None = None
    """Value of the taint."""
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = None
    """Effect of the taint; every effect when left out."""
    toleration_seconds: int | None = None
    """How long a NoExecute taint is tolerated; for ever when left out."""


class Scheduling(ApiModel):
    """Where pods may run. A field set for a component replaces the pool's field of the same name."""

    node_selector: dict[str, str] | None = None
    """Labels a node must have."""
    tolerations: list[Toleration] | None = None
    """Taints a node may have."""
    affinity: Object | None = None
    """Node and pod affinity, as in a pod."""
    topology_spread_constraints: list[Object] | None = None
    """How pods spread over nodes and zones, as in a pod."""
    priority_class_name: DnsName | None = None
    """PriorityClass of the pods."""
    runtime_class_name: DnsName | None = None
    """RuntimeClass of the pods."""

    def over(self, base: "Scheduling") -> "Scheduling":
        """This component's scheduling on top of the pool's."""
        merged: dict[str, Any] = {name: getattr(base, name) for name in Scheduling.model_fields}
        merged |= {name: getattr(self, name) for name in self.model_fields_set if getattr(self, name) is not None}
        return Scheduling(**merged)


class PodIdentity(ApiModel):
    """Numeric user and groups of the component's processes. Root is refused over TCP, where no part of a pool needs
    it."""

    run_as_user: Annotated[int, Field(ge=0, le=4294967294)] = 65532
    """Numeric user; 0 (root) only with protocol RDMA."""
    run_as_group: Annotated[int, Field(ge=1, le=4294967294)] = 65532
    """Numeric primary group."""
    fs_group: Annotated[int, Field(ge=1, le=4294967294)] | None = None
    """Group that owns mounted volumes, for models on a claim."""
