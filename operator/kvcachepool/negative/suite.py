"""The suite in a pool: one engine pod for each case, one after the other, beside the pool's own engines.

Each reader asks for as many devices as an engine and is deleted as soon as its case is done: one that hangs goes on
retrying. What they store is evicted like any other block; nothing else of the pool is touched.
"""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from kvcachepool import constants, names
from kvcachepool.api import KVCachePool
from kvcachepool.backends.registry import backend_of
from kvcachepool.lookup import CannotRunError, find_pool
from kvcachepool.negative.arms import Asker, Engine, try_case
from kvcachepool.negative.cases import Case, Options, Skipped, Variant, variant
from kvcachepool.negative.pods import engine_pod
from kvcachepool.negative.verdict import NOT_RUN, Row, judge
from kvcachepool.observe.pods import pod_facts
from kvcachepool.probe.client import RequestError
from kvcachepool.render.deployment import workload_name

_POLL_SECONDS: Final = 2.0
_GONE_SECONDS: Final = 120.0
Json = dict[str, Any]


class Api(Protocol):
    """What the suite needs of the API server; see `cluster.Cluster`."""

    async def get(self, kind: str, namespace: str, name: str) -> Json | None: ...  # noqa: D102
    async def list(self, kind: str, namespace: str | None, selector: str = "") -> tuple[list[Json], str]: ...  # noqa: D102
    async def create(self, obj: Mapping[str, Any]) -> Json: ...  # noqa: D102
    async def delete(self, kind: str, namespace: str, name: str, uid: str) -> None: ...  # noqa: D102
    async def pod_log(  # noqa: D102
        self, namespace: str, pod: str, container: str, *, previous: bool, tail_lines: int, limit_bytes: int
    ) -> str: ...


class NotStartedError(Exception):
    """An engine of a case did not become ready."""


@dataclass(frozen=True, slots=True)
class Ground:
    """The pool that the suite runs in."""

    pool: KVCachePool
    live: Json
    """Its engine Deployment."""
    writer: Engine


async def ground(api: Api, namespace: str, name: str) -> Ground:
    """Looks the pool up. Raises CannotRunError."""
    pool = await find_pool(api, namespace, name)
    if not backend_of(pool).shared:
        raise CannotRunError(
            f"backend {pool.spec.backend.name} shares nothing between engines; there is nothing to test"
        )
    digest = backend_of(pool).schema(pool).digest
    live = await api.get("Deployment", namespace, workload_name(pool, constants.ENGINE, digest))
    if live is None:
        raise CannotRunError("the pool has no engine Deployment of its schema: wait until it is Ready")
    selector = ",".join(f"{key}={value}" for key, value in sorted(live["spec"]["selector"]["matchLabels"].items()))
    found, _ = await api.list("Pod", namespace, selector)
    ready = [p for p in (pod_facts(raw_pod) for raw_pod in found) if p.ready and p.ip and not p.deleting]
    if not ready:
        raise CannotRunError("no engine of the pool is ready: see its condition EnginesReady")
    first = min(ready, key=lambda p: p.name)
    return Ground(pool, live, Engine(first.name, first.ip, first.port))


@dataclass(frozen=True, slots=True)
class Suite:
    """One run."""

    api: Api
    asker: Asker
    ground: Ground
    options: Options
    say: Callable[[str], None] = lambda _text: None
    """Progress, for people."""
    poll_seconds: float = _POLL_SECONDS

    async def run(self, cases: Sequence[Case], *, raw: bool) -> list[Row]:
        """All cases with the digest in front of the keys, then with `raw` all without it."""
        rows = [await self._case(case, self.ground.writer, prefix=True) for case in cases]
        if not raw:
            return rows
        same = Variant("writer", "", "", self.ground.pool)
        try:
            async with _Running(self, same, "raw-writer", prefix=False) as writer:
                rows += [await self._case(case, writer, prefix=False) for case in cases]
        except NotStartedError as error:
            rows += [Row(case.name, case.field, "-", False, NOT_RUN, detail=f"no writer: {error}") for case in cases]
        return rows

    async def _case(self, case: Case, writer: Engine, *, prefix: bool) -> Row:
        made = variant(case, self.ground.pool, self.options)
        if isinstance(made, Skipped):
            return Row(case.name, case.field, "-", prefix, NOT_RUN, detail=made.why)
        self.say(f"{case.name}: {case.meaning} ({made.changed_to}){'' if prefix else ', without the digest'}")
        name = case.name if prefix else f"raw-{case.name}"
        try:
            async with _Running(self, made, name, prefix=prefix) as reader:
                row = judge(
                    case.name, case.field, made.changed_to, await try_case(self.asker, writer, reader), prefix=prefix
                )
        except (NotStartedError, RequestError) as error:
            row = Row(case.name, case.field, made.changed_to, prefix, NOT_RUN, detail=str(error))
        self.say(f"{case.name}: {row.verdict}")
        return row


class _Running:
    """An engine pod while the context lasts."""

    def __init__(self, suite: Suite, made: Variant, name: str, *, prefix: bool) -> None:
        self._suite, self._made, self._prefix = suite, made, prefix
        self._name = names.child(suite.ground.pool.metadata.name, f"negative-{name}")
        self._namespace = suite.ground.pool.metadata.namespace

    async def __aenter__(self) -> Engine:
        await self._remove()  # what an earlier run that was killed has left
        ground = self._suite.ground
        await self._suite.api.create(engine_pod(ground.pool, ground.live, self._made, self._name, prefix=self._prefix))
        try:
            return await self._ready()
        except BaseException:
            await self._remove()
            raise

    async def __aexit__(self, *_: object) -> None:
        await self._remove()

    async def _ready(self) -> Engine:
        seconds = self._suite.ground.pool.spec.engines.startup_seconds
        end = time.monotonic() + seconds
        why = "nothing was seen of it"
        while time.monotonic() < end:
            raw = await self._suite.api.get("Pod", self._namespace, self._name)
            pod = pod_facts(raw or {"metadata": {"name": self._name}})
            if pod.ready and pod.ip:
                return Engine(pod.name, pod.ip, pod.port)
            if pod.ended:
                raise NotStartedError(f"the engine ended: {await self._last_line()}")
            why = pod.unschedulable or next((c.waiting_message for c in pod.containers if c.waiting_message), why)
            await asyncio.sleep(self._suite.poll_seconds)
        raise NotStartedError(f"the engine was not ready in {seconds} s: {why}")

    async def _last_line(self) -> str:
        from kvcachepool.observe.logs import actionable_line

        text = await self._suite.api.pod_log(
            self._namespace, self._name, constants.ENGINE, previous=False, tail_lines=2000, limit_bytes=1 << 20
        )
        return actionable_line(text) or "its log says nothing"

    async def _remove(self) -> None:
        """Deletes the pod and waits until its device is free."""
        end = time.monotonic() + _GONE_SECONDS
        while time.monotonic() < end:
            found = await self._suite.api.get("Pod", self._namespace, self._name)
            if found is None:
                return
            labels = found["metadata"].get("labels") or {}
            if constants.LABEL_NEGATIVE not in labels:
                raise CannotRunError(f"pod {self._name} exists and is not the suite's; it was left as it is")
            if not found["metadata"].get("deletionTimestamp"):
                await self._suite.api.delete("Pod", self._namespace, self._name, found["metadata"]["uid"])
            await asyncio.sleep(self._suite.poll_seconds)
        raise CannotRunError(f"pod {self._name} does not end")
