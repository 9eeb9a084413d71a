"""The operator among others, and with every pass hanging: it answers its kubelet, and no other kopf operator stops it."""

import asyncio

from kvcachepool import handlers, service
from kvcachepool.facts import Observed
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
