"""`status` of a KVCachePool. Figures are rounded, so that an idle or steady pool is never written."""

from typing import Annotated, Any, Literal

from pydantic import Field, WithJsonSchema

from kvcachepool.api.base import StatusModel, map_list

ConditionStatus = Literal["True", "False", "Unknown"]
Time = Annotated[str, WithJsonSchema({"type": "string", "format": "date-time"})]


class Condition(StatusModel):
    """One statement about the pool; all are positive: True is good."""

    type: str
    """Name of the condition; conditions.md lists all."""
    status: ConditionStatus
    """Unknown when it was not measured."""
    reason: str
    """One word; conditions.md lists all of each condition."""
    message: str = ""
    """What was found and what to do, for people."""
    observed_generation: int = 0
    """Generation of the spec it speaks of."""
    last_transition_time: Time = ""
    """When `status` last changed."""


class AdmittedSchema(StatusModel):
    """One schema that pods of the pool may have."""

    digest: str
    """Its digest: the label of such pods, and the prefix of their keys."""
    fields: dict[str, str] = Field(default_factory=dict)
    """Every field that is set, by name, as it stands on a command line. The API server compares pods with it."""


class SchemaStatus(StatusModel):
    """The cache schema in force."""

    digest: str = ""
    """First 12 hex digits of the SHA-256 of `canonical`; label of every member and prefix of every key."""
    canonical: str = ""
    """Canonical JSON of the schema. A router that computes block hashes needs blockSize, hashAlgorithm and
    hashSeed from it."""
    previous_digest: str = ""
    """The digest before this one. Its blocks stay in the store until they are evicted; putting the former spec back
    finds them again."""
    previous_keys: int | None = None
    """Blocks of the previous digest that are still in the store, rounded to two digits; left out when the store has too
    many to count."""
    admitted: list[AdmittedSchema] = Field(default_factory=list, json_schema_extra=map_list("digest"))
    """Schemas that pods may have: the one in force, and those that engines still move away from."""


class StoreStatus(StatusModel):
    """The shared store, as its master reports it."""

    capacity: str = ""
    """Memory of all segments together."""
    used_percent: int | None = None
    """Share of the capacity in use."""
    keys: int | None = None
    """Blocks in the pool, rounded to two digits."""
    segments: int | None = None
    """Segments that the master has."""
    members: int | None = None
    """Segments that are expected."""
    segment_bytes: int | None = None
    """Segment size after rounding to the store's alignment."""
    expected_keys: int | None = None
    """Blocks of a full pool, in steps of 1, 2, 5: capacity up to the eviction watermark, divided by the present size of
    a block."""
    master_memory: str = ""
    """Memory that the master needs for so many."""
    pending_restart: str = ""
    """What the annotation kvcachepool.io/approve-master-restart must say so that the master is restarted for the
    changes that wait (StoreReady, PendingMasterRestart); empty when none waits."""
    master_start: Time | None = None
    """When the master started; the pool was empty then."""


class GenerationStatus(StatusModel):
    """Engines of one schema while engines move to another."""

    digest: str
    """The schema."""
    desired: int = 0
    """Engines that are to have it at this step of the move."""
    ready: int = 0
    """Of these, engines that answer."""


class EnginesStatus(StatusModel):
    """Engine pods of the pool."""

    desired: int = 0
    """Engines asked for."""
    updated: int = 0
    """Engines of the newest template and schema."""
    ready: int = 0
    """Engines that answer."""
    serving: int = 0
    """Ready engines with the pool's schema."""
    summary: str = ""
    """ready/desired, for the table."""
    selector: str = ""
    """Label selector of the engine pods, for the scale subresource."""
    template_outdated: bool = False
    """Pods keep the templates of an older operator; change spec.rolloutToken to move them."""
    generations: list[GenerationStatus] = Field(default_factory=list, json_schema_extra=map_list("digest"))
    """Progress of a move to another schema, that schema first; empty when all engines have the same."""


class MismatchStatus(StatusModel):
    """A pod of the user's that has the pool's label but not its schema."""

    name: str
    """The pod."""
    difference: str = ""
    """Field, its value and the pool's."""


