"""`spec.backend`: what keeps the cache, and `spec.store`: the shared store's parts."""

from typing import Annotated, Literal

from pydantic import ConfigDict, Field, model_validator

from kvcachepool.api.base import ApiModel
from kvcachepool.api.master import Master
from kvcachepool.api.pods import ImageRef, PodIdentity, PullPolicy, Resources, Scheduling
from kvcachepool.api.rules import Quantity, Rule, rules
from kvcachepool.compat.pins import PINS


class NativeBackend(ApiModel):
    """CPU offload inside each engine: nothing is shared between pods. The right choice for one replica."""

    cpu_bytes: Annotated[str, Quantity(least="64Mi")] = "8Gi"
    """CPU memory for cached blocks, in all ranks of one engine together. For an engine that computes on the CPU it is
    the cache itself, in whole GiB."""


class MooncakeBackend(ApiModel):
    """Mooncake Store: one pool of memory that all engines read and write."""

    version: Annotated[str, Field(pattern=r"^[0-9]+\.[0-9]+\.[0-9]+(\.post[0-9]+)?$", max_length=32)] = (
        PINS.mooncake_version
    )
    """Version of master, store and client alike: a skew fails silently. Part of the cache schema."""


class Backend(ApiModel):
    """Exactly one backend."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            Rule(
                "has(self.native) != has(self.mooncake)",
                "exactly one of native and mooncake must be set",
                found=("%s", "has(self.native) ? 'both' : 'none'"),
            )
        )
    )

    native: NativeBackend | None = None
    mooncake: MooncakeBackend | None = None

    @model_validator(mode="after")
    def _one(self) -> "Backend":
        given = [name for name in ("native", "mooncake") if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError(f"exactly one of native and mooncake must be set, found {given or 'none'}")
        return self

    @property
    def name(self) -> str:
        """`native` or `mooncake`."""
        return "native" if self.native is not None else "mooncake"


class Store(ApiModel):
    """Memory of the shared pool."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            Rule(
                "self.mode != 'Embedded' || self.replicas == 1",
                "replicas belongs to mode Dedicated: with Embedded every engine rank lends a segment",
                found=("%d", "self.replicas"),
                field=".replicas",
            ),
        )
    )

    mode: Literal["Dedicated", "Embedded"] = "Dedicated"
    """Dedicated: store pods of their own, which outlive engines. Embedded: segments inside the engines; every
    engine that leaves takes its part of everybody's prefixes along."""
    replicas: Annotated[int, Field(ge=1, le=256)] = 1
    """Store pods (mode Dedicated)."""
    segment_size: Annotated[str, Quantity(least="64Mi")] = "16Gi"
    """Memory lent to the pool by each store pod, or by each engine rank when Embedded."""
    local_buffer_size: Annotated[str, Quantity(least="16Mi")] = "1Gi"
    """Transfer buffer of each engine rank and each store pod."""
    drain_seconds: Annotated[int, Field(ge=0, le=3600)] = 300
    """How long a store pod that leaves may move its blocks to others (mode Dedicated); about 16 blocks a second. 0: it
    leaves at once and takes them along."""
    image: ImageRef | None = None
    """Image of master and store pods; the operator's own build for the version when left out."""
    image_pull_policy: PullPolicy | None = None
    """When nodes fetch the image; Kubernetes' own default when left out."""
    resources: Resources = Resources()
    """Of a store pod. Without a memory request, segment + buffer + overhead is requested."""
    scheduling: Scheduling = Scheduling()
    identity: PodIdentity = PodIdentity()
    """Of master and store pods."""
    master: Master = Master()

    @model_validator(mode="after")
    def _dedicated(self) -> "Store":
        if self.mode == "Embedded" and self.replicas != 1:
            raise ValueError(f"replicas belongs to mode Dedicated, found {self.replicas} with mode Embedded")
        return self
