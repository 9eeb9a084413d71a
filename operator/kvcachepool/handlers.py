"""kopf's part: watches that feed the cache, and nothing else. kopf is imported here only.

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
)


def settings() -> kopf.OperatorSettings:
    """kopf without peering, persistence, events of its own, and cluster-scoped reads."""
    result = kopf.OperatorSettings()
    result.peering.standalone = True
    result.posting.enabled = False
    # Without it kopf lists and watches CRDs and namespaces, which a namespaced Role cannot allow.
    result.scanning.disabled = True
    result.networking.request_timeout = 30
    result.networking.connect_timeout = 10
    # kopf removes the finalizer of this name from every object that it sees; a pod may carry another kopf
    # operator's default one.
    result.persistence.finalizer = f"{constants.GROUP}/unused"
    # Pods of the whole cluster would be listed otherwise.
    for group, version, plural in _WATCHED[1:]:
        result.watching.label_selectors[group, version, plural] = constants.LABEL_POOL
    return result


def registry(cache: WatchCache, changed: Callable[[Key], None], connection: Connection) -> kopf.OperatorRegistry:
    """The handlers: each event goes into the cache and its pool to `changed`."""
    result = kopf.OperatorRegistry()

    async def feed(event: Any, **_: Any) -> None:
        for key in cache.event(event["type"], event["object"]):
            changed(key)

    async def login(**_: Any) -> kopf.ConnectionInfo:
        return kopf.ConnectionInfo(**await connection())

    for group, version, plural in _WATCHED:
        kopf.on.event(group=group, version=version, plural=plural, id=f"feed-{plural}", registry=result)(feed)
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
    extend: Callable[[kopf.OperatorRegistry, kopf.OperatorSettings], None] = lambda _registry, _settings: None,
) -> None:
    """Watches until `stop` is set. Raises when a watch ends for good, such as after the CRD was deleted."""
    handlers, configured = registry(cache, changed, connection), settings()
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
