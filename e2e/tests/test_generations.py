"""A change of the cache schema: engines move one by one, under load, and back again."""

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from e2e.harness.kube import Json, Kube
from e2e.harness.load import load
from e2e.harness.pools import engine_deployments, tiny_pool
from e2e.harness.traffic import complete
from e2e.tests.conftest import Running

PROMPTS = [[(7 * i + 13 * n) % 400 + 20 for i in range(512)] for n in range(4)]


@dataclass(frozen=True)
class Mover(Running):
    """The pool, and the digest that it began with."""

    first: str = ""


@pytest.fixture(scope="module")
def mover(kube: Kube, images: dict[str, str]) -> Iterator[Mover]:
    """A pool whose schema is edited; its model has one revision only, so that every answer must stay the same."""
    pool = Running("e2e-mover", "mover")
    kube.namespace(pool.namespace, enforce="restricted")
    kube.create(tiny_pool(images, pool.name, pool.namespace, verification={"enabled": False}))
    kube.wait_condition(pool.namespace, pool.name, "Ready", "True", timeout=900)
    yield Mover(pool.namespace, pool.name, status(kube, pool)["schema"]["digest"])
    kube.run("delete", "namespace", pool.namespace, "--wait=false")


def engines(kube: Kube, pool: Running) -> list[Json]:
    """Engine pods that hold a device: those that end too, until their containers have stopped."""
    found = kube.items("pods", "-n", pool.namespace, "-l", "kvcachepool.io/component=engine")
    return [pod for pod in found if pod["status"].get("phase") not in {"Failed", "Succeeded"}]


def edit(kube: Kube, pool: Running, spec: dict[str, Any]) -> None:
    kube.run("patch", "kvpool", "-n", pool.namespace, pool.name, "--type=merge", f"-p={json.dumps({'spec': spec})}")


def revision(kube: Kube, pool: Running, value: str, **spec: Any) -> None:
    edit(kube, pool, {"model": {"revision": value}} | spec)


def status(kube: Kube, pool: Running) -> Json:
    result: Json = kube.pool(pool.namespace, pool.name)["status"]
    return result


def moved(kube: Kube, pool: Running, digest: str) -> bool:
    """Whether all engines have that schema; checks on the way that nothing is mixed and no device too many is used."""
    pods = engines(kube, pool)
    assert len(pods) <= 2, [p["metadata"]["name"] for p in pods]
    for pod in pods:
        label = pod["metadata"]["labels"]["kvcachepool.io/schema"]
        (main,) = pod["spec"]["containers"]
        assert any(f'"cache_prefix": "{label}"' in argument for argument in main["args"])
    now = status(kube, pool)
    ready = {c["type"]: c["status"] for c in now["conditions"]}["EnginesReady"]
    return now["schema"]["digest"] == digest and ready == "True" and len(pods) == 2


def test_a_schema_change_under_load_fails_no_request_and_mixes_nothing(
    kube: Kube, images: dict[str, str], mover: Mover
) -> None:
    before = status(kube, mover)["schema"]["digest"]
    url = f"http://{mover.name}-engines.{mover.namespace}.svc:8000/v1/completions"
    progress: set[tuple[tuple[str, int, int], ...]] = set()
    with load(kube, mover.namespace, images["operator"], url, PROMPTS) as requests:
        kube.wait("requests are served", lambda: len(requests.answers()) > len(PROMPTS), timeout=120)
        revision(kube, mover, "2")
        digest = kube.wait(
            "the next digest",
            lambda: (now := status(kube, mover)["schema"]["digest"]) != before and now,
            timeout=30,
        )

        def seen() -> bool:
            shown = status(kube, mover)["engines"].get("generations", [])
            progress.add(tuple((g["digest"], g.get("desired", 0), g.get("ready", 0)) for g in shown))
            return moved(kube, mover, digest)

        kube.wait("both engines have moved", seen, timeout=900)
        time.sleep(10)  # requests after the move count too
        answers = requests.answers()
    assert [a for a in answers if "error" in a] == []
    for number in range(len(PROMPTS)):
        given = [a["tokens"] for a in answers if a["prompt"] == number]
        assert len(given) > 2
        assert all(tokens == given[0] for tokens in given), "an answer changed"
    assert any({row[0] for row in shown} == {before, digest} for shown in progress), progress
    schema = status(kube, mover)["schema"]
    assert (schema["digest"], schema["previousDigest"]) == (digest, before)
    assert kube.wait("old keys", lambda: status(kube, mover)["schema"].get("previousKeys"), timeout=90) > 0
    names = [d["metadata"]["name"] for d in engine_deployments(kube, mover.namespace, mover.name)]
    assert names == [f"{mover.name}-engine-{digest}"]


def test_a_generation_that_cannot_start_stops_with_the_former_one_serving(kube: Kube, mover: Mover) -> None:
    former = status(kube, mover)["schema"]["digest"]
    served = {p["metadata"]["name"] for p in engines(kube, mover)}
    revision(kube, mover, "3", engines={"image": "localhost/kvcachepool/no-such-engine:1"})
    found = kube.wait_condition(
        mover.namespace, mover.name, "EnginesReady", "False", reason="ImageNotStartable", timeout=240
    )
    assert "no-such-engine" in found["message"]
    assert f"1 engine of schema {former} serve on" in found["message"]
    time.sleep(40)
    left = [p for p in engines(kube, mover) if p["metadata"]["name"] in served]
    assert len(left) == 1, "the move went no further"
    name = left[0]["metadata"]["name"]
    assert complete(kube, mover.namespace, name, PROMPTS[0])["choices"][0]["text"]
    assert kube.condition(mover.namespace, mover.name, "Available")["status"] == "True"


def test_going_back_midway_keeps_the_engine_that_had_not_moved(
    kube: Kube, images: dict[str, str], mover: Mover
) -> None:
    left = {
        p["metadata"]["name"]
        for p in engines(kube, mover)
        if any(c.get("ready") for c in p["status"].get("containerStatuses", []))
    }
    former = status(kube, mover)["schema"]["previousDigest"]
    revision(kube, mover, "2", engines={"image": images["engine-cpu"]})
    kube.wait("two engines of the former schema", lambda: moved(kube, mover, former), timeout=600)
    assert left <= {p["metadata"]["name"] for p in engines(kube, mover)}


def test_two_quick_edits_end_at_the_last_and_hit_what_its_keys_still_hold(kube: Kube, mover: Mover) -> None:
    """Revision 1 was served before: its prompts are in the store under its own prefix."""
    revision(kube, mover, "4")
    revision(kube, mover, "1")
    kube.wait("both engines have moved", lambda: moved(kube, mover, mover.first), timeout=900)
    first = engines(kube, mover)[0]["metadata"]["name"]
    reused = 0
    for prompt in PROMPTS:
        answer = complete(kube, mover.namespace, first, prompt)
        reused += answer["usage"]["prompt_tokens_details"]["cached_tokens"]
    assert reused > 0, "no key of the former days was hit"
    assert len(engine_deployments(kube, mover.namespace, mover.name)) == 1
