"""The probe that ends a store member that hangs."""

import asyncio
import socket
import sys
from typing import Any

from aiohttp import web

from kvcachepool.facts import Observed
from kvcachepool.plan import make_plan
from kvcachepool.settings import Settings
from tests.pools import pool


def probe(spec: dict[str, Any] | None = None) -> dict[str, Any]:
    objects = make_plan(pool(spec or {}), Observed(), Settings()).objects
    store = next(o for o in objects if o["kind"] == "Deployment" and o["metadata"]["name"].endswith("-store"))
    found: dict[str, Any] = store["spec"]["template"]["spec"]["containers"][0]["livenessProbe"]
    return found


async def outcome(port: int) -> int:
    python, *arguments = [word.replace("8081", str(port)) for word in probe()["exec"]["command"]]
    assert python == "python3"
    process = await asyncio.create_subprocess_exec(sys.executable, *arguments, stderr=asyncio.subprocess.DEVNULL)
    return await process.wait()


async def test_any_answer_is_a_sign_of_life() -> None:
    """The service has no page at `/`, and asking for one needs no master."""
    runner = web.AppRunner(web.Application())
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        assert runner.addresses[0][1] != 8081
        assert await outcome(runner.addresses[0][1]) == 0
    finally:
        await runner.cleanup()


async def test_a_connection_without_an_answer_is_none() -> None:
    async def silent(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    server = await asyncio.start_server(silent, "127.0.0.1", 0)
    async with server:
        assert await outcome(server.sockets[0].getsockname()[1]) != 0
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        assert await outcome(unused.getsockname()[1]) != 0


def test_a_member_is_ended_only_after_the_master_has_dropped_it() -> None:
    found = probe()
    assert found["periodSeconds"] * found["failureThreshold"] > pool().store.master.client_ttl_seconds
    assert found["terminationGracePeriodSeconds"] < 10, "a hung process would sit out its pod's own 30 s"
    assert probe({"store": {"master": {"clientTtlSeconds": 60}}}) == found, "store pods must not restart for it"
