"""Plain facts about one pool at one moment. No judgement: that is `checks` and `status`.

A part that did not answer, or a metric that is absent, is None: unknown, never zero and never False.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Final

from kvcachepool.api.status import VerificationStatus
from kvcachepool.compat.tables import BUILT_IN, Tables
from kvcachepool.constants import MASTER

Object = Mapping[str, Any]
"""A Kubernetes object as the API server sent it."""


def version_number(resource_version: str) -> int:
    """-1 for a version that is no number: such an object always replaces the known one, and no list is older."""
    return int(resource_version) if resource_version.isdecimal() else -1


@dataclass(frozen=True, slots=True)
class EnvSource:
    """Where a container's environment comes from, other than a literal value."""

    kind: str
    """ConfigMap, Secret; empty for a field of the pod and the like."""
    name: str = ""
    variable: str = ""
    """Empty: every key of the object is a variable."""
    key: str = ""
    prefix: str = ""

    def __str__(self) -> str:
        return f"{self.kind} {self.name}" if self.kind else "a field of the pod"


@dataclass(frozen=True, slots=True)
class ContainerFacts:
    """One container of a pod: declared (image, command, args, env) and running (state)."""

    name: str
    init: bool = False
    image: str = ""
    command: tuple[str, ...] = ()
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    """Literal values only; references are in `env_refs`."""
    env_refs: tuple[str, ...] = ()
    """Names of variables that come from a reference."""
    env_sources: tuple[EnvSource, ...] = ()
    """Those references, in the order in which they take effect: whole objects first."""
    unreadable: Mapping[str, str] = field(default_factory=dict)
    """Variables whose value the operator does not know, and where it comes from."""
    ready: bool = False
    running: bool = False
    started: bool = False
    """Its startup probe has passed in this run."""
    restarts: int = 0
    waiting_reason: str = ""
    waiting_message: str = ""
    exit_code: int | None = None
    """Of the current or else the last termination."""
    exit_reason: str = ""
    """Completed, Error, OOMKilled, … of that termination."""
    exit_message: str = ""
    ran_seconds: int | None = None
    """How long that run lasted, from start to termination."""


@dataclass(frozen=True, slots=True)
class PodFacts:
    """One pod that carries the pool's label."""

    name: str
    uid: str
    component: str
    """engine, store, master; empty for a user's own member, whatever its label says."""
    digest: str
    """Its schema label."""
    labels: Mapping[str, str] = field(default_factory=dict)
    ip: str = ""
    node: str = ""
    phase: str = ""
    ready: bool = False
    deleting: bool = False
    owned: bool = True
    """Made by the operator (through its Deployment), not by the user."""
    unschedulable: str = ""
    """The scheduler's sentence, while the pod cannot be placed."""
    started: str = ""
    """RFC 3339 start of the newest main container, empty when not running."""
    port: int = 0
    """HTTP port on the node's network; 0 for the well-known one, in a network of its own."""
    containers: tuple[ContainerFacts, ...] = ()
    engine: str = ""
    """Name of a user's engine container; empty: the first container."""
    engine_unclear: bool = False
    """Whether several containers, or none, of a user's pod could be its engine."""
    log_line: str = ""
    """First actionable line of the crashed container's log, once it was fetched."""

    @property
    def ended(self) -> bool:
        """Whether its containers have stopped for good: it holds no device any more."""
        return self.phase in {"Failed", "Succeeded"}

    @property
    def main(self) -> ContainerFacts | None:
        """The engine's, store's or master's container."""
        found = [c for c in self.containers if not c.init]
        return next((c for c in found if c.name == self.engine), found[0] if found else None)


