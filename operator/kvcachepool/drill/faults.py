"""Faults that the API server alone can make, and filling the pool, which requests do. What needs a host (a kill in
place, a pause, dropped packets) is left to whoever has one: a `Fault` is all that the suite asks for."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Final

from kvcachepool import constants, names
from kvcachepool.drill.ground import Ground
from kvcachepool.drill.loop import Engine
from kvcachepool.lookup import CannotRunError
from kvcachepool.probe.client import Prompt, RequestError

_FILL_SECONDS: Final = 600.0
_EVICTIONS: Final = 2
"""Evictions after which a pool counts as full: the first may be of blocks that the fill itself has made."""


@dataclass(frozen=True, slots=True)
class Fault:
    """A way to break something."""

    name: str
    meaning: str
    cost: str
    """What it costs whoever uses the pool."""
    hold: Callable[[Ground], AbstractAsyncContextManager[None]]
    """The fault lasts while this is open. It tells the ground of engines that it kills. Raises CannotRunError."""
    seconds: float = 0.0
    """How long it is held; 0 for one that is over at once."""
    store: bool = True
    """Whether it needs a shared store."""


def deleted(component: str, number: int = 1) -> Callable[[Ground], AbstractAsyncContextManager[None]]:
    """Deletes pods of a component without a time to end: the kubelet grants two seconds, then kills."""

    @asynccontextmanager
    async def hold(ground: Ground) -> AsyncIterator[None]:
        pods = [pod for pod in await ground.pods() if pod.component == component and pod.ready and not pod.deleting]
        if not pods:
            raise CannotRunError(f"the pool has no ready {component} pod of the operator's")
        for pod in sorted(pods, key=lambda pod: pod.name)[:number]:
            if component == constants.ENGINE:
                ground.killed(pod.uid)
            await ground.api.delete("Pod", ground.namespace, pod.name, pod.uid, grace_seconds=0)
        yield

    return hold


@asynccontextmanager
async def service_deleted(ground: Ground) -> AsyncIterator[None]:
    """The master's name and address are gone until the operator has made them anew."""
    name = names.child(ground.pool.metadata.name, constants.MASTER)
    found = await ground.api.get("Service", ground.namespace, name)
    if found is None:
        raise CannotRunError(f"there is no Service {name}: the pool's master is not the operator's")
    await ground.api.delete("Service", ground.namespace, name, found["metadata"]["uid"])
    yield


@asynccontextmanager
async def filled(ground: Ground) -> AsyncIterator[None]:
    """Stores prompts that nobody needs until the master has evicted some others."""
    before = await ground.evictions()
    if before is None:
        raise CannotRunError("the master does not tell how many evictions it has made")
    engines = await ground.engines()
    tasks = [asyncio.create_task(_fill(ground, engine)) for engine in engines]
    end = time.monotonic() + _FILL_SECONDS
    try:
        while ((await ground.evictions()) or 0) < before + _EVICTIONS:
            if time.monotonic() > end:
                raise CannotRunError(f"the pool evicted nothing in {_FILL_SECONDS:g} s of filling")
            await asyncio.sleep(1)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    yield


async def _fill(ground: Ground, engine: Engine) -> None:
    while True:
        prompt = Prompt(ground.references[0].prompt.tokens, max_tokens=1)
        try:
            await ground.asker.ask(engine, ground.asker.salted(prompt))
        except RequestError:
            await asyncio.sleep(1)


_WARM: Final = "every block in the pool"
_ALL: Final = (
    Fault(
        "master-deleted",
        "the master's pod is deleted; the next one has another address",
        f"{_WARM}, as the index is gone; while there is no master, requests wait for their look-ups",
        deleted(constants.MASTER),
    ),
    Fault(
        "store-deleted",
        "a store member is deleted while others read its segment",
        "the blocks of one store pod",
        deleted(constants.STORE),
    ),
    Fault(
        "service-deleted",
        "the master's Service is deleted; the operator makes another one",
        "connections to the master until it is back; blocks, if members are away from it for clientTtlSeconds",
        service_deleted,
    ),
    Fault(
        "pool-full",
        "the pool is filled until it evicts",
        f"{_WARM} that is older than the drill; engines compute prompts that nobody needs",
        filled,
    ),
    Fault(
        "engine-deleted",
        "an engine is deleted while it loads",
        "the requests that run at it, and its own cache; as long as it takes to start, there is one engine less",
        deleted(constants.ENGINE),
        store=False,
    ),
)
FAULTS: Final = {fault.name: fault for fault in _ALL}
"""By name, the cheapest to recover from first, an engine last: it takes longest to come back."""
