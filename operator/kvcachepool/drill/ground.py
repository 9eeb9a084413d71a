"""The pool that drills run in, as they see it: pods by the API server, the master's pages and the engines by HTTP."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from kvcachepool import constants, names
from kvcachepool.api import KVCachePool
from kvcachepool.backends.registry import backend_of
from kvcachepool.drill.loop import Asker, Engine, Reference
from kvcachepool.facts import PodFacts
from kvcachepool.observe.http import HttpReader
from kvcachepool.observe.master import read_master
from kvcachepool.observe.pods import owned_by, pod_facts

Json = dict[str, Any]


class Api(Protocol):
    """What drills need of the API server; see `cluster.Cluster`."""

    async def get(self, kind: str, namespace: str, name: str) -> Json | None: ...  # noqa: D102
    async def list(self, kind: str, namespace: str | None, selector: str = "") -> tuple[list[Json], str]: ...  # noqa: D102
    async def delete(  # noqa: D102
        self, kind: str, namespace: str, name: str, uid: str, *, grace_seconds: int | None = None
    ) -> None: ...


@dataclass(slots=True)
class Ground:
    """One pool."""

    api: Api
    http: HttpReader
    asker: Asker
    pool: KVCachePool
    references: Sequence[Reference] = ()
    killed: Callable[[str], None] = field(default=lambda _uid: None)
    """A fault tells the uid of an engine that it kills now."""

    @property
    def namespace(self) -> str:
        """The pool's."""
        return self.pool.metadata.namespace

    @property
    def shared(self) -> bool:
        """Whether engines read each other's cache."""
        return backend_of(self.pool).shared

    async def pods(self) -> list[PodFacts]:
        """Pods of the operator's own workloads of this pool."""
        selector = f"{constants.LABEL_POOL}={names.pool_label(self.pool.metadata.name)}"
        deployments, _ = await self.api.list("Deployment", self.namespace, selector)
        own = [d["metadata"]["name"] for d in deployments if owned_by(d, self.pool.metadata.uid)]
        found, _ = await self.api.list("Pod", self.namespace, selector)
        return [pod for pod in (pod_facts(raw, own) for raw in found) if pod.owned]

    async def engines(self) -> list[Engine]:
        """Engines that have an address, ready or not."""
        return [
            Engine(pod.name, pod.uid, pod.ip, pod.port, leaving=pod.deleting, ready=pod.ready)
            for pod in await self.pods()
            if pod.component == constants.ENGINE and pod.ip
        ]

    async def ready(self) -> Mapping[str, int]:
        """Ready pods by component."""
        counts = dict.fromkeys((constants.MASTER, constants.STORE, constants.ENGINE), 0)
        for pod in await self.pods():
            if pod.ready and not pod.deleting and pod.component in counts:
                counts[pod.component] += 1
        return counts

    async def keys(self) -> frozenset[str] | None:
        """All keys of the store; None when it could not be asked."""
        where = await self._master()
        answer = await self.http.get(*where, "/get_all_keys") if where is not None else None
        return frozenset(answer.text.split()) if answer is not None and answer.ok else None

    async def evictions(self) -> int | None:
        """Evictions that the master has made; None when it does not tell."""
        where = await self._master()
        return (await read_master(self.http, *where)).evictions_done if where is not None else None

    async def _master(self) -> tuple[str, int] | None:
        """Host and port of the master that serves."""
        external = self.pool.store.master.external
        if external is not None:
            return external.http
        pods = [pod for pod in await self.pods() if pod.component == constants.MASTER and pod.ready]
        return (pods[0].ip, constants.MASTER_HTTP_PORT) if pods else None
