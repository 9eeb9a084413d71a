"""HTTP server for the kubelet and Prometheus: /healthz, /readyz, /metrics.

It runs in the operator's own event loop on purpose: when the loop is blocked, the probe times out, too.
"""

from collections.abc import Callable, Sequence

from aiohttp import web
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

Check = Callable[[], str]
"""What is wrong, in a sentence; empty when all is well. Must not wait."""


class Health:
    """Answers from `alive` (restart me otherwise) and `ready` (initial state is known)."""

    def __init__(self, registry: CollectorRegistry, *, alive: Sequence[Check], ready: Sequence[Check]) -> None:
        self._registry = registry
        self._alive = alive
        self._ready = ready
        self._runner: web.AppRunner | None = None
        self.port = 0
        """The port in use, once started."""

    async def start(self, port: int, host: str | None = None) -> None:
        """Starts listening; port 0 takes a free one. Raises OSError when the port is taken."""
        app = web.Application()
        app.router.add_get("/healthz", self._healthz)
        app.router.add_get("/readyz", self._readyz)
        app.router.add_get("/metrics", self._metrics)
        self._runner = web.AppRunner(app, access_log=None)
        await self._runner.setup()
        site = web.TCPSite(self._runner, host, port)
        await site.start()
        self.port = min(self._runner.addresses, key=len)[1]  # IPv4 where there is both: port 0 gives each its own

    async def stop(self) -> None:
        """Closes the port."""
        if self._runner is not None:
            await self._runner.cleanup()

    async def _healthz(self, _request: web.Request) -> web.Response:
        return _answer(self._alive)

    async def _readyz(self, _request: web.Request) -> web.Response:
        return _answer(self._ready)

    async def _metrics(self, _request: web.Request) -> web.Response:
        return web.Response(body=generate_latest(self._registry), headers={"Content-Type": CONTENT_TYPE_LATEST})


def _answer(checks: Sequence[Check]) -> web.Response:
    problems = [problem for check in checks if (problem := check())]
    return web.Response(status=500 if problems else 200, text="\n".join(problems) or "ok")
