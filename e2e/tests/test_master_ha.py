"""Two masters that elect a leader over etcd: the leader dies, and members read and write again by themselves."""

import json
from collections.abc import Iterator

import pytest

from e2e.harness import processes
from e2e.harness.etcd import etcd
from e2e.harness.kube import Json, Kube
from e2e.harness.pools import tiny_store
from e2e.harness.store_only import store_only

_CLIENT = """\
import json, os, sys
from mooncake.store import MooncakeDistributedStore
store = MooncakeDistributedStore()
assert store.setup(os.environ["MOONCAKE_LOCAL_HOSTNAME"], "P2PHANDSHAKE", 0, 16 << 20, "tcp", "",
                   os.environ["MOONCAKE_MASTER"]) == 0, "no master"
old, new = sys.argv[1:]
there = len(store.get(old)) if old != "-" else 0
wrote = store.put(new, new.encode() * 1024)
print(json.dumps({"there": there, "wrote": wrote, "read": store.get(new) == new.encode() * 1024}))
store.close()
"""
"""A client as engines have one: it is told etcd and finds the leader itself."""


@pytest.fixture
def endpoint(kube: Kube) -> Iterator[str]:
    with etcd(kube) as found:
        yield found


def masters(kube: Kube, namespace: str) -> tuple[list[Json], list[Json]]:
    """(those that are ready, the others)."""
    found = kube.items("pods", "-n", namespace, "-l", "kvcachepool.io/component=master,kvcachepool.io/pool=ha")
    found = [pod for pod in found if "deletionTimestamp" not in pod["metadata"]]
    ready = [pod for pod in found if any(c.get("ready") for c in pod["status"].get("containerStatuses", ()))]
    return ready, [pod for pod in found if pod not in ready]


def behind_the_service(kube: Kube, namespace: str) -> list[str]:
    """Pods that the master's Service leads to."""
    slices = kube.items("endpointslices", "-n", namespace, "-l", "kubernetes.io/service-name=ha-master")
    return [
        entry["targetRef"]["name"]
        for item in slices
        for entry in item.get("endpoints") or ()
        if entry["conditions"].get("ready")
    ]


def ask(kube: Kube, namespace: str, *keys: str) -> Json:
    """Runs a client in the store pod."""
    labels = "kvcachepool.io/component=store,kvcachepool.io/pool=ha"
    (store,) = kube.items("pods", "-n", namespace, "-l", labels)
    told = kube.run("exec", "-n", namespace, store["metadata"]["name"], "--", "python3", "-c", _CLIENT, *keys)
    answer: Json = json.loads(told.strip().splitlines()[-1])
    return answer


def test_a_dead_leader_is_followed_and_members_go_on(
    kube: Kube, namespace: str, images: dict[str, str], endpoint: str
) -> None:
    resources = {"requests": {"cpu": "50m", "memory": "128Mi"}}
    store = tiny_store(images, master={"resources": resources, "ha": {"etcd": {"endpoints": [endpoint]}}})
    kube.create(store_only(images, "ha", namespace, store=store))
    kube.wait_condition(namespace, "ha", "StoreReady", "True", timeout=180)

    (leader,), (standby,) = masters(kube, namespace)
    first = [leader["metadata"]["name"]]
    kube.wait("the Service leads to the leader", lambda: behind_the_service(kube, namespace) == first, timeout=30)
    assert ask(kube, namespace, "-", "first") == {"there": 0, "wrote": 0, "read": True}
    assert ask(kube, namespace, "first", "second")["there"] == 5 * 1024

    kube.run("annotate", "kvpool", "ha", "-n", namespace, "look=now")  # a pass now, not with the next resync
    kube.wait("the keys are seen", lambda: kube.pool(namespace, "ha")["status"]["store"].get("keys"), timeout=60)

    # dead: it or the other leads next, whoever asks first
    assert processes.kill(leader, "master")
    kube.wait("the Service leads nowhere", lambda: behind_the_service(kube, namespace) == [], timeout=30, pause=0.2)
    kube.wait("the Service leads to a leader", lambda: len(behind_the_service(kube, namespace)) == 1, timeout=60)
    kube.wait_condition(namespace, "ha", "StoreReady", "True", timeout=60)
    assert kube.wait("members write and read again", lambda: ask(kube, namespace, "first", "third")["read"], timeout=60)
    assert ask(kube, namespace, "first", "fourth")["there"] == 0, "a failover keeps the service, not the cache"
    kube.wait(
        "the loss is told",
        lambda: "lost" in kube.condition(namespace, "ha", "StoreReady")["message"],
        timeout=60,
    )

    # hung: only the other can lead
    (leader,), (standby,) = masters(kube, namespace)
    with processes.frozen(leader, "master"):
        successor = [standby["metadata"]["name"]]
        kube.wait("the other master leads", lambda: behind_the_service(kube, namespace) == successor, timeout=60)
        assert kube.wait("members write and read", lambda: ask(kube, namespace, "-", "fifth")["read"], timeout=60)
    assert kube.wait("who hung steps back", lambda: behind_the_service(kube, namespace) == successor, timeout=30)
    assert ask(kube, namespace, "fifth", "sixth")["there"] == 5 * 1024

    # another pool joins the same masters, which are external to it; their own pool's policy would keep it out
    kube.run(
        "patch", "kvpool", "ha", "-n", namespace, "--type=merge", '-p={"spec":{"networkPolicy":{"enabled":false}}}'
    )
    external = {
        "address": f"etcd://{endpoint}",
        "clusterId": f"{namespace}/ha",
        "httpAddress": f"ha-master.{namespace}.svc:9003",
    }
    kube.create(store_only(images, "guest", namespace, store=tiny_store(images, master={"external": external})))
    kube.wait_condition(namespace, "guest", "StoreReady", "True", timeout=120)
    assert kube.pool(namespace, "guest")["status"]["store"]["segments"] == 1, "its own"
    assert kube.find("deployment", "guest-master", "-n", namespace) is None
    assert kube.find("service", "guest-master", "-n", namespace) is None
