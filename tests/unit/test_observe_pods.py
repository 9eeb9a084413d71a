"""Raw pods and Deployments as facts."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from kvcachepool.observe.pods import owned_by, pod_facts, workload_facts


def raw_pod(**status: Any) -> dict[str, Any]:
    return {
        "metadata": {
            "name": "demo-engine-abc-x1",
            "namespace": "team-a",
            "uid": "p1",
            "labels": {
                "kvcachepool.io/pool": "demo",
                "kvcachepool.io/component": "engine",
                "kvcachepool.io/schema": "0123456789ab",
                "pod-template-hash": "7d9f",
            },
            "ownerReferences": [{"kind": "ReplicaSet", "name": "demo-engine-abc-7d9f", "uid": "r", "controller": True}],
        },
        "spec": {
            "nodeName": "n1",
            "initContainers": [{"name": "wait", "image": "op"}, {"name": "proxy", "restartPolicy": "Always"}],
            "containers": [
                {
                    "name": "engine",
                    "image": "vllm:1",
                    "command": ["python"],
                    "args": ["-m", "vllm"],
                    "env": [
                        {"name": "PYTHONHASHSEED", "value": "0"},
                        {"name": "EMPTY"},
                        {"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
                    ],
                },
                {"name": "sidecar"},
            ],
        },
        "status": {
            "phase": "Running",
            "podIP": "10.0.0.5",
            "conditions": [{"type": "Ready", "status": "True"}],
            **status,
        },
    }


def test_a_running_pod():
    raw = raw_pod(
        containerStatuses=[
            {"name": "sidecar", "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}}},
            {
                "name": "engine",
                "ready": True,
                "restartCount": 2,
                "state": {"running": {"startedAt": "2026-01-02T00:00:00Z"}},
                "lastState": {"terminated": {"exitCode": 137, "reason": "OOMKilled"}},
            },
        ],
        initContainerStatuses=[
            {"name": "wait", "state": {"terminated": {"exitCode": 0, "reason": "Completed"}}},
            {"name": "proxy", "ready": True, "state": {"running": {}}},
        ],
    )
    pod = pod_facts(raw, ["demo-engine-abc"])
    assert (pod.name, pod.uid, pod.component, pod.digest) == ("demo-engine-abc-x1", "p1", "engine", "0123456789ab")
    assert (pod.ip, pod.node, pod.phase, pod.ready, pod.deleting, pod.owned) == (
        "10.0.0.5",
        "n1",
        "Running",
        True,
        False,
        True,
    )
    assert pod.started == "2026-01-02T00:00:00Z"
    assert [(c.name, c.init, c.running) for c in pod.containers] == [
        ("wait", True, False), ("proxy", True, True), ("engine", False, True), ("sidecar", False, True)
    ]  # fmt: skip
    main = pod.main
    assert main is not None
    assert main.name == "engine"
    assert dict(main.env) == {"PYTHONHASHSEED": "0", "EMPTY": ""}
    assert main.env_refs == ("POD_IP",)
    assert (main.command, main.args, main.restarts) == (("python",), ("-m", "vllm"), 2)
    assert (main.exit_code, main.exit_reason) == (137, "OOMKilled")


def test_a_waiting_container_keeps_its_last_end():
    raw = raw_pod(
        containerStatuses=[
            {
                "name": "engine",
                "restartCount": 5,
                "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 5m0s"}},
                "lastState": {"terminated": {"exitCode": 0, "reason": "Completed", "message": "bye"}},
            }
        ]
    )
    main = pod_facts(raw).main
    assert main is not None
    assert (main.waiting_reason, main.exit_code, main.exit_message, main.running) == (
        "CrashLoopBackOff",
        0,
        "bye",
        False,
    )


def test_a_pod_that_cannot_be_placed_tells_the_schedulers_sentence():
    sentence = "0/3 nodes are available: 3 Insufficient nvidia.com/gpu."
    conditions = [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": sentence}]
    pod = pod_facts(raw_pod(phase="Pending", conditions=conditions))
    assert pod.unschedulable == sentence
    assert not pod.ready
    gated = [{"type": "PodScheduled", "status": "False", "reason": "SchedulingGated", "message": "gated"}]
    assert pod_facts(raw_pod(conditions=gated)).unschedulable == ""


def test_a_users_pod_is_not_ours_whatever_its_labels():
    assert not pod_facts(raw_pod(), []).owned
    raw = raw_pod()
    raw["metadata"]["ownerReferences"][0]["name"] = "users-7d9f"
    assert not pod_facts(raw, ["demo-engine-abc"]).owned
    del raw["metadata"]["ownerReferences"]
    assert not pod_facts(raw, ["demo-engine-abc"]).owned


def test_a_deployment():
    raw = {
        "metadata": {"name": "d", "generation": 3, "labels": {"kvcachepool.io/component": "store"}},
        "spec": {"replicas": 2},
        "status": {
            "observedGeneration": 3,
            "updatedReplicas": 2,
            "readyReplicas": 1,
            "conditions": [
                {"type": "ReplicaFailure", "status": "True", "message": 'forbidden: violates PodSecurity "restricted"'}
            ],
        },
    }
    facts = workload_facts(raw)
    assert (facts.component, facts.replicas, facts.updated, facts.ready) == ("store", 2, 2, 1)
    assert facts.create_failure.startswith("forbidden")
    assert not facts.settled


def test_a_new_deployment_has_no_status_yet():
    facts = workload_facts({"metadata": {"name": "d", "generation": 1}, "spec": {}})
    assert (facts.replicas, facts.updated, facts.observed_generation) == (1, 0, 0)
    assert not facts.settled


def test_owner():
    raw = {"metadata": {"ownerReferences": [{"uid": "u", "controller": True}, {"uid": "v"}, 3]}}
    assert owned_by(raw, "u")
    assert not owned_by(raw, "v")
    assert not owned_by({}, "u")


NAMES = """metadata spec status name labels containers initContainers containerStatuses state running terminated waiting
lastState exitCode restartCount env value valueFrom conditions type ownerReferences uid controller replicas generation
command podIP"""
KEYS = st.sampled_from(NAMES.split())
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=6),
    max_leaves=20,
)


@settings(deadline=None, max_examples=60)
@given(st.dictionaries(KEYS, JSON, max_size=6))
def test_malformed_objects_are_facts_too(raw):
    pod = pod_facts(raw, ["d"])
    assert isinstance(pod.name, str)
    assert all(isinstance(container.env, dict) for container in pod.containers)
    assert isinstance(workload_facts(raw).replicas, int)
    assert owned_by(raw, "u") in (True, False)
