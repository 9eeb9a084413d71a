"""What users may say about the pods of a component: resources, env, placement."""

from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field

from kvcachepool.api.base import ApiModel, DnsName, Object, ResourceValue, rules


class Resources(ApiModel):
    """Requests and limits of the component's container, as in a pod."""

    requests: dict[str, ResourceValue] = Field(default_factory=dict)
    limits: dict[str, ResourceValue] = Field(default_factory=dict)


class EnvVar(ApiModel):
    """One environment variable, as in a pod: a value, or a reference."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            ("!(has(self.value) && has(self.valueFrom))", "only one of value and valueFrom may be set"),
        )
    )

    name: Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$", max_length=253)]
    value: str | None = None
    value_from: Object | None = None
    """secretKeyRef, configMapKeyRef, fieldRef or resourceFieldRef. Secrets belong here, never in value."""


class Toleration(ApiModel):
    """A toleration, as in a pod."""

    key: str | None = None
    operator: Literal["Exists", "Equal", "Lt", "Gt"] | None = None
    value: str | None = None
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = None
    toleration_seconds: int | None = None


class Scheduling(ApiModel):
    """Where pods may run. A field set for a component replaces the pool's field of the same name."""

    node_selector: dict[str, str] | None = None
    tolerations: list[Toleration] | None = None
    affinity: Object | None = None
    topology_spread_constraints: list[Object] | None = None
    priority_class_name: DnsName | None = None
    runtime_class_name: DnsName | None = None

    def over(self, base: "Scheduling") -> "Scheduling":
        """This component's scheduling on top of the pool's."""
        merged: dict[str, Any] = {name: getattr(base, name) for name in Scheduling.model_fields}
        merged |= {name: getattr(self, name) for name in self.model_fields_set if getattr(self, name) is not None}
        return Scheduling(**merged)


class PodIdentity(ApiModel):
    """Numeric user and groups of the component's processes. Root is refused: no part of a pool needs it over TCP."""

    run_as_user: Annotated[int, Field(ge=1, le=4294967294)] = 65532
    run_as_group: Annotated[int, Field(ge=1, le=4294967294)] = 65532
    fs_group: Annotated[int, Field(ge=1, le=4294967294)] | None = None
    """Group that owns mounted volumes, for models on a claim."""
