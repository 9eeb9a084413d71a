"""Leadership in virtual time, against a Lease in memory."""

import asyncio
import copy
import types
from collections.abc import Callable

import aiohttp
import pytest
from kubernetes.aio.client.exceptions import ApiException
from kubernetes.aio.leaderelection import leaderelection
from kubernetes.aio.leaderelection.resourcelock import leaselock

from kvcachepool.leader import LEASE_SECONDS, Leadership
from tests.virtual_time import run


class Leases:
    """One Lease with optimistic locking; `trouble` may raise or wait, per identity that asks."""

    def __init__(self) -> None:
        self.lease = None
        self.version = 0
        self.trouble: Callable[[str], None] = lambda _identity: None
        self.hangs: set[str] = set()

    def api(self, identity: str) -> "LeaseApi":
        return LeaseApi(self, identity)


class LeaseApi:
    def __init__(self, store: Leases, identity: str) -> None:
        self.store, self.identity = store, identity

    async def _enter(self) -> None:
        await asyncio.sleep(0.01)
        if self.identity in self.store.hangs:
            await asyncio.Event().wait()
        self.store.trouble(self.identity)

    async def read_namespaced_lease(self, _name, _namespace):
        await self._enter()
        if self.store.lease is None:
            error = ApiException(status=404, reason="Not Found")
            error.body = '{"code": 404}'
            raise error
        return copy.deepcopy(self.store.lease)

    async def create_namespaced_lease(self, _namespace, lease):
        await self._enter()
        if self.store.lease is not None:
            raise ApiException(status=409, reason="AlreadyExists")
        self._store(lease)

    async def replace_namespaced_lease(self, _name, _namespace, lease):
        await self._enter()
        if lease.metadata.resource_version != self.store.lease.metadata.resource_version:
            raise ApiException(status=409, reason="Conflict")
        self._store(lease)

    def _store(self, lease) -> None:
        from datetime import datetime

        self.store.version += 1
        kept = copy.deepcopy(lease)
        kept.metadata.resource_version = str(self.store.version)
        for name in ("acquire_time", "renew_time"):  # as the wire does: text in, time out
            value = getattr(kept.spec, name)
            setattr(kept.spec, name, datetime.fromisoformat(value) if isinstance(value, str) else value)
        self.store.lease = kept


class Replica:
    def __init__(self, store: Leases, identity: str) -> None:
        self.identity = identity
        self.working = False
        self.log: list[tuple[str, float]] = []
        self.leadership = Leadership(self._gain, self._loss, clock=lambda: asyncio.get_running_loop().time())
        self.task = asyncio.create_task(
            self.leadership.run(store.api(identity), name="lease", namespace="op", identity=identity)
        )

    async def _gain(self) -> None:
        self.working = True
        self.log.append(("gain", asyncio.get_running_loop().time()))

    async def _loss(self) -> None:
        self.working = False
        self.log.append(("loss", asyncio.get_running_loop().time()))

    async def stop(self) -> None:
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)

    def kill(self) -> None:
        """As by SIGKILL: nothing is said, nothing is given back."""
        self.leadership._release = _nothing
        self.task.cancel()


async def _nothing() -> None:
    return None


@pytest.fixture(autouse=True)
def _virtual(monkeypatch):
    """The library reads the wall clock and makes its API object itself."""
    clock = types.SimpleNamespace(time=lambda: asyncio.get_running_loop().time())
    monkeypatch.setattr(leaderelection, "time", clock)
    monkeypatch.setattr(leaselock.client, "CoordinationV1Api", lambda api_client: api_client)


def never_two(*replicas: Replica) -> None:
    assert sum(replica.leadership.leads for replica in replicas) <= 1


async def watch_for(seconds: float, *replicas: Replica) -> None:
    for _ in range(int(seconds * 10)):
        never_two(*replicas)
        await asyncio.sleep(0.1)


def test_one_of_two_leads_and_renews():
    async def scenario() -> None:
        store = Leases()
        a, b = Replica(store, "a"), Replica(store, "b")
        await watch_for(120, a, b)
        assert [len(a.log), len(b.log)] in ([1, 0], [0, 1])
        assert (a.leadership.leads, b.leadership.leads) == (a.working, b.working)
        leader = a if a.leadership.leads else b
        assert 0 < leader.leadership.seconds_left() <= LEASE_SECONDS
        await a.stop()
        await b.stop()

    run(scenario())


