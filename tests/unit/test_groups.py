"""LeaderWorkerSet that comes after the operator's start."""

from typing import Any

import pytest

from kvcachepool import groups
from kvcachepool.cluster import ApiError
from kvcachepool.groups import Groups

ASKS: dict[str, Any] = {"spec": {"engines": {"nodesPerEngine": 2}}}


class Around:
    """The part of `Surroundings` and `Relist` that is used."""

    def __init__(self) -> None:
        self.leader_worker_sets = False
        self.served: bool | ApiError = False
        self.calls: list[str] = []

    async def look_for_groups(self) -> bool:
        self.calls.append("look")
        if isinstance(self.served, ApiError):
            raise self.served
        before, self.leader_worker_sets = self.leader_worker_sets, self.served
        return before != self.served

    async def kind(self, kind: str) -> None:
        self.calls.append(kind)


class EnoughError(Exception):
    """Ends the loop."""


async def rounds(around: Around, pools: list[Any], monkeypatch: pytest.MonkeyPatch, *serve: bool | ApiError) -> None:
    """One round for each state of the API server."""
    states = iter(serve)

    async def sleep(_seconds: float) -> None:
        try:
            around.served = next(states)
        except StopIteration:
            raise EnoughError from None

    monkeypatch.setattr(groups.asyncio, "sleep", sleep)
    with pytest.raises(EnoughError):
        await Groups(around, around, lambda: pools).forever()  # type: ignore[arg-type]


async def test_it_is_looked_for_until_it_is_there_and_listed_then(monkeypatch: pytest.MonkeyPatch) -> None:
    around = Around()
    await rounds(around, [{"spec": {}}, ASKS], monkeypatch, False, ApiError(503, "busy"), True, True, True)
    assert around.calls == ["look", "look", "look", "LeaderWorkerSet", "LeaderWorkerSet"]


@pytest.mark.parametrize("pool", [{}, {"spec": {"engines": None}}, {"spec": {"engines": {"nodesPerEngine": "x"}}}])
async def test_where_no_pool_asks_for_groups_nothing_is_asked(
    pool: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    around = Around()
    await rounds(around, [pool, {"spec": {"engines": {"nodesPerEngine": 1}}}], monkeypatch, True, True)
    assert around.calls == []