@dataclass(frozen=True, slots=True)
class WorkloadFacts:
    """A Deployment the operator made."""

    name: str
    component: str
    replicas: int
    updated: int
    ready: int
    generation: int
    observed_generation: int
    create_failure: str = ""
    """Message of the ReplicaFailure condition: quota, Pod Security, admission."""
    digest: str = ""
    """Schema label of an engines' Deployment."""
    created: str = ""
    """RFC 3339."""

    @property
    def settled(self) -> bool:
        """The controller has seen the last change and no pod is being replaced. Of masters that elect a leader only it
        is ready."""
        ready = self.ready == self.replicas or (self.component == MASTER and self.ready > 0)
        return self.observed_generation >= self.generation and self.updated == self.replicas and ready


@dataclass(frozen=True, slots=True)
class Segment:
    """Memory that one store member lent to the pool, as the master lists it."""

    name: str
    endpoint: str
    protocol: str
    size: int
    status: str
    host: str
    """IP part of the endpoint: the pod it belongs to."""
    used: int = 0
    """Bytes of blocks in it."""


@dataclass(frozen=True, slots=True)
class MasterFacts:
    """What the Mooncake master says about itself over HTTP."""

    reachable: bool
    error: str = ""
    """Why it could not be asked, in plain words, without addresses of secrets."""
    service_ready: bool | None = None
    capacity: int | None = None
    allocated: int | None = None
    keys: int | None = None
    clients: int | None = None
    segments: tuple[Segment, ...] | None = None
    evictions_attempted: int | None = None
    evictions_done: int | None = None
    evicted_keys: int | None = None
    put_requests: int | None = None
    """Keys, asked for one by one and in batches alike."""
    put_failures: int | None = None
    put_alloc_failures: int | None = None


@dataclass(frozen=True, slots=True)
class StoreTrend:
    """How the master's counters moved in a window of some minutes; None: unknown, such as right after a restart."""

    window_seconds: int = 0
    master_restarted: bool = False
    """Another master process than before was met in the window."""
    put_requests: float | None = None
    """Keys that engines wanted to store."""
    put_failures: float | None = None
    put_alloc_failures: float | None = None
    evictions_done: float | None = None
    evicted_keys: float | None = None
    lost_keys: int | None = None
    """Keys that were lost; None when none were in the window. Lost means: the master started anew, a member's segment
    went with its blocks, or the keys fell to less than half without as many evictions."""
    lost_bytes: int | None = None
    """Memory that they took up."""
    most_clients: int | None = None
    """Highest number of clients in the window."""


@dataclass(frozen=True, slots=True)
class StoreOperation:
    """Counters of one store operation at one engine (`save_put`, `load_get`, `lookup_exists`, …)."""

    calls_ok: float = 0.0
    calls_failed: float = 0.0
    keys: float = 0.0
    bytes: float = 0.0
    failed_keys: float = 0.0


@dataclass(frozen=True, slots=True)
class EngineFacts:
    """What one engine says about itself over HTTP. Counters are since its start."""

    reachable: bool
    error: str = ""
    healthy: bool | None = None
    tokens: Mapping[str, float] | None = None
    """Prompt tokens by source: local_compute, local_cache_hit, external_kv_transfer."""
    external_queries: float | None = None
    external_hits: float | None = None
    operations: Mapping[str, StoreOperation] | None = None
    cache_config: Mapping[str, str] | None = None
    """Labels of `vllm:cache_config_info`: the resolved cache configuration."""
    started: float | None = None
    """process_start_time_seconds, where the engine exports it."""


@dataclass(frozen=True, slots=True)
class EngineTrend:
    """What goes on at one engine, as seen from look to look."""

    up_seconds: int = 0
    """Since its container started."""
    looping_seconds: int = 0
    """For how long loads have failed without a pause, faster than prompts are computed."""
    looped_keys: float = 0.0
    """Blocks that failed meanwhile."""
    refused_seconds: int = 0
    """Since when each save has failed."""
    refused_keys: float = 0.0
    """Blocks that were refused meanwhile."""


RATE_WINDOW_SECONDS: Final = 600
"""How far back rates look; less in the first minutes after the operator's start."""


