"""A minute of kills, edits and scale changes under requests; `KVCP_SOAK_SECONDS` (`make soak`: 600) for longer."""

import asyncio
import os

from e2e.harness.kube import Kube
from e2e.harness.soak import Soak
from e2e.tests.conftest import Running
from kvcachepool.drill.verdict import PASSED

SECONDS = float(os.environ.get("KVCP_SOAK_SECONDS", "60"))
SEED = int(os.environ.get("KVCP_SOAK_SEED", "1"))


def test_a_pool_that_is_shaken_serves_right_answers_and_ends_ready(kube: Kube, shared_pool: Running) -> None:
    kube.wait_condition(shared_pool.namespace, shared_pool.name, "Ready", "True", timeout=300)
    soak = Soak(kube, shared_pool.namespace, shared_pool.name, SEED)
    row = asyncio.run(soak.run(kube.kubeconfig, SECONDS))
    print(row, *soak.log, sep="\n")
    assert (row.failed, row.wrong) == (0, 0), (row, soak.log)
    assert row.verdict == PASSED, row
    assert row.requests > 0
    kube.wait_condition(shared_pool.namespace, shared_pool.name, "Ready", "True", timeout=600)
    kube.wait_condition(shared_pool.namespace, shared_pool.name, "ReuseVerified", "True", timeout=600)
