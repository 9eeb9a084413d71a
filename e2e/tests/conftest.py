"""One cluster, one operator and one pool of real engines for all tests: an engine takes about a minute to start.

`KVCP_KEEP=1` leaves the cluster running, for the next run or to look at it.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from e2e.harness.install import Installation
from e2e.harness.kube import Kube
from e2e.harness.pools import native_pool, tiny_pool


@dataclass(frozen=True)
class Running:
    """A pool that was brought to Ready."""

    namespace: str
    name: str


@pytest.fixture(scope="session")
def installation() -> Iterator[Installation]:
    """Cluster with images and operator."""
    made = Installation("e2e")
    made.start()
    try:
        made.install()
        yield made
    finally:
        if not os.environ.get("KVCP_KEEP"):
            made.provider.down()


@pytest.fixture(scope="session")
def kube(installation: Installation) -> Kube:
    return installation.kube


@pytest.fixture(scope="session")
def images(installation: Installation) -> dict[str, str]:
    return installation.images


@pytest.fixture(scope="session")
def shared_pool(kube: Kube, images: dict[str, str]) -> Running:
    """Two real engines on one real store, under the strictest Pod Security profile."""
    pool = Running("e2e-shared", "shared")
    kube.namespace(pool.namespace, enforce="restricted")
    kube.create(tiny_pool(images, pool.name, pool.namespace))
    kube.wait_condition(pool.namespace, pool.name, "Ready", "True", timeout=900)
    kube.wait_condition(pool.namespace, pool.name, "ReuseVerified", "True", timeout=600)
    return pool


@pytest.fixture(scope="session")
def solo_pool(kube: Kube, images: dict[str, str], shared_pool: Running) -> Running:
    """One real engine with CPU offload; started after the other pool, two cores are few."""
    pool = Running("e2e-solo", "solo")
    kube.namespace(pool.namespace, enforce="restricted")
    kube.create(native_pool(images, pool.name, pool.namespace))
    kube.wait_condition(pool.namespace, pool.name, "Ready", "True", timeout=900)
    return pool


@pytest.fixture
def namespace(kube: Kube, request: pytest.FixtureRequest) -> Iterator[str]:
    """A namespace of its own for one test."""
    name = f"e2e-{request.node.name[:40].replace('_', '-').replace('[', '-').rstrip(']').lower().strip('-')}"
    kube.namespace(name)
    yield name
    kube.run("delete", "namespace", name, "--ignore-not-found", "--wait=false")
