"""The cache against sources that disagree in time."""

import copy
import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from kvcachepool.watchcache import WatchCache, controller_uid, sharing, slim

documents = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-1, 2), st.sampled_from(["", "a", "b"])),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.sampled_from("abc"), inner, max_size=3)),
    max_leaves=8,
)
POOL = ("ns", "p")


def obj(kind: str, name: str, version: int, *, uid: str = "", pool: str = "p", **more: Any) -> dict[str, Any]:
    labels = {} if kind == "KVCachePool" else {"kvcachepool.io/pool": pool}
    metadata = {
        "name": name,
        "namespace": "ns",
        "uid": uid or f"{kind}-{name}",
        "resourceVersion": str(version),
        "labels": labels,
    }
    return {"kind": kind, "metadata": metadata, **more}


def filled() -> WatchCache:
    cache = WatchCache()
    cache.event(None, obj("KVCachePool", "p", 1))
    cache.event("ADDED", obj("Pod", "pod", 2))
    cache.event("ADDED", obj("Deployment", "d", 3))
    return cache


def test_an_index_by_pool():
    cache = filled()
    assert cache.pools() == (POOL,)
    assert [pod["metadata"]["name"] for pod in cache.pods(POOL)] == ["pod"]
    assert set(cache.children(POOL)) == {("Deployment", "d")}
    assert cache.pods(("ns", "other")) == ()
    assert cache.pods(("other", "p")) == ()


def test_children_seen_before_their_pool_are_found_once_it_is_there():
    cache = WatchCache()
    assert cache.event("ADDED", obj("Pod", "pod", 2)) == set()
    assert cache.event("ADDED", obj("KVCachePool", "p", 1)) == {POOL}
    assert len(cache.pods(POOL)) == 1


def test_long_and_dotted_names_are_found_by_their_label():
    from kvcachepool import names

    name = "a.very." + "long-" * 20 + "name"
    cache = WatchCache()
    cache.event(None, obj("KVCachePool", name, 1))
    assert cache.event("ADDED", obj("Pod", "pod", 2, pool=names.pool_label(name))) == {("ns", name)}


def test_events_ask_for_a_pass_only_when_they_bring_something_new():
    cache = filled()
    assert cache.put(obj("Deployment", "d", 9, spec={"replicas": 2})) == {POOL}
    assert cache.event("MODIFIED", obj("Deployment", "d", 9, spec={"replicas": 2})) == set()
    assert cache.event("MODIFIED", obj("Deployment", "d", 10)) == {POOL}


def test_an_older_version_never_replaces_a_newer_one():
    cache = filled()
    cache.put(obj("Deployment", "d", 9, spec="new"))
    cache.event("MODIFIED", obj("Deployment", "d", 5, spec="old"))
    assert cache.get("Deployment", "ns", "d")["spec"] == "new"


def test_removal():
    cache = filled()
    assert cache.event("DELETED", obj("Pod", "pod", 4)) == {POOL}
    assert cache.pods(POOL) == ()
    assert cache.event("DELETED", obj("KVCachePool", "p", 5)) == {POOL}
    assert cache.pools() == ()
    assert cache.pool(POOL) is None


def test_a_late_answer_does_not_bring_a_removed_object_back():
    cache = filled()
    cache.event("DELETED", obj("Deployment", "d", 7))
    assert cache.put(obj("Deployment", "d", 6)) == set()
    assert cache.get("Deployment", "ns", "d") is None
    cache.put(obj("Deployment", "d", 8, uid="another"))
    assert cache.get("Deployment", "ns", "d") is not None


def test_a_late_removal_does_not_hit_the_successor_of_the_same_name():
    cache = filled()
    cache.put(obj("Deployment", "d", 8, uid="successor"))
    assert cache.event("DELETED", obj("Deployment", "d", 7, uid="Deployment-d")) == set()
    assert cache.get("Deployment", "ns", "d")["metadata"]["uid"] == "successor"


def test_an_object_that_lost_its_label_can_come_back():
    """The API server reports a lost label as a removal, with the same uid."""
    cache = filled()
    cache.event("DELETED", obj("Deployment", "d", 7))
    assert cache.put(obj("Deployment", "d", 8)) == {POOL}
    assert cache.event("ADDED", obj("Deployment", "d", 8)) == set()
    assert cache.get("Deployment", "ns", "d") is not None


def test_an_object_that_changes_its_pool_concerns_both():
    cache = filled()
    cache.event(None, obj("KVCachePool", "q", 4))
    assert cache.event("MODIFIED", obj("Pod", "pod", 5, pool="q")) == {POOL, ("ns", "q")}
    assert cache.pods(POOL) == ()
    assert len(cache.pods(("ns", "q"))) == 1


def test_a_list_removes_what_a_gap_of_the_watch_hid():
    cache = filled()
    cache.put(obj("Pod", "younger", 30))
    touched = cache.replace("Pod", None, [obj("Pod", "other", 12)], "20")
    assert touched == {POOL}
    assert [pod["metadata"]["name"] for pod in cache.pods(POOL)] == ["other", "younger"]
    assert cache.children(POOL), "other kinds are not concerned"


