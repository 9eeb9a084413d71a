"""Loops beside the passes: the process ends with the first of them, so that a round that fails must not end it."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kvcachepool import device_plugins, groups, strangers
from kvcachepool.device_plugins import DevicePlugins
from kvcachepool.groups import Groups
from kvcachepool.relist import Relist
from kvcachepool.settings import Settings
from kvcachepool.strangers import Strangers
from kvcachepool.webhook_tls import WebhookTls

NONE: Any = None
LOOPS: list[Callable[[], Any]] = [
    lambda: DevicePlugins(NONE, Settings(), list, lambda _key: None, leads=lambda: True),
    lambda: Groups(NONE, NONE, lambda: [{"spec": {"engines": {"nodesPerEngine": 2}}}]),
    lambda: Relist(NONE, NONE, namespaces=(), changed=lambda _key: None, interval=0),
    lambda: Strangers(NONE, NONE, leads=lambda: True),
    lambda: WebhookTls(NONE, Path("none"), interval=0),
]


@pytest.mark.parametrize("make", LOOPS)
async def test_a_round_that_fails_is_in_the_log_with_its_traceback_and_the_next_one_is_made(
    make: Callable[[], Any], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for module, seconds in (
        (device_plugins, "_RECHECK_SECONDS"),
        (groups, "_LOOK_SECONDS"),
        (strangers, "_INTERVAL_SECONDS"),
    ):
        monkeypatch.setattr(module, seconds, 0.0)
    loop = make()
    rounds = iter([RuntimeError("never thought of"), asyncio.CancelledError()])

    async def once(**_: Any) -> None:
        raise next(rounds)

    monkeypatch.setattr(loop, "once", once)
    with pytest.raises(asyncio.CancelledError):
        await loop.forever()
    assert [str(record.exc_info[1]) for record in caplog.records if record.exc_info] == ["never thought of"]
