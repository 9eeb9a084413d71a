"""`status` of a KVCachePool. Figures are rounded, so that an idle or steady pool is never written."""

from typing import Annotated, Any, Literal

from pydantic import Field, WithJsonSchema

from kvcachepool.api.base import StatusModel, map_list

ConditionStatus = Literal["True", "False", "Unknown"]
Time = Annotated[str, WithJsonSchema({"type": "string", "format": "date-time"})]


class Condition(StatusModel):
    """One statement about the pool; all are positive: True is good."""

    type: str
    status: ConditionStatus
    reason: str
    message: str = ""
    observed_generation: int = 0
    last_transition_time: Time = ""


class SchemaStatus(StatusModel):
    """The cache schema in force."""

    digest: str = ""
    """First 12 hex digits of the SHA-256 of `canonical`; label of every member and prefix of every key."""
    canonical: str = ""
    """Canonical JSON of the schema. A router that computes block hashes needs blockSize, hashAlgorithm and
    hashSeed from it."""


class StoreStatus(StatusModel):
    """The shared store, as its master reports it."""

    capacity: str = ""
    used_percent: int | None = None
    keys: int | None = None
    """Blocks in the pool, rounded to two digits."""
    segments: int | None = None
    members: int | None = None
    """Segments that are expected."""
    segment_bytes: int | None = None
    """Segment size after rounding to the store's alignment."""
    master_start: Time | None = None


class EnginesStatus(StatusModel):
    """Engine pods of the pool."""

    desired: int = 0
    updated: int = 0
    ready: int = 0
    serving: int = 0
    """Ready engines with the pool's schema."""
    summary: str = ""
    """ready/desired, for the table."""
    selector: str = ""
    """Label selector of the engine pods, for the scale subresource."""
    template_outdated: bool = False
    """Pods keep the templates of an older operator; change spec.rolloutToken to move them."""


class HitRateStatus(StatusModel):
    """Shares of prompt tokens in the window, in percent, without the probe's own."""

    local: int | None = None
    pool: int | None = None
    total: int | None = None
    window_seconds: int | None = None


class VerificationStatus(StatusModel):
    """The last probe."""

    last_time: Time | None = None
    verified: bool | None = None
    reader: str = ""
    writer: str = ""
    prompt_tokens: int | None = None
    reused_tokens: int | None = None
    negative_reused_tokens: int | None = None
    ttft_recompute_ms: int | None = None
    ttft_local_ms: int | None = None
    ttft_reuse_ms: int | None = None
    loaded_bytes: int | None = None
    gigabytes_per_second: str = ""
    break_even_gigabytes_per_second: str = ""
    outcome: str = ""
    """Reason of ReuseVerified as the probe found it."""
    detail: str = ""


class PoolStatus(StatusModel):
    """What the operator has seen."""

    observed_generation: int = 0
    replicas: int = 0
    """Engine pods, for the scale subresource."""
    backend: str = ""
    conditions: list[Condition] = Field(
        default_factory=list,
        json_schema_extra=map_list("type"),
    )
    schema_: Annotated[SchemaStatus, Field(alias="schema")] = SchemaStatus()
    store: StoreStatus | None = None
    engines: EnginesStatus = EnginesStatus()
    hit_rate: HitRateStatus = HitRateStatus()
    verification: VerificationStatus = VerificationStatus()
    transport: str = ""
    """Protocol that the members' segments really use."""
    advice: str = ""

    def condition(self, kind: str) -> Condition | None:
        """The condition of that type, if it was ever set."""
        return next((c for c in self.conditions if c.type == kind), None)

    def dump(self) -> dict[str, Any]:
        """As it goes to the API server: empty and unmeasured fields left out."""
        full = self.model_dump(by_alias=True, exclude_none=True)
        return {name: value for name, value in full.items() if value not in ("", {}, [])}
