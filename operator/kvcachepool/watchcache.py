"""Last seen objects, fed by watch events, by relists and by what our own applies returned.

A pass reads only from here, so that a steady pass makes no call to the API server. Three sources can
disagree in time, so the newer `resourceVersion` wins. (They compare as numbers: guaranteed for the resources
of Kubernetes >= 1.35, and true of every earlier API server that stores in etcd.)
"""

import operator
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

from kvcachepool import constants, names
from kvcachepool.facts import Object, version_number
from kvcachepool.render.rollout import others_template

Key = tuple[str, str]
"""(namespace, name) of a KVCachePool."""
Ref = tuple[str, str, str]
"""(kind, namespace, name) of any object."""

KINDS = (
    constants.KIND,
    "Pod",
    "Deployment",
    "Service",
    "ConfigMap",
    "EndpointSlice",
    "NetworkPolicy",
    "PodDisruptionBudget",
)
"""What is watched. All but the first carry the pool's label."""

_BULKY = "kubectl.kubernetes.io/last-applied-configuration"
_TOMBSTONES_SECONDS = 600.0
_COMPONENTS = {constants.MASTER, constants.STORE, constants.ENGINE, constants.WORKER}


@dataclass(slots=True)
class _Entry:
    obj: Object
    version: int
    delivered: int
    """Newest version that the watch brought; behind `version` after an apply or a relist."""
    behind_since: float | None


class WatchCache:
    """All objects of all pools, with an index by pool."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._entries: dict[Ref, _Entry] = {}
        self._members: dict[Key, set[Ref]] = {}
        """By (namespace, value of the pool label)."""
        self._pool_of_label: dict[Key, Key] = {}
        self._models: dict[tuple[str, str], Object] = {}
        """The last object of each kind and component: what equals a part of it is kept once."""
        self._removed: dict[str, tuple[int, float]] = {}
        """Uid -> (version, time) of removals: an answer that was on its way must not bring an object back.
        A newer version may come: an object that lost its label leaves the watch, and returns with it."""

    def __len__(self) -> int:
        return len(self._entries)

    def pools(self) -> tuple[Key, ...]:
        """Every known pool."""
        return tuple(self._pool_of_label.values())

    def pool(self, key: Key) -> Object | None:
        """The KVCachePool as last seen."""
        return self.get(constants.KIND, *key)

    def pool_of_label(self, label: Key) -> Object | None:
        """The KVCachePool that (namespace, value of the pool label) means."""
        key = self._pool_of_label.get(label)
        return None if key is None else self.pool(key)

    def get(self, kind: str, namespace: str, name: str) -> Object | None:
        """One object as last seen."""
        entry = self._entries.get((kind, namespace, name))
        return None if entry is None else entry.obj

    def pods(self, key: Key) -> tuple[Object, ...]:
        """Pods with the pool's label, by name; the user's own members too."""
        return tuple(self._entries[ref].obj for ref in self._refs(key) if ref[0] == "Pod")

    def children(self, key: Key) -> dict[tuple[str, str], Object]:
        """Other objects with the pool's label, by (kind, name), whoever owns them."""
        return {(ref[0], ref[2]): self._entries[ref].obj for ref in self._refs(key) if ref[0] != "Pod"}

    def strangers(self) -> tuple[Object, ...]:
        """Pods with the label of a pool that does not exist, by namespace and name."""
        labels = sorted(label for label in self._members if label not in self._pool_of_label)
        return tuple(
            self._entries[ref].obj for label in labels for ref in sorted(self._members[label]) if ref[0] == "Pod"
        )

    def event(self, change: str | None, obj: Mapping[str, Any]) -> set[Key]:
        """Takes a watch event (ADDED, MODIFIED, DELETED; None from a listing); gives the pools to look at.

        Nothing is to be done for what our own apply has already brought.
        """
        if change == "DELETED":
            metadata = obj["metadata"]
            return self._remove(_ref(obj), metadata.get("uid", ""), version_number(metadata.get("resourceVersion", "")))
        return self._put(obj, watched=True)

    def put(self, obj: Mapping[str, Any]) -> set[Key]:
        """Takes an object from an answer of the API server."""
        return self._put(obj, watched=False)

    def replace(self, kind: str, namespace: str | None, objects: Iterable[Mapping[str, Any]], version: str) -> set[Key]:
        """Takes a complete list made at `version` (of one namespace or, with None, of all).

        What is not in it and not newer than it is gone: its removal fell into a gap of the watch.
        """
        touched: set[Key] = set()
        listed: set[Ref] = set()
        for obj in objects:
            listed.add(_ref(obj))
            touched |= self._put(obj, watched=False)
        limit = version_number(version)
        for ref, entry in list(self._entries.items()):
            in_scope = ref[0] == kind and namespace in (None, ref[1])
            if in_scope and ref not in listed and entry.version <= limit:
                touched |= self._remove(ref, "", limit)
        return touched

    def lagging(self) -> tuple[Ref, float] | None:
        """The object that the watch owes us for the longest time, and for how many seconds.

        Known newer versions that never arrive mean a dead watch (kopf#1276, kopf#957)."""
        behind = [(entry.behind_since, ref) for ref, entry in self._entries.items() if entry.behind_since is not None]
        if not behind:
            return None
        since, ref = min(behind)
        return ref, self._clock() - since

    def _refs(self, key: Key) -> list[Ref]:
        return sorted(self._members.get((key[0], names.pool_label(key[1])), ()))

    def _put(self, obj: Mapping[str, Any], *, watched: bool) -> set[Key]:
        ref = _ref(obj)
        metadata = obj["metadata"]
        version = version_number(metadata.get("resourceVersion", ""))
        old = self._entries.get(ref)
        if version <= self._removed.get(metadata.get("uid", ""), (-2, 0.0))[0]:
            return set()
        if old is not None and version < old.version and version >= 0:
            if watched:
                old.delivered = max(old.delivered, version)
            return set()
        known = old is not None and old.version == version and version >= 0
        delivered = version if watched else (old.delivered if old is not None else -1)
        behind = None
        if delivered < version:
            behind = old.behind_since if old is not None and old.behind_since is not None else self._clock()
        if known and old is not None:
            old.delivered, old.behind_since = delivered, behind
            return set()
        touched = self._unlink(ref, old) if old is not None else set()
        entry = _Entry(self._slim_like_others(ref, obj, old), version, delivered, behind)
        self._entries[ref] = entry
        return touched | self._link(ref, entry)

    def _slim_like_others(self, ref: Ref, obj: Mapping[str, Any], old: _Entry | None) -> Object:
        """What is kept of it, with its parts shared: pods and children of one kind differ in little but their names."""
        component = (obj["metadata"].get("labels") or {}).get(constants.LABEL_COMPONENT)
        model = (ref[0], component if component in _COMPONENTS else "")  # a label is anybody's to choose
        kept = slim(obj, old.obj if old is not None else self._models.get(model))
        self._models[model] = kept
        return kept

    def _remove(self, ref: Ref, uid: str, version: int) -> set[Key]:
        """`uid` empty: whatever object has that name."""
        entry = self._entries.get(ref)
        now = self._clock()
        self._removed = {u: r for u, r in self._removed.items() if now - r[1] < _TOMBSTONES_SECONDS}
        known_uid = entry.obj["metadata"].get("uid", "") if entry is not None else ""
        if uid or known_uid:
            self._removed[uid or known_uid] = (version, now)
        if entry is None or (uid and known_uid and uid != known_uid):
            return set()  # the name is taken by a newer object already
        del self._entries[ref]
        return self._unlink(ref, entry)

    def _link(self, ref: Ref, entry: _Entry) -> set[Key]:
        kind, namespace, name = ref
        if kind == constants.KIND:
            self._pool_of_label[(namespace, names.pool_label(name))] = (namespace, name)
            return {(namespace, name)}
        return self._pools_of(entry, ref, set.add)

    def _unlink(self, ref: Ref, entry: _Entry) -> set[Key]:
        kind, namespace, name = ref
        if kind == constants.KIND:
            if ref not in self._entries:
                self._pool_of_label.pop((namespace, names.pool_label(name)), None)
            return {(namespace, name)}
        return self._pools_of(entry, ref, set.discard)

    def _pools_of(self, entry: _Entry, ref: Ref, change: Callable[[set[Ref], Ref], None]) -> set[Key]:
        label = (ref[1], (entry.obj["metadata"].get("labels") or {}).get(constants.LABEL_POOL, ""))
        members = self._members.setdefault(label, set())
        change(members, ref)
        if not members:
            del self._members[label]
        pool = self._pool_of_label.get(label)
        return set() if pool is None else {pool}


