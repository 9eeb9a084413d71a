"""Accepted, EnginesReady, Available and the faults of pods."""

from dataclasses import replace

import pytest

from kvcachepool.constants import ENGINE, MASTER, STORE
from kvcachepool.facts import ContainerFacts, Observed, PodFacts
from kvcachepool.observe.pods import pod_facts
from kvcachepool.status.faults import find_fault
from tests.pools import NATIVE, pool
from tests.status_scenes import Case, both, container, gone, healthy, main_with, pods, seen, workload

LOG = "\n".join(
    [
        "(APIServer pid=1) INFO 03-01 11:59:01 [api_server.py:1] starting",
        *(f"(EngineCore_DP0 pid=77) INFO 03-01 11:59:02 [core.py:{n}] loading shard {n} of 40" for n in range(40)),
        "(EngineCore_DP0 pid=77) ERROR 03-01 11:59:30 [core.py:700] Traceback (most recent call last):",
        '(EngineCore_DP0 pid=77) ERROR 03-01 11:59:30 [core.py:700]   File "core.py", line 1, in x',
        "(EngineCore_DP0 pid=77) ERROR 03-01 11:59:30 [core.py:700] ValueError: To serve at least one request, 8.2 GiB "
        "KV cache is needed, which is larger than the available KV cache memory (3.1 GiB)",
        "(APIServer pid=1) Traceback (most recent call last):",
        "(APIServer pid=1) RuntimeError: Engine core initialization failed. See root cause above.",
        *("[rank0]: W0301 11:59:31.000 resource_tracker: leaked semaphore objects to clean up" for _ in range(20)),
    ]
)
QUOTA = (
    'pods "demo-engine-5d8fc-x2k9j" is forbidden: exceeded quota: gpus, requested: requests.nvidia.com/gpu=1, used: 4'
)
DEPLOYMENT = next(name for name in healthy(pool()).workloads if "-engine-" in name)
FIELD = "spec.engines.startupSeconds"
MISSING_ALL = both(gone(MASTER, STORE, ENGINE), seen(missing=(("x", "Secret", "s"),)))


def crash(**changes: object) -> dict[str, object]:
    """A container that fails again and again."""
    return {"exit_code": 1, "exit_reason": "Error", "restarts": 5, "waiting_reason": "CrashLoopBackOff"} | changes


