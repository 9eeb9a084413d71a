"""The running operator: what is started in which order, and stopped in which.

Start: HTTP server -> wait for the CRD -> fill the cache -> watch and campaign for the Lease -> work the queue.
Stop (SIGTERM): cancel passes, give the Lease back, end the watches, close. Everything that lives long is started
before kopf, since kopf takes any later task for one of its own and ends it when it ends.
"""

import asyncio
import logging
import shutil
import signal
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from kubernetes.aio.client import ApiClient

from kvcachepool import handlers
from kvcachepool.admission import Admission
from kvcachepool.assembly import Parts
from kvcachepool.children import Children
from kvcachepool.claims import Claims
from kvcachepool.cluster import ApiError, Cluster, connect, connection
from kvcachepool.device_plugins import DevicePlugins
from kvcachepool.facts import Object, Observed
from kvcachepool.groups import Groups
from kvcachepool.health import Health
from kvcachepool.leader import Leadership
from kvcachepool.metrics import Metrics
from kvcachepool.reconcile import Reconciler, Steps
from kvcachepool.relist import Relist
from kvcachepool.settings import Settings
from kvcachepool.strangers import Strangers
from kvcachepool.surroundings import Surroundings
from kvcachepool.watchcache import WatchCache
from kvcachepool.webhook_tls import Files, OwnSecret, Source, WebhookTls
from kvcachepool.workqueue import Key, WorkQueue

logger = logging.getLogger(__name__)

_CRD_POLL_SECONDS = 5.0
_WATCH_LAG_SECONDS = 60.0
"""An object known to be newer than what its watch delivered for so long, while the API server answers: the watch is
dead. (While it does not answer nothing can be delivered, and a restart would only lose what is known.)"""
_ENDING_SECONDS = 10.0
"""How long watches may take to end. One that is about to try again takes kopf's request to end for a pause, and tries
for ever (kopf 1.45.2, `clients/api.py`, `stream`): the process would stay, without the lead and healthy to its kubelet.
"""
_QUEUE_STUCK_SECONDS = 300.0
"""Every pass ends within two minutes, so a key that waits longer for a worker means the queue is stuck."""


