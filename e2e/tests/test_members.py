"""Engines of a user's own Deployment: joined by two labels, used like the others, and left alone."""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from e2e.harness import operator
from e2e.harness.install import RELEASE, Installation
from e2e.harness.kube import Json, Kube
from e2e.harness.pools import engine_deployments
from e2e.harness.traffic import complete
from e2e.tests.conftest import Running

RELIST_SECONDS = 330
"""A removed label yields an event of the watch; should it be lost, the next list shows it."""


def status(kube: Kube, pool: Running) -> Json:
    result: Json = kube.pool(pool.namespace, pool.name)["status"]
    return result


def pods(kube: Kube, pool: Running, app: str) -> list[Json]:
    return kube.items("pods", "-n", pool.namespace, "-l", f"app={app}")


def endpoints(kube: Kube, pool: Running) -> set[str]:
    """Names of users' pods behind the pool's Service."""
    found = kube.find("endpointslice", f"{pool.name}-engines-members", "-n", pool.namespace) or {}
    return {endpoint["targetRef"]["name"] for endpoint in found.get("endpoints") or ()}


def template(kube: Kube, pool: Running) -> Json:
    """The pod template of the operator's engines, as a user would copy it."""
    (deployment,) = engine_deployments(kube, pool.namespace, pool.name)
    result: Json = deployment["spec"]["template"]
    return result


def labels(kube: Kube, pool: Running, app: str) -> dict[str, str]:
    digest = status(kube, pool)["schema"]["digest"]
    return {"app": app, "kvcachepool.io/pool": pool.name, "kvcachepool.io/schema": digest}


@pytest.fixture(scope="module")
def own(kube: Kube, shared_pool: Running) -> Iterator[Json]:
    """One engine of a Deployment that the operator knows nothing of."""
    copied = template(kube, shared_pool)
    metadata = {"labels": labels(kube, shared_pool, "own"), "annotations": copied["metadata"].get("annotations", {})}
    kube.create(
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": "own", "namespace": shared_pool.namespace},
            "spec": {
                "replicas": 1,
                "selector": {"matchLabels": {"app": "own"}},
                "template": {"metadata": metadata, "spec": copied["spec"]},
            },
        }
    )
    name = kube.wait(
        "the user's engine serves",
        lambda: [
            p for p in pods(kube, shared_pool, "own")
            if any(c.get("ready") for c in p["status"].get("containerStatuses", []))
        ],
        timeout=600,
    )  # fmt: skip
    yield name[0]
    kube.run("delete", "deployment", "own", "-n", shared_pool.namespace, "--wait=true")
    kube.wait("it is gone", lambda: not pods(kube, shared_pool, "own"), timeout=180)


def test_an_engine_of_the_users_own_joins_by_two_labels(kube: Kube, shared_pool: Running, own: Json) -> None:
    name = own["metadata"]["name"]
    counts = {"joined": 1, "serving": 1, "mismatched": 0}
    kube.wait("it is a member", lambda: status(kube, shared_pool).get("members") == counts, timeout=60)
    assert endpoints(kube, shared_pool) == {name}
    assert status(kube, shared_pool)["engines"]["desired"] == 2
    found = kube.condition(shared_pool.namespace, shared_pool.name, "SchemaHomogeneous")
    assert found["status"] == "True", found


def test_it_reuses_what_the_operators_engines_computed(kube: Kube, shared_pool: Running, own: Json) -> None:
    (first, *_) = kube.items("pods", "-n", shared_pool.namespace, "-l", "kvcachepool.io/component=engine")
    reused = []
    for round_ in range(3):  # a load may be late on a busy machine: a fresh prompt each time
        prompt = [(11 * i + 17 * round_) % 400 + 20 for i in range(1024)]
        given = complete(kube, shared_pool.namespace, first["metadata"]["name"], prompt)
        taken = complete(kube, shared_pool.namespace, own["metadata"]["name"], prompt)
        assert taken["choices"][0]["text"] == given["choices"][0]["text"]
        reused.append(taken["usage"]["prompt_tokens_details"]["cached_tokens"])
    assert max(reused) >= 960, reused


def test_it_takes_part_in_probes(kube: Kube, shared_pool: Running, own: Json) -> None:
    name = own["metadata"]["name"]

    def probed() -> bool:
        seen = status(kube, shared_pool)["verification"]
        return name in {seen.get("writer"), seen.get("reader")} and seen.get("verified") is True

    kube.wait("a verified probe with it", probed, timeout=420)


