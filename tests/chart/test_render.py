"""What must hold in what the chart renders, whatever else changes."""

import re
from typing import Any

import pytest
import yaml

from hack.generate import ROOT, outputs
from kvcachepool import __version__, policy, rbac
from kvcachepool.admission import HANDLER
from kvcachepool.constants import LABEL_INJECT
from kvcachepool.settings import Settings
from tests.chart import helm

pytestmark = helm.needs_helm()

CLUSTER_KINDS = {
    "ClusterRole",
    "ClusterRoleBinding",
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionPolicyBinding",
    "MutatingWebhookConfiguration",
}
CRD_FILE = ROOT / "crds" / "kvcachepools.kvcachepool.io.yaml"


def pod_spec(objects: list[dict[str, Any]]) -> Any:
    return helm.one(objects, "Deployment")["spec"]["template"]["spec"]


def test_generated_files_are_up_to_date() -> None:
    stale = [str(path) for path, text in outputs().items() if (ROOT / path).read_text() != text]
    assert not stale, "run `python -m hack.generate`"


@pytest.mark.parametrize("keep", [True, False])
def test_the_crd_is_the_one_in_crds(keep: bool) -> None:
    rendered = dict(helm.one(helm.template({"crds": {"keep": keep}}), "CustomResourceDefinition"))
    annotations = rendered["metadata"].pop("annotations", None)
    assert annotations == ({"helm.sh/resource-policy": "keep"} if keep else None)
    assert rendered == yaml.safe_load(CRD_FILE.read_text())


def test_the_crd_can_be_left_out() -> None:
    assert "CustomResourceDefinition" not in helm.kinds(helm.template({"crds": {"install": False}}))


def test_the_admission_policy_is_the_operators_own() -> None:
    name = f"kvcp-kvcachepool-operator-{helm.NAMESPACE}-schema"
    rendered = [
        {**item, "metadata": {k: v for k, v in item["metadata"].items() if k != "labels"}}
        for item in helm.defaults()
        if item["kind"].startswith("ValidatingAdmissionPolicy")
    ]
    key = lambda item: (item["kind"], item["metadata"]["name"])  # noqa: E731
    assert sorted(rendered, key=key) == sorted([policy.policy(name), *policy.bindings(name)], key=key)


def test_the_admission_policy_can_be_left_out() -> None:
    objects = helm.template({"admission": {"policy": {"enabled": False}}})
    assert not [kind for kind in helm.kinds(objects) if kind.startswith("ValidatingAdmissionPolicy")]


def test_the_webhook_sees_only_pods_that_ask_and_never_the_operators_own() -> None:
    (hook,) = helm.one(helm.defaults(), "MutatingWebhookConfiguration")["webhooks"]
    assert hook["objectSelector"] == {"matchLabels": {LABEL_INJECT: "true"}}
    assert hook["failurePolicy"] == "Fail"
    (namespaces,) = hook["namespaceSelector"]["matchExpressions"]
    assert namespaces["operator"] == "NotIn"
    assert {helm.NAMESPACE, "kube-system"} <= set(namespaces["values"])
    assert [(rule["operations"], rule["resources"]) for rule in hook["rules"]] == [(["CREATE"], ["pods"])]
    service = hook["clientConfig"]["service"]
    assert helm.one(helm.defaults(), "Service", service["name"])["spec"]["ports"][0]["port"] == service["port"]
    assert service["path"] == f"/{HANDLER}"
    told = helm.environment(helm.defaults())
    assert (told["KVCP_WEBHOOK_SERVICE"], told["KVCP_WEBHOOK_PORT"]) == (service["name"], "9443")


def test_the_operator_may_keep_just_its_own_certificate() -> None:
    name = helm.environment(helm.defaults())["KVCP_WEBHOOK_NAME"]
    assert "data" not in helm.one(helm.defaults(), "Secret", name)
    for kind in ("MutatingWebhookConfiguration", "ClusterRole"):
        helm.one(helm.defaults(), kind, name)
    for item in helm.defaults():
        for rule in item.get("rules") or ():
            if "mutatingwebhookconfigurations" in rule["resources"] or ("secrets" in rule["resources"]) & (
                "patch" in rule["verbs"]
            ):
                assert (rule["resourceNames"], rule["verbs"]) == ([name], ["get", "patch"])


