"""Leadership by a Lease, over kubernetes.aio.leaderelection.

What is added to it: trouble with the network or a hanging server is a failed try and not the end of the
process; the time until which this replica may write is known (`seconds_left`), and how long the API server has
answered without fail (`answered_seconds`); the Lease is given back on shutdown, so that the other replica takes over
at once.

On loss the process carries on as a follower: every pass is cancelled, no write can be sent after the Lease
ran out, and what was remembered between passes is dropped when the Lease is gained again. An exit would add
nothing but restarts of the operator whenever the API server is away for some seconds.
"""

import asyncio
import logging
import math
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any

import aiohttp
from kubernetes.aio.client import ApiClient, V1Lease, V1ObjectMeta
from kubernetes.aio.client.exceptions import ApiException
from kubernetes.aio.leaderelection.electionconfig import Config
from kubernetes.aio.leaderelection.leaderelection import LeaderElection
from kubernetes.aio.leaderelection.leaderelectionrecord import LeaderElectionRecord
from kubernetes.aio.leaderelection.resourcelock.leaselock import LeaseLock

logger = logging.getLogger(__name__)

LEASE_SECONDS = 15
RENEW_DEADLINE_SECONDS = 10
RETRY_SECONDS = 2
_CALL_SECONDS = 5.0
"""Longest call to the API server: the library sets no limit, and one hanging call would outlast the Lease."""
_RELEASE_TRIES = 3

_TROUBLE = (ApiException, aiohttp.ClientError, TimeoutError, OSError)


class _SupersededError(Exception):
    """Another replica holds the Lease that we held: because this process was paused, or the other's clock jumped."""


class _Lock(LeaseLock):
    """A LeaseLock that treats every trouble as a failed try and notes when the Lease was last renewed."""

    def __init__(self, name: str, namespace: str, identity: str, client: ApiClient, clock: Callable[[], float]) -> None:
        super().__init__(name, namespace, identity, client)
        self.until = -math.inf
        self.unanswered = -math.inf
        """When a call last got no answer."""
        self._clock = clock

    async def get(self, name: str, namespace: str) -> tuple[bool, Any]:
        try:
            async with asyncio.timeout(_CALL_SECONDS):
                found, record = await super().get(name, namespace)
        except _TROUBLE as error:
            found, record = False, ApiException(status=0, reason=_cause(error))
        self._note(record)
        holder = record.holder_identity if isinstance(record, LeaderElectionRecord) else self.identity
        if self.until > -math.inf and holder != self.identity:
            self.until = -math.inf
            raise _SupersededError(holder or "nobody")
        return found, record

    async def create(self, name: str, namespace: str, election_record: LeaderElectionRecord) -> bool:
        lease = V1Lease(metadata=V1ObjectMeta(name=name), spec=self.update_lease(election_record))
        return await self._write(self.api_instance.create_namespaced_lease(namespace, lease))

    async def update(self, name: str, namespace: str, updated_record: LeaderElectionRecord) -> bool:
        lease = self.lease_reference  # with the resourceVersion of the last get: a rival's update is a conflict
        assert lease is not None
        lease.spec = self.update_lease(updated_record, lease.spec)
        return await self._write(self.api_instance.replace_namespaced_lease(name, namespace, lease))

    async def _write(self, call: Awaitable[Any]) -> bool:
        started = self._clock()
        try:
            async with asyncio.timeout(_CALL_SECONDS):
                await call
        except _TROUBLE as error:
            self._note(error)
            logger.warning("lease %s/%s was not written: %s", self.namespace, self.name, _cause(error))
            return False
        self.until = started + LEASE_SECONDS
        return True

    def _note(self, outcome: object) -> None:
        """A server error is no answer either: so says a load balancer whose API servers are away."""
        answered = isinstance(outcome, ApiException) and 0 < (outcome.status or 0) < 500
        if isinstance(outcome, Exception) and not answered:
            self.unanswered = self._clock()

    def time_str_to_iso(self, str_time: str) -> str | None:
        """The library's own loses a time that falls on a whole second."""
        try:
            return datetime.fromisoformat(str_time).isoformat(timespec="microseconds") + "Z"
        except (TypeError, ValueError):
            return None

    async def release(self) -> bool:
        """Gives the Lease back, if it is ours on the server; whether it was.

        Not by what we remember: a call that was cut off may have been served all the same. Raises on trouble.
        """
        self.until = -math.inf
        lease = await self.api_instance.read_namespaced_lease(self.name, self.namespace)
        if lease.spec is None or lease.spec.holder_identity != self.identity:
            return False
        lease.spec.holder_identity = ""
        lease.spec.lease_duration_seconds = 1
        lease.spec.renew_time = datetime.now(UTC)
        await self.api_instance.replace_namespaced_lease(self.name, self.namespace, lease)
        return True


