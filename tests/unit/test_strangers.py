from typing import Any

import pytest

from kvcachepool import constants
from kvcachepool.cluster import ApiError
from kvcachepool.strangers import Strangers
from kvcachepool.watchcache import WatchCache
from tests.pools import raw


class Posted:
    """Takes Events; fails as often as it is told to."""

    def __init__(self, failures: int = 0) -> None:
        self.events: list[tuple[Any, ...]] = []
        self.failures = failures

    async def post_event(self, *event: Any, about: str) -> None:
        if self.failures:
            self.failures -= 1
            raise ApiError(500, "later", retry=True)
        self.events.append((*event, about))


def pod(name: str, pool: str, uid: str = "", version: int = 5, **metadata: Any) -> dict[str, Any]:
    return {
        "kind": "Pod",
        "metadata": {
            "namespace": "team-a",
            "name": name,
            "uid": uid or f"u-{name}",
            "resourceVersion": str(version),
            "labels": {constants.LABEL_POOL: pool},
            **metadata,
        },
    }


@pytest.fixture
def cache() -> WatchCache:
    cache = WatchCache()
    cache.event("ADDED", raw(resourceVersion="1"))
    return cache


async def test_a_pod_that_names_no_pool_is_told_once_and_which_pools_there_are(cache: WatchCache) -> None:
    posted = Posted()
    strangers = Strangers(posted, cache, leads=lambda: True)  # type: ignore[arg-type]
    cache.event("ADDED", pod("lost", "dem0"))
    cache.event("ADDED", pod("member", "demo"))
    for _ in range(4):
        await strangers.once()
    ((key, uid, kind, reason, message, about),) = posted.events
    assert (key, uid, kind, reason, about) == (("team-a", "lost"), "u-lost", "Warning", "PoolNotFound", "Pod")
    assert "names the pool dem0, which does not exist in namespace team-a (there: demo)" in message


async def test_a_pod_whose_pool_comes_a_moment_later_is_not_told(cache: WatchCache) -> None:
    posted = Posted()
    strangers = Strangers(posted, cache, leads=lambda: True)  # type: ignore[arg-type]
    cache.event("ADDED", pod("early", "second"))
    await strangers.once()
    cache.event("ADDED", raw(name="second", resourceVersion="9"))
    await strangers.once()
    assert posted.events == []


async def test_an_event_that_could_not_be_posted_is_posted_later(cache: WatchCache) -> None:
    posted = Posted(failures=2)
    strangers = Strangers(posted, cache, leads=lambda: True)  # type: ignore[arg-type]
    cache.event("ADDED", pod("lost", "dem0"))
    for _ in range(5):
        await strangers.once()
    assert len(posted.events) == 1


async def test_pods_that_are_leaving_are_left_alone(cache: WatchCache) -> None:
    posted = Posted()
    strangers = Strangers(posted, cache, leads=lambda: True)  # type: ignore[arg-type]
    cache.event("ADDED", pod("lost", "dem0", deletionTimestamp="2026-01-01T00:00:00Z"))
    for _ in range(3):
        await strangers.once()
    assert posted.events == []