def test_with_cert_manager_the_operator_keeps_no_certificate() -> None:
    objects = helm.template({"admission": {"injection": {"certManager": True}}})
    assert "Secret" not in helm.kinds(objects)
    assert not [i for i in objects if i["kind"] == "ClusterRole" and i["metadata"]["name"].endswith("-inject")]
    assert helm.environment(objects)["KVCP_WEBHOOK_CERTIFICATE_DIR"] == "/etc/kvcachepool/tls"
    certificates = {i["metadata"]["name"]: i["spec"] for i in objects if i["kind"] == "Certificate"}
    leaf = next(spec for spec in certificates.values() if not spec.get("isCA"))
    mounted = next(v for v in pod_spec(objects)["volumes"] if v["name"] == "tls")
    assert mounted["secret"]["secretName"] == leaf["secretName"]


@pytest.mark.parametrize("values", [{"admission": {"injection": {"enabled": False}}}, {"scope": "namespaces"}])
def test_without_injection_nothing_of_it_is_left(values: dict[str, Any]) -> None:
    objects = helm.template(values)
    assert "MutatingWebhookConfiguration" not in helm.kinds(objects)
    assert not [item for item in objects if item["metadata"]["name"].endswith("-inject")]
    assert "KVCP_WEBHOOK_PORT" not in helm.environment(objects)


def test_no_hooks_so_that_uninstall_needs_no_running_pod() -> None:
    for item in helm.defaults():
        assert not any(key.startswith("helm.sh/hook") for key in item["metadata"].get("annotations") or {})


def test_cluster_scope_watches_everything() -> None:
    assert helm.environment(helm.defaults())["KVCP_NAMESPACES"] == ""
    watched = helm.one(helm.defaults(), "ClusterRole", f"kvcp-kvcachepool-operator-{helm.NAMESPACE}")
    scopes = (rbac.Scope.WATCHED, rbac.Scope.CLUSTER)
    assert watched["rules"] == [rule.dump() for scope in scopes for rule in rbac.rules(scope)]


def test_namespaced_scope_has_nothing_cluster_wide() -> None:
    objects = helm.template({"scope": "namespaces", "namespaces": ["team-a", "team-b"]})
    assert not CLUSTER_KINDS & set(helm.kinds(objects))
    expected = [rule.dump() for scope in (rbac.Scope.WATCHED, rbac.Scope.CLAIMED) for rule in rbac.rules(scope)]
    places = {
        item["metadata"]["namespace"]: item["rules"]
        for item in objects
        if item["kind"] == "Role" and item["metadata"]["name"].endswith("-pools")
    }
    assert places == {"team-a": expected, "team-b": expected}
    subjects = [item["subjects"] for item in objects if item["kind"] == "RoleBinding"]
    account = {"kind": "ServiceAccount", "name": "kvcp-kvcachepool-operator", "namespace": helm.NAMESPACE}
    assert subjects == [[account]] * 3
    assert helm.environment(objects)["KVCP_NAMESPACES"] == "team-a,team-b"


def test_namespaced_scope_without_a_list_means_the_own_namespace() -> None:
    objects = helm.template({"scope": "namespaces"})
    assert helm.environment(objects)["KVCP_NAMESPACES"] == helm.NAMESPACE
    assert {item["metadata"]["namespace"] for item in objects if item["kind"] == "Role"} == {helm.NAMESPACE}


@pytest.mark.parametrize("scope", ["cluster", "namespaces"])
def test_the_lease_is_granted_in_the_own_namespace_only(scope: str) -> None:
    role = helm.one(helm.template({"scope": scope}), "Role", "kvcp-kvcachepool-operator-leader")
    assert role["metadata"]["namespace"] == helm.NAMESPACE
    assert role["rules"] == [rule.dump() for rule in rbac.rules(rbac.Scope.OWN)]


def test_registry_and_pull_secrets_reach_every_image() -> None:
    values = {"image": {"registry": "registry.internal"}, "imagePullSecrets": ["regcred", {"name": "other"}]}
    objects = helm.template(values)
    spec = pod_spec(objects)
    assert spec["imagePullSecrets"] == [{"name": "regcred"}, {"name": "other"}]
    images = re.findall(r"image: [\"']?([^\"'\s]+)", yaml.safe_dump_all(objects))
    assert images == [f"registry.internal/kvcachepool/operator:{__version__}"]
    settings = Settings.from_env(helm.environment(objects))
    assert settings.image_registry == "registry.internal"
    assert settings.image_pull_secrets == ("regcred", "other")


