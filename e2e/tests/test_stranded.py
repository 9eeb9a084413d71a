"""Engines that lose the store for good: named by evidence, and restarted one at a time where the spec allows it."""

import copy
import json
import random
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest

from e2e.cluster.errors import ClusterError
from e2e.harness import drills
from e2e.harness.etcd import etcd
from e2e.harness.faults import cut_off, running
from e2e.harness.kube import Json, Kube
from e2e.harness.pools import engine_deployments, tiny_pool, tiny_store
from e2e.harness.traffic import complete
from e2e.tests.conftest import Running
from kvcachepool.drill.verdict import PASSED

PROMPT_TOKENS, STOP = 1024, 420


def engines(kube: Kube, pool: Running) -> dict[str, Json]:
    """By name; those that end are left out."""
    selector = f"kvcachepool.io/pool={pool.name},kvcachepool.io/component=engine"
    found = kube.items("pods", "-n", pool.namespace, "-l", selector)
    return {pod["metadata"]["name"]: pod for pod in found if "deletionTimestamp" not in pod["metadata"]}


def edit(kube: Kube, pool: Running, spec: Json) -> None:
    change = json.dumps({"spec": spec})
    kube.run("patch", "kvpool", "-n", pool.namespace, pool.name, "--type=merge", f"-p={change}")


def allow(kube: Kube, pool: Running, value: str) -> None:
    edit(kube, pool, {"engines": {"restartWhenStranded": value}})


def stranded(kube: Kube, pool: Running, victim: str, others: list[str]) -> Json:
    """Asks the cut-off engine until it is named; every answer is compared with one of an engine that is not cut off."""
    rng, end, asked = random.Random(7), time.monotonic() + STOP, 0
    while time.monotonic() < end:
        prompt = [rng.randrange(20, 420) for _ in range(PROMPT_TOKENS)]
        mine = complete(kube, pool.namespace, victim, prompt)["choices"][0]["text"]
        assert mine == complete(kube, pool.namespace, others[0], prompt)["choices"][0]["text"], prompt
        asked += 1
        condition = kube.condition(pool.namespace, pool.name, "CacheEffective")
        if condition["reason"] == "EnginesStranded":
            print({"asked": asked, "message": condition["message"]})
            return condition
        time.sleep(5)
    raise AssertionError(f"not named after {asked} requests:\n{kube.describe(pool.namespace, pool.name)}")


def restarted(kube: Kube, pool: Running, victim: str, before: dict[str, Json], reason: str = "EnginesStranded") -> None:
    """The engine is replaced once the spec allows it, and nobody else."""
    assert engines(kube, pool).keys() == before.keys(), "named, not restarted: the spec does not allow it"
    assert all(c.get("ready") for c in engines(kube, pool)[victim]["status"]["containerStatuses"])
    allow(kube, pool, "OneAtATime")
    # the engine has to have run for spec.engines.startupSeconds
    kube.wait("it is evicted", lambda: victim not in engines(kube, pool), timeout=400)
    kept = before.keys() - {victim}
    kube.wait("another one is there", lambda: len(engines(kube, pool)) == len(before), timeout=120)
    assert kept <= engines(kube, pool).keys()
    kube.wait_condition(pool.namespace, pool.name, "EnginesReady", "True", timeout=400)
    kube.wait(
        "the loss is over",
        lambda: kube.condition(pool.namespace, pool.name, "CacheEffective")["reason"] != reason,
        timeout=120,
    )
    assert kept <= engines(kube, pool).keys(), "one is enough"
    events = kube.items("events", "-n", pool.namespace)
    told = [e["note"] if "note" in e else e["message"] for e in events if e["reason"] == "EngineRestarted"]
    assert any(victim in text for text in told), told


def test_an_engine_whose_saves_are_all_refused(kube: Kube, shared_pool: Running) -> None:
    """It lends no memory itself; that its blocks do not arrive is all that can be seen."""
    allow(kube, shared_pool, "Never")  # an earlier run on a kept cluster may have ended before it did
    before = engines(kube, shared_pool)
    victim, *others = sorted(before)
    with cut_off(running(kube, shared_pool.namespace, shared_pool.name, "master"), [before[victim]]):
        condition = stranded(kube, shared_pool, victim, others)
        assert victim in condition["message"]
        assert "all its saves are refused while the store has room" in condition["message"]
        assert not any(other in condition["message"] for other in others)
        assert kube.condition(shared_pool.namespace, shared_pool.name, "Available")["status"] == "True"
        restarted(kube, shared_pool, victim, before)
    allow(kube, shared_pool, "Never")
    kube.wait_condition(shared_pool.namespace, shared_pool.name, "Ready", "True", timeout=300)


