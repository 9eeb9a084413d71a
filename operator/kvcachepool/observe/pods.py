"""Raw pods and Deployments as facts. Pure, and tolerant of any missing or malformed part: what the API server or a
kubelet leaves out reads as empty."""

from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Any, TypeGuard

from kvcachepool.constants import LABEL_COMPONENT, LABEL_SCHEMA
from kvcachepool.facts import ContainerFacts, EnvSource, Object, PodFacts, WorkloadFacts
from kvcachepool.schema.member import engine_containers


def pod_facts(raw: Object, deployments: Collection[str] = ()) -> PodFacts:
    """`deployments` are the names of the pool's own workloads: a pod is the operator's when its ReplicaSet is one of
    theirs (its name is the Deployment's and the template hash that is also a label of the pod), or when it is a pod of
    a LeaderWorkerSet, whose name is a label that only its controller sets."""
    metadata, spec, status = _dict(raw, "metadata"), _dict(raw, "spec"), _dict(raw, "status")
    labels = {str(k): v for k, v in _dict(metadata, "labels").items() if isinstance(v, str)}
    conditions = {_text(c, "type"): c for c in _dicts(status, "conditions")}
    scheduled = conditions.get("PodScheduled", {})
    waits = scheduled.get("status") == "False" and scheduled.get("reason") == "Unschedulable"
    containers = _containers(spec, status)
    owned = _owned(metadata, labels, deployments)
    engines = [] if owned else _engines(metadata, containers)
    return PodFacts(
        name=_text(metadata, "name"),
        uid=_text(metadata, "uid"),
        component=labels.get(LABEL_COMPONENT, "") if owned else "",
        digest=labels.get(LABEL_SCHEMA, ""),
        labels=labels,
        ip=_text(status, "podIP"),
        node=_text(spec, "nodeName"),
        phase=_text(status, "phase"),
        ready=conditions.get("Ready", {}).get("status") == "True",
        deleting=bool(metadata.get("deletionTimestamp")),
        owned=owned,
        unschedulable=_text(scheduled, "message") if waits else "",
        started=_main_started(spec, status, engines[0] if engines else ""),
        port=_http_port(spec, engines[0] if engines else ""),
        containers=containers,
        engine=engines[0] if engines else "",
        engine_unclear=not owned and len(engines) != 1,
    )


def workload_facts(raw: Object) -> WorkloadFacts:
    """A Deployment or LeaderWorkerSet. Counters the controller leaves out are zero; replicas left out are one, as in
    the API."""
    metadata, spec, status = _dict(raw, "metadata"), _dict(raw, "spec"), _dict(raw, "status")
    # a LeaderWorkerSet need not tell what its controller has seen
    unseen = _int(metadata, "generation") if raw.get("kind") == "LeaderWorkerSet" else 0
    failure = next(
        (c for c in _dicts(status, "conditions") if c.get("type") == "ReplicaFailure" and c.get("status") == "True"), {}
    )
    return WorkloadFacts(
        name=_text(metadata, "name"),
        component=_text(_dict(metadata, "labels"), LABEL_COMPONENT),
        replicas=_int(spec, "replicas", 1),
        updated=_int(status, "updatedReplicas"),
        ready=_int(status, "readyReplicas"),
        generation=_int(metadata, "generation"),
        observed_generation=_int(status, "observedGeneration", unseen),
        create_failure=_text(failure, "message"),
        digest=_text(_dict(metadata, "labels"), LABEL_SCHEMA),
        created=_text(metadata, "creationTimestamp"),
    )


def owned_by(raw: Object, uid: str) -> bool:
    """Whether the object's controller is the pool with that uid."""
    return any(
        ref.get("controller") is True and ref.get("uid") == uid
        for ref in _dicts(_dict(raw, "metadata"), "ownerReferences")
    )


def _engines(metadata: Mapping[str, Any], containers: Collection[ContainerFacts]) -> list[str]:
    """Names of the containers of a user's pod that could be its engine."""
    ordinary = [
        {"name": c.name, "image": c.image, "command": c.command, "args": c.args} for c in containers if not c.init
    ]
    annotations = {name: value for name, value in _dict(metadata, "annotations").items() if isinstance(value, str)}
    pod = {"metadata": {"annotations": annotations}, "spec": {"containers": ordinary}}
    return [container["name"] for container in engine_containers(pod)]


def _owned(metadata: Mapping[str, Any], labels: Mapping[str, str], deployments: Collection[str]) -> bool:
    template = labels.get("pod-template-hash", "")
    sets = {f"{deployment}-{template}" for deployment in deployments}
    grouped = labels.get("leaderworkerset.sigs.k8s.io/name", "") in deployments
    return any(
        ref.get("controller") is True
        and (
            (ref.get("kind") == "ReplicaSet" and str(ref.get("name")) in sets)
            or (ref.get("kind") == "StatefulSet" and grouped)
        )
        for ref in _dicts(metadata, "ownerReferences")
    )


