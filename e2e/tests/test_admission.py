"""Joining a pool: what the API server refuses, what the webhook completes, and that the cache is shared then."""

import json
from collections.abc import Callable, Iterator
from copy import deepcopy
from typing import Any

import pytest

from e2e.cluster.errors import ClusterError
from e2e.harness import operator
from e2e.harness.api import Api
from e2e.harness.install import Installation
from e2e.harness.kube import Json, Kube
from e2e.harness.latency import admission_latency
from e2e.harness.pools import CACHE_ARG, ENGINE_ARGS, ENGINE_ENV, engine_deployments
from e2e.tests.conftest import Running
from kvcachepool import constants


def refused(kube: Kube, manifest: Json) -> str:
    """What the API server says; it must refuse."""
    with pytest.raises(ClusterError) as error:
        kube.run("create", "-f", "-", data=json.dumps(manifest))
    return str(error.value)


def engine_copy(kube: Kube, pool: Running, name: str) -> Json:
    """A pod as one of the pool's engines, label and all, that nobody owns."""
    (deployment,) = engine_deployments(kube, pool.namespace, pool.name)
    template = deployment["spec"]["template"]
    metadata = {**deepcopy(template["metadata"]), "name": name, "namespace": pool.namespace}
    metadata["labels"].pop(constants.LABEL_COMPONENT)  # no Service shall route to it
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": deepcopy(template["spec"])}


def own_deployment(images: dict[str, str], pool: Running, name: str, **labels: str) -> Json:
    """A user's own engine: image, model and two labels."""
    joining = {"app": name, constants.LABEL_POOL: pool.name, constants.LABEL_INJECT: "true", **labels}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": pool.namespace},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": joining},
                "spec": {
                    "enableServiceLinks": False,
                    "automountServiceAccountToken": False,
                    "securityContext": {
                        "runAsNonRoot": True,
                        "runAsUser": 65532,
                        "seccompProfile": {"type": "RuntimeDefault"},
                    },
                    "volumes": [{"name": "tmp", "emptyDir": {}}],
                    "containers": [
                        {
                            "name": "mine",
                            "image": images["engine-cpu"],
                            "imagePullPolicy": "Never",
                            "command": ["python3", "-m", "vllm.entrypoints.openai.api_server"],
                            "args": [
                                "--model=/models/tiny",
                                "--served-model-name=tiny",
                                "--port=8000",
                                *ENGINE_ARGS,
                                CACHE_ARG,
                            ],
                            "env": [{"name": k, "value": v} for k, v in (ENGINE_ENV | {"HOME": "/tmp"}).items()]
                            + [{"name": "HF_HUB_OFFLINE", "value": "1"}],
                            "readinessProbe": {"httpGet": {"path": "/health", "port": 8000}, "periodSeconds": 5},
                            "securityContext": {
                                "allowPrivilegeEscalation": False,
                                "capabilities": {"drop": ["ALL"]},
                            },
                            "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}],
                        }
                    ],
                },
            },
        },
    }


@pytest.fixture
def guest(kube: Kube, images: dict[str, str], shared_pool: Running) -> Iterator[str]:
    """A user's own Deployment that has joined the pool and serves; gone afterwards."""
    name = "guest"
    kube.create(own_deployment(images, shared_pool, name))
    try:
        kube.run("rollout", "status", f"deployment/{name}", "-n", shared_pool.namespace, "--timeout=600s")
        yield name
    finally:
        kube.run("delete", "deployment", name, "-n", shared_pool.namespace, "--ignore-not-found")
        gone = lambda: not kube.items("pods", "-n", shared_pool.namespace, "-l", f"app={name}")  # noqa: E731
        kube.wait("the guest is gone", gone, timeout=120)


def test_a_hand_copied_label_does_not_help_a_pod_whose_arguments_say_otherwise(
    kube: Kube, shared_pool: Running
) -> None:
    pod = engine_copy(kube, shared_pool, "copied")
    pod["spec"]["containers"][0]["args"].append("--block-size=16")
    said = refused(kube, pod)
    assert "container engine: blockSize (--block-size) is 16, the pool has 64" in said


