"""The operator among others, and with every pass hanging: it answers its kubelet, and no other kopf operator stops it."""

import asyncio
import subprocess
import sys
from contextlib import suppress

import pytest

from kvcachepool import handlers, service
from kvcachepool.facts import Observed
from kvcachepool.settings import Settings
from tests.wiring.conftest import pool, steps, until
from tests.wiring.test_operator import get, replica, status_of


def test_no_peering_with_other_operators():
    """kopf#734: a `default` peering that somebody else's operator, or a developer's run, shares at equal priority pauses
    both for ever."""
    settings = handlers.settings()
    assert settings.peering.standalone
    assert not settings.posting.enabled
    assert settings.scanning.disabled


async def test_another_products_peering_object_is_never_asked_for(api, client):
    async with replica(client):
        api.put(pool())
        await until(lambda: status_of(api))
    assert not [path for _, path in api.requests if "peering" in path or "kopf" in path]


async def test_the_kubelet_is_answered_while_every_pass_hangs(api, client, monkeypatch):
    """kopf#18, kopf#1095: what waits must not hold up the loop. When it never ends, the pod is started anew."""

    async def observe(_pool):
        await asyncio.Event().wait()
        return Observed()

    async with replica(client, made=steps(observe=observe), workers=2) as operator:
        for number in range(20):
            api.put(pool(f"hanging-{number}"))
        await until(lambda: operator.queue.depth == 18)
        for path in ("/healthz", "/readyz", "/metrics"):
            assert (await get(operator, path))[0] == 200
        monkeypatch.setattr(service, "_QUEUE_STUCK_SECONDS", 0.0)
        code, text = await get(operator, "/healthz")
        assert code == 500
        assert "has waited" in text


@pytest.mark.parametrize("asked", [True, False], ids=["SIGTERM", "a watch has ended"])
async def test_watches_that_do_not_end_keep_no_process(api, client, monkeypatch, asked):
    """A replica without leadership that looks healthy is never started anew; seen when rights were taken away."""
    released = asyncio.Event()

    async def watch(*_, started, stop, **__):
        started.set()
        while not released.is_set():
            with suppress(asyncio.CancelledError):
                await released.wait()

    monkeypatch.setattr(service.handlers, "watch", watch)
    monkeypatch.setattr(service, "_ENDING_SECONDS", 0.1)
    operator = service.Operator(Settings(http_port=0), client, steps())
    if not asked:  # kopf, on its way out, cancels what was begun after it
        monkeypatch.setattr(operator.relist, "forever", lambda: asyncio.sleep(0.2))
    stop = asyncio.Event()
    running = asyncio.create_task(operator.run(stop))
    try:
        if asked:
            await until(lambda: operator.leadership.leads)
            stop.set()
            await asyncio.wait_for(running, 30)
        else:
            with pytest.raises(RuntimeError, match="the others do not end"):
                await asyncio.wait_for(running, 30)
        assert not operator.leadership.leads
    finally:
        released.set()


@pytest.mark.parametrize("code", [0, 1])
def test_a_task_that_does_not_take_its_cancellation_keeps_no_process(code):
    program = f"""
import asyncio
from kvcachepool.cli.run import leave
async def stubborn():
    while True:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            pass
async def main():
    asyncio.create_task(stubborn(), name="stubborn")
    await asyncio.sleep(0)
loop = asyncio.new_event_loop()
loop.run_until_complete(main())
leave(loop, {code}, seconds=0.1)
"""
    ended = subprocess.run([sys.executable, "-c", program], env={"PYTHONPATH": "operator"}, timeout=60, check=False)
    assert ended.returncode == code


async def test_a_pass_that_fails_in_an_unforeseen_way_ends_neither_the_others_nor_the_process(api, client):
    async def observe(seen):
        if seen.metadata.name == "broken":
            raise RuntimeError("unforeseen")
        return Observed()

    async with replica(client, made=steps(observe=observe)) as operator:
        api.put(pool("broken"))
        api.put(pool("fine"))
        await until(lambda: status_of(api, "fine"))
        count = operator.metrics.registry.get_sample_value
        await until(lambda: count("kvcachepool_operator_pass_seconds_count", {"result": "error"}))
        assert (await get(operator, "/healthz"))[0] == 200
