"""The KVCachePool itself."""

from typing import Annotated, Any, Final

from pydantic import ConfigDict, Field, model_validator

from kvcachepool.api.backend import Backend, Store
from kvcachepool.api.base import ApiModel, DnsName, Object, StatusModel, map_list
from kvcachepool.api.cache_schema import Schema
from kvcachepool.api.cuda import Cuda
from kvcachepool.api.engines import Engines
from kvcachepool.api.model import Model
from kvcachepool.api.pods import Scheduling
from kvcachepool.api.rules import Rule, rules
from kvcachepool.api.status import PoolStatus
from kvcachepool.api.transport import Transport
from kvcachepool.constants import API_VERSION, KIND

ROOT_NEEDS_RDMA = "runAsUser 0 (root) is for protocol RDMA only, where the runtime limits locked memory of other users"


_DEFAULT_STORE: Final = Store()
"""Made once: a pass asks for the store dozens of times, and making one takes longer than all else it does."""


class LocalObjectReference(ApiModel):
    """A name in the pool's namespace."""

    name: DnsName
    """Name of the object."""


class Verification(ApiModel):
    """The probe that proves reuse: a unique prompt to one engine, then to another."""

    enabled: bool = True
    """Whether to probe at all. Without it ReuseVerified and ReuseWorthwhile stay Unknown."""
    interval_seconds: Annotated[int, Field(ge=60, le=86400)] = 600
    """Pause between probes; varied by a tenth, so that pools do not probe together."""
    prompt_tokens: Annotated[int, Field(ge=256, le=131072)] = 8192
    """Length of the probe's prompt; cut to what the model allows."""


class NetworkPolicy(ApiModel):
    """Who may reach the pool's pods, where the cluster's network enforces NetworkPolicies: members each other and the
    store, the operator and metrics scrapers (a setting of the installation) the ports with metrics."""

    enabled: bool = True
    """Keep NetworkPolicies for this pool, unless the installation keeps none. There are none on the node's network."""
    clients: list[Object] = Field(default_factory=list, max_length=32)
    """Who may send requests to the engines: peers as in a NetworkPolicy (podSelector, namespaceSelector, ipBlock).
    Everybody when left out."""