CASES = [
    Case("Accepted", "Valid"),
    Case(
        "Accepted",
        "InvalidSpec",
        spec={"engines": {"extraArgs": ["--block-size=16"]}},
        says=("spec.engines.extraArgs: --block-size",),
    ),
    Case(
        "Accepted",
        "InvalidSpec",
        spec={"engines": {"env": [{"name": "PYTHONHASHSEED", "value": "7"}]}},
        says=("spec.engines.env[0]: PYTHONHASHSEED must be 0",),
        id="LMCache#1139",
    ),
    Case(
        "Accepted",
        "InvalidSpec",
        spec={"store": {"segmentSize": "10Gi", "resources": {"limits": {"memory": "10Gi"}}}},
        says=("spec.store.resources.limits.memory: found 10Gi", "segment 10Gi + transfer buffer 1Gi"),
        id="LMCache PR#941",
    ),
    Case(
        "Accepted",
        "SecretNotFound",
        seen(missing=(("model.source.hub.tokenSecretRef", "Secret", "hf-token (key token)"),)),
        ("spec.model.source.hub.tokenSecretRef: Secret hf-token (key token) does not exist in namespace team-a",),
    ),
    Case(
        "Accepted",
        "ClaimNotFound",
        seen(missing=(("model.source.pvc.claimName", "PersistentVolumeClaim", "weights"),)),
        ("spec.model.source.pvc.claimName: PersistentVolumeClaim weights",),
    ),
    Case(
        "Accepted",
        "ConfigMapNotFound",
        seen(missing=(("engines.env[0].valueFrom.configMapKeyRef", "ConfigMap", "c (key k)"),)),
        ("spec.engines.env[0].valueFrom.configMapKeyRef: ConfigMap c (key k)",),
    ),
    Case(
        "Accepted",
        "SecretNotFound",
        seen(missing=tuple(("imagePullSecrets[0].name", "Secret", f"s{n}") for n in range(5))),
        ("Secret s0", "Secret s2", "; and 2 more"),
        id="many",
    ),
    Case("EnginesReady", "AllReady", says=("2 of 2 engines ready",)),
    Case("EnginesReady", "ScaledToZero", spec={"engines": {"replicas": 0}}, says=("spec.engines.replicas is 0",)),
    Case("EnginesReady", "NotAccepted", MISSING_ALL, ("Accepted",)),
    Case(
        "EnginesReady",
        "WaitingForMaster",
        both(gone(ENGINE), container(MASTER)),
        ("demo-master.team-a.svc:50051", "No device is held"),
        id="Mooncake#1198",
    ),
    Case(
        "EnginesReady",
        "WaitingForMaster",
        both(container(ENGINE, only=1), container(ENGINE, only=1, init=True, running=True)),
        ("demo-engine-1 wait",),
        id="in the pod",
    ),
    Case(
        "EnginesReady",
        "MasterUnreachable",
        container(
            ENGINE,
            init=True,
            exit_code=1,
            restarts=1,
            exit_message="MasterUnreachable: demo-master.team-a.svc:50051 did not accept a connection in 300 s: x",
        ),
        ("demo-engine-0, demo-engine-1", "demo-master.team-a.svc:50051 did not accept a connection in 300 s"),
        id="bounded wait",
    ),
    Case(
        "EnginesReady",
        "QuotaExceeded",
        both(gone(), workload(ENGINE, updated=0, ready=0, create_failure=QUOTA)),
        ("exceeded quota: gpus", 'pod "demo-engine-5d8fc-…"'),
    ),
    Case(
        "EnginesReady",
        "PodSecurityForbidden",
        workload(
            ENGINE,
            ready=0,
            create_failure='pods "e-1" is forbidden: violates PodSecurity "restricted:latest": capabilities',
        ),
        ("violates PodSecurity", "demo-engine"),
        id="bank-vaults#706",
    ),
    Case(
        "EnginesReady",
        "AdmissionDenied",
        seen(apply_errors=((f"Deployment/{DEPLOYMENT}", 422, "spec.template.spec.affinity: unknown field x"),)),
        ("spec.template.spec.affinity: unknown field x",),
    ),
    Case(
        "EnginesReady",
        "NameTaken",
        seen(
            apply_errors=(
                ("Service/demo-engines", 409, "Service demo-engines exists and is not controlled by this pool"),
            )
        ),
        ("Service demo-engines exists",),
    ),
    Case("EnginesReady", "ApplyFailed", seen(apply_errors=(("Service/demo-engines", 0, "timed out"),)), ("timed out",)),
    Case(
        "EnginesReady",
        "Unschedulable",
        both(
            container(ENGINE, only=1),
            pods(
                ENGINE,
                only=1,
                phase="Pending",
                unschedulable="0/3 nodes are available: 1 Insufficient nvidia.com/gpu, 2 node(s) had untolerated "
                "taint(s) {nvidia.com/gpu: present}. preemption: 0/3 nodes are available: 3 Preemption is not helpful.",
            ),
        ),
        ("demo-engine-1", "Insufficient nvidia.com/gpu", "{nvidia.com/gpu: present}", "spec.scheduling.tolerations"),
    ),
    Case(
        "EnginesReady",
        "ImageNotStartable",
        container(
            ENGINE,
            waiting_reason="ImagePullBackOff",
            waiting_message='Back-off pulling image "x": ErrImagePull: denied',
        ),
        (
            "container engine, image kvcachepool/vllm-mooncake",
            "cannot be pulled: denied",
            "demo-engine-0, demo-engine-1",
        ),
    ),
    Case(
        "EnginesReady",
        "ImageNotStartable",
        container(ENGINE, waiting_reason="CreateContainerConfigError", waiting_message='secret "hf-token" not found'),
        ("CreateContainerConfigError", 'secret "hf-token" not found'),
        id="config",
    ),
    Case(
        "EnginesReady",
        "StartupTimeout",
        both(container(ENGINE, only=0), main_with(ENGINE, lambda c: replace(c, running=True))),
        ("not ready 1800 s after its start", f"Raise {FIELD}", "demo-engine-0"),
        spec={"engines": {"startupSeconds": 1800}},
    ),
    Case(
        "EnginesReady",
        "StartupTimeout",
        container(
            ENGINE, exit_code=137, exit_reason="Error", restarts=3, ran_seconds=3605, waiting_reason="CrashLoopBackOff"
        ),
        (f"Raise {FIELD}",),
        id="killed by the startup probe",
    ),
    Case(
        "EnginesReady",
        "EngineCrashLoop",
        container(ENGINE, **crash(exit_message=LOG)),
        ("ValueError: To serve at least one request, 8.2 GiB KV cache is needed", "exit code 1", "at least 5 times"),
        id="vllm#44376",
    ),
    Case(
        "EnginesReady",
        "EngineCrashLoop",
        container(ENGINE, exit_code=0, exit_reason="Completed", restarts=5),
        ("exit code 0 (Completed)", "A server never ends by itself", "at least 5 times"),
        id="vllm#19329",
    ),
    Case(
        "EnginesReady",
        "EngineCrashLoop",
        container(ENGINE, only=0, **crash(exit_code=137, exit_reason="OOMKilled", restarts=1)),
        (
            "OOMKilled",
            "memory limit is 1000Gi",
            "8 × segment 80Gi",
            "8 × transfer buffer 4Gi",
            "Raise spec.engines.resources.limits.memory",
        ),
        spec={
            "store": {"mode": "Embedded", "segmentSize": "80Gi", "localBufferSize": "4Gi"},
            "schema": {"parallelism": {"tensor": 8}},
            "engines": {"replicas": 1, "resources": {"limits": {"memory": "1000Gi"}}},
        },
        id="sglang PR#10377",
    ),
    Case(
        "EnginesReady",
        "EngineCrashLoop",
        container(ENGINE, only=0, **crash()),
        ("kubectl logs --previous demo-engine-0 -c engine",),
        id="no log",
    ),
    Case(
        "EnginesReady",
        "RollingOut",
        both(workload(ENGINE, updated=1, ready=1), container(ENGINE, only=1)),
        ("1 of 2 engines run the current template; 1 ready in all",),
    ),
    Case("EnginesReady", "Progressing", container(ENGINE, only=1), ("1 of 2 engines ready", "3600 s", "demo-engine-1")),
    Case("EnginesReady", "Progressing", gone(ENGINE), ("0 of 2 engines ready.",), id="nothing yet"),
    Case("Available", "Serving", container(ENGINE, only=1), ("1 engine ready",)),
    Case("Available", "NoEngineServes", container(ENGINE), ("0 of 2 engines",)),
    Case("Available", "NotAccepted", MISSING_ALL),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_condition(case: Case) -> None:
    case.check()


def test_a_refused_spec_does_not_hide_what_runs() -> None:
    former = healthy(Case("EnginesReady", "AllReady").pool())
    case = Case("EnginesReady", "AllReady", lambda _: former, spec={"engines": {"extraArgs": ["--block-size=16"]}})
    status = case.status()
    assert {c.type: c.reason for c in status.conditions if c.status != "True"} == {
        "Accepted": "InvalidSpec",
        "HardwareMatched": "NotAccepted",
        "Ready": "InvalidSpec",
    }


def test_a_refused_scale_is_not_what_engines_are_measured_by() -> None:
    former = healthy(Case("EnginesReady", "AllReady").pool())
    spec = {"engines": {"replicas": 9, "extraArgs": ["--block-size=16"]}}
    Case("EnginesReady", "AllReady", lambda _: former, ("2 of 2",), spec=spec).check()


@pytest.mark.parametrize(
    ("spec", "reason", "says"),
    [
        ({"engines": {"replicas": 3}}, "Progressing", "2 of 3 engines ready"),
        ({"engines": {"replicas": 1}}, "Progressing", "1 of 1 engine ready. The controller has not seen"),
        ({"schema": {"blockSize": 32}}, "RollingOut", "0 of 2 engines run schema"),
        ({"engines": {"env": [{"name": "A", "value": "1"}]}}, "RollingOut", "0 of 2 engines run the current template"),
        ({"engines": {"replicas": 0}}, "Progressing", "0 of 0 engines ready. The controller has not seen"),
    ],
)
def test_the_first_pass_after_an_edit_calls_nothing_ready(spec: dict[str, object], reason: str, says: str) -> None:
    former = healthy(Case("EnginesReady", "AllReady").pool())
    Case("EnginesReady", reason, lambda _: former, (says,), spec=spec).check()


def test_an_edit_that_the_controller_has_not_seen_is_progress() -> None:
    see = workload(ENGINE, generation=2, observed_generation=1)
    Case("EnginesReady", "Progressing", see, ("2 of 2 engines ready. The controller has not seen",)).check()


def test_evicted_pods_do_not_count() -> None:
    def see(observed: Observed) -> Observed:
        dead = PodFacts("demo-engine-9", "u9", ENGINE, "", phase="Failed", unschedulable="evicted")
        return replace(observed, pods=(*observed.pods, dead))

    case = Case("EnginesReady", "AllReady", see)
    case.check()
    assert case.status().replicas == 2


def test_a_ready_engine_that_crashed_before_is_no_fault() -> None:
    healed = main_with(ENGINE, lambda c: replace(c, restarts=9, exit_code=137, exit_reason="OOMKilled"))
    Case("EnginesReady", "AllReady", healed).check()


def test_the_kubelets_two_words_for_a_failed_pull_read_the_same() -> None:
    told = "failed to pull and unpack image: not found"
    messages = {
        Case("EnginesReady", "ImageNotStartable", container(ENGINE, waiting_reason=reason, waiting_message=text))
        .found()
        .message
        for reason, text in (
            ("ErrImagePull", f"rpc error: code = NotFound desc = {told}"),
            ("ImagePullBackOff", f'Back-off pulling image "x": ErrImagePull: rpc error: code = NotFound desc = {told}'),
        )
    }
    assert len(messages) == 1


def test_secrets_in_a_log_do_not_reach_the_status() -> None:
    line = "OSError: 401 for https://user:hunter2secret@hub/x with token=hf_abcdefghijklmnop"
    message = Case("EnginesReady", "EngineCrashLoop", container(ENGINE, **crash(exit_message=line))).found().message
    assert "OSError: 401" in message
    assert "hunter2secret" not in message
    assert "hf_abcdefghijklmnop" not in message


def test_the_fetched_log_line_wins_over_the_termination_message() -> None:
    see = both(container(ENGINE, **crash(exit_message="tail of it")), pods(ENGINE, log_line="ValueError: cause"))
    found = Case("EnginesReady", "EngineCrashLoop", see).found()
    assert "First error: ValueError: cause." in found.message
    assert "tail of it" not in found.message


def test_one_restart_is_not_a_loop_but_progress() -> None:
    Case("EnginesReady", "Progressing", container(ENGINE, exit_code=1, restarts=1, running=True)).check()


@pytest.mark.parametrize("ran", [10, 3599, 3800])
def test_an_engine_that_ended_at_another_age_did_not_time_out(ran: int) -> None:
    Case("EnginesReady", "EngineCrashLoop", container(ENGINE, **crash(exit_code=137, ran_seconds=ran))).check()


def test_a_finished_init_container_is_no_fault() -> None:
    init = ContainerFacts("wait", init=True, exit_code=0, exit_reason="Completed", restarts=3)
    assert find_fault([PodFacts("a", "u", ENGINE, "", containers=(init,))]) is None


def test_engine_figures() -> None:
    status = Case(
        "EnginesReady", "Progressing", both(container(ENGINE, only=1), pods(ENGINE, only=0, digest="x"))
    ).status()
    engines = status.engines
    assert (engines.desired, engines.ready, engines.serving, engines.summary) == (2, 1, 0, "1/2")
    assert engines.selector == "kvcachepool.io/component=engine,kvcachepool.io/pool=demo"
    assert (status.replicas, status.backend) == (2, "mooncake")


def test_kept_templates_of_an_older_operator_show() -> None:
    def see(observed: Observed) -> Observed:
        key = next(k for k in observed.children if k[0] == "Deployment" and "-engine-" in k[1])
        live = {**observed.children[key]}
        annotations = {**live["metadata"]["annotations"], "kvcachepool.io/template-hash": "older"}
        live["metadata"] = {**live["metadata"], "annotations": annotations}
        return replace(observed, children={**observed.children, key: live})

    case = Case("EnginesReady", "AllReady", see)
    case.check()
    assert case.status().engines.template_outdated


def test_a_native_engine_killed_for_memory_shows_its_cache() -> None:
    see = container(ENGINE, **crash(exit_code=137, exit_reason="OOMKilled"))
    case = Case("EnginesReady", "EngineCrashLoop", see, ("CPU cache 8Gi", "no memory limit of its own"), base=NATIVE)
    case.check()


@pytest.mark.parametrize(
    ("start", "end", "seconds"),
    [
        ("2026-03-01T10:00:00Z", "2026-03-01T11:00:05Z", 3605),
        ("2026-03-01T10:00:00Z", "", None),
        ("2026-03-01T10:00:00", "2026-03-01T11:00:05Z", None),
        ("yesterday", "today", None),
    ],
)
def test_how_long_a_run_lasted(start: str, end: str, seconds: int | None) -> None:
    ended = {"exitCode": 137, "reason": "Error", "startedAt": start, "finishedAt": end}
    raw = {
        "spec": {"containers": [{"name": "engine"}]},
        "status": {"containerStatuses": [{"name": "engine", "restartCount": 1, "lastState": {"terminated": ended}}]},
    }
    main = pod_facts(raw).main
    assert main is not None
    assert main.ran_seconds == seconds