class Operator:
    """One replica of the operator."""

    def __init__(self, settings: Settings, client: ApiClient, steps: Steps | None = None) -> None:
        """`steps` instead of the real ones is for tests."""
        self.settings = settings
        self.client = client
        self.metrics = Metrics()
        self.cache = WatchCache()
        self.leadership = Leadership(self._gained, self._lost)
        self.cluster = Cluster(
            client,
            write_seconds_left=self.leadership.seconds_left,
            on_call=self.metrics.call,
            identity=settings.identity,
        )
        self.device_plugins = DevicePlugins(
            self.cluster,
            settings,
            self._pools,
            lambda key: self.queue.add(key),  # noqa: PLW0108 - the queue is made below
            leads=lambda: self.leadership.leads,
        )
        self.surroundings = Surroundings(self.cluster, settings.lease_namespace, self._all_changed)
        self.parts = Parts(settings, self.cluster, self.cache, probed=self._probed, surroundings=self._seen_by)
        claims = Claims(
            self.cluster,
            installation=f"{settings.lease_namespace}/{settings.lease_name}" if settings.lease_namespace else "",
            claiming=bool(settings.namespaces),
            pass_seconds=settings.resync_seconds,
            on_conflict=lambda namespace, conflict: self.metrics.conflict.labels(namespace).set(conflict),
        )
        self.reconciler = Reconciler(
            steps or self.parts.steps(),
            cache=self.cache,
            cluster=self.cluster,
            children=Children(self.cluster, self.cache),
            claims=claims,
            metrics=self.metrics,
            resync_seconds=settings.resync_seconds,
        )
        self.queue = WorkQueue(self.reconciler.run, workers=settings.workers, on_pass=self._passed)
        self.relist = Relist(
            self.cluster,
            self.cache,
            namespaces=settings.namespaces,
            changed=self._pool_changed,
            also=self.surroundings.refresh,
            optional=lambda: ("LeaderWorkerSet",) if self.surroundings.leader_worker_sets else (),
        )
        self.groups = Groups(self.surroundings, self.relist, self._pools)
        self.strangers = Strangers(self.cluster, self.cache, leads=lambda: self.leadership.leads)
        self.health = Health(
            self.metrics.registry, alive=(self._watch_problem, self._queue_problem), ready=(lambda: self._waiting,)
        )
        self.tls, self.admission = self._webhook()
        self._waiting = "starting"
        self._last_pass = float("nan")
        self.metrics.watch_state(
            depth=lambda: self.queue.depth,
            leads=lambda: self.leadership.leads,
            pools=lambda: len(self.cache.pools()),
            idle=lambda: time.monotonic() - self._last_pass,
            undeclared=lambda: len(self.cluster.undeclared()),
        )

    async def run(self, stop: asyncio.Event) -> None:
        """Runs until `stop` is set; raises when watching ends for good, so that the pod is started anew."""
        await self.health.start(self.settings.http_port)
        background: list[asyncio.Task[None]] = []
        try:
            if not await _unless(stop, self._prepare()):
                return
            background = [
                asyncio.create_task(self.relist.forever(), name="relist"),
                asyncio.create_task(self.strangers.forever(), name="strangers"),
                *(
                    []
                    if self.surroundings.leader_worker_sets
                    else [asyncio.create_task(self.groups.forever(), name="groups")]
                ),
                asyncio.create_task(self._campaign(), name="leadership"),
                asyncio.create_task(self.device_plugins.forever(), name="device-plugins"),
                *([asyncio.create_task(self.tls.forever(), name="webhook-tls")] if self.tls is not None else []),
            ]
            await self._watch(stop, background)
        finally:
            await _cancel(background)
            await self.queue.pause()
            await self.parts.close()
            await self.health.stop()
            if self.tls is not None:
                shutil.rmtree(self.tls.certificate_file.parent, ignore_errors=True)

    async def _prepare(self) -> None:
        """Waits for the CRD, then fills the cache: a pass on half a picture would write a false status."""
        while True:
            try:
                if await self.cluster.served():
                    break
                self._wait_for("the CRD kvcachepools.kvcachepool.io is not installed")
            except ApiError as error:
                self._wait_for(f"cannot ask the API server: {error}")
            await asyncio.sleep(_CRD_POLL_SECONDS)
        await self.relist.first(self._wait_for)
        if self.tls is not None:
            await self.tls.first(self._wait_for)
        self._wait_for("")

    async def _watch(self, stop: asyncio.Event, background: list[asyncio.Task[None]]) -> None:
        started, ended = asyncio.Event(), asyncio.Event()

        async def on_stop() -> None:
            await started.wait()
            _on_signals(stop.set)  # kopf has put its own handlers in place; the Lease must go before its watches
            stopped = asyncio.create_task(stop.wait(), name="stop")
            await asyncio.wait((stopped, *background), return_when=asyncio.FIRST_COMPLETED)
            await _cancel([*background, stopped])
            ended.set()

        stopper = asyncio.create_task(on_stop(), name="stopper")
        over = asyncio.create_task(ended.wait(), name="over")
        watching = asyncio.create_task(
            handlers.watch(
                self.cache, self._pool_changed, lambda: connection(self.client),
                namespaces=self.settings.namespaces, started=started, stop=ended,
                leader_worker_sets=self.surroundings.leader_worker_sets,
                node_event=self.surroundings.node_event if self.surroundings.nodes.facts is not None else None,
                extend=self.admission.install if self.admission is not None else lambda _registry, _settings: None,
            ),
            name="watches",
        )  # fmt: skip
        try:
            await asyncio.wait((watching, over), return_when=asyncio.FIRST_COMPLETED)
            await asyncio.wait((watching,), timeout=_ENDING_SECONDS)
        finally:
            await _cancel([stopper, over])
        if watching.done():
            watching.result()
        elif not stop.is_set():
            raise RuntimeError("a watch has ended for good and the others do not end")
        for task in background:
            if task.done() and not task.cancelled():
                task.result()  # a background task never ends by itself, but in an error that must not go unseen

    def _webhook(self) -> tuple[WebhookTls | None, Admission | None]:
        settings = self.settings
        if not settings.webhook_port:
            return None, None
        source: Source
        if settings.webhook_certificate_dir:
            source = Files(Path(settings.webhook_certificate_dir))
        else:
            # not bound to the Lease: a replica that does not lead serves, too
            cluster = Cluster(self.client, on_call=self.metrics.call, identity=settings.identity)
            host = f"{settings.webhook_service}.{settings.lease_namespace}.svc"
            source = OwnSecret(
                cluster, settings.lease_namespace, settings.webhook_name, settings.webhook_name, names=(host,)
            )
        tls = WebhookTls(source, Path(tempfile.mkdtemp(prefix="kvcp-tls-")))
        return tls, Admission(self.cache, self.metrics, tls, port=settings.webhook_port)

    async def _campaign(self) -> None:
        settings = self.settings
        await self.leadership.run(
            self.client, name=settings.lease_name, namespace=settings.lease_namespace, identity=settings.identity
        )

    async def _gained(self) -> None:
        self.reconciler.reset()
        self.queue.resume()
        self._all_changed()

    async def _lost(self) -> None:
        await self.queue.pause()
        await self.parts.reset()
        self.metrics.forget()

    def _probed(self, key: Key) -> None:
        self.queue.add(key)  # the result goes into the status with the next pass

    def _passed(self, key: Key, seconds: float, result: str) -> None:
        self._last_pass = time.monotonic()
        self.metrics.passes.labels(result).observe(seconds)
        if self.cache.pool(key) is None:
            self.queue.forget(key)

    def _pool_changed(self, key: Key) -> None:
        self.queue.add(key)
        self.device_plugins.wake()

    def _pools(self) -> list[Object]:
        return [pool for key in self.cache.pools() if (pool := self.cache.pool(key)) is not None]

    def _all_changed(self) -> None:
        for key in self.cache.pools():
            self._pool_changed(key)

    def _seen_by(self, key: Key, observed: Observed) -> Observed:
        shared = self.surroundings.seen_by(observed)
        return replace(shared, device_plugin_trouble=self.device_plugins.trouble(key))

    def _wait_for(self, reason: str) -> None:
        if reason and reason != self._waiting:
            logger.warning("waiting: %s", reason)
        self._waiting = reason

    def _watch_problem(self) -> str:
        lagging = self.cache.lagging()
        if lagging is None:
            return ""
        (kind, namespace, name), seconds = lagging
        if min(seconds, self.leadership.answered_seconds()) < _WATCH_LAG_SECONDS:
            return ""
        return f"the watch of {kind} has not delivered {namespace}/{name} for {seconds:.0f} s"

    def _queue_problem(self) -> str:
        wait = self.queue.longest_wait()
        return f"a pool has waited {wait:.0f} s for a worker" if wait > _QUEUE_STUCK_SECONDS else ""


async def serve(settings: Settings) -> None:
    """Runs one replica until SIGTERM or SIGINT."""
    stop = asyncio.Event()
    _on_signals(stop.set)
    client = await connect()
    try:
        await Operator(settings, client).run(stop)
    finally:
        await client.close()  # type: ignore[no-untyped-call]


def _on_signals(call: Callable[[], None]) -> None:
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, call)


async def _cancel(tasks: Sequence[asyncio.Task[Any]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def _unless(stop: asyncio.Event, work: Awaitable[None]) -> bool:
    """Whether `work` was finished before `stop` was set."""
    task, stopped = asyncio.ensure_future(work), asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait((task, stopped), return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            return False
        task.result()
        return True
    finally:
        for future in (task, stopped):
            future.cancel()
        await asyncio.gather(task, stopped, return_exceptions=True)
