"""The HTTP server for the kubelet and Prometheus."""

import aiohttp
import pytest
from prometheus_client import CollectorRegistry, Gauge

from kvcachepool.health import Health


@pytest.fixture
async def served():
    registry = CollectorRegistry()
    Gauge("answer", "Of everything.", registry=registry).set(42)
    problems = {"alive": "", "ready": "starting"}
    health = Health(registry, alive=(lambda: "", lambda: problems["alive"]), ready=(lambda: problems["ready"],))
    await health.start(0, "127.0.0.1")
    async with aiohttp.ClientSession(f"http://127.0.0.1:{health.port}") as session:
        yield session, problems
    await health.stop()


async def get(session, path):
    async with session.get(path) as answer:
        return answer.status, await answer.text()


async def test_each_probe_says_what_is_wrong(served):
    session, problems = served
    assert await get(session, "/healthz") == (200, "ok")
    assert await get(session, "/readyz") == (500, "starting")
    problems |= {"alive": "the watch is dead", "ready": ""}
    assert await get(session, "/healthz") == (500, "the watch is dead")
    assert await get(session, "/readyz") == (200, "ok")


async def test_metrics_are_in_the_text_format(served):
    session, _ = served
    code, text = await get(session, "/metrics")
    assert code == 200
    assert "answer 42.0" in text
    async with session.get("/metrics") as answer:
        assert answer.headers["Content-Type"].startswith("text/plain")


async def test_nothing_else_is_served(served):
    session, _ = served
    assert (await get(session, "/"))[0] == 404


async def test_a_taken_port_is_an_error(served):
    session, _ = served
    other = Health(CollectorRegistry(), alive=(), ready=())
    with pytest.raises(OSError, match="in use"):
        await other.start(session._base_url.port, "127.0.0.1")
    await other.stop()
