"""A warm cache is property: restarts of the master wait, members go one at a time and move their blocks before."""

import json
import re
import shlex
import time
import urllib.request
from collections.abc import Iterator

import pytest

from e2e.harness.kube import Json, Kube
from e2e.harness.pools import tiny_store
from e2e.harness.store_only import store_only

NAMESPACE, POOL, BLOCKS = "e2e-warm", "warm", 24


@pytest.fixture(scope="module")
def warm(kube: Kube, images: dict[str, str]) -> Iterator[str]:
    """A real master and three store members, without engines."""
    kube.namespace(NAMESPACE)
    kube.create(store_only(images, POOL, NAMESPACE, store=tiny_store(images, replicas=3, segmentSize="64Mi")))
    kube.wait_condition(NAMESPACE, POOL, "StoreReady", "True", timeout=240)
    yield POOL
    kube.run("delete", "namespace", NAMESPACE, "--wait=false")


def pods(kube: Kube, component: str) -> list[Json]:
    selector = f"kvcachepool.io/pool={POOL},kvcachepool.io/component={component}"
    found = kube.items("pods", "-n", NAMESPACE, "-l", selector)
    return [pod for pod in found if "deletionTimestamp" not in pod["metadata"]]


def master_uid(kube: Kube) -> str:
    (pod,) = pods(kube, "master")
    return str(pod["metadata"]["uid"])


def edit(kube: Kube, store: Json) -> None:
    kube.run("patch", "kvpool", POOL, "-n", NAMESPACE, "--type=merge", f"-p={json.dumps({'spec': {'store': store}})}")


def fill(kube: Kube) -> None:
    """Puts blocks by a member's own HTTP interface."""
    address = pods(kube, "store")[0]["status"]["podIP"]
    for number in range(BLOCKS):
        body = json.dumps({"key": f"digest@{number}", "value": "x" * 100_000}).encode()
        request = urllib.request.Request(f"http://{address}:8081/api/put", body, method="PUT")
        with urllib.request.urlopen(request, timeout=20) as answer:
            assert answer.status == 200


def master_page(kube: Kube, path: str) -> str:
    (pod,) = pods(kube, "master")
    with urllib.request.urlopen(f"http://{pod['status']['podIP']}:9003{path}", timeout=10) as answer:
        return str(answer.read().decode())


def keys(kube: Kube) -> int:
    return len(master_page(kube, "/get_all_keys").split())


def segments(kube: Kube) -> list[str]:
    return [s["te_endpoint"] for s in json.loads(master_page(kube, "/get_segments_detail"))["segments"]]


def events(kube: Kube) -> list[str]:
    found = kube.items("events", "-n", NAMESPACE, f"--field-selector=involvedObject.name={POOL}")
    return [f"{event['reason']}: {event['message']}" for event in found]