@dataclass(frozen=True, slots=True)
class Rates:
    """Shares of users' prompt tokens in a window (0..1); None without traffic or without the metric."""

    window_seconds: int = 0
    tokens: float | None = None
    """Prompt tokens seen in the window, the probe's own taken off; None when no engine could be read."""
    local: float | None = None
    pool: float | None = None
    external_queries: float | None = None
    """Prompt tokens that were looked up in the pool, the probe's own taken off. Keys below include the probe's."""
    saved_keys: float | None = None
    save_failed_keys: float | None = None
    load_keys: float | None = None
    load_failed_keys: float | None = None


@dataclass(frozen=True, slots=True)
class Taint:
    """A taint that keeps pods away; PreferNoSchedule is none."""

    key: str
    value: str
    effect: str

    def __str__(self) -> str:
        return f"{self.key}{f'={self.value}' if self.value else ''}:{self.effect}"


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """What of a node decides whether a pod may run there."""

    name: str
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    allocatable: Mapping[str, Decimal] = field(default_factory=dict)
    """Amounts by resource: cores, bytes, devices."""
    ready: bool = True
    cordoned: bool = False


@dataclass(frozen=True, slots=True)
class Observed:
    """Everything one pass knows about one pool."""

    pods: tuple[PodFacts, ...] = ()
    workloads: Mapping[str, WorkloadFacts] = field(default_factory=dict)
    """By name of the Deployment: one for master and store each, one for each generation of engines."""
    children: Mapping[tuple[str, str], Object] = field(default_factory=dict)
    """Live objects with the pool's label and owner, by (kind, name)."""
    nodes: tuple[NodeFacts, ...] | None = None
    """Every node of the cluster; None when the operator may not read nodes."""
    tables: Tables = BUILT_IN
    """What runs with what, with the cluster's own rows."""
    leader_worker_sets: bool = False
    """LeaderWorkerSet is served, so that an engine can run over several nodes."""
    device_plugin_trouble: str = ""
    """Why the device plugin that the pool asks for does not run."""
    tables_error: str = ""
    """Why the cluster's own rows are ignored."""
    missing: tuple[tuple[str, str, str], ...] = ()
    """References of the spec that do not resolve: (field, kind, what is missing), such as
    ("model.source.hub.tokenSecretRef", "Secret", "hf-token")."""
    departed: Mapping[str, str] = field(default_factory=dict)
    """Members that are gone while the master still lists their segment: host to pod."""
    absent: Mapping[str, int] = field(default_factory=dict)
    """Ready members whose segment the master does not list: pod to seconds since that was first seen."""
    keys_by_prefix: Mapping[str, int] | None = None
    """Keys in the store by the digest in front of them; None when not counted, since there are too many or no former
    schema left any."""
    master: MasterFacts | None = None
    """None: not asked, because there is none or it is not running yet."""
    engines: Mapping[str, EngineFacts] = field(default_factory=dict)
    """By pod name; only pods that run."""
    engine_trends: Mapping[str, EngineTrend] = field(default_factory=dict)
    """By pod name."""
    transports: Mapping[str, str] = field(default_factory=dict)
    """RDMA or TCP, by name of the pod whose log says that it has installed it; only where RDMA is asked for."""
    rates: Rates = Rates()
    store_trend: StoreTrend = StoreTrend()
    verification: VerificationStatus | None = None
    """Result of the newest probe of this process; None: there is none newer than the one in the pool's status."""
    apply_errors: tuple[tuple[str, int, str], ...] = ()
    """(child, HTTP status, API server's sentence) of the last apply."""
    eviction_refused: str = ""
    """What the API server said when it did not let an engine be evicted that has lost the store."""

    def members(self, component: str) -> tuple[PodFacts, ...]:
        """Pods of that component that are not being deleted."""
        return tuple(p for p in self.pods if p.component == component and not p.deleting)

    def workloads_of(self, component: str) -> tuple[WorkloadFacts, ...]:
        """Deployments of that component, the oldest first."""
        found = (w for w in self.workloads.values() if w.component == component)
        return tuple(sorted(found, key=lambda w: (w.created, w.name)))
