"""The CRD in a real API server: taken, defaults stored, subresources at work."""

import json
from typing import Any

import pytest
import yaml

from e2e.cluster.kubectl import Kubectl
from kvcachepool.api import PoolSpec
from kvcachepool.compat.pins import PINS
from tests.apiserver.conftest import CRD_FILE, eventually, refusal
from tests.apiserver.pools import full_status, pool

CRD_NAME = "kvcachepools.kvcachepool.io"


def test_it_is_accepted_without_a_complaint(kubectl: Kubectl) -> None:
    conditions = {item["type"]: item for item in kubectl.get("crd", CRD_NAME)["status"]["conditions"]}
    assert conditions["Established"]["status"] == "True"
    assert conditions["NamesAccepted"]["status"] == "True"
    assert "NonStructuralSchema" not in conditions


def test_client_side_and_server_side_apply_of_the_crd(kubectl: Kubectl) -> None:
    """Client side keeps all of it in an annotation, which has a limit (kserve#3487)."""
    kubectl.run("apply", "-f", str(CRD_FILE))
    assert "kubectl.kubernetes.io/last-applied-configuration" in kubectl.get("crd", CRD_NAME)["metadata"]["annotations"]
    kubectl.run("apply", "--server-side", "--force-conflicts", "-f", str(CRD_FILE))


def test_explain_describes_fields(kubectl: Kubectl) -> None:
    eventually(lambda: kubectl.succeeds("explain", "kvpool"))
    assert "PYTHONHASHSEED" in kubectl.run("explain", "kvpool.spec.schema.hashSeed")