def test_the_policy_refuses_while_no_operator_runs(
    installation: Installation, kube: Kube, shared_pool: Running
) -> None:
    pod = engine_copy(kube, shared_pool, "unseen")
    pod["spec"]["containers"][0]["env"] = [
        v for v in pod["spec"]["containers"][0]["env"] if v["name"] != "PYTHONHASHSEED"
    ]
    installation.operator(0)
    try:
        assert "hashSeed (PYTHONHASHSEED) is unset, the pool has 0" in refused(kube, pod)
        asking = own_deployment({"engine-cpu": "x"}, shared_pool, "asks")["spec"]["template"]
        asking = {"apiVersion": "v1", "kind": "Pod", **asking}
        asking["metadata"] |= {"name": "asks", "namespace": shared_pool.namespace}
        assert "failed calling webhook" in refused(kube, asking)
        for label in (constants.LABEL_POOL, constants.LABEL_INJECT):
            asking["metadata"]["labels"].pop(label)
        kube.run("create", "--dry-run=server", "-f", "-", data=json.dumps(asking))
    finally:
        installation.operator(2)


def test_label_edits_on_a_running_engine_are_refused(kube: Kube, shared_pool: Running) -> None:
    selector = f"{constants.LABEL_POOL}={shared_pool.name},{constants.LABEL_COMPONENT}=engine"
    pod = kube.items("pods", "-n", shared_pool.namespace, "-l", selector)[0]["metadata"]["name"]
    with pytest.raises(ClusterError, match=r"label kvcachepool\.io/schema is 0123456789ab"):
        kube.run(
            "label", "pod", pod, "-n", shared_pool.namespace, "--overwrite", f"{constants.LABEL_SCHEMA}=0123456789ab"
        )
    kube.run("label", "pod", pod, "-n", shared_pool.namespace, "team=a")
    kube.run("label", "pod", pod, "-n", shared_pool.namespace, "team-")


def test_a_deployment_of_the_users_own_joins_by_two_labels_and_leaves_when_they_go(
    kube: Kube, shared_pool: Running, guest: str
) -> None:
    (pod,) = kube.items("pods", "-n", shared_pool.namespace, "-l", f"app={guest}")
    digest = kube.pool(shared_pool.namespace, shared_pool.name)["status"]["schema"]["digest"]
    assert pod["metadata"]["labels"][constants.LABEL_SCHEMA] == digest
    assert json.loads(pod["metadata"]["annotations"][constants.ANNOTATION_INJECTED])["schema"] == digest
    condition = kube.wait_condition(shared_pool.namespace, shared_pool.name, "SchemaHomogeneous", "True", timeout=120)
    before = int(condition["message"].split()[0])
    kube.run("label", "pod", pod["metadata"]["name"], "-n", shared_pool.namespace, f"{constants.LABEL_POOL}-")

    def fewer() -> bool:
        message = kube.condition(shared_pool.namespace, shared_pool.name, "SchemaHomogeneous").get("message", "")
        return bool(message.split()[:1] == [str(before - 1)])

    # a label that is gone may be seen only by the next relist
    kube.wait("the pool counts one member less", fewer, timeout=400)
    found = kube.get("pod", pod["metadata"]["name"], "-n", shared_pool.namespace)
    assert found["metadata"]["uid"] == pod["metadata"]["uid"], "nothing of it was killed"


def test_a_guest_reuses_what_the_pools_engines_computed(kube: Kube, shared_pool: Running, guest: str) -> None:
    prompt = "guests share " + " ".join(f"word{index}" for index in range(1200))
    selector = f"{constants.LABEL_POOL}={shared_pool.name},{constants.LABEL_COMPONENT}=engine"
    engine = kube.items("pods", "-n", shared_pool.namespace, "-l", selector)[0]["metadata"]["name"]
    (own,) = kube.items("pods", "-n", shared_pool.namespace, "-l", f"app={guest}")
    ask: Callable[[str, str], Json] = lambda pod, container: completion(kube, shared_pool, pod, container, prompt)  # noqa: E731
    first = ask(engine, "engine")
    second = kube.wait(
        "the guest finds the prompt in the pool",
        lambda: (
            (answer := ask(own["metadata"]["name"], "mine"))["usage"]["prompt_tokens_details"]["cached_tokens"] > 0
            and answer
        ),
        timeout=60,
    )
    assert second["choices"][0]["text"] == first["choices"][0]["text"]


