"""Operators come, go and crash; pools, engines and caches stay as they are."""

import json
import time

from e2e.harness import operator, processes
from e2e.harness.install import Installation
from e2e.harness.kube import Json, Kube
from e2e.harness.pools import approve_restart, engine_deployments
from e2e.harness.store_only import store_only
from e2e.tests.conftest import Running


def pod_ids(kube: Kube, namespace: str) -> dict[str, tuple[str, int]]:
    """Pod name to (uid, restarts): the same before and after means that nothing was restarted."""
    return {
        p["metadata"]["name"]: (p["metadata"]["uid"], sum(c["restartCount"] for c in p["status"]["containerStatuses"]))
        for p in kube.items("pods", "-n", namespace)
    }


def children(kube: Kube, namespace: str, pool: str) -> list[str]:
    found = kube.items("deployments,services,pods,replicasets", "-n", namespace, "-l", f"kvcachepool.io/pool={pool}")
    return sorted(f"{c['kind']}/{c['metadata']['name']}" for c in found)


def store_ready(kube: Kube, namespace: str, *pools: str) -> None:
    for pool in pools:
        kube.wait_condition(namespace, pool, "StoreReady", "True", timeout=180)


def no_pools_beside(kube: Kube, *namespaces: str) -> bool:
    """Deletes those of earlier tests: their namespaces go as soon as the cluster comes to them."""
    found = [pool["metadata"] for pool in kube.items("kvpool", "-A") if pool["metadata"]["namespace"] not in namespaces]
    for pool in found:
        kube.run("delete", "kvpool", pool["name"], "-n", pool["namespace"], "--ignore-not-found", "--wait=false")
    return not found


def test_a_steady_pool_is_not_written(kube: Kube, shared_pool: Running) -> None:
    # verification of this pool runs each minute and writes its result; it is turned off for the measurement
    kube.run("patch", "kvpool", "-n", shared_pool.namespace, shared_pool.name, "--type=merge",
             '-p={"spec":{"verification":{"enabled":false}}}')  # fmt: skip
    try:
        kube.wait("no other pool is there", lambda: no_pools_beside(kube, "e2e-shared", "e2e-solo"), timeout=120)
        time.sleep(90)  # the edit is a write, a probe may end, and the figures of the last traffic take two resyncs
        before, version = operator.writes(kube), kube.pool(shared_pool.namespace, shared_pool.name)["metadata"]
        time.sleep(60)
        after = kube.pool(shared_pool.namespace, shared_pool.name)["metadata"]
        assert operator.writes(kube) == before
        assert after["resourceVersion"] == version["resourceVersion"]
    finally:
        kube.run("patch", "kvpool", "-n", shared_pool.namespace, shared_pool.name, "--type=merge",
                 '-p={"spec":{"verification":{"enabled":true}}}')  # fmt: skip


def test_a_killed_leader_is_followed_and_engines_do_not_notice(kube: Kube, shared_pool: Running) -> None:
    before = pod_ids(kube, shared_pool.namespace)
    old = operator.leader(kube)
    (pod,) = [p for p in operator.pods(kube) if p["metadata"]["name"] == old]
    assert processes.kill(pod, "operator")
    # The Lease lasts 15 s; the killed pod itself may come back and win it.
    generation = kube.pool(shared_pool.namespace, shared_pool.name)["metadata"]["generation"]
    kube.run("patch", "kvpool", "-n", shared_pool.namespace, shared_pool.name, "--type=merge",
             '-p={"spec":{"verification":{"promptTokens":8191}}}')  # fmt: skip
    kube.wait("the edit is seen by a leader",
              lambda: kube.pool(shared_pool.namespace, shared_pool.name)["status"]["observedGeneration"] > generation,
              timeout=60)  # fmt: skip
    assert pod_ids(kube, shared_pool.namespace) == before