def test_a_list_of_one_namespace_leaves_others_alone():
    cache = filled()
    cache.replace("Pod", "elsewhere", [], "20")
    assert len(cache.pods(POOL)) == 1


def test_a_list_that_is_older_than_a_removal_does_not_undo_it():
    cache = filled()
    cache.event("DELETED", obj("Pod", "pod", 25))
    cache.replace("Pod", None, [obj("Pod", "pod", 2)], "20")
    assert cache.pods(POOL) == ()


def test_a_dead_watch_is_noticed():
    clock = [0.0]
    cache = WatchCache(clock=lambda: clock[0])
    cache.event(None, obj("Pod", "pod", 2))
    assert cache.lagging() is None
    cache.replace("Pod", None, [obj("Pod", "pod", 5)], "6")
    clock[0] = 70.0
    cache.replace("Pod", None, [obj("Pod", "pod", 8)], "9")
    assert cache.lagging() == (("Pod", "ns", "pod"), 70.0)
    cache.event("MODIFIED", obj("Pod", "pod", 5))
    assert cache.lagging() is not None, "it is still behind"
    cache.event("MODIFIED", obj("Pod", "pod", 8))
    assert cache.lagging() is None


def test_bulky_metadata_is_dropped_and_the_event_is_left_as_it_was():
    cache = WatchCache()
    event = obj("Pod", "pod", 2)
    event["metadata"] |= {
        "managedFields": [{}],
        "annotations": {"kubectl.kubernetes.io/last-applied-configuration": "{}", "mine": "kept"},
    }
    cache.event("ADDED", event)
    kept = cache.get("Pod", "ns", "pod")["metadata"]
    assert "managedFields" not in kept
    assert kept["annotations"] == {"mine": "kept"}
    assert event["metadata"]["managedFields"] == [{}]


def test_the_controller_is_told_from_other_owners():
    child = obj("Deployment", "d", 1)
    assert controller_uid(child) == ""
    child["metadata"]["ownerReferences"] = [{"uid": "x"}, {"uid": "y", "controller": True}]
    assert controller_uid(child) == "y"


def test_equal_texts_of_different_objects_are_one() -> None:
    cache = WatchCache()
    for name, version in (("a", 1), ("b", 2)):
        cache.put(obj("Deployment", name, version, spec={"".join(["te", "xt"]): ["".join(["a long", " value"])]}))
    first, second = (cache.get("Deployment", "ns", name) for name in ("a", "b"))
    assert first is not None
    assert second is not None
    assert first["spec"] == {"text": ["a long value"]}
    assert first["spec"]["text"][0] is second["spec"]["text"][0]
    assert next(iter(first["spec"])) is next(iter(second["spec"]))


def test_what_is_kept_can_be_kept_again() -> None:
    raw = {**obj("Pod", "a", 1), "metadata": {**obj("Pod", "a", 1)["metadata"], "managedFields": [1]}}
    assert "managedFields" not in slim(raw)["metadata"]
    assert slim(slim(raw)) == slim(raw)


def test_equal_parts_of_alike_objects_are_kept_once():
    """Pods of a thousand pools differ in little but their names."""

    def pod(name: str, version: int, pool: str, **env: str) -> dict[str, Any]:
        container = {"name": "engine", "env": [{"name": key, "value": value} for key, value in env.items()]}
        probe = {"httpGet": {"path": "/health"}}
        return obj("Pod", name, version, pool=pool, spec={"containers": [container | {"livenessProbe": probe}]})

    cache = WatchCache()
    first, second = pod("a", 2, "p", SEED="0", POOL="p"), pod("b", 3, "q", SEED="0", POOL="q")
    for raw in (first, second):
        cache.event("ADDED", raw)
    kept = [cache.get("Pod", "ns", name) for name in ("a", "b")]
    assert kept == [slim(first), slim(second)]
    (one,), (other,) = (item["spec"]["containers"] for item in kept)
    assert one["livenessProbe"] is other["livenessProbe"]
    assert one["env"][0] is other["env"][0]
    assert (one["env"][1]["value"], other["env"][1]["value"]) == ("p", "q")
    changed = pod("b", 4, "q", SEED="0", POOL="q") | {"status": {"phase": "Running"}}
    cache.event("MODIFIED", changed)
    assert cache.get("Pod", "ns", "b") == slim(changed)
    assert cache.get("Pod", "ns", "b")["spec"] is kept[1]["spec"]
    assert kept[0] == slim(first), "what is shared is not changed"


@given(new=documents, model=documents)
def test_sharing_changes_nothing(new: Any, model: Any) -> None:
    before = copy.deepcopy((new, model))
    assert json.dumps(sharing(new, model)) == json.dumps(new)
    assert (new, model) == before
