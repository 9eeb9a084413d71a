"""Install, upgrade and uninstall of the chart in a real API server. No node: nothing of it runs."""

import json
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
import yaml

from e2e.cluster.builder import program
from e2e.cluster.controlplane import ControlPlane
from e2e.cluster.kubectl import Kubectl
from kvcachepool import rbac
from kvcachepool.api import PoolSpec
from kvcachepool.constants import GROUP
from tests.apiserver.conftest import CRD_FILE, eventually, refusal
from tests.apiserver.pools import pool

pytestmark = pytest.mark.helm

CHART = Path(__file__).resolve().parents[2] / "charts" / "kvcachepool-operator"
CRD_NAME = "kvcachepools.kvcachepool.io"
HOME = "kvcp-system"


@pytest.fixture(scope="module")
def empty_plane() -> Iterator[ControlPlane]:
    """An API server without our CRD: the chart brings it."""
    with ControlPlane() as started:
        yield started


class Release:
    """A release of the chart."""

    def __init__(self, plane: ControlPlane, name: str, namespace: str) -> None:
        self.kubectl: Kubectl = plane.kubectl
        self.name = name
        self.namespace = namespace
        self._kubeconfig = plane.kubeconfig

    def helm(self, *arguments: str) -> str:
        """Run helm in the release's namespace."""
        command = [program("helm"), f"--kubeconfig={self._kubeconfig}", f"--namespace={self.namespace}", *arguments]
        outcome = subprocess.run(command, capture_output=True, text=True, check=False)
        assert outcome.returncode == 0, outcome.stderr
        return outcome.stdout

    def install(self, *arguments: str) -> str:
        """Install or upgrade; the notes."""
        return self.helm("upgrade", "--install", "--create-namespace", self.name, str(CHART), *arguments)

    @property
    def account(self) -> str:
        """The operator's user name."""
        return f"system:serviceaccount:{self.namespace}:{self.name}-kvcachepool-operator"


Request = tuple[str, str, str, str, str]
"""verb, API group, resource[/subresource], namespace, name"""


