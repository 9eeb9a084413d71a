"""What a backend is: the one seam between a pool and whatever keeps its cache."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from kvcachepool.api import KVCachePool
from kvcachepool.findings import Finding
from kvcachepool.render.deployment import Workload
from kvcachepool.render.memory import Term
from kvcachepool.schema import CacheSchema
from kvcachepool.settings import Settings

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class EngineParts:
    """What a backend adds to an engine pod."""

    kv_transfer_config: Json | None
    """The engine's `--kv-transfer-config`; None for an engine without a connector."""
    env: tuple[Json, ...] = ()
    files: dict[str, str] = field(default_factory=dict)
    """File name to content; mounted at `CONFIG_DIR`."""
    memory: tuple[Term, ...] = ()
    """Host memory of the cache, on top of the engine's own."""
    shared_memory: int = 0
    """Bytes of that memory which the engine takes from /dev/shm."""
    wait_for: tuple[str, int] | None = None
    """(host, port) that must accept connections before the engine starts."""
    apart_seconds: int = 0
    """How long a new engine must be ready before the next one is replaced, where engines lend memory themselves."""
    inputs: Any = None
    """Parts of the spec that the above was rendered from."""


CONFIG_DIR = "/etc/kvcachepool"


class Backend(Protocol):
    """One way to keep the cache. A new backend is a module with this shape and a line in `registry`."""

    name: str
    shared: bool
    """Whether engines can read each other's cache."""

    def schema(self, pool: KVCachePool) -> CacheSchema:
        """The cache schema, with the backend's connector and version in it."""
        ...

    def check(self, pool: KVCachePool) -> Iterable[Finding]:
        """What the user must change, beyond what the API already refuses."""
        ...

    def workloads(self, pool: KVCachePool, settings: Settings) -> Sequence[Workload]:
        """Components beside the engines, in the order to start them."""
        ...

    def services(self, pool: KVCachePool) -> Sequence[Json]:
        """Services of those components."""
        ...

    def engine(self, pool: KVCachePool, digest: str) -> EngineParts:
        """What it needs inside the engine pods."""
        ...

    def segments(self, pool: KVCachePool) -> tuple[int, int]:
        """(how many segments the store should list, bytes of each); zeros without a shared store."""
        ...