@contextmanager
def without_policy(installation: Installation, kube: Kube) -> Iterator[None]:
    """As after an admin deleted the admission policy; installed again at the end."""
    kind = "validatingadmissionpolicybindings.admissionregistration.k8s.io"
    bindings = kube.items(kind, "-l", f"app.kubernetes.io/instance={RELEASE}")
    for binding in bindings:
        kube.run("delete", kind, binding["metadata"]["name"])
    try:
        time.sleep(5 if bindings else 0)  # the API server's own cache of policies
        yield
    finally:
        if bindings:
            installation.install()


def impostor(kube: Kube, pool: Running, image: str, *flags: str) -> Json:
    """A pod with the right labels whose flags say otherwise. It only sleeps: nothing of it is asked for this."""
    copied = template(kube, pool)
    (engine,) = copied["spec"]["containers"]
    container: dict[str, Any] = {
        "name": "engine",
        "image": image,
        "imagePullPolicy": "Never",
        "command": ["python3", "-c", "import time; time.sleep(3600)"],
        "args": [*engine["args"], *flags],
        "env": [v for v in engine["env"] if v["name"] == "PYTHONHASHSEED"],
        "securityContext": engine["securityContext"],
    }
    identity = copied["spec"]["securityContext"]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "impostor", "namespace": pool.namespace, "labels": labels(kube, pool, "impostor")},
        "spec": {
            "containers": [container],
            "securityContext": identity,
            "terminationGracePeriodSeconds": 1,
            "enableServiceLinks": False,
        },
    }


def test_a_pod_that_slipped_by_admission_is_flagged_and_kept_out_but_not_touched(
    installation: Installation, kube: Kube, images: dict[str, str], shared_pool: Running, own: Json
) -> None:
    where = shared_pool.namespace
    with without_policy(installation, kube):
        kube.create(impostor(kube, shared_pool, images["operator"], "--tensor-parallel-size=4"))
        try:
            found = kube.wait_condition(
                where, shared_pool.name, "SchemaHomogeneous", "False", reason="SchemaMismatch", timeout=90
            )
            assert "pod impostor: container engine: tensor is 4, the pool has 1" in found["message"]
            members = status(kube, shared_pool)["members"]
            assert (members["joined"], members["mismatched"]) == (1, 1)
            assert [m["name"] for m in members["mismatches"]] == ["impostor"]
            assert endpoints(kube, shared_pool) == {own["metadata"]["name"]}
            kube.wait(
                "an Event on the pod",
                lambda: [
                    e for e in kube.items("events", "-n", where, "--field-selector", "involvedObject.name=impostor")
                    if e["reason"] == "SchemaMismatch" and "tensor is 4" in e["message"]
                ],
                timeout=30,
            )  # fmt: skip
            leader = operator.leader(kube)
            (pod,) = [p for p in operator.pods(kube) if p["metadata"]["name"] == leader]
            sample = f'kvcachepool_members_mismatched{{name="{shared_pool.name}",namespace="{where}"}} 1.0'
            assert sample in operator.metrics(kube, pod)
            still = kube.get("pod", "impostor", "-n", where, "--show-managed-fields")
            assert "deletionTimestamp" not in still["metadata"]
            managers = {m["manager"] for m in still["metadata"]["managedFields"]}
            assert not any("kvcachepool" in manager for manager in managers), managers
            kube.run("label", "pod", "impostor", "-n", where, "kvcachepool.io/pool-")
            kube.wait_condition(where, shared_pool.name, "SchemaHomogeneous", "True", timeout=RELIST_SECONDS)
        finally:
            kube.run("delete", "pod", "impostor", "-n", where, "--ignore-not-found")


def test_it_leaves_when_its_label_goes(kube: Kube, shared_pool: Running, own: Json) -> None:
    name = own["metadata"]["name"]
    kube.run("label", "pod", name, "-n", shared_pool.namespace, "kvcachepool.io/pool-")
    kube.wait("no member is left", lambda: "members" not in status(kube, shared_pool), timeout=RELIST_SECONDS)
    kube.wait("nor in the Service", lambda: endpoints(kube, shared_pool) == set(), timeout=30)
    (pod,) = pods(kube, shared_pool, "own")
    assert pod["metadata"]["name"] == name
    assert json.dumps(pod["status"]).count('"restartCount": 0') >= 1
    assert complete(kube, shared_pool.namespace, name, [20, 21, 22, 23])["choices"][0]["text"]
