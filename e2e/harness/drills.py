"""Drills run from the host: pod addresses of the embedded cluster can be reached from it, and so can processes."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from kubernetes.aio.client import ApiClient, Configuration
from kubernetes.aio.config import load_kube_config

from e2e.harness.faults import HostFaults
from e2e.harness.kube import Kube
from e2e.harness.report import record
from kvcachepool.cli.session import unpredictable
from kvcachepool.cluster import Cluster
from kvcachepool.drill.faults import FAULTS, Fault
from kvcachepool.drill.ground import Ground
from kvcachepool.drill.loop import Asker
from kvcachepool.drill.report import document, table
from kvcachepool.drill.suite import Suite
from kvcachepool.drill.verdict import Row
from kvcachepool.lookup import find_pool
from kvcachepool.observe.http import HttpReader

WANTED = [name for name in os.environ.get("KVCP_DRILLS", "").split(",") if name]
"""`all`, or names; none: a few of them, and no report."""
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
            asker = Asker(http.session, pool.spec.model.served_name or pool.spec.model.id, unpredictable(), DEADLINE)
            yield Ground(cluster, http, asker, pool)
    finally:
        await client.close()  # type: ignore[no-untyped-call]


def all_drills(kube: Kube) -> dict[str, Fault]:
    """By name. Those that take an engine last: it takes longest to come back."""
    found = {**FAULTS, **HostFaults(kube).all()}
    return dict(sorted(found.items(), key=lambda item: not item[1].store))


def run(kube: Kube, namespace: str, name: str, backend: str, faults: Sequence[Fault]) -> dict[str, Row]:
    """Rows by drill. Where `KVCP_DRILLS` names some, they go into the report below the heading `backend`."""
    meanings = {fault.name: fault.meaning for fault in all_drills(kube).values()}

    def done(row: Row) -> None:
        if WANTED:
            record(backend, row, meanings)

    found = asyncio.run(_run(kube.kubeconfig, namespace, name, faults, done))
    print(table(found), document(found), sep="\n")
    return {row.drill: row for row in found}


async def _run(
    kubeconfig: Path, namespace: str, name: str, faults: Sequence[Fault], done: Callable[[Row], None]
) -> list[Row]:
    """The rows of the report, in the order of `faults`; `done` gets each as soon as there is one."""
    async with ground(kubeconfig, namespace, name) as found:
        return await Suite(found, say=lambda text: print(text, flush=True), done=done).run(faults)
