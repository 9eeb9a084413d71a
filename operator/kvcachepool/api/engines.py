"""`spec.engines`: the vLLM pods that serve the model."""

from typing import Annotated, Literal

from pydantic import Field, field_validator

from kvcachepool.api.base import ApiModel, DeviceResource, Size, map_list
from kvcachepool.api.pods import EnvVar, ImageRef, PodIdentity, PullPolicy, Resources, Scheduling
from kvcachepool.api.rules import Matching
from kvcachepool.compat.pins import PINS

Product = Annotated[
    str,
    Matching(
        r"^[A-Za-z0-9]([-A-Za-z0-9._]*[A-Za-z0-9])?$",
        "the value of the node label nvidia.com/gpu.product, such as NVIDIA-L4",
        max_length=63,
    ),
]


class Gpu(ApiModel):
    """The device an engine asks for; how many follows from the schema's parallelism."""

    resource_name: DeviceResource = "nvidia.com/gpu"
    """Extended resource to request; the empty string for an engine that runs on the CPU."""
    product: Product | None = None
    """Exact value of the node label nvidia.com/gpu.product. Engines of one pool need one product, unless
    spec.schema.attentionBackend is pinned; left out, the only one that matching nodes have."""


class Engines(ApiModel):
    """Engine pods. Each asks for as many devices as one engine has ranks."""

    replicas: Annotated[int, Field(ge=0, le=1000)] = 2
    """How many engines; also set by the scale subresource."""
    version: Annotated[str, Field(pattern=r"^[0-9]+\.[0-9]+\.[0-9]+([.a-z0-9+-]*)$", max_length=32)] = (
        PINS.engine_version
    )
    """vLLM version inside the image; part of the cache schema. A local part (`+cu129`) is not compared with images;
    it asks for that CUDA where spec.cuda.version leaves it open."""
    image: ImageRef | None = None
    """Engine image; the operator's own build for version and CUDA when left out. There is none for GPUs that are not
    NVIDIA's."""
    image_pull_policy: PullPolicy | None = None
    """When nodes fetch the image; Kubernetes' own default when left out."""
    env: list[EnvVar] = Field(default_factory=list, max_length=128, json_schema_extra=map_list("name"))
    """More environment. Variables the operator sets may be repeated only with the same value."""
    extra_args: list[Annotated[str, Field(min_length=1, max_length=4096)]] = Field(default_factory=list, max_length=128)
    """More flags of the engine. Flags that the operator sets, that belong to the schema, or that ask for other devices
    than the schema's ranks (data parallelism) are refused."""
    gpu: Gpu = Gpu()
    resources: Resources = Resources()
    """cpu and memory of an engine container; devices are added by the operator. Without a memory request,
    the cache's own need plus `engineMemory` is requested."""
    engine_memory: Size = "8Gi"
    """Host memory an engine needs beside the cache: weights while loading, runtime, tokenizer."""
    shm_size: Size = "2Gi"
    """Size of /dev/shm beside what the cache keeps there (`backend.native.cpuBytes`); counted into the memory need."""
    scheduling: Scheduling = Scheduling()
    identity: PodIdentity = PodIdentity()
    startup_seconds: Annotated[int, Field(ge=30, le=86400)] = 3600
    """How long an engine may load before it counts as failed; large models need a quarter of an hour."""
    shutdown_seconds: Annotated[int, Field(ge=5, le=3600)] = 60
    """How long an engine may finish running requests after SIGTERM."""
    max_surge: Annotated[int, Field(ge=0, le=1000)] = 0
    """Engines above `replicas` while a change rolls out. 0 needs no spare device."""
    nodes_per_engine: Annotated[int, Field(ge=1, le=64)] = 1
    """Pods over which the ranks of one engine are spread, each with an equal share of the devices. More than one needs
    LeaderWorkerSet in the cluster; from one to more, or back, only while `replicas` is 0."""
    preflight: bool = True
    """Look by an init container, before an engine starts, whether it can work in its image and on its node. Off for
    images that pretend to be what they are not."""
    restart_when_stranded: Literal["Never", "OneAtATime"] = "Never"
    """What to do about an engine that has lost the store for good (condition CacheEffective, EnginesStranded). Never:
    name it. OneAtATime: evict it too, one engine at a time, within the engines' PodDisruptionBudget, once it has run
    for `startupSeconds`."""
    when_no_node_fits: Literal["Wait", "Create"] = "Wait"
    """Wait: no engine is made, or moved to a new template, before a node fits it. Create: make them all the same, so
    that a cluster autoscaler sees them and adds a node."""

    @field_validator("env")
    @classmethod
    def _distinct(cls, env: list[EnvVar]) -> list[EnvVar]:
        """The API server refuses the second one, too: `env` is a map keyed by name."""
        names = [variable.name for variable in env]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"each variable may be named once, found more of {', '.join(twice)}")
        return env
