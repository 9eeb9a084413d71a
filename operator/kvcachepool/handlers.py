"""kopf's part: watches that feed the cache, and nothing else. Besides, only admission.py imports kopf.

Only `on.event` is used: it keeps no state, so nothing (no finalizer, annotation, progress, last-handled
configuration) is ever written to a watched object, and a dead operator blocks no deletion.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection
from typing import Any

import kopf

from kvcachepool import constants
from kvcachepool.watchcache import Key, WatchCache

Connection = Callable[[], Awaitable[dict[str, Any]]]
"""Gives `cluster.connection`: server, token and certificates as they are now."""

_WATCHED: tuple[tuple[str, str, str], ...] = (
    (constants.GROUP, constants.VERSION, constants.PLURAL),
    ("", "v1", "pods"),
    ("apps", "v1", "deployments"),
    ("", "v1", "services"),
    ("", "v1", "configmaps"),
    ("discovery.k8s.io", "v1", "endpointslices"),
    ("policy", "v1", "poddisruptionbudgets"),
    ("networking.k8s.io", "v1", "networkpolicies"),
)
_LEADER_WORKER_SETS: tuple[str, str, str] = ("leaderworkerset.x-k8s.io", "v1", "leaderworkersets")


class _NoDiff(kopf.DiffBaseStorage):
    """Keeps nothing of an object. kopf would copy each one several times to compare it with its last state, also where
    no handler asks for that: most of the time of an event."""

    def build(self, **_: Any) -> Any:
        """Nothing of it is essential."""
        return {}

    def fetch(self, **_: Any) -> Any:
        """There is no last state."""
        return

    def store(self, **_: Any) -> None:
        """Nothing is stored."""


class _NoProgress(kopf.ProgressStorage):
    """No handler has a progress to keep."""

    def fetch(self, **_: Any) -> Any:
        """There is none."""
        return

    def store(self, **_: Any) -> None:
        """Nothing is stored."""

    def purge(self, **_: Any) -> None:
        """Nothing is there."""

    def touch(self, **_: Any) -> None:
        """Nothing is there."""

    def clear(self, *, essence: Any) -> Any:
        """Nothing is in it."""
        return essence


def settings() -> kopf.OperatorSettings:
    """kopf without peering, persistence, events of its own, and cluster-scoped reads."""
    result = kopf.OperatorSettings()
    result.peering.standalone = True
    result.posting.enabled = False
    # Without it kopf lists and watches CRDs and namespaces, which a namespaced Role cannot allow.
    result.scanning.disabled = True
    result.networking.request_timeout = 30
    result.networking.connect_timeout = 10
    # Pauses between tries, and after the last an error that is an answer (5xx, 403) ends the process. kopf's own grow
    # to 21 s, and for so long a change could go unseen after the API server is back.
    result.networking.error_backoffs = (1, 1, 2, 3, *(5,) * 9)
    # A task for each object that something happened to; ours keep nothing between two events.
    result.queueing.idle_timeout = 0.2
    result.watching.chunk_size = 200  # of the first list; whole, that of many pools' pods would not fit
    result.persistence.diffbase_storage = _NoDiff()
    result.persistence.progress_storage = _NoProgress()
    # kopf removes the finalizer of this name from every object that it sees; a pod may carry another kopf
    # operator's default one.
    result.persistence.finalizer = f"{constants.GROUP}/unused"
    # Pods of the whole cluster would be listed otherwise.
    for group, version, plural in (*_WATCHED[1:], _LEADER_WORKER_SETS):
        result.watching.label_selectors[group, version, plural] = constants.LABEL_POOL
    return result


def registry(
    cache: WatchCache,
    changed: Callable[[Key], None],
    connection: Connection,
    node_event: Callable[[str | None, Any], None] | None = None,
    *,
    leader_worker_sets: bool = False,
) -> kopf.OperatorRegistry:
    """The handlers: each event goes into the cache and its pool to `changed`."""
    result = kopf.OperatorRegistry()

    async def feed(event: Any, **_: Any) -> None:
        for key in cache.event(event["type"], event["object"]):
            changed(key)

    async def login(**_: Any) -> kopf.ConnectionInfo:
        return kopf.ConnectionInfo(**await connection())

    watched = (*_WATCHED, _LEADER_WORKER_SETS) if leader_worker_sets else _WATCHED
    for group, version, plural in watched:
        kopf.on.event(group=group, version=version, plural=plural, id=f"feed-{plural}", registry=result)(feed)
    if node_event is not None:

        async def feed_node(event: Any, **_: Any) -> None:
            node_event(event["type"], event["object"])

        kopf.on.event(group="", version="v1", plural="nodes", id="feed-nodes", registry=result)(feed_node)
    kopf.on.login(id="login", registry=result)(login)
    return result


async def watch(
    cache: WatchCache,
    changed: Callable[[Key], None],
    connection: Connection,
    *,
    namespaces: Collection[str],
    started: asyncio.Event,
    stop: asyncio.Event,
    node_event: Callable[[str | None, Any], None] | None = None,
    leader_worker_sets: bool = False,
    extend: Callable[[kopf.OperatorRegistry, kopf.OperatorSettings], None] = lambda _registry, _settings: None,
) -> None:
    """Watches until `stop` is set; nodes only where `node_event` takes them. Raises when a watch ends for good, such as
    after the CRD was deleted."""
    handlers = registry(cache, changed, connection, node_event, leader_worker_sets=leader_worker_sets)
    configured = settings()
    extend(handlers, configured)
    await kopf.operator(
        registry=handlers,
        settings=configured,
        namespaces=namespaces,
        clusterwide=not namespaces,
        standalone=True,
        ready_flag=started,
        stop_flag=stop,
    )
