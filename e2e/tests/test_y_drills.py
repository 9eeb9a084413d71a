"""Parts of a pool are broken under a loop of requests: none fails on an engine that lives, and no answer is wrong.

Late in the order of files, since others look at the pool's history. A run tries a few drills; `make drill` tries all
of them, or those named by `KVCP_DRILLS`, and writes docs/drills-report.md.
"""

import json

import pytest

from e2e.harness import drills
from e2e.harness.kube import Json, Kube
from e2e.tests.conftest import Running
from kvcachepool.drill.job import manifests
from kvcachepool.drill.report import table
from kvcachepool.drill.verdict import PASSED, Row

FEW = ["master-unreachable", "store-killed", "engine-killed"]
"""Kills of the master are in the soak."""


@pytest.fixture(scope="module")
def rows(kube: Kube, shared_pool: Running) -> dict[str, Row]:
    names = drills.WANTED or FEW
    faults = [f for n, f in drills.all_drills(kube).items() if n in names or names == ["all"]]
    return drills.run(kube, shared_pool.namespace, shared_pool.name, "mooncake", faults)


@pytest.fixture(scope="module")
def native_rows(kube: Kube, solo_pool: Running) -> dict[str, Row]:
    faults = [drills.all_drills(kube)["engine-killed"]]
    return drills.run(kube, solo_pool.namespace, solo_pool.name, "native", faults)


def test_no_request_fails_on_an_engine_that_lives_and_no_answer_is_wrong(rows: dict[str, Row]) -> None:
    for row in rows.values():
        assert row.verdict == PASSED, (row, table(list(rows.values())))
        assert (row.failed, row.wrong) == (0, 0), row
        assert row.requests > 0, row


def test_only_requests_to_a_killed_engine_are_excepted(rows: dict[str, Row]) -> None:
    assert all(row.excepted == 0 for name, row in rows.items() if not name.startswith("engine-")), rows


def test_what_is_lost_is_what_was_broken(rows: dict[str, Row]) -> None:
    for name, row in rows.items():
        if name.startswith("engine-"):
            assert row.keys_lost == 0 or row.evictions, "segments of store pods outlive engines"
        if name in {"master-killed", "master-deleted", "store-killed"}:
            assert row.keys_lost, row


def test_a_pool_that_shares_nothing_recovers_as_well(native_rows: dict[str, Row]) -> None:
    (row,) = native_rows.values()
    assert row.verdict == PASSED, row
    assert (row.failed, row.wrong, row.keys_before) == (0, 0, None)


def test_a_user_runs_a_drill_as_a_job(kube: Kube, images: dict[str, str], shared_pool: Running) -> None:
    arguments = ["--drill", "master-deleted", "--break-pool", shared_pool.name, "-o", "json", "--deadline", "90"]
    made = manifests(shared_pool.name, shared_pool.namespace, images["operator"], arguments, "Never")
    name = made[-1]["metadata"]["name"]
    for manifest in made:
        kube.create(manifest)
    try:

        def ended() -> bool:
            status = kube.get("job", name, "-n", shared_pool.namespace).get("status", {})
            return bool(status.get("succeeded") or status.get("failed"))

        kube.wait("the Job has ended", ended, timeout=900, pause=5)
        log = kube.run("logs", "-n", shared_pool.namespace, f"job/{name}")
        assert "{\n" in log, log
        report: Json = json.loads(log[log.index("{\n") :])
    finally:
        for manifest in reversed(made):
            kube.run("delete", manifest["kind"], name, "-n", shared_pool.namespace, "--ignore-not-found")
    assert report["passed"], log
    (row,) = report["rows"]
    assert (row["failed"], row["wrong"]) == (0, 0)


def test_the_pool_is_ready_again(
    kube: Kube, rows: dict[str, Row], shared_pool: Running, solo_pool: Running, native_rows: dict[str, Row]
) -> None:
    for pool in (shared_pool, solo_pool):
        kube.wait_condition(pool.namespace, pool.name, "Ready", "True", timeout=300)