def _cause(error: BaseException) -> str:
    if isinstance(error, ApiException):
        return f"{error.reason} (HTTP {error.status})"
    return str(error) or type(error).__name__


class Leadership:
    """Campaigns for the Lease for ever; calls `on_gain` and `on_loss`.

    `seconds_left()` is the fence: how long a write may still take. A replica without a Lease to share
    (`lock` None: development) leads always.
    """

    def __init__(
        self,
        on_gain: Callable[[], Awaitable[None]],
        on_loss: Callable[[], Awaitable[None]],
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._on_gain = on_gain
        self._on_loss = on_loss
        self._clock = clock
        self._lock: _Lock | None = None
        self._alone = False
        self._leads = False

    def seconds_left(self) -> float:
        """Seconds for which this replica may still write; zero or less for a follower."""
        if self._alone:
            return math.inf
        return -math.inf if self._lock is None else self._lock.until - self._clock()

    def answered_seconds(self) -> float:
        """For how long the API server has answered every call for the Lease, made every two seconds or so; for ever
        where there is no Lease."""
        return math.inf if self._lock is None else self._clock() - self._lock.unanswered

    @property
    def leads(self) -> bool:
        """Whether this replica holds the Lease now."""
        return self.seconds_left() > 0

    async def run(self, client: ApiClient, *, name: str, namespace: str, identity: str) -> None:
        """Runs until it is cancelled; then the Lease is given back. `namespace` empty: leads always."""
        try:
            if not namespace:
                self._alone = True
                await self._gained()
                await asyncio.Event().wait()
            self._lock = _Lock(name, namespace, identity, client, self._clock)
            while True:
                await self._campaign(self._lock, identity)
        finally:
            self._alone = False
            await self._lost()
            await self._release()

    async def _campaign(self, lock: _Lock, identity: str) -> None:
        config = Config(
            lock, LEASE_SECONDS, RENEW_DEADLINE_SECONDS, RETRY_SECONDS,
            onstarted_leading=self._gained, onstopped_leading=self._lost,
        )  # fmt: skip
        logger.info("campaigning for lease %s/%s as %s", lock.namespace, lock.name, identity)
        try:
            await LeaderElection(config).run()
        except _SupersededError as other:  # the library would go on trying for `RENEW_DEADLINE_SECONDS`
            logger.warning("lease %s/%s is held by %s now", lock.namespace, lock.name, other)
            await self._lost()
        except Exception:  # whatever else goes wrong in the library must not end leadership for ever
            logger.exception("leader election failed; trying again")
            await self._lost()
            await asyncio.sleep(RETRY_SECONDS)

    async def _gained(self) -> None:
        self._leads = True
        logger.info("leading")
        await self._on_gain()

    async def _lost(self) -> None:
        if self._leads:
            self._leads = False
            logger.info("no longer leading")
            await self._on_loss()

    async def _release(self) -> None:
        lock = self._lock
        if lock is None:
            return
        for _ in range(_RELEASE_TRIES):
            try:
                async with asyncio.timeout(_CALL_SECONDS):
                    released = await lock.release()
            except _TROUBLE as error:  # a conflict: the last renewal, cut off here, was served after our read
                logger.warning("lease %s/%s was not given back: %s", lock.namespace, lock.name, _cause(error))
                if isinstance(error, ApiException) and error.status == 404:
                    return
            else:
                if released:
                    logger.info("lease %s/%s given back", lock.namespace, lock.name)
                return