def controller(obj: Object) -> Mapping[str, Any]:
    """The owner reference of the object's controller; empty when nobody controls it."""
    owners = obj["metadata"].get("ownerReferences") or ()
    return next((owner for owner in owners if owner.get("controller")), {})


def controller_uid(obj: Object) -> str:
    """Uid of the object's controller; empty when nobody controls it."""
    return str(controller(obj).get("uid", ""))


def _ref(obj: Mapping[str, Any]) -> Ref:
    metadata = obj["metadata"]
    return obj["kind"], metadata.get("namespace", ""), metadata["name"]


def slim(obj: Mapping[str, Any], model: Object | None = None) -> dict[str, Any]:
    """Without what nothing reads: half of an object's memory is managedFields, of which only the sign of a template
    edited by hand is kept. Equal parts are those of `model`."""
    metadata = {name: value for name, value in obj["metadata"].items() if name != "managedFields"}
    if obj.get("kind") in constants.ENGINE_KINDS:
        by_hand = [entry for entry in obj["metadata"].get("managedFields") or () if others_template(entry)]
        metadata |= {"managedFields": by_hand} if by_hand else {}
    annotations = metadata.get("annotations") or {}
    if _BULKY in annotations:
        metadata["annotations"] = {name: value for name, value in annotations.items() if name != _BULKY}
    kept: dict[str, Any] = sharing({**obj, "metadata": metadata}, model)
    return kept


def sharing(new: Any, model: Any = None) -> Any:
    """The same as `new`, made of parts of `model` wherever they are the same, and with every text kept once in the
    process: each parsed answer brings its own copies. Neither is changed, nor may the result be."""
    if isinstance(new, str):
        return sys.intern(new) if type(new) is str else new
    if isinstance(new, Mapping):
        parts = model if isinstance(model, dict) else {}
        kept = {sharing(name): sharing(value, parts.get(name)) for name, value in new.items()}
        same = isinstance(model, dict) and list(kept) == list(model) and all(kept[n] is model[n] for n in kept)
        return model if same else kept
    if isinstance(new, list):
        others = model if isinstance(model, list) else []
        items = [sharing(value, other) for value, other in zip_longest(new, others[: len(new)])]
        same = isinstance(model, list) and len(items) == len(model) and all(map(operator.is_, items, model))
        return model if same else items
    return model if type(new) is type(model) and new == model else new  # True and 1 are equal
