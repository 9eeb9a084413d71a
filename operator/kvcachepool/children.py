"""Writes a pool's children: only what is absent or controlled by this pool, and only what has changed.

An apply is skipped when the wanted object and the live one are both what they were after the last apply of
this process. So a steady pass writes nothing, a change by another hand is put right, and a new process
applies everything once, which changes nothing on the server.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from kvcachepool import constants
from kvcachepool.cluster import ApiError, Cluster
from kvcachepool.facts import Object
from kvcachepool.render.hashing import content_hash
from kvcachepool.watchcache import WatchCache, controller, controller_uid

Key = tuple[str, str]
Child = tuple[str, str]
"""(kind, name) in the pool's namespace."""

_CONTENT = ("spec", "data", "binaryData", "endpoints", "ports")
_CONTENT_METADATA = ("labels", "annotations", "ownerReferences")
_NOT_OURS = "deployment.kubernetes.io/"
"""Annotations that the Deployment controller keeps."""


@dataclass(frozen=True, slots=True)
class _Applied:
    desired: str
    live: str
    version: str
    """resourceVersion at which `live` was computed; the same version needs no new look."""


@dataclass(slots=True)
class Outcome:
    """What one round of applies did."""

    changed: list[str] = field(default_factory=list)
    """`Kind/name` of objects that the API server changed."""
    failed: str = ""
    """`Kind/name` of the object that could not be applied; those after it were not tried."""
    error: ApiError | None = None


class Children:
    """Applies and prunes; remembers what it applied."""

    def __init__(self, cluster: Cluster, cache: WatchCache) -> None:
        self._cluster = cluster
        self._cache = cache
        self._applied: dict[Key, dict[Child, _Applied]] = {}

    def forget(self, key: Key | None = None) -> None:
        """Drops what is remembered about one pool, or about all (another leader may have written since)."""
        if key is None:
            self._applied.clear()
        else:
            self._applied.pop(key, None)

    async def apply(self, key: Key, uid: str, objects: Iterable[Mapping[str, Any]]) -> Outcome:
        """Applies `objects` in order for the pool `key` of that uid; stops at the first that fails, because
        later ones may stand on it."""
        outcome = Outcome()
        try:
            await self._remove_left_overs(key, uid)
        except ApiError as error:
            return Outcome(failed="children of a former pool", error=error)
        for obj in objects:
            name = f"{obj['kind']}/{obj['metadata']['name']}"
            try:
                if await self._apply_one(key, uid, obj):
                    outcome.changed.append(name)
            except ApiError as error:
                outcome.failed, outcome.error = name, error
                break
        return outcome

    async def prune(self, key: Key, uid: str, children: Iterable[Child]) -> Outcome:
        """Deletes children that are no longer wanted; stops at the first that fails."""
        outcome = Outcome()
        for kind, name in children:
            live = self._cache.get(kind, key[0], name)
            if live is None or controller_uid(live) != uid or live["metadata"].get("deletionTimestamp"):
                continue
            try:
                await self._cluster.delete(kind, key[0], name, live["metadata"]["uid"])
            except ApiError as error:
                outcome.failed, outcome.error = f"{kind}/{name}", error
                break
            self._applied.get(key, {}).pop((kind, name), None)
            outcome.changed.append(f"{kind}/{name}")
        return outcome

    async def _apply_one(self, key: Key, uid: str, obj: Mapping[str, Any]) -> bool:
        """Whether the API server changed something."""
        kind, name = child = (obj["kind"], obj["metadata"]["name"])
        live = self._cache.get(kind, key[0], name)
        before = self._applied.get(key, {}).get(child)
        desired = content_hash(obj)
        if live is not None and before is not None and before.desired == desired and _same(live, before):
            return False
        if live is None:  # never seen, or without our label: an object of somebody else is not in the cache
            live = await self._cluster.get(kind, key[0], name)
        if live is not None:
            _require_ours(live, uid)
        applied = await self._cluster.apply(obj, uid=live["metadata"]["uid"] if live is not None else "")
        self._cache.put(applied)
        self._applied.setdefault(key, {})[child] = _Applied(
            desired, _fingerprint(applied), applied["metadata"]["resourceVersion"]
        )
        return live is None or live["metadata"]["resourceVersion"] != applied["metadata"]["resourceVersion"]

    async def _remove_left_overs(self, key: Key, uid: str) -> None:
        """Deletes what a former pool of this name has left; then raises a 409, since it is made again when it is gone.

        The garbage collector would delete it, too, but for half a minute after the CRD was installed it does not yet
        know of pools. That the pool of `uid` is the present one is asked anew: in a pass over one that has just been
        replaced, the children of the new pool look like those of a former one.
        """
        left = [live for live in self._cache.children(key).values() if _of_another(live, key[1], uid)]
        if not left:
            return
        present = await self._cluster.get(constants.KIND, *key)
        if present is None or present["metadata"]["uid"] != uid:
            raise ApiError(409, f"{constants.KIND} {key[1]} was replaced meanwhile", retry=True)
        for live in left:
            if not live["metadata"].get("deletionTimestamp"):
                await self._cluster.delete(live["kind"], key[0], live["metadata"]["name"], live["metadata"]["uid"])
        names = ", ".join(sorted(f"{live['kind']} {live['metadata']['name']}" for live in left))
        raise ApiError(409, f"deleted what a former {constants.KIND} of this name has left: {names}", retry=True)


def _of_another(live: Object, name: str, uid: str) -> bool:
    """Whether a pool of that name, but of another uid, controls the object."""
    owner = controller(live)
    return owner.get("kind") == constants.KIND and owner.get("name") == name and owner.get("uid") != uid


def _require_ours(live: Object, uid: str) -> None:
    """Raises a 409 when the object is not controlled by the pool of that uid."""
    what = f"{live['kind']} {live['metadata']['name']}"
    owner = controller_uid(live)
    if owner == uid and live["metadata"].get("deletionTimestamp"):
        raise ApiError(409, f"{what} is being deleted; it is made again when it is gone", retry=True)
    if owner == uid:
        return
    if controller(live).get("kind") == constants.KIND:
        raise ApiError(409, f"{what} belongs to another {constants.KIND} and is expected to go with it", retry=True)
    raise ApiError(
        409,
        f"{what} exists and is not controlled by this pool; it was left as it is. Delete or rename it, or choose "
        "another name for the pool",
        retry=False,
    )


def _same(live: Object, before: _Applied) -> bool:
    return live["metadata"].get("resourceVersion") == before.version or _fingerprint(live) == before.live


def _fingerprint(live: Object) -> str:
    """Hash of what a person or a controller could change in a child's intent; status is not in it."""
    metadata = {name: live["metadata"].get(name) for name in _CONTENT_METADATA}
    metadata["annotations"] = {
        name: value for name, value in (metadata["annotations"] or {}).items() if not name.startswith(_NOT_OURS)
    }
    return content_hash([metadata, *(live.get(part) for part in _CONTENT)])