def test_a_stopped_leader_gives_the_lease_back():
    async def scenario() -> None:
        store = Leases()
        a = Replica(store, "a")
        await asyncio.sleep(1)
        b = Replica(store, "b")
        await watch_for(10, a, b)
        stopped = asyncio.get_running_loop().time()
        await a.stop()
        assert a.log[-1][0] == "loss"
        assert store.lease.spec.holder_identity == ""
        await watch_for(3, a, b)
        assert b.working
        assert b.log[0][1] - stopped < 3
        await b.stop()

    run(scenario())


def test_a_killed_leader_is_followed_after_the_lease_ran_out():
    async def scenario() -> None:
        store = Leases()
        a = Replica(store, "a")
        await asyncio.sleep(1)
        b = Replica(store, "b")
        await watch_for(5, a, b)
        a.kill()
        killed = asyncio.get_running_loop().time()
        await watch_for(LEASE_SECONDS + 5, a, b)
        assert b.working
        assert b.log[0][1] - killed > LEASE_SECONDS - 5
        await b.stop()

    run(scenario())


def broken_connection(_identity: str) -> None:
    raise aiohttp.ClientConnectionError("connection refused")


def broken_server(_identity: str) -> None:
    raise ApiException(status=503, reason="Service Unavailable")


@pytest.mark.parametrize("trouble", [broken_connection, broken_server, "hang"])
def test_trouble_costs_the_lead_but_never_the_process(trouble):
    async def scenario() -> None:
        store = Leases()
        a = Replica(store, "a")
        await asyncio.sleep(5)
        assert a.working
        if trouble == "hang":
            store.hangs = {"a"}
        else:
            store.trouble = trouble
        await asyncio.sleep(LEASE_SECONDS + 0.1)
        assert a.leadership.seconds_left() <= 0, "no write after the lease ran out"
        await asyncio.sleep(60)
        assert [what for what, _ in a.log] == ["gain", "loss"]
        assert not a.task.done()
        assert a.leadership.answered_seconds() < 10
        store.hangs, store.trouble = set(), lambda _identity: None
        await asyncio.sleep(20)
        assert a.working
        assert a.leadership.answered_seconds() > 10
        await a.stop()

    run(scenario())


def test_a_leader_that_is_cut_off_stops_before_another_begins():
    async def scenario() -> None:
        store = Leases()
        a = Replica(store, "a")
        await asyncio.sleep(1)
        b = Replica(store, "b")
        await watch_for(5, a, b)
        store.hangs = {"a"}
        await watch_for(60, a, b)
        assert b.working
        assert not a.working
        assert a.log[-1][1] <= b.log[0][1] + 2 or a.leadership.seconds_left() <= 0
        store.hangs = set()
        await watch_for(60, a, b)
        assert b.working
        assert not a.working
        await a.stop()
        await b.stop()

    run(scenario())


def refused(_identity: str) -> None:
    raise ApiException(status=403, reason="Forbidden")


def test_a_refusal_and_a_rivals_lease_are_answers():
    async def scenario() -> None:
        store = Leases()
        a = Replica(store, "a")
        await asyncio.sleep(1)
        b = Replica(store, "b")
        await asyncio.sleep(30)
        store.trouble = refused
        await asyncio.sleep(30)
        assert (a.working, b.working) == (False, False)
        assert a.leadership.answered_seconds() > 60
        assert b.leadership.answered_seconds() > 60
        await a.stop()
        await b.stop()

    run(scenario())


def test_without_a_lease_it_leads_always():
    async def scenario() -> None:
        gained = asyncio.Event()

        async def gain() -> None:
            gained.set()

        async def loss() -> None:
            gained.clear()

        leadership = Leadership(gain, loss)
        assert not leadership.leads
        task = asyncio.create_task(leadership.run(None, name="", namespace="", identity=""))
        await gained.wait()
        assert leadership.seconds_left() == float("inf")
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert not leadership.leads
        assert not gained.is_set()

    run(scenario())
