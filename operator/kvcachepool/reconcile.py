"""One pass over one pool: parse, observe, plan, apply, prune, status. The order is in `Reconciler._pass`.

Errors decide the retry: a spec that cannot be understood waits for its next edit; what the API server refuses
(forbidden, invalid, quota, a name that is taken) is a condition and comes back with growing pauses, and so does
trouble that passes by itself (conflicts, server, network), which becomes a condition only when it stays. What nobody
thought of ends the pass, too, and is shown in Accepted until a pass succeeds.
"""

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Protocol

from kvcachepool import constants
from kvcachepool.api import KVCachePool, PoolStatus
from kvcachepool.api.parse import Invalid, parse_status
from kvcachepool.api.pool import Metadata
from kvcachepool.children import Children, Outcome
from kvcachepool.claims import Claims
from kvcachepool.cluster import ApiError, Cluster, NotLeaderError
from kvcachepool.crd_skew import REMEDY, without
from kvcachepool.facts import Object, Observed
from kvcachepool.findings import Finding
from kvcachepool.membership import alike
from kvcachepool.metrics import Metrics
from kvcachepool.plan_types import Plan
from kvcachepool.watchcache import WatchCache
from kvcachepool.workqueue import BackoffError, Key

logger = logging.getLogger(__name__)

_SETTLING_SECONDS = 1.0
"""Pause after a pass that changed objects; mostly a watch event is faster."""
_LOOKS_PER_SECOND = 10.0
"""Pools that are looked at without an event: what a look costs, mostly the pages of three or four peers, is about
20 ms, so this is a fifth of a core, and leaves the rest for what changes."""
_SHOW_TROUBLE_AFTER = 3
"""Failures in a row after which passing trouble is shown as a condition."""


class Transition(Protocol):
    """A change worth an Event."""

    @property
    def type(self) -> str: ...  # noqa: D102
    @property
    def reason(self) -> str: ...  # noqa: D102
    @property
    def message(self) -> str: ...  # noqa: D102


class PodTransition(Transition, Protocol):
    """A change of a user's pod."""

    @property
    def pod(self) -> str: ...  # noqa: D102
    @property
    def uid(self) -> str: ...  # noqa: D102


@dataclass(frozen=True, slots=True)
class Steps:
    """The parts of a pass that know about caches and engines; see `assembly.Parts`."""

    parse: Callable[[Object], KVCachePool | Invalid]
    observe: Callable[[KVCachePool], Awaitable[Observed]]
    plan: Callable[[KVCachePool, Observed], Plan]
    announce: Callable[[KVCachePool, Plan], PoolStatus | None]
    """What must stand in the status before the plan is applied, if anything."""
    status: Callable[[KVCachePool, Plan, Observed, datetime], PoolStatus]
    invalid_status: Callable[[PoolStatus, int, tuple[Finding, ...], datetime], PoolStatus]
    failed_status: Callable[[PoolStatus, int, Exception, datetime], PoolStatus]
    """The previous status with an unexpected error of a pass in it."""
    transitions: Callable[[PoolStatus, PoolStatus], Iterable[Transition]]
    pod_transitions: Callable[[PoolStatus, PoolStatus, Plan], Iterable[PodTransition]]
    verify: Callable[[KVCachePool, PoolStatus, Observed, bool], None]
    """Starts or stops background work (the reuse probe) by what was seen, and whether this pass changed a child;
    must not wait."""
    forget: Callable[[Key], None]
    """Drops what was remembered of a pool that is gone."""


