"""A secret value that marks every place it comes to: after a pool's whole life it is nowhere but in its Secrets."""

import base64
import json
import subprocess
import sys
import urllib.request
import uuid
from pathlib import Path
from typing import Any

import yaml

from e2e.cluster.controlplane import ControlPlane
from e2e.cluster.kubectl import Kubectl
from tests.apiserver.conftest import eventually
from tests.apiserver.operators import Running, environment, running
from tests.apiserver.pools import pool

KINDS = (
    "kvcachepools,deployments,replicasets,services,configmaps,endpointslices,networkpolicies,events,leases,"
    "serviceaccounts,persistentvolumeclaims,controllerrevisions,roles,rolebindings"
)


class Watch:
    """Looks for the canary in everything but Secrets."""

    def __init__(self, kubectl: Kubectl, namespace: str, operator: Running) -> None:
        self.value = f"canary-{uuid.uuid4().hex}"
        self._kubectl, self._where, self._operator = kubectl, f"--namespace={namespace}", operator

    def look(self, stage: str) -> None:
        """A pod's status is what a container said, which is the test's own here; what the operator makes of it is in
        the pool's."""
        objects = self._kubectl.run("get", KINDS, self._where, "-o", "yaml", "--show-managed-fields")
        pods = self._kubectl.get("pods", self._where)["items"]
        told = json.dumps([{part: pod[part] for part in ("metadata", "spec")} for pod in pods])
        with urllib.request.urlopen(f"http://127.0.0.1:{self._operator.http_port}/metrics", timeout=10) as answer:
            metrics = answer.read().decode()
        for place, text in (
            ("objects", objects), ("pods", told), ("metrics", metrics), ("log", self._operator.log.read_text()),
        ):  # fmt: skip
            assert not self.within(text), f"{stage}: in {place}"

    def within(self, text: str) -> bool:
        return self.value in text or base64.b64encode(self.value.encode()).decode().rstrip("=") in text


def secret(name: str, value: dict[str, str], **more: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "stringData": value} | more


def own_member(name: str) -> dict[str, Any]:
    """A user's engine that takes its environment from Secrets."""
    container = {
        "name": "engine",
        "image": "vllm/vllm-openai:v0.33.0",
        "args": ["--model=org/model"],
        "envFrom": [{"secretRef": {"name": "variables"}}],
        "env": [{"name": "HF_TOKEN", "valueFrom": {"secretKeyRef": {"name": "hub", "key": "token"}}}],
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"kvcachepool.io/pool": "mine"}},
        "spec": {"containers": [container], "imagePullSecrets": [{"name": "registry"}]},
    }


def condition(kubectl: Kubectl, namespace: str, kind: str) -> dict[str, Any]:
    status = kubectl.get("kvpool", "mine", f"--namespace={namespace}").get("status", {})
    return next((item for item in status.get("conditions", ()) if item["type"] == kind), {})