class MembersStatus(StatusModel):
    """Users' own pods with the pool's label."""

    joined: int = 0
    """Pods that have the pool's schema."""
    serving: int = 0
    """Of these, pods that get traffic from the pool's Service."""
    mismatched: int = 0
    """Pods that have another schema: they get no traffic and are not probed."""
    mismatches: list[MismatchStatus] = Field(default_factory=list, json_schema_extra=map_list("name"))
    """The first of them by name."""


class HitRateStatus(StatusModel):
    """Shares of prompt tokens in the window, in percent, without the probe's own."""

    local: int | None = None
    """From the engine's own cache."""
    pool: int | None = None
    """From the pool."""
    total: int | None = None
    """Both together."""
    window_seconds: int | None = None
    """Length of the window."""


class VerificationStatus(StatusModel):
    """The last probe."""

    last_time: Time | None = None
    """When it ended."""
    verified: bool | None = None
    """Whether the reader reused what the writer computed, with the same answer."""
    reader: str = ""
    """Engine pod that was asked second."""
    writer: str = ""
    """Engine pod that computed the prompt."""
    prompt_tokens: int | None = None
    """Length of the prompt."""
    reused_tokens: int | None = None
    """Tokens that the reader took from the pool."""
    negative_reused_tokens: int | None = None
    """Tokens reused under another prefix; must be 0."""
    ttft_recompute_ms: int | None = None
    """Time to first token without any cache."""
    ttft_local_ms: int | None = None
    """Time to first token from the engine's own cache."""
    ttft_reuse_ms: int | None = None
    """Time to first token from the pool."""
    loaded_bytes: int | None = None
    """Bytes that the reader loaded from the pool."""
    gigabytes_per_second: str = ""
    """Rate of that load."""
    break_even_gigabytes_per_second: str = ""
    """Rate at which loading takes as long as computing."""
    outcome: str = ""
    """Reason of ReuseVerified as the probe found it."""
    detail: str = ""
    """The same in a sentence."""


class HardwareStatus(StatusModel):
    """Nodes of the cluster against the engines' needs; absent when the operator may not read nodes."""

    nodes: int = 0
    """Nodes of the cluster."""
    nodes_matched: int = 0
    """Nodes that fit an engine."""
    cuda: str = ""
    """CUDA of the engines' build."""
    product: str = ""
    """GPU of the engines."""
    excluded: list[str] = Field(default_factory=list)
    """Why the other nodes do not fit, with the values found."""


class PoolStatus(StatusModel):
    """What the operator has seen."""

    observed_generation: int = 0
    """Newest generation of the spec that the conditions speak of."""
    replicas: int = 0
    """Engine pods, for the scale subresource."""
    backend: str = ""
    """What keeps the cache."""
    label: str = ""
    """Value of the label kvcachepool.io/pool of every member: the pool's name, shortened where that is too long."""
    conditions: list[Condition] = Field(
        default_factory=list,
        json_schema_extra=map_list("type"),
    )
    """All of them from the first pass on."""
    schema_: Annotated[SchemaStatus, Field(alias="schema")] = SchemaStatus()
    store: StoreStatus | None = None
    engines: EnginesStatus = EnginesStatus()
    members: MembersStatus | None = None
    """Absent when there are none."""
    hit_rate: HitRateStatus = HitRateStatus()
    verification: VerificationStatus = VerificationStatus()
    hardware: HardwareStatus | None = None
    transport: str = ""
    """Protocol that the members' segments really use."""
    advice: str = ""
    """What would help."""

    def condition(self, kind: str) -> Condition | None:
        """The condition of that type, if it was ever set."""
        return next((c for c in self.conditions if c.type == kind), None)

    def dump(self) -> dict[str, Any]:
        """As it goes to the API server: empty and unmeasured fields left out."""
        return _without_empty(self.model_dump(by_alias=True, exclude_none=True))


def _without_empty(fields: dict[str, Any]) -> dict[str, Any]:
    """`fields` without "", {} and [], at every depth of objects; a 0 is a measurement and stays."""
    pruned = {name: _without_empty(value) if isinstance(value, dict) else value for name, value in fields.items()}
    return {name: value for name, value in pruned.items() if value not in ("", {}, [])}