def test_defaults_are_stored_and_outlive_an_upgrade_with_others(kubectl: Kubectl, namespace: str) -> None:
    manifest = yaml.safe_dump(pool("kept", namespace))
    kubectl.run("apply", "-f", "-", data=manifest)
    before = kubectl.get("kvpool", "kept", f"--namespace={namespace}")["spec"]
    assert before["engines"]["version"] == PINS.engine_version
    assert before["backend"]["mooncake"]["version"] == PINS.mooncake_version
    assert before["schema"]["parallelism"]["tensor"] == 1
    assert before["model"]["source"] == {"hub": {}}
    assert "store" not in before

    newer = yaml.safe_load(CRD_FILE.read_text())
    spec = newer["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
    spec["engines"]["properties"]["version"]["default"] = "99.0.0"
    spec["backend"]["properties"]["mooncake"]["properties"]["version"]["default"] = "99.0.0"
    spec["schema"]["properties"]["blockSize"]["default"] = 128
    probe = yaml.safe_dump(pool("new", namespace))

    def default_of_a_new_pool() -> str:
        made = json.loads(kubectl.run("create", "--dry-run=server", "-o", "json", "-f", "-", data=probe))
        return str(made["spec"]["engines"]["version"])

    try:
        kubectl.run("apply", "--server-side", "--force-conflicts", "-f", "-", data=yaml.safe_dump(newer))
        eventually(lambda: default_of_a_new_pool() == "99.0.0")
        assert kubectl.get("kvpool", "kept", f"--namespace={namespace}")["spec"] == before
        kubectl.run("apply", "-f", "-", data=manifest)
        after = kubectl.get("kvpool", "kept", f"--namespace={namespace}")
        assert after["spec"] == before
        assert after["metadata"]["generation"] == 1
    finally:
        kubectl.run("apply", "--server-side", "--force-conflicts", "-f", str(CRD_FILE))
        eventually(lambda: default_of_a_new_pool() == PINS.engine_version)


@pytest.mark.parametrize(
    "spec",
    [
        {},
        {"store": {}},
        {"store": {"mode": "Embedded", "segmentSize": 2147483648}},
        {
            "model": {"id": "org/model", "source": {"image": {"path": "/m"}}},
            "backend": {"native": {"cpuBytes": "1e10"}},
        },
        {"schema": {"parallelism": {"tensor": 8, "decodeContext": 4}}, "engines": {"gpu": {"resourceName": ""}}},
        {"scheduling": {"affinity": {"nodeAffinity": {"anything": [1]}}, "tolerations": [{"operator": "Exists"}]}},
    ],
)
def test_the_stored_spec_means_what_the_user_wrote(kubectl: Kubectl, namespace: str, spec: dict[str, Any]) -> None:
    written = pool("same", namespace, **spec)
    # as JSON: PyYAML leaves 1e10 without quotes, which kubectl reads as a number
    kubectl.run("apply", "--server-side", "-f", "-", data=json.dumps(written))
    stored = kubectl.get("kvpool", "same", f"--namespace={namespace}")["spec"]
    assert PoolSpec.model_validate(stored) == PoolSpec.model_validate(written["spec"])


def test_a_null_is_as_good_as_left_out(kubectl: Kubectl, namespace: str) -> None:
    """Templating tools write `image: null` for an empty value."""
    written = pool("nulls", namespace, engines={"image": None, "version": None}, store=None, rolloutToken=None)
    kubectl.run("create", "-f", "-", data=yaml.safe_dump(written))
    stored = kubectl.get("kvpool", "nulls", f"--namespace={namespace}")["spec"]
    assert stored["engines"]["version"] == PINS.engine_version
    assert not {"store", "rolloutToken"} & set(stored)


def test_every_field_of_a_status_survives_a_read_back(kubectl: Kubectl, namespace: str) -> None:
    """A structural schema drops what it does not know without a word (kopf#574)."""
    kubectl.run("create", "-f", "-", data=yaml.safe_dump(pool("full", namespace)))
    status = full_status()
    sent = pool("full", namespace) | {"status": status}
    del sent["spec"]
    apply = ("apply", "--server-side", "--subresource=status", "--field-manager=kvcachepool-operator", "-f", "-")
    kubectl.run(*apply, data=yaml.safe_dump(sent))
    stored = kubectl.get("kvpool", "full", f"--namespace={namespace}")
    assert stored["status"] == status
    assert stored["metadata"]["generation"] == 1


def test_spec_and_status_are_written_apart(kubectl: Kubectl, namespace: str) -> None:
    kubectl.run("create", "-f", "-", data=yaml.safe_dump(pool("apart", namespace) | {"status": full_status()}))
    assert "status" not in kubectl.get("kvpool", "apart", f"--namespace={namespace}")
    patch = json.dumps({"spec": {"engines": {"replicas": 9}}, "status": {"replicas": 3}})
    kubectl.run(
        "patch", "kvpool", "apart", f"--namespace={namespace}", "--subresource=status", "--type=merge", "-p", patch
    )
    stored = kubectl.get("kvpool", "apart", f"--namespace={namespace}")
    assert (stored["spec"]["engines"]["replicas"], stored["status"]["replicas"]) == (2, 3)


def test_a_condition_of_another_manager_stays(kubectl: Kubectl, namespace: str) -> None:
    kubectl.run("create", "-f", "-", data=yaml.safe_dump(pool("map", namespace)))
    for manager, kind in (("one", "Ready"), ("two", "Other")):
        sent = pool("map", namespace)
        del sent["spec"]
        sent["status"] = {"conditions": [{"type": kind, "status": "True", "reason": "Fine"}]}
        apply = ("apply", "--server-side", "--subresource=status", f"--field-manager={manager}", "-f", "-")
        kubectl.run(*apply, data=yaml.safe_dump(sent))
    stored = kubectl.get("kvpool", "map", f"--namespace={namespace}")
    assert [item["type"] for item in stored["status"]["conditions"]] == ["Ready", "Other"]


def test_scale(kubectl: Kubectl, namespace: str) -> None:
    kubectl.run("create", "-f", "-", data=yaml.safe_dump(pool("scaled", namespace)))
    status = {"status": {"replicas": 2, "engines": {"selector": "kvcachepool.io/pool=scaled"}}}
    where = ("scaled", f"--namespace={namespace}")
    kubectl.run("patch", "kvpool", *where, "--subresource=status", "--type=merge", "-p", json.dumps(status))
    kubectl.run("scale", "kvpool", *where, "--replicas=5")
    assert kubectl.get("kvpool", *where)["spec"]["engines"]["replicas"] == 5
    path = f"/apis/kvcachepool.io/v1alpha1/namespaces/{namespace}/kvcachepools/scaled/scale"
    scale = json.loads(kubectl.run("get", "--raw", path))
    assert scale["spec"] == {"replicas": 5}
    assert scale["status"] == {"replicas": 2, "selector": "kvcachepool.io/pool=scaled"}


def test_scaling_beyond_the_limit_is_refused(kubectl: Kubectl, namespace: str) -> None:
    kubectl.run("create", "-f", "-", data=yaml.safe_dump(pool("limit", namespace)))
    said = refusal(kubectl, "scale", "kvpool", "limit", f"--namespace={namespace}", "--replicas=1001")
    assert "spec.engines.replicas" in said


def test_a_scaled_pool_keeps_its_replicas_when_its_manifest_names_none(kubectl: Kubectl, namespace: str) -> None:
    manifest = pool("hpa", namespace)
    kubectl.run("apply", "--server-side", "-f", "-", data=yaml.safe_dump(manifest))
    kubectl.run("scale", "kvpool", "hpa", f"--namespace={namespace}", "--replicas=5")
    manifest["spec"]["verification"] = {"intervalSeconds": 900}
    kubectl.run("apply", "--server-side", "-f", "-", data=yaml.safe_dump(manifest))
    assert kubectl.get("kvpool", "hpa", f"--namespace={namespace}")["spec"]["engines"]["replicas"] == 5


def test_engines_become_groups_only_while_there_are_none(kubectl: Kubectl, namespace: str) -> None:
    """A Deployment and a LeaderWorkerSet of one name would want the same devices."""
    spread = {"schema": {"parallelism": {"tensor": 2}}}
    kubectl.run("create", "-f", "-", data=yaml.safe_dump(pool("spread", namespace, **spread)))

    def patch(**engines: int) -> str:
        return refusal(
            kubectl, "patch", "kvpool", "spread", f"--namespace={namespace}", "--type=merge", "-p",
            json.dumps({"spec": {"engines": engines}}),
        )  # fmt: skip

    message = patch(nodesPerEngine=2)
    assert "spec.engines.nodesPerEngine" in message
    assert "only while engines.replicas is 0" in message
    assert "found 2, was 1" in message
    assert "only while" in patch(nodesPerEngine=2, replicas=0), "first to 0, then the other"
    where = ("patch", "kvpool", "spread", f"--namespace={namespace}", "--type=merge", "-p")
    kubectl.run(*where, '{"spec": {"engines": {"replicas": 0}}}')
    kubectl.run(*where, '{"spec": {"engines": {"nodesPerEngine": 2, "replicas": 0}}}')
    kubectl.run(*where, '{"spec": {"engines": {"replicas": 1}}}')
    assert "only while" in patch(nodesPerEngine=1)


def test_the_table(kubectl: Kubectl, namespace: str) -> None:
    kubectl.run("create", "-f", "-", data=yaml.safe_dump(pool("table", namespace)))
    status = {
        "backend": "mooncake",
        "schema": {"digest": "0123456789ab"},
        "engines": {"summary": "2/2"},
        "hitRate": {"total": 83},
        "conditions": [
            {"type": "Ready", "status": "True", "reason": "AllGood"},
            {"type": "ReuseVerified", "status": "True", "reason": "Reused"},
        ],
    }
    patch = json.dumps({"status": status})
    kubectl.run(
        "patch", "kvpool", "table", f"--namespace={namespace}", "--subresource=status", "--type=merge", "-p", patch
    )
    header, row = (line.split() for line in kubectl.run("get", "kvpool", f"--namespace={namespace}").splitlines())
    assert header == ["NAME", "READY", "REASON", "BACKEND", "SCHEMA", "ENGINES", "HIT%", "VERIFIED", "AGE"]
    assert row[:-1] == ["table", "True", "AllGood", "mooncake", "0123456789ab", "2/2", "83", "True"]
    kubectl.run("wait", "--for=condition=Ready", "kvpool/table", f"--namespace={namespace}", "--timeout=5s")
    assert "table" in kubectl.run("get", "all", f"--namespace={namespace}")
