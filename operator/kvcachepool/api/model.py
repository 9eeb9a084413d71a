"""`spec.model`: which weights the engines serve, and from where."""

from typing import Annotated

from pydantic import ConfigDict, Field, model_validator

from kvcachepool.api.base import ApiModel, DnsName
from kvcachepool.api.rules import Rule, rules

RelativePath = Annotated[str, Field(pattern=r"^/?[A-Za-z0-9._][A-Za-z0-9._/-]*$", max_length=512)]


class SecretKeyRef(ApiModel):
    """One key of a Secret in the pool's namespace."""

    name: DnsName
    """Name of the Secret."""
    key: Annotated[str, Field(pattern=r"^[-._a-zA-Z0-9]+$", max_length=253)] = "token"
    """Key inside the Secret."""


class HubSource(ApiModel):
    """Weights come from the model hub, into an empty directory of each engine pod."""

    token_secret_ref: SecretKeyRef | None = None
    """Secret with the hub's access token, for gated models."""


class PvcSource(ApiModel):
    """Weights lie on a volume that every engine mounts read-only; the hub is never asked."""

    claim_name: DnsName
    """Name of the PersistentVolumeClaim, in the pool's namespace."""
    path: RelativePath = "."
    """Directory of the model inside the volume."""


class ImageSource(ApiModel):
    """Weights are inside the engine image; the hub is never asked."""

    path: Annotated[str, Field(pattern=r"^/[A-Za-z0-9._/-]+$", max_length=512)]
    """Absolute directory of the model inside the image."""


class ModelSource(ApiModel):
    """Exactly one of hub, pvc and image."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            Rule(
                "[has(self.hub), has(self.pvc), has(self.image)].filter(x, x).size() == 1",
                "exactly one of hub, pvc and image must be set",
                found=("%d", "[has(self.hub), has(self.pvc), has(self.image)].filter(x, x).size()"),
            )
        )
    )

    hub: HubSource | None = None
    pvc: PvcSource | None = None
    image: ImageSource | None = None

    @model_validator(mode="after")
    def _one(self) -> "ModelSource":
        given = [name for name in ("hub", "pvc", "image") if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError(f"exactly one of hub, pvc and image must be set, found {given or 'none'}")
        return self


class Model(ApiModel):
    """The model every engine of the pool serves. Identity and revision are part of the cache schema."""

    id: Annotated[str, Field(min_length=1, max_length=255, pattern=r"^[A-Za-z0-9][A-Za-z0-9._/-]*$")]
    """Name of the model, as on the hub: `Qwen/Qwen2.5-7B-Instruct`."""
    revision: Annotated[str, Field(min_length=1, max_length=128, pattern=r"^[A-Za-z0-9][A-Za-z0-9._/-]*$")] | None = (
        None
    )
    """Commit or tag of the weights. Required when the cache is shared: two weights under one name would read
    each other's cache and answer wrongly without an error."""
    served_name: Annotated[str, Field(min_length=1, max_length=255)] | None = None
    """Name that clients ask for; the id when left out."""
    source: ModelSource = Field(default_factory=lambda: ModelSource(hub=HubSource()))
    """Where the weights come from; the hub when left out."""
