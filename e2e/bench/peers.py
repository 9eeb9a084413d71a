"""Master and engines of a bench: HTTP with recorded pages, in a process of its own. `python -m e2e.bench.peers`."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

from aiohttp import web

from e2e.bench.writers import ADDRESS
from kvcachepool import constants

FIXTURES = Path(__file__).parents[2] / "tests" / "fixtures" / "http"


def _page(text: str) -> web.Response:
    return web.Response(text=text)


def main() -> None:
    """Serve until killed."""
    engine = (FIXTURES / "engine_metrics_after_hit.txt").read_text()
    master = (FIXTURES / "master_metrics.txt").read_text()
    segments = (FIXTURES / "master_segments_detail.json").read_text()
    health = json.dumps({"service_ready": True})
    application = web.Application()

    async def answer(request: web.Request) -> web.Response:
        to_master = request.url.port == constants.MASTER_HTTP_PORT
        match request.path:
            case "/health":
                return _page(health if to_master else "")
            case "/metrics":
                return _page(master if to_master else engine)
            case "/get_segments_detail":
                return _page(segments)
        return web.Response(status=404)

    application.router.add_get("/{path:.*}", answer)

    async def run() -> None:
        runner = web.AppRunner(application, access_log=None)
        await runner.setup()
        for port in (constants.ENGINE_PORT, constants.MASTER_HTTP_PORT):
            await web.TCPSite(runner, ADDRESS, port, backlog=4096).start()
        await asyncio.Event().wait()

    asyncio.run(run())


main()
