"""The negative suite in a pool of real engines, as a user runs it: a Job from the operator's image.

Each case starts an engine, so a run tries a few; `KVCP_NEGATIVE=all` (`make negative`) tries all of them, or those it
names.
"""

import json
import os
from typing import Any

import pytest

from e2e.harness.kube import Json, Kube
from e2e.tests.conftest import Running
from kvcachepool.negative.cases import CASES
from kvcachepool.negative.job import manifests
from kvcachepool.negative.report import table
from kvcachepool.negative.verdict import Row

WANTED = [name for name in os.environ.get("KVCP_NEGATIVE", "").split(",") if name] or ["seed", "dtype", "weights"]
OTHER_WEIGHTS = "/models/alt/tiny"
START_SECONDS = 400
"""One engine on a busy machine, and its requests."""
MAY_NOT_START = {"kv-dtype"}
"""An fp8 cache on the CPU needs AVX-512."""


def run(kube: Kube, pool: Running, image: str, cases: list[str], *more: str) -> list[Json]:
    """Runs the Job to its end; the rows of its report."""
    arguments = [word for case in cases for word in ("--case", case)]
    arguments += ["--other-weights", OTHER_WEIGHTS, "--deadline", "90", "-o", "json", *more]
    made = manifests(pool.name, pool.namespace, image, arguments, "Never")
    name = made[-1]["metadata"]["name"]
    for manifest in made:
        kube.create(manifest)
    try:
        starts = len(cases) * (2 if "--raw" in more else 1) + 1

        def ended() -> Any:
            status = kube.get("job", name, "-n", pool.namespace).get("status", {})
            return status.get("succeeded") or status.get("failed")

        kube.wait("the Job has ended", ended, timeout=starts * START_SECONDS, pause=5)
        log = kube.run("logs", "-n", pool.namespace, f"job/{name}")
        report = json.loads(log[log.index("{\n") :])
        rows: list[Json] = report["rows"]
        print(table([Row(**{key: value for key, value in row.items() if key != "failed"}) for row in rows]))
        return rows
    finally:
        kube.run("delete", "job", name, "-n", pool.namespace, "--ignore-not-found")
        for manifest in made[:-1]:
            kube.run("delete", manifest["kind"], name, "-n", pool.namespace, "--ignore-not-found")


@pytest.fixture(scope="module")
def rows(kube: Kube, images: dict[str, str], shared_pool: Running) -> dict[tuple[str, bool], Json]:
    """Rows by (case, whether the digest stood in front of the keys)."""
    chosen = [case.name for case in CASES] if WANTED == ["all"] else WANTED
    found = run(kube, shared_pool, images["operator"], chosen, "--raw")
    return {(row["case"], row["prefix"]): row for row in found}


def test_with_the_digest_no_difference_is_read(rows: dict[tuple[str, bool], Json]) -> None:
    for (case, prefix), row in rows.items():
        if not prefix:
            continue
        if case in MAY_NOT_START and row["verdict"] == "not run":
            continue
        assert row["verdict"] == "isolated", row
        assert (row["reused_tokens"], row["answer_equal"]) == (0, True), row


def test_without_it_the_table_shows_what_would_have_happened(rows: dict[tuple[str, bool], Json]) -> None:
    raw = {case: row["verdict"] for (case, prefix), row in rows.items() if not prefix}
    assert raw
    expected = {
        "weights": {"wrong answer"},  # the engine's own key holds the last part of the path only
        "revision": {"wrong answer"},
        "dtype": {"hangs", "fails", "wrong answer"},
        "seed": {"isolated"},  # it is in the hash of every block
        "seed-unset": {"isolated"},
        "hash-algorithm": {"isolated"},
        "block-size": {"isolated"},
    }
    for case, verdict in raw.items():
        assert verdict in expected.get(case, {verdict}), raw


def test_nothing_of_it_is_left_and_the_pool_did_not_notice(
    kube: Kube, shared_pool: Running, rows: dict[tuple[str, bool], Json]
) -> None:
    assert rows
    assert kube.items("pods", "-n", shared_pool.namespace, "-l", "kvcachepool.io/negative") == []
    status = kube.pool(shared_pool.namespace, shared_pool.name)["status"]
    assert "members" not in status
    kube.wait_condition(shared_pool.namespace, shared_pool.name, "Ready", "True", timeout=120)
