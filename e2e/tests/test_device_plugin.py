"""RDMA as far as it goes without a card: the device plugin, the kubelet's allocation, and a pool that fell back to TCP.

The operator's own DaemonSet runs the stand-in (e2e/cluster/tools/deviceplugin), which reads the operator's own
ConfigMap and offers the resource over the kubelet's real socket.
"""

import json
from collections.abc import Iterator

import pytest

from e2e.harness import device_plugin
from e2e.harness.install import NAMESPACE, Installation
from e2e.harness.kube import Json, Kube
from e2e.harness.pools import tiny_engines, tiny_pool
from e2e.harness.store_only import store_only
from e2e.tests.conftest import Running

RESOURCE = "rdma/hca_stand_in"
NAME = "kvcachepool-rdma-device-plugin"
SHARES = 8


@pytest.fixture(scope="module")
def plugin(installation: Installation) -> Iterator[str]:
    """An installation that may run the device plugin; the stand-in's image."""
    image = device_plugin.load(installation)
    installation.install("--set=rdma.devicePlugin.enabled=true")
    yield image
    installation.install()


@pytest.fixture(scope="module")
def pool(kube: Kube, images: dict[str, str], plugin: str) -> Iterator[Running]:
    """Two pools that share the device plugin: one with an engine, one without."""
    made = Running("e2e-rdma", "one")
    kube.namespace(made.namespace)
    wish = {"selectors": {"vendors": ["15b3"]}, "maxShares": SHARES, "image": plugin}
    transport = {"protocol": "RDMA", "rdma": {"resourceName": RESOURCE, "devicePlugin": wish}}
    version = images["engine-cpu"].rsplit(":", 1)[1].split("-")[0]
    # At first without GPU, so that the preflight gets as far as the RDMA device.
    engines = tiny_engines(images, version=version, replicas=1, preflight=True, gpu={"resourceName": ""})
    kube.create(tiny_pool(images, made.name, made.namespace, engines=engines, transport=transport))
    kube.create(store_only(images, "two", made.namespace, transport=transport))
    yield made
    kube.run("delete", "namespace", made.namespace, "--wait=false")


def offered(kube: Kube) -> str:
    """Of the resource, by the kubelet's word."""
    (node,) = kube.items("nodes")
    return str(node["status"]["allocatable"].get(RESOURCE, "0"))


def pods(kube: Kube, pool: Running, component: str) -> list[Json]:
    selector = f"kvcachepool.io/pool={pool.name},kvcachepool.io/component={component}"
    return kube.items("pods", "-n", pool.namespace, "-l", selector)


def inside(kube: Kube, pool: Running, component: str, *command: str) -> str:
    (pod,) = pods(kube, pool, component)
    return kube.run("exec", "-n", pool.namespace, pod["metadata"]["name"], "-c", component, "--", *command).strip()


def test_the_kubelet_offers_what_the_operators_device_plugin_registers(kube: Kube, pool: Running) -> None:
    for name in (pool.name, "two"):
        kube.wait_condition(pool.namespace, name, "HardwareMatched", "True", timeout=120)
    assert offered(kube) == str(SHARES)
    (config,) = json.loads(kube.get("configmap", NAME, "-n", NAMESPACE)["data"]["config.json"])["configList"]
    assert (config["resourcePrefix"], config["resourceName"], config["rdmaHcaMax"]) == ("rdma", "hca_stand_in", SHARES)
    assert config["selectors"] == {"vendors": ["15b3"]}
    status = kube.get("daemonset", NAME, "-n", NAMESPACE)["status"]
    assert (status["desiredNumberScheduled"], status["numberReady"]) == (1, 1)


def test_the_preflight_finds_no_device(kube: Kube, pool: Running) -> None:
    said = kube.wait_condition(
        pool.namespace, pool.name, "EnginesReady", "False", reason="PreflightFailed", timeout=240
    )
    assert "the pod sees the RDMA devices none: look at the device plugin" in said["message"]


def test_an_engine_gets_gpu_and_rdma_by_allocation_and_is_ready(kube: Kube, pool: Running) -> None:
    change = {"spec": {"engines": {"gpu": {"resourceName": "nvidia.com/gpu"}, "preflight": False}}}
    kube.run("patch", "kvpool", "-n", pool.namespace, pool.name, "--type=merge", f"-p={json.dumps(change)}")
    kube.wait_condition(pool.namespace, pool.name, "EnginesReady", "True", timeout=900)
    (engine,) = pods(kube, pool, "engine")
    limits = engine["spec"]["containers"][0]["resources"]["limits"]
    assert (limits["nvidia.com/gpu"], limits[RESOURCE]) == ("1", "1")
    shares = [inside(kube, pool, part, "printenv", device_plugin.VARIABLE) for part in ("engine", "store")]
    assert len(set(shares)) == 2, "each pod has a share of its own"
    assert all(share.startswith("hca_stand_in-") for share in shares)
    assert inside(kube, pool, "engine", "stat", "-c", "%F", device_plugin.DEVICE) == "character special file"


def test_a_pool_that_fell_back_to_tcp_says_so(kube: Kube, pool: Running) -> None:
    said = kube.wait_condition(
        pool.namespace, pool.name, "TransportMatched", "False", reason="TransportDowngraded", timeout=120
    )
    message = said["message"]
    assert message.startswith("spec.transport.protocol is RDMA, but TCP is used by ")
    for part in ("engine", "store"):
        (found,) = pods(kube, pool, part)
        assert found["metadata"]["name"] in message
    causes = ("sees no RDMA device", "memory could not be locked", "no RDMA libraries", "a port is down")
    places = [message.index(cause) for cause in causes]
    assert places == sorted(places)
    ready = kube.condition(pool.namespace, pool.name, "Ready")
    assert (ready["status"], ready["reason"]) == ("False", "TransportDowngraded")
    assert kube.condition(pool.namespace, pool.name, "Available")["status"] == "True", "it serves all the same"


def test_the_device_plugin_goes_with_the_last_pool(kube: Kube, pool: Running) -> None:
    kube.run("delete", "kvpool", "two", "-n", pool.namespace)
    uid = kube.get("daemonset", NAME, "-n", NAMESPACE)["metadata"]["uid"]
    kube.wait("the other pool's pods are gone", lambda: not pods(kube, Running(pool.namespace, "two"), "store"),
              timeout=120)  # fmt: skip
    assert kube.get("daemonset", NAME, "-n", NAMESPACE)["metadata"]["uid"] == uid
    assert offered(kube) == str(SHARES)
    kube.run("delete", "kvpool", pool.name, "-n", pool.namespace)
    kube.wait("DaemonSet and ConfigMap are gone",
              lambda: not any(kube.find(kind, NAME, "-n", NAMESPACE) for kind in ("daemonset", "configmap")),
              timeout=60)  # fmt: skip
    kube.wait("the node offers none", lambda: offered(kube) == "0", timeout=60)