def allowed(kubectl: Kubectl, user: str, requests: Sequence[Request]) -> list[Request]:
    """Those of the requests that the user may make, as the API server sees it."""
    reviews = []
    for verb, group, resource, namespace, name in requests:
        what, _, subresource = resource.partition("/")
        attributes = {"verb": verb, "group": group, "resource": what, "namespace": namespace}
        attributes |= {"name": name} if name else {}
        attributes |= {"subresource": subresource} if subresource else {}
        spec = {"user": user, "groups": ["system:authenticated"], "resourceAttributes": attributes}
        reviews.append({"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec})
    listed = {"apiVersion": "v1", "kind": "List", "items": reviews}
    answers = kubectl.run(
        "create", "-o", "jsonpath={.status.allowed}{'\\n'}", "-f", "-", data=json.dumps(listed)
    ).split()
    return [request for request, answer in zip(requests, answers, strict=True) if answer == "true"]


def granted(namespace: str, *scopes: rbac.Scope) -> list[Request]:
    """Everything that the rules of these scopes allow."""
    return [
        (verb, rule.group, resource, namespace, rule.names[0] if rule.names else "")
        for scope in scopes
        for rule in rbac.rules(scope)
        for resource in rule.resources
        for verb in rule.verbs
    ]


@pytest.fixture
def release(empty_plane: ControlPlane) -> Iterator[Release]:
    """A release that is gone after the test, with all that it leaves on purpose."""
    release = Release(empty_plane, "kvcp", HOME)
    yield release
    release.helm("uninstall", "--ignore-not-found", release.name)
    release.kubectl.run("delete", "crd", CRD_NAME, "--ignore-not-found", "--timeout=60s")


def test_install_in_the_whole_cluster(release: Release) -> None:
    notes = release.install()
    assert release.kubectl.get("crd", CRD_NAME)["spec"]["versions"] == served_versions(release)
    wanted = granted("default", rbac.Scope.WATCHED) + granted(HOME, rbac.Scope.OWN)
    assert allowed(release.kubectl, release.account, wanted) == wanted
    unwanted = [
        ("patch", GROUP, "kvcachepools", "default", ""),
        ("delete", GROUP, "kvcachepools", "default", ""),
        ("list", "", "secrets", "default", ""),
        ("watch", "", "secrets", "default", ""),
        ("list", "", "persistentvolumeclaims", "default", ""),
        ("delete", "", "pods", "default", ""),
        ("create", "", "pods/exec", "default", ""),
        ("update", "apps", "deployments", "default", ""),
        ("get", "coordination.k8s.io", "leases", "default", ""),
        ("create", "coordination.k8s.io", "leases", "default", ""),
        ("create", "rbac.authorization.k8s.io", "roles", "default", ""),
        ("list", "", "namespaces", "", ""),
        ("list", "apiextensions.k8s.io", "customresourcedefinitions", "", ""),
    ]
    assert allowed(release.kubectl, release.account, unwanted) == []

    manifest = yaml.safe_load(notes.partition("<<EOF\n")[2].partition("  EOF")[0])
    PoolSpec.model_validate(manifest["spec"])
    eventually(lambda: release.kubectl.succeeds("get", "kvcachepools"))
    release.kubectl.run("apply", "-f", "-", data=yaml.safe_dump(manifest))
    assert "kubectl -n default wait --for=condition=Ready kvpool/demo" in notes


def served_versions(release: Release) -> object:
    """The versions of our CRD as this API server shows them."""
    shown = release.kubectl.run("create", "--dry-run=client", "-o", "json", "-f", str(CRD_FILE))
    return yaml.safe_load(shown)["spec"]["versions"]


def test_uninstall_keeps_crd_and_pools_and_install_takes_them_over_again(release: Release) -> None:
    kubectl = release.kubectl
    release.install()
    eventually(lambda: kubectl.succeeds("get", "kvcachepools"))
    kubectl.run("apply", "-f", "-", data=yaml.safe_dump(pool("alive", "default")))
    release.helm("uninstall", release.name, "--timeout=60s")
    assert kubectl.succeeds("get", "kvpool", "alive", "--namespace=default")
    left = kubectl.run("get", "deploy,sa,svc,pdb,role,rolebinding", f"--namespace={HOME}", "-o", "name")
    assert "kvcp" not in left
    assert "kvcp" not in kubectl.run("get", "clusterroles,clusterrolebindings", "-o", "name")
    release.install()
    release.install("--set=replicas=3")
    assert kubectl.succeeds("get", "kvpool", "alive", "--namespace=default")


def test_upgrade_brings_the_new_crd(release: Release) -> None:
    """helm never touches a chart's crds/ folder again (slauger/openvox-operator#555): ours is a template."""
    release.install()
    older = yaml.safe_load(CRD_FILE.read_text())
    properties = older["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]
    del properties["spec"]["properties"]["rolloutToken"]
    del properties["status"]["properties"]["advice"]
    release.kubectl.run("replace", "-f", "-", data=yaml.safe_dump(older | {"metadata": metadata_of(release)}))
    release.install("--set=replicas=3")
    assert release.kubectl.get("crd", CRD_NAME)["spec"]["versions"] == served_versions(release)


def metadata_of(release: Release) -> dict[str, object]:
    """Name and helm's marks of the installed CRD."""
    metadata = release.kubectl.get("crd", CRD_NAME)["metadata"]
    return {key: metadata[key] for key in ("name", "labels", "annotations", "resourceVersion")}


def test_without_keep_the_crd_goes_with_the_chart(release: Release) -> None:
    release.install("--set=crds.keep=false")
    release.helm("uninstall", release.name, "--wait", "--timeout=60s")
    assert not release.kubectl.succeeds("get", "crd", CRD_NAME)


def test_limited_to_namespaces(release: Release) -> None:
    kubectl = release.kubectl
    for name in ("team-a", "team-b"):
        kubectl.run("create", "namespace", name)
    release.install("--set=scope=namespaces", "--set=namespaces={team-a}")
    assert "kvcp" not in kubectl.run("get", "clusterroles,clusterrolebindings", "-o", "name")
    scopes = (rbac.Scope.WATCHED, rbac.Scope.CLAIMED)
    assert allowed(kubectl, release.account, granted("team-a", *scopes)) == granted("team-a", *scopes)
    assert allowed(kubectl, release.account, granted("team-b", *scopes)) == []
    assert allowed(kubectl, release.account, granted("", rbac.Scope.WATCHED)) == []


def test_namespace_editors_may_have_pools(release: Release) -> None:
    kubectl = release.kubectl
    release.install()
    kubectl.run("create", "namespace", "team-c")
    kubectl.run("create", "rolebinding", "dev", "--clusterrole=edit", "--user=dev", "--namespace=team-c")
    kubectl.run("create", "rolebinding", "guest", "--clusterrole=view", "--user=guest", "--namespace=team-c")
    create, read = ("create", GROUP, "kvcachepools", "team-c", ""), ("list", GROUP, "kvcachepools", "team-c", "")
    # roles are put together by a controller
    eventually(lambda: allowed(kubectl, "dev", [create, read]) == [create, read])
    eventually(lambda: allowed(kubectl, "guest", [create, read]) == [read])


def test_the_pod_passes_the_restricted_profile(release: Release) -> None:
    """As the API server's own admission sees it."""
    kubectl = release.kubectl
    release.install()
    kubectl.run("label", "namespace", HOME, "pod-security.kubernetes.io/enforce=restricted", "--overwrite")
    template = kubectl.get("deployment", "kvcp-kvcachepool-operator", f"--namespace={HOME}")["spec"]["template"]
    probe = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "probe", "namespace": HOME}} | {
        "spec": template["spec"]
    }
    create = ("create", "--dry-run=server", "-f", "-")
    kubectl.run(*create, data=json.dumps(probe))
    template["spec"]["containers"][0]["securityContext"]["capabilities"] = {"add": ["SYS_ADMIN"]}
    assert 'violates PodSecurity "restricted' in refusal(kubectl, *create, data=json.dumps(probe))