def test_a_new_operator_an_upgrade_and_a_no_op_edit_restart_nothing(
    installation: Installation, kube: Kube, shared_pool: Running
) -> None:
    before = pod_ids(kube, shared_pool.namespace)
    (deployment,) = engine_deployments(kube, shared_pool.namespace, shared_pool.name)
    installation.install("--set=operator.workers=4", "--set=image.registry=localhost")  # other pods of the operator
    kube.run("patch", "kvpool", "-n", shared_pool.namespace, shared_pool.name, "--type=merge",
             '-p={"spec":{"schema":{"blockSize":64,"hashSeed":"0"},"store":{"replicas":1}}}')  # fmt: skip
    time.sleep(20)
    assert pod_ids(kube, shared_pool.namespace) == before
    (after,) = engine_deployments(kube, shared_pool.namespace, shared_pool.name)
    assert after["spec"]["template"] == deployment["spec"]["template"]


def test_an_operator_that_would_render_other_templates_restarts_nothing(
    installation: Installation, kube: Kube, namespace: str, images: dict[str, str]
) -> None:
    """Another registry for default images is what an upgrade with other templates looks like from the pool."""
    pool = store_only(images, "keeper", namespace)
    pool["spec"]["store"].pop("image")
    pool["spec"]["backend"]["mooncake"] = {"version": images["mooncake"].rsplit(":", 1)[1]}
    kube.create(pool)
    store_ready(kube, namespace, "keeper")
    before = pod_ids(kube, namespace)
    installation.install("--set=operator.workers=4", "--set=imagePullSecrets={other}")
    outdated = lambda: kube.pool(namespace, "keeper")["status"]["engines"].get("templateOutdated")  # noqa: E731
    assert kube.wait("the status says so", outdated, timeout=60) is True
    assert pod_ids(kube, namespace) == before
    kube.run("patch", "kvpool", "-n", namespace, "keeper", "--type=merge", '-p={"spec":{"rolloutToken":"1"}}')
    approve_restart(kube, namespace, "keeper")
    kube.wait("the token moves the pods", lambda: not set(pod_ids(kube, namespace)) & set(before), timeout=120)
    installation.install()


def test_what_happened_while_the_operator_was_down_is_put_right(
    installation: Installation, kube: Kube, namespace: str, images: dict[str, str]
) -> None:
    kube.create(store_only(images, "drift", namespace))
    kube.create(store_only(images, "gone", namespace))
    store_ready(kube, namespace, "drift", "gone")
    installation.operator(0)
    for seconds in (11000, 12000):
        kube.run("patch", "kvpool", "-n", namespace, "drift", "--type=merge",
                 f'-p={{"spec":{{"store":{{"master":{{"leaseTtlMilliseconds":{seconds}}}}}}}}}')  # fmt: skip
    kube.run("delete", "service", "drift-master", "-n", namespace)
    edit = '[{"op":"add","path":"/spec/template/spec/containers/0/args/-","value":"--dtype=float16"}]'
    (engines,) = engine_deployments(kube, namespace, "drift")
    kube.run("patch", "deployment", engines["metadata"]["name"], "-n", namespace, "--type=json", f"-p={edit}")
    kube.run("delete", "kvpool", "gone", "-n", namespace, "--wait=false")
    installation.operator(2)

    def args(deployment: str) -> list[str]:
        spec = kube.get("deployment", deployment, "-n", namespace)["spec"]["template"]["spec"]
        result: list[str] = spec["containers"][0]["args"]
        return result

    approve_restart(kube, namespace, "drift")
    kube.wait("the last edit won", lambda: "--default_kv_lease_ttl=12000" in args("drift-master"), timeout=90)
    kube.wait("the Service is back", lambda: kube.find("service", "drift-master", "-n", namespace), timeout=60)
    kube.wait(
        "the hand-made flag is gone", lambda: "--dtype=float16" not in args(engines["metadata"]["name"]), timeout=60
    )
    kube.wait("the deleted pool is gone", lambda: children(kube, namespace, "gone") == [], timeout=60)
    store_ready(kube, namespace, "drift")


def kill_leader(kube: Kube) -> bool:
    """Whether there was one: a replica that was killed before waits some seconds for its restart."""
    leading = [p for p in operator.pods(kube) if p["metadata"]["name"] == operator.leader(kube)]
    return bool(leading) and processes.kill(leading[0], "operator")


def test_an_operator_killed_while_it_creates_leaves_no_duplicates(
    kube: Kube, namespace: str, images: dict[str, str]
) -> None:
    for index in range(4):
        kube.create(store_only(images, f"pool{index}", namespace))
        if index % 2:
            kube.wait("a leader that runs and was killed", lambda: kill_leader(kube), timeout=90)
    for index in range(4):
        kube.wait_condition(namespace, f"pool{index}", "StoreReady", "True", timeout=240)
        kinds = [c.split("/")[0] for c in children(kube, namespace, f"pool{index}")]
        assert kinds.count("Deployment") == 3, kinds
        assert kinds.count("Service") == 2, kinds