class Reconciler:
    """Makes passes; keeps between them only what was applied and how often a pool failed."""

    def __init__(
        self,
        steps: Steps,
        *,
        cache: WatchCache,
        cluster: Cluster,
        children: Children,
        claims: Claims,
        metrics: Metrics,
        resync_seconds: float,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._steps = steps
        self._cache = cache
        self._cluster = cluster
        self._children = children
        self._claims = claims
        self._metrics = metrics
        self._resync_seconds = resync_seconds
        self._now = now
        self._failures: dict[Key, int] = {}

    async def run(self, key: Key) -> float | None:
        """One pass. Gives the seconds until the next one; None: when something changes. Raises BackoffError, and what
        nobody thought of once it was shown."""
        try:
            return await self._pass(key)
        except (ApiError, NotLeaderError) as error:
            raise BackoffError(str(error)) from error

    async def _pass(self, key: Key) -> float | None:
        raw = self._cache.pool(key)
        if raw is None or raw["metadata"].get("deletionTimestamp"):
            self.forget(key)  # the garbage collector removes the children; nothing is to be done
            return None
        if await self._claims.other_owner(key[0]):
            self._metrics.forget(key)
            return self._resync()

        async with self._unexpected_shown(key):
            pool = self._steps.parse(raw)
            if isinstance(pool, Invalid):
                await self._refuse(key, pool)
                return None
            observed = await self._steps.observe(pool)
            plan = self._steps.plan(pool, observed)

            announced = self._steps.announce(pool, plan)
            if announced is not None:  # else the API server refuses the pods of a new schema
                await self._write(key, pool.metadata.uid, announced)
            outcome = await self._children.apply(key, pool.metadata.uid, plan.objects)
            if outcome.error is None:
                pruned = await self._children.prune(key, pool.metadata.uid, plan.prune)
                outcome.changed += pruned.changed
                outcome.failed, outcome.error = pruned.failed, pruned.error
            refused = await self._evict(key, pool, plan) if outcome.error is None else ""
            observed = replace(self._with_errors(key, observed, outcome), eviction_refused=refused)

            status = self._steps.status(pool, plan, observed, self._now())
        if await self._publish(key, pool.metadata, pool.status, status):
            for event in self._steps.pod_transitions(pool.status, status, plan):
                pod = (key[0], event.pod)
                await self._post(pod, event.uid, event.type, event.reason, event.message, of="Pod")
        self._steps.verify(pool, status, alike(observed, plan.members), bool(outcome.changed))
        return self._next(key, outcome)

    def forget(self, key: Key) -> None:
        """Drops everything that is kept about a pool."""
        self._failures.pop(key, None)
        self._children.forget(key)
        self._metrics.forget(key)
        self._steps.forget(key)

    def reset(self) -> None:
        """Drops what another leader may have made untrue."""
        self._failures.clear()
        self._children.forget()
        self._metrics.forget()

    async def _refuse(self, key: Key, pool: Invalid) -> None:
        """Says what is wrong with a spec; its children stay as they are until it is edited."""
        status = self._steps.invalid_status(pool.status, pool.metadata.generation, pool.findings, self._now())
        await self._publish(key, pool.metadata, pool.status, status)

    @asynccontextmanager
    async def _unexpected_shown(self, key: Key) -> AsyncIterator[None]:
        """Says in the status that the pass failed by what nobody thought of, and leaves the rest of it as it is. The
        same failure is written once. What goes wrong here hides no first error."""
        try:
            yield
        except (ApiError, NotLeaderError):
            raise
        except Exception as error:
            try:
                await self._fail(key, error)
            except Exception as second:
                logger.warning("%s/%s: the status does not say that the pass failed: %r", *key, second)
            raise

    async def _fail(self, key: Key, error: Exception) -> None:
        raw = self._cache.pool(key)
        if raw is not None:
            metadata, before = Metadata.model_validate(raw["metadata"]), parse_status(raw.get("status"))
            status = self._steps.failed_status(before, metadata.generation, error, self._now())
            await self._publish(key, metadata, before, status)

    async def _evict(self, key: Key, pool: KVCachePool, plan: Plan) -> str:
        """Why it was refused, other than by a budget that lets it happen later."""
        for name, uid in plan.evict:
            try:
                evicted = await self._cluster.evict(key[0], name, uid)
            except ApiError as error:
                logger.warning("%s/%s: engine %s was not evicted: %s", *key, name, error)
                return error.message
            if evicted:
                message = f"Engine {name} was evicted, since it had lost the store: see CacheEffective."
                logger.info("%s/%s: %s", *key, message)
                await self._post(key, pool.metadata.uid, "Warning", "EngineRestarted", message)
        return ""

    def _with_errors(self, key: Key, observed: Observed, outcome: Outcome) -> Observed:
        error = outcome.error
        if error is None:
            self._failures.pop(key, None)
            return observed
        self._failures[key] = self._failures.get(key, 0) + 1
        if error.retry and self._failures[key] < _SHOW_TROUBLE_AFTER:
            return observed
        return replace(observed, apply_errors=((outcome.failed, error.status, error.message),))

    async def _publish(self, key: Key, metadata: Metadata, before: PoolStatus, status: PoolStatus) -> bool:
        """Writes the status if it differs, then posts what changed in it; whether it did."""
        self._metrics.publish(key, status)
        undeclared = self._cluster.undeclared()
        if without(status.dump(), undeclared) == before.dump():
            return False
        if not await self._write(key, metadata.uid, status):
            return False
        for event in self._steps.transitions(before, status):
            logger.info("%s/%s: %s: %s", *key, event.reason, event.message)
            await self._post(key, metadata.uid, event.type, event.reason, event.message)
        for path in set(self._cluster.undeclared()) - set(undeclared):
            await self._post(key, metadata.uid, "Warning", "CRDOutdated", f"status.{'.'.join(path)} is lost: {REMEDY}")
        return True

    async def _write(self, key: Key, uid: str, status: PoolStatus) -> bool:
        """Whether it was written. A pool that was deleted and made again during the pass keeps its own status: the API
        server overlooks another uid in the apply of a status."""
        current = self._cache.pool(key)
        if current is None or current["metadata"].get("uid") != uid:
            return False
        self._cache.put(await self._cluster.apply_status(*key, uid, status.dump()))
        return True

    async def _post(
        self, about: Key, uid: str, kind: str, reason: str, message: str, *, of: str = constants.KIND
    ) -> None:
        """`about` is (namespace, name) of an object of kind `of`."""
        try:
            await self._cluster.post_event(about, uid, kind, reason, message, about=of)
        except ApiError as error:  # the condition says the same; an Event is not worth another pass
            logger.warning("%s/%s: event %s was not posted: %s", *about, reason, error)

    def _resync(self) -> float:
        """Pause until a look without an event; longer where pools are many."""
        return max(self._resync_seconds, len(self._cache.pools()) / _LOOKS_PER_SECOND)

    def _next(self, key: Key, outcome: Outcome) -> float:
        if outcome.changed:
            logger.info("%s/%s: applied %s", *key, ", ".join(outcome.changed))
        if outcome.error is not None:
            raise BackoffError(f"{outcome.failed} was not applied: {outcome.error}")
        return _SETTLING_SECONDS if outcome.changed else self._resync()