@contextmanager
def stranger(kube: Kube, pool: Running, dtype: str) -> Iterator[str]:
    """An engine that no label shows to the operator, with the pool's own prefix and blocks of another size."""
    (deployment,) = engine_deployments(kube, pool.namespace, pool.name)
    copied = copy.deepcopy(deployment["spec"]["template"])
    (container,) = copied["spec"]["containers"]
    assert "--dtype=float32" in container["args"]
    container["args"] = [f"--dtype={dtype}" if a.startswith("--dtype=") else a for a in container["args"]]
    metadata = {"name": "stranger", "namespace": pool.namespace, "annotations": copied["metadata"]["annotations"]}
    kube.create({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": copied["spec"]})

    def serves() -> bool:
        found = kube.get("pod", "stranger", "-n", pool.namespace)["status"].get("containerStatuses", ())
        return any(container["ready"] for container in found)

    try:
        kube.wait("the stranger serves", serves, timeout=600)
        yield "stranger"
    finally:
        kube.run("delete", "pod", "stranger", "-n", pool.namespace, "--ignore-not-found", "--wait=true")


def test_a_request_that_asks_for_the_same_blocks_for_ever(kube: Kube, shared_pool: Running) -> None:
    """vllm#55297: blocks that do not fit are lent by somebody nobody knows; the engine's health stays 200."""
    allow(kube, shared_pool, "Never")
    edit(kube, shared_pool, {"networkPolicy": {"enabled": False}})  # it keeps strangers from the master
    before = engines(kube, shared_pool)
    victim = min(before, key=lambda name: before[name]["metadata"]["creationTimestamp"])  # runs for long enough
    rng = random.Random(11)
    prompt = [rng.randrange(20, 420) for _ in range(PROMPT_TOKENS)]
    answers: list[Json] = []

    def ask() -> None:
        with suppress(ClusterError):  # it ends with its engine
            answers.append(complete(kube, shared_pool.namespace, victim, prompt, timeout=900))

    with stranger(kube, shared_pool, "bfloat16") as name:
        complete(kube, shared_pool.namespace, name, prompt)
        time.sleep(5)  # its blocks are stored behind the answer
        asking = threading.Thread(target=ask)
        asking.start()
        condition = kube.wait_condition(
            shared_pool.namespace, shared_pool.name, "CacheEffective", "False", reason="LoadsLooping", timeout=STOP
        )
        assert victim in condition["message"]
        assert answers == []
        restarted(kube, shared_pool, victim, before, "LoadsLooping")
        asking.join(60)
        assert not asking.is_alive(), "the request has ended"
    edit(kube, shared_pool, {"networkPolicy": None})
    allow(kube, shared_pool, "Never")
    kube.wait_condition(shared_pool.namespace, shared_pool.name, "Ready", "True", timeout=300)


@pytest.fixture(scope="module")
def embedded(kube: Kube, images: dict[str, str]) -> Iterator[Running]:
    """Two engines that lend memory themselves, with two masters that elect a leader."""
    pool = Running("e2e-embedded", "embedded")
    kube.namespace(pool.namespace, enforce="restricted")
    with etcd(kube) as endpoint:
        resources = {"requests": {"cpu": "50m", "memory": "128Mi"}}
        store = tiny_store(images, master={"resources": resources, "ha": {"etcd": {"endpoints": [endpoint]}}})
        kube.create(tiny_pool(images, pool.name, pool.namespace, store=store | {"mode": "Embedded"}))
        kube.wait_condition(pool.namespace, pool.name, "Ready", "True", timeout=900)
        kube.wait_condition(pool.namespace, pool.name, "ReuseVerified", "True", timeout=600)
        yield pool
        kube.run("delete", "namespace", pool.namespace, "--wait=false")


def test_engines_answer_while_another_master_takes_over(kube: Kube, embedded: Running) -> None:
    names = ["master-killed", "master-paused"] if drills.WANTED else ["master-killed"]
    faults = [drills.all_drills(kube)[name] for name in names]
    rows = drills.run(kube, embedded.namespace, embedded.name, "mooncake, Embedded, two masters over etcd", faults)
    for row in rows.values():
        assert row.verdict == PASSED, row
        assert (row.failed, row.wrong, row.excepted) == (0, 0, 0), row


def test_an_engine_whose_segment_stays_away(kube: Kube, embedded: Running) -> None:
    before = engines(kube, embedded)
    victim = min(before)
    masters = running(kube, embedded.namespace, embedded.name, "master")
    assert len(masters) == 2
    edit(kube, embedded, {"verification": {"enabled": False}})  # nobody asks it, so that no save is refused
    with cut_off(masters, [before[victim]]):
        condition = kube.wait_condition(
            embedded.namespace, embedded.name, "CacheEffective", "False", reason="EnginesStranded", timeout=STOP
        )
        assert victim in condition["message"]
        assert "the master does not list its segment" in condition["message"]
        assert kube.pool(embedded.namespace, embedded.name)["status"]["store"]["segments"] == 1
        restarted(kube, embedded, victim, before)
    kube.wait_condition(embedded.namespace, embedded.name, "StoreReady", "True", timeout=120)
    assert kube.pool(embedded.namespace, embedded.name)["status"]["store"]["segments"] == 2


def test_engines_with_a_segment_are_replaced_one_at_a_time(kube: Kube, embedded: Running) -> None:
    """The next one goes when the master has seen that the last one left, and the new one is ready."""
    old = engines(kube, embedded)
    env = [*kube.pool(embedded.namespace, embedded.name)["spec"]["engines"]["env"], {"name": "CHANGED", "value": "1"}]
    edit(kube, embedded, {"engines": {"env": env}})

    def moved() -> bool:
        now = engines(kube, embedded)
        ready = [n for n, pod in now.items() if any(c.get("ready") for c in pod["status"].get("containerStatuses", ()))]
        assert ready, "never all at once"
        return len(ready) == len(old) and not old.keys() & now.keys()

    kube.wait("both are replaced", moved, timeout=600)
    kube.wait_condition(embedded.namespace, embedded.name, "StoreReady", "True", timeout=120)
    kube.wait(
        "both segments are there",
        lambda: kube.pool(embedded.namespace, embedded.name)["status"]["store"]["segments"] == 2,
        timeout=120,
    )