def test_pools_with_alike_names_do_not_touch_each_other(kube: Kube, namespace: str, images: dict[str, str]) -> None:
    other = f"{namespace}-b"
    kube.namespace(other)
    pools = [(namespace, "team.a"), (namespace, "team-a"), (other, "team.a"), (namespace, "x" * 120)]
    try:
        for where, name in pools:
            kube.create(store_only(images, name, where))
        for where, name in pools:
            kube.wait_condition(where, name, "StoreReady", "True", timeout=240)
        owners: dict[tuple[str, str], str] = {}
        for where in (namespace, other):
            for child in kube.items("deployments,services", "-n", where):
                (owner,) = child["metadata"]["ownerReferences"]
                owners[where, f"{child['kind']}/{child['metadata']['name']}"] = owner["name"]
        assert len(owners) == len(pools) * 5
        kube.run("delete", "kvpool", "team.a", "-n", namespace)
        kube.wait_condition(namespace, "team-a", "StoreReady", "True", timeout=30)
        kube.wait_condition(other, "team.a", "StoreReady", "True", timeout=30)
    finally:
        kube.run("delete", "namespace", other, "--wait=false")


def test_services_with_unlucky_names_do_no_harm(kube: Kube, namespace: str, images: dict[str, str]) -> None:
    """A Service `vllm` sets VLLM_PORT=tcp://… in every pod of its namespace, unless links are off (vllm#34199)."""
    for service in ("vllm", "vllm-router", "mooncake-master"):
        kube.create(
            {
                "apiVersion": "v1",
                "kind": "Service",
                "metadata": {"name": service, "namespace": namespace},
                "spec": {"ports": [{"port": 8000}], "selector": {"app": service}},
            }
        )
    kube.create(store_only(images, "vllm", namespace))
    store_ready(kube, namespace, "vllm")
    for pod in kube.items("pods", "-n", namespace):
        assert pod["spec"]["enableServiceLinks"] is False


def test_deleting_a_pool_needs_no_operator(
    installation: Installation, kube: Kube, namespace: str, images: dict[str, str]
) -> None:
    kube.create(store_only(images, "orphan", namespace))
    store_ready(kube, namespace, "orphan")
    installation.operator(0)
    try:
        kube.run("delete", "kvpool", "orphan", "-n", namespace, "--timeout=30s")
        kube.wait("no child is left", lambda: children(kube, namespace, "orphan") == [], timeout=60)
    finally:
        installation.operator(2)


def test_the_scale_subresource_sets_engines(kube: Kube, shared_pool: Running) -> None:
    """Checked without moving an engine: the selector finds the engines, and the count is the spec's."""
    path = f"/apis/kvcachepool.io/v1alpha1/namespaces/{shared_pool.namespace}/kvcachepools/{shared_pool.name}/scale"
    scale: Json = json.loads(kube.run("get", "--raw", path))
    assert scale["spec"]["replicas"] == 2
    assert scale["status"]["replicas"] == 2
    found = kube.items("pods", "-n", shared_pool.namespace, "-l", scale["status"]["selector"])
    assert len(found) == 2


def test_a_pool_with_the_name_of_somebody_elses_objects_leaves_them_alone(
    kube: Kube, namespace: str, images: dict[str, str]
) -> None:
    kube.create(
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": "taken-master", "namespace": namespace},
            "spec": {"ports": [{"port": 1234}], "selector": {"app": "theirs"}},
        }
    )
    kube.create(store_only(images, "taken", namespace))
    said = kube.wait(
        "the status names the object",
        lambda: [
            c for c in kube.pool(namespace, "taken").get("status", {}).get("conditions", ())
            if "taken-master" in c.get("message", "") and c["status"] == "False"
        ],
        timeout=60,
    )  # fmt: skip
    assert "not controlled by this pool" in said[0]["message"]
    theirs = kube.get("service", "taken-master", "-n", namespace)
    assert theirs["spec"]["selector"] == {"app": "theirs"}