def crashed(message: str) -> dict[str, Any]:
    ended = {"exitCode": 1, "reason": "Error", "message": message, "containerID": "c://1"}
    state = {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off"}}
    return {"state": state, "lastState": {"terminated": ended}, "restartCount": 3, "ready": False, "image": "x",
            "imageID": "x"}  # fmt: skip


def set_status(kubectl: Kubectl, namespace: str, pod: str, status: dict[str, Any]) -> None:
    patch = json.dumps({"status": status})
    kubectl.run("patch", "pod", pod, f"--namespace={namespace}", "--subresource=status", "--type=merge", "-p", patch)


def pod_of(kubectl: Kubectl, namespace: str, component: str) -> str:
    label = f"kvcachepool.io/pool=mine,kvcachepool.io/component={component}"
    found = kubectl.get("pods", f"--namespace={namespace}", f"--selector={label}")["items"]
    return str(found[0]["metadata"]["name"]) if found else ""


def test_a_secrets_value_is_nowhere_but_in_its_secret(
    plane: ControlPlane, kubectl: Kubectl, namespace: str, tmp_path: Path
) -> None:
    where = f"--namespace={namespace}"

    def apply(*objects: dict[str, Any]) -> None:
        kubectl.run("apply", "--server-side", where, "-f", "-", data=yaml.safe_dump_all(objects))

    with running(
        plane, tmp_path, namespace,
        KVCP_LOG_LEVEL="debug", KVCP_LOG_FORMAT="json", KVCP_NETWORK_POLICIES="true",
    ) as operator:  # fmt: skip
        watch = Watch(kubectl, namespace, operator)
        docker = json.dumps({"auths": {"registry.example.com": {"auth": watch.value, "password": watch.value}}})
        key = {"name": "VLLM_API_KEY", "valueFrom": {"secretKeyRef": {"name": "variables", "key": "KEY"}}}
        engines = {"whenNoNodeFits": "Create", "env": [key]}  # there is no node
        source = {"hub": {"tokenSecretRef": {"name": "hub"}}}
        manifest = pool(
            "mine", namespace, engines=engines, imagePullSecrets=[{"name": "registry"}],
            model={"id": "org/model", "revision": "r1", "source": source},
        )  # fmt: skip

        # the first Secret lacks its key, and a Service is in the way
        apply(secret("hub", {"other": watch.value}), secret("variables", {"KEY": watch.value}))
        apply(secret("registry", {".dockerconfigjson": docker}, type="kubernetes.io/dockerconfigjson"))
        kubectl.run("create", "service", "clusterip", "mine-master", "--tcp=1", where)
        apply(manifest)
        eventually(lambda: condition(kubectl, namespace, "Accepted").get("reason") == "SecretNotFound")
        eventually(lambda: "mine-master exists and is not controlled" in operator.log.read_text())
        watch.look("broken")

        kubectl.run("delete", "service", "mine-master", where)
        apply(secret("hub", {"other": watch.value, "token": watch.value}), own_member("own"))
        eventually(lambda: condition(kubectl, namespace, "Accepted").get("reason") == "Valid")
        eventually(lambda: pod_of(kubectl, namespace, "master") != "")
        ready = [{"type": "Ready", "status": "True"}]
        set_status(kubectl, namespace, pod_of(kubectl, namespace, "master"), {"conditions": ready, "phase": "Running"})
        eventually(lambda: pod_of(kubectl, namespace, "engine") != "")
        set_status(kubectl, namespace, "own", {"phase": "Running", "podIP": "127.0.0.1", "conditions": ready})
        watch.look("running")

        engine = pod_of(kubectl, namespace, "engine")
        spoke = crashed(f"RuntimeError: 401 for HF_TOKEN={watch.value} (Authorization: Bearer {watch.value})")
        set_status(kubectl, namespace, engine, {"phase": "Running", "containerStatuses": [{"name": "engine", **spoke}]})
        eventually(lambda: "401 for HF_TOKEN=***" in condition(kubectl, namespace, "EnginesReady").get("message", ""))
        watch.look("crashed")

        _commands(plane, watch, namespace, manifest, tmp_path)

        kubectl.run("delete", "kvpool", "mine", where, "--timeout=30s")
        eventually(lambda: kubectl.get("deployments,services", where)["items"] == [])
        watch.look("deleted")
        assert "debug" in operator.log.read_text(), "the log is as talkative as it can be"


def _commands(plane: ControlPlane, watch: Watch, namespace: str, manifest: dict[str, Any], folder: Path) -> None:
    """What the command line prints of this pool, and of one with the value where it must not be."""
    good, bad = folder / "good.yaml", folder / "bad.yaml"
    good.write_text(yaml.safe_dump(manifest))
    engines = {"env": [{"name": "HF_TOKEN", "value": watch.value}], "extraArgs": [f"--api-key={watch.value}"]}
    bad.write_text(yaml.safe_dump(pool("bad", namespace, engines=engines)))
    for code, *arguments in (
        (0, "plan", str(good)),
        (1, "plan", str(bad)),
        (0, "inventory"),
        (0, "inventory", "--output=json"),
        (None, "negative", "pool", "mine", "--namespace", namespace),
        (None, "negative", "pool", "mine", "--namespace", namespace, "--job", "--image", "x"),
    ):
        done = subprocess.run(
            [sys.executable, "-m", "kvcachepool.cli", *map(str, arguments)], env=environment(plane), check=False,
            capture_output=True, text=True, timeout=300,
        )  # fmt: skip
        assert code is None or done.returncode == code, f"{arguments}: {done.stdout}{done.stderr}"
        assert done.stdout + done.stderr, arguments
        assert not watch.within(done.stdout + done.stderr), arguments