def test_a_digest_wins_over_the_tag() -> None:
    digest = f"sha256:{'ab' * 32}"
    image = pod_spec(helm.template({"image": {"tag": "1.2.3", "digest": digest}}))["containers"][0]["image"]
    assert image == f"localhost/kvcachepool/operator@{digest}"


def test_the_environment_is_what_the_operator_reads() -> None:
    values = {
        "operator": {"resyncSeconds": 12.5, "workers": 3, "probeTimeoutSeconds": 45},
        "admission": {"injection": {"certManager": True}},
        "rdma": {"devicePlugin": {"enabled": True}},
    }
    objects = helm.template(values)
    names = {entry["name"] for entry in pod_spec(objects)["containers"][0]["env"]}
    known = {f"KVCP_{name.upper()}" for name in Settings.__annotations__}
    assert names == known | {"KVCP_LOG_LEVEL", "KVCP_LOG_FORMAT"}
    settings = Settings.from_env(helm.environment(objects))
    assert (settings.resync_seconds, settings.workers, settings.probe_timeout_seconds) == (12.5, 3, 45)
    assert settings.lease_name == "kvcp-kvcachepool-operator"


def test_defaults_of_the_chart_are_the_defaults_of_the_operator() -> None:
    given, built_in = Settings.from_env(helm.environment(helm.defaults())), Settings()
    for name in ("resync_seconds", "workers", "probe_timeout_seconds", "http_port", "namespaces"):
        assert getattr(given, name) == getattr(built_in, name), name


def test_the_operator_fits_the_restricted_pod_security_profile() -> None:
    spec = pod_spec(helm.defaults())
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["runAsUser"] == 65532
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert not {"hostNetwork", "hostPID", "hostIPC"} & set(spec)
    for container in spec["containers"]:
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
    assert spec["enableServiceLinks"] is False


def test_a_budget_only_where_a_pod_may_go() -> None:
    assert "PodDisruptionBudget" in helm.kinds(helm.defaults())
    assert "PodDisruptionBudget" not in helm.kinds(helm.template({"replicas": 1}))


def test_monitors_and_policy_only_when_asked() -> None:
    asked = {"ServiceMonitor", "PodMonitor", "NetworkPolicy"}
    assert not asked & set(helm.kinds(helm.defaults()))
    enabled = {"enabled": True}
    objects = helm.template({"metrics": {"serviceMonitor": enabled, "podMonitor": enabled}, "networkPolicy": enabled})
    assert asked <= set(helm.kinds(objects))
    assert "kvcachepool.io/pool" in helm.one(objects, "PodMonitor")["spec"]["podTargetLabels"]


def test_a_service_monitor_without_a_service_is_refused() -> None:
    with pytest.raises(helm.RefusedError, match=r"metrics\.service\.enabled"):
        helm.template({"metrics": {"service": {"enabled": False}, "serviceMonitor": {"enabled": True}}})


def test_chart_and_operator_are_one_version() -> None:
    chart = yaml.safe_load((helm.CHART / "Chart.yaml").read_text())
    assert chart["version"] == chart["appVersion"] == __version__


def test_a_second_release_of_the_same_name_elsewhere_does_not_collide() -> None:
    names = {item["metadata"]["name"] for item in helm.defaults() if item["kind"] in CLUSTER_KINDS}
    assert all(helm.NAMESPACE in name for name in names)


def test_namespaced_scope_reads_nodes_only_where_it_is_told_so() -> None:
    objects = helm.template({"scope": "namespaces", "namespaces": ["team-a"], "nodes": {"read": True}})
    role = helm.one(objects, "ClusterRole", f"kvcp-kvcachepool-operator-{helm.NAMESPACE}-nodes")
    assert role["rules"] == [rule.dump() for rule in rbac.rules(rbac.Scope.CLUSTER)]
    assert {verb for rule in role["rules"] for verb in rule["verbs"]} == {"get", "list", "watch"}