class PoolSpec(ApiModel):
    """What the user asks for."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            Rule(
                "!has(self.backend.mooncake) || has(self.model.revision)",
                "model.revision is required with a shared backend: other weights under one name would be read as hits",
                field=".model.revision",
                reason="FieldValueRequired",
            ),
            Rule(
                "!has(self.store) || has(self.backend.mooncake)",
                "store belongs to a shared backend: remove it, or choose backend.mooncake",
                field=".store",
                reason="FieldValueForbidden",
            ),
            Rule(
                "self.transport.protocol != 'RDMA' || has(self.backend.mooncake)",
                "protocol RDMA belongs to a shared backend: choose TCP, or backend.mooncake",
                field=".transport.protocol",
                reason="FieldValueForbidden",
            ),
            Rule(
                "self.transport.protocol == 'RDMA' || self.engines.identity.runAsUser != 0",
                ROOT_NEEDS_RDMA,
                field=".engines.identity.runAsUser",
            ),
            Rule(
                "self.transport.protocol == 'RDMA' || !has(self.store) || self.store.identity.runAsUser != 0",
                ROOT_NEEDS_RDMA,
                field=".store.identity.runAsUser",
            ),
            Rule(
                "self.schema.parallelism.tensor * self.schema.parallelism.pipeline "
                "* self.schema.parallelism.prefillContext % self.engines.nodesPerEngine == 0",
                "engines.nodesPerEngine must divide the ranks of an engine, tensor × pipeline × prefillContext",
                field=".engines.nodesPerEngine",
            ),
            # Deployment and LeaderWorkerSet have one name, and the second would wait for the devices of the first
            Rule(
                "(self.engines.nodesPerEngine > 1) == (oldSelf.engines.nodesPerEngine > 1)"
                " || (self.engines.replicas == 0 && oldSelf.engines.replicas == 0)",
                "engines.nodesPerEngine may go from one to more, or back, only while engines.replicas is 0: it makes "
                "engines of another kind. Scale to 0 first, or make another pool",
                ("%d, was %d", "self.engines.nodesPerEngine", "oldSelf.engines.nodesPerEngine"),
                field=".engines.nodesPerEngine",
            ),
            Rule(
                "!self.cuda.allowForwardCompat || has(self.engines.gpu.product)",
                "engines.gpu.product is required with allowForwardCompat, which works on data-centre GPUs only",
                field=".engines.gpu.product",
                reason="FieldValueRequired",
            ),
        )
    )

    model: Model
    schema_: Annotated[Schema, Field(alias="schema")] = Schema()
    """What must be identical in every pod that joins."""
    backend: Backend
    """What keeps the cache; exactly one."""
    store: Store | None = None
    """Parts of the shared store; defaults when left out. Only with a shared backend."""
    engines: Engines = Engines()
    cuda: Cuda = Cuda()
    """Which CUDA the engines are built for."""
    transport: Transport = Transport()
    scheduling: Scheduling = Scheduling()
    """Where all pods of the pool may run; engines, store and master can override field by field."""
    image_pull_secrets: list[LocalObjectReference] = Field(
        default_factory=list, max_length=16, json_schema_extra=map_list("name")
    )
    """For every pod of the pool."""
    verification: Verification = Verification()
    network_policy: NetworkPolicy = NetworkPolicy()
    """Who may reach the pool's pods."""
    rollout_token: Annotated[str, Field(max_length=64)] | None = None
    """Any text. An operator upgrade never restarts pods; change this to move them to the new operator's
    templates. Where the
    templates differ that restarts the store, too, and so empties the pool; where they do not, nothing restarts."""

    @model_validator(mode="after")
    def _shared(self) -> "PoolSpec":
        if self.backend.mooncake is not None and self.model.revision is None:
            raise ValueError("model.revision is required with a shared backend, found none")
        if self.store is not None and self.backend.mooncake is None:
            raise ValueError(f"store belongs to a shared backend, found it with backend.{self.backend.name}")
        return self

    @model_validator(mode="after")
    def _transport(self) -> "PoolSpec":
        rdma = self.transport.protocol == "RDMA"
        if rdma and self.backend.mooncake is None:
            raise ValueError(f"protocol RDMA belongs to a shared backend, found it with backend.{self.backend.name}")
        root = 0 in (self.engines.identity.run_as_user, (self.store or _DEFAULT_STORE).identity.run_as_user)
        if root and not rdma:
            raise ValueError(ROOT_NEEDS_RDMA)
        return self

    @model_validator(mode="after")
    def _nodes(self) -> "PoolSpec":
        ranks, nodes = self.schema_.parallelism.world_size, self.engines.nodes_per_engine
        if ranks % nodes:
            raise ValueError(
                "engines.nodesPerEngine must divide the ranks of an engine, tensor × pipeline × prefillContext, "
                f"found {nodes} and {ranks}"
            )
        return self

    @property
    def ranks_per_pod(self) -> int:
        """Ranks, and so devices, of one pod of an engine."""
        return self.schema_.parallelism.world_size // self.engines.nodes_per_engine

    @model_validator(mode="after")
    def _forward_compat(self) -> "PoolSpec":
        if self.cuda.allow_forward_compat and self.engines.gpu.product is None:
            raise ValueError("engines.gpu.product is required with cuda.allowForwardCompat, found none")
        return self


class Metadata(StatusModel):
    """The part of the object's metadata that the operator uses."""

    name: str
    namespace: str
    uid: str = ""
    generation: int = 0
    deletion_timestamp: str | None = None
    annotations: dict[str, str] = Field(default_factory=dict)


class KVCachePool(StatusModel):
    """One KV cache shared by the engines of one model."""

    metadata: Metadata
    spec: PoolSpec
    status: PoolStatus = PoolStatus()

    @property
    def key(self) -> tuple[str, str]:
        """(namespace, name)."""
        return self.metadata.namespace, self.metadata.name

    @property
    def store(self) -> Store:
        """The store's settings, with defaults where the user gave none."""
        return self.spec.store or _DEFAULT_STORE

    @property
    def features(self) -> frozenset[str]:
        """What the compatibility tables may know more about than the versions: `masterHa`, `severalCacheGroups`."""
        used = {
            "masterHa": self.store.master.ha is not None,
            "severalCacheGroups": self.spec.schema_.hybrid.several_groups,
        }
        return frozenset(name for name, is_used in used.items() if is_used)

    def owner_reference(self) -> dict[str, Any]:
        """What makes the garbage collector delete a child together with its pool."""
        return {
            "apiVersion": API_VERSION,
            "kind": KIND,
            "name": self.metadata.name,
            "uid": self.metadata.uid,
            "controller": True,
            "blockOwnerDeletion": False,
        }