def completion(kube: Kube, pool: Running, pod: str, container: str, prompt: str) -> Json:
    """Asked from inside the pod, so that no Service chooses another."""
    script = (
        "import json,sys,urllib.request;"
        "r=urllib.request.Request('http://127.0.0.1:8000/v1/completions',sys.stdin.buffer.read(),"
        "{'Content-Type':'application/json'});"
        "print(urllib.request.urlopen(r,timeout=120).read().decode())"
    )
    body = {"model": "tiny", "prompt": prompt, "max_tokens": 8, "temperature": 0}
    text = kube.run(
        "exec", "-i", pod, "-c", container, "-n", pool.namespace, "--", "python3", "-c", script, data=json.dumps(body)
    )
    found: Json = json.loads(text)
    return found


def test_a_guest_that_contradicts_the_pool_is_never_made_and_says_why(
    kube: Kube, images: dict[str, str], shared_pool: Running
) -> None:
    manifest = own_deployment(images, shared_pool, "rude")
    manifest["spec"]["template"]["spec"]["containers"][0]["args"].append("--dtype=bfloat16")
    kube.create(manifest)
    try:

        def why() -> Any:
            status = kube.get("deployment", "rude", "-n", shared_pool.namespace).get("status", {})
            found = [c["message"] for c in status.get("conditions", ()) if c["type"] == "ReplicaFailure"]
            return found and "dtype (--dtype) is bfloat16, the pool has float32" in found[0]

        kube.wait("the Deployment tells the webhook's words", why, timeout=60)
    finally:
        kube.run("delete", "deployment", "rude", "-n", shared_pool.namespace)


def test_a_pod_that_names_a_pool_that_is_not_there_is_told_by_an_event(kube: Kube, shared_pool: Running) -> None:
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "lost",
            "namespace": shared_pool.namespace,
            "labels": {constants.LABEL_POOL: "nowhere"},
        },
        "spec": engine_copy(kube, shared_pool, "x")["spec"],
    }
    kube.create(pod)
    try:

        def told() -> bool:
            events = kube.items("events", "-n", shared_pool.namespace)
            return any(
                e["reason"] == "PoolNotFound" and e["involvedObject"]["name"] == "lost" and "nowhere" in e["message"]
                for e in events
            )

        kube.wait("an Event on the pod", told, timeout=60)
    finally:
        kube.run("delete", "pod", "lost", "-n", shared_pool.namespace, "--grace-period=1")


def test_each_replica_serves_the_webhook(kube: Kube, shared_pool: Running) -> None:
    """The leader goes; a pod that asks is still completed."""
    leader = operator.leader(kube)
    namespace = next(p["metadata"]["namespace"] for p in operator.pods(kube) if p["metadata"]["name"] == leader)
    kube.run("delete", "pod", leader, "-n", namespace, "--grace-period=0", "--force")
    template = own_deployment({"engine-cpu": "x"}, shared_pool, "late")["spec"]["template"]
    pod = {"apiVersion": "v1", "kind": "Pod", **template}
    pod["metadata"] |= {"name": "late", "namespace": shared_pool.namespace}
    kube.wait(
        "a pod is completed",
        lambda: (
            "kvcachepool.io/injected"
            in kube.run("create", "--dry-run=server", "-o", "yaml", "-f", "-", data=json.dumps(pod))
        ),
        timeout=30,
    )


def test_the_policy_costs_a_labelled_pod_little(kube: Kube, shared_pool: Running) -> None:
    figures = admission_latency(Api(kube.kubeconfig), engine_copy(kube, shared_pool, "measured"), count=50)
    print(f"admission: labelled {figures.labelled:.1f} ms, unlabelled {figures.unlabelled:.1f} ms")
    assert figures.count == 50
