"""Drills run from the host: pod addresses of the embedded cluster can be reached from it, and so can processes."""

from __future__ import annotations

import random
import secrets
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from kubernetes.aio.client import ApiClient, Configuration
from kubernetes.aio.config import load_kube_config

from kvcachepool.cluster import Cluster
from kvcachepool.drill.faults import Fault
from kvcachepool.drill.ground import Ground
from kvcachepool.drill.loop import Asker
from kvcachepool.drill.suite import Suite
from kvcachepool.drill.verdict import Row
from kvcachepool.lookup import find_pool
from kvcachepool.observe.http import HttpReader

DEADLINE = 90.0
"""Seconds of one request: the store itself gives up a transfer after 60."""


@asynccontextmanager
async def ground(kubeconfig: Path, namespace: str, name: str) -> AsyncIterator[Ground]:
    """The pool as drills see it."""
    configuration = Configuration()
    await load_kube_config(config_file=str(kubeconfig), client_configuration=configuration)  # type: ignore[no-untyped-call]
    client = ApiClient(configuration)
    try:
        async with HttpReader() as http:
            cluster = Cluster(client)
            pool = await find_pool(cluster, namespace, name)
            rng = random.Random(secrets.randbits(128))
            asker = Asker(http.session, pool.spec.model.served_name or pool.spec.model.id, rng, DEADLINE)
            yield Ground(cluster, http, asker, pool)
    finally:
        await client.close()  # type: ignore[no-untyped-call]


async def run(
    kubeconfig: Path, namespace: str, name: str, faults: Sequence[Fault], done: Callable[[Row], None]
) -> list[Row]:
    """The rows of the report, in the order of `faults`; `done` gets each as soon as there is one."""
    async with ground(kubeconfig, namespace, name) as found:
        return await Suite(found, say=lambda text: print(text, flush=True), done=done).run(faults)