def _containers(spec: Mapping[str, Any], status: Mapping[str, Any]) -> tuple[ContainerFacts, ...]:
    statuses = {
        True: {_text(s, "name"): s for s in _dicts(status, "initContainerStatuses")},
        False: {_text(s, "name"): s for s in _dicts(status, "containerStatuses")},
    }
    return tuple(
        _container(declared, statuses[init].get(_text(declared, "name"), {}), init)
        for init, key in ((True, "initContainers"), (False, "containers"))
        for declared in _dicts(spec, key)
    )


def _container(declared: Mapping[str, Any], status: Mapping[str, Any], init: bool) -> ContainerFacts:
    state, last = _dict(status, "state"), _dict(status, "lastState")
    waiting = _dict(state, "waiting")
    ended = _dict(state, "terminated") or _dict(last, "terminated")
    code = ended.get("exitCode")
    variables = [v for v in _dicts(declared, "env") if _text(v, "name")]
    return ContainerFacts(
        name=_text(declared, "name"),
        init=init,
        image=_text(declared, "image"),
        command=_texts(declared, "command"),
        args=_texts(declared, "args"),
        env={v["name"]: _text(v, "value") for v in variables if "valueFrom" not in v},
        env_refs=tuple(v["name"] for v in variables if "valueFrom" in v),
        env_sources=(
            *(_whole(source) for source in _dicts(declared, "envFrom")),
            *(_single(v["name"], _dict(v, "valueFrom")) for v in variables if "valueFrom" in v),
        ),
        ready=status.get("ready") is True,
        running="running" in state,
        started=status.get("started") is True,
        restarts=_int(status, "restartCount"),
        waiting_reason=_text(waiting, "reason"),
        waiting_message=_text(waiting, "message"),
        exit_code=code if _is_int(code) else None,
        exit_reason=_text(ended, "reason"),
        exit_message=_text(ended, "message"),
        ran_seconds=_seconds(_text(ended, "startedAt"), _text(ended, "finishedAt")),
    )


def _whole(source: Mapping[str, Any]) -> EnvSource:
    prefix = _text(source, "prefix")
    for kind, member in (("ConfigMap", "configMapRef"), ("Secret", "secretRef")):
        if member in source:
            return EnvSource(kind, _text(_dict(source, member), "name"), prefix=prefix)
    return EnvSource("", prefix=prefix)


def _single(variable: str, source: Mapping[str, Any]) -> EnvSource:
    for kind, member in (("ConfigMap", "configMapKeyRef"), ("Secret", "secretKeyRef")):
        if member in source:
            reference = _dict(source, member)
            return EnvSource(kind, _text(reference, "name"), variable, _text(reference, "key"))
    return EnvSource("", variable=variable)


def _seconds(start: str, end: str) -> int | None:
    """Whole seconds between two RFC 3339 times; None where one is missing or malformed."""
    try:
        return int((datetime.fromisoformat(end) - datetime.fromisoformat(start)).total_seconds())
    except (ValueError, TypeError):
        return None


def _http_port(spec: Mapping[str, Any], engine: str) -> int:
    """The main container's port `http` where it is on the node's network, else 0."""
    if spec.get("hostNetwork") is not True:
        return 0
    containers = _dicts(spec, "containers")
    main: Mapping[str, Any] = next((c for c in containers if _text(c, "name") == _main_name(spec, engine)), {})
    ports = (_int(port, "containerPort") for port in _dicts(main, "ports") if port.get("name") == "http")
    return next((port for port in ports if port), 0)


def _main_started(spec: Mapping[str, Any], status: Mapping[str, Any], engine: str) -> str:
    for entry in _dicts(status, "containerStatuses"):
        if _text(entry, "name") == _main_name(spec, engine):
            return _text(_dict(_dict(entry, "state"), "running"), "startedAt")
    return ""


def _main_name(spec: Mapping[str, Any], engine: str) -> str:
    """A user's engine container, or of a pod of ours the first one."""
    return engine or next((_text(declared, "name") for declared in _dicts(spec, "containers")), "")


def _dict(raw: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = raw.get(key)
    return value if isinstance(value, Mapping) else {}


def _dicts(raw: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
    value = raw.get(key)
    return [item for item in value if isinstance(item, Mapping)] if isinstance(value, list | tuple) else []


def _text(raw: Mapping[str, Any], key: str) -> str:
    value = raw.get(key)
    return value if isinstance(value, str) else ""


def _texts(raw: Mapping[str, Any], key: str) -> tuple[str, ...]:
    value = raw.get(key)
    return tuple(item for item in value if isinstance(item, str)) if isinstance(value, list | tuple) else ()


def _is_int(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)


def _int(raw: Mapping[str, Any], key: str, default: int = 0) -> int:
    value = raw.get(key)
    return value if _is_int(value) else default