def test_edits_of_the_master_wait_and_cost_one_approved_restart(kube: Kube, warm: str) -> None:
    fill(kube)
    before = master_uid(kube)
    edit(kube, {"master": {"leaseTtlMilliseconds": 20000}})
    kube.wait_condition(NAMESPACE, warm, "StoreReady", "False", reason="PendingMasterRestart", timeout=60)
    first = kube.pool(NAMESPACE, warm)["status"]["store"]["pendingRestart"]
    edit(kube, {"master": {"evictionRatio": "0.1"}})
    condition = kube.wait_condition(NAMESPACE, warm, "StoreReady", "False", reason="PendingMasterRestart", timeout=60)
    assert "--default_kv_lease_ttl: 10000 → 20000; --eviction_ratio: 0.05 → 0.1" in condition["message"]
    assert f"={first} " not in condition["message"], "the user has not seen the second edit then"
    time.sleep(10)
    assert master_uid(kube) == before
    assert keys(kube) == BLOCKS

    command = re.search(r"kubectl (annotate kvpool .*?=[0-9a-f]{16}) ", condition["message"])
    assert command is not None, condition["message"]
    kube.run(*shlex.split(command[1]))
    kube.wait("the master is another one", lambda: [p for p in pods(kube, "master") if p["metadata"]["uid"] != before],
              timeout=60)  # fmt: skip
    kube.wait_condition(NAMESPACE, warm, "StoreReady", "True", reason="Serving", timeout=180)
    after = master_uid(kube)
    (pod,) = pods(kube, "master")
    assert {"--default_kv_lease_ttl=20000", "--eviction_ratio=0.1"} <= set(pod["spec"]["containers"][0]["args"])
    assert len(segments(kube)) == 3
    assert any(event.startswith("MasterRestarted: ") for event in events(kube))

    edit(kube, {"master": {"evictionRatio": "0.05"}})
    kube.wait_condition(NAMESPACE, warm, "StoreReady", "False", reason="PendingMasterRestart", timeout=60)
    time.sleep(10)
    assert master_uid(kube) == after, "the approval was used up"
    edit(kube, {"master": {"evictionRatio": "0.1"}})
    kube.wait_condition(NAMESPACE, warm, "StoreReady", "True", reason="Serving", timeout=60)
    assert master_uid(kube) == after


def test_a_drain_may_take_one_store_pod_and_not_the_master(kube: Kube, warm: str) -> None:
    def allowed() -> dict[str, int]:
        found = kube.items("poddisruptionbudgets", "-n", NAMESPACE)
        return {budget["metadata"]["name"]: budget["status"]["disruptionsAllowed"] for budget in found}

    expected = {f"{warm}-master": 0, f"{warm}-store": 1, f"{warm}-engine": 0}
    kube.wait("budgets", lambda: allowed() == expected, timeout=60)


def test_members_go_one_at_a_time_and_their_blocks_stay(kube: Kube, warm: str) -> None:
    fill(kube)
    assert keys(kube) == BLOCKS
    edit(kube, {"replicas": 1})
    asked: list[tuple[int, int]] = []

    def done() -> bool:
        """Replicas that are asked for never fall more than one below what the master lists."""
        listed = len(segments(kube))
        wanted = int(kube.get("deployment", f"{warm}-store", "-n", NAMESPACE)["spec"]["replicas"])
        asked.append((listed, wanted))
        return listed == wanted == 1

    kube.wait("one member is left", done, timeout=240, pause=0.5)
    assert all(wanted >= listed - 1 for listed, wanted in asked), asked
    assert {wanted for _, wanted in asked} >= {2, 1}, asked
    assert keys(kube) == BLOCKS
    kube.wait_condition(NAMESPACE, warm, "StoreReady", "True", reason="Serving", timeout=90)
    assert kube.pool(NAMESPACE, warm)["status"]["store"]["capacity"] == "64Mi"
    shrunk = [event for event in events(kube) if event.startswith("CapacityShrunk: ")]
    assert any("to 64.0 MiB" in event for event in shrunk), events(kube)


def test_a_roll_moves_blocks_to_the_new_members(kube: Kube, warm: str) -> None:
    edit(kube, {"replicas": 2})
    kube.wait_condition(NAMESPACE, warm, "StoreReady", "True", reason="Serving", timeout=120)
    assert keys(kube) == BLOCKS
    before = {pod["metadata"]["uid"] for pod in pods(kube, "store")}
    edit(kube, {"resources": {"requests": {"cpu": "10m"}}})
    fewest = 2

    def rolled() -> bool:
        nonlocal fewest
        fewest = min(fewest, len(segments(kube)))
        return not before & {pod["metadata"]["uid"] for pod in pods(kube, "store")}

    kube.wait("both members are new", rolled, timeout=240)
    kube.wait_condition(NAMESPACE, warm, "StoreReady", "True", reason="Serving", timeout=180)
    assert fewest >= 1, "the second one went before the first was back"
    assert keys(kube) == BLOCKS
