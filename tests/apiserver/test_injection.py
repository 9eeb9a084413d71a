"""The webhook in a real API server: real TLS, kopf's own server, and the admission policy behind it."""

import asyncio
import base64
import socket
import ssl
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubernetes.aio.client import ApiClient, Configuration
from kubernetes.aio.config import load_kube_config

from e2e.cluster.controlplane import ControlPlane
from e2e.harness.api import Api
from kvcachepool import constants, handlers, policy
from kvcachepool.admission import Admission
from kvcachepool.api import KVCachePool
from kvcachepool.certificates import Lifetimes
from kvcachepool.cluster import Cluster, connection
from kvcachepool.metrics import Metrics
from kvcachepool.watchcache import WatchCache
from kvcachepool.webhook_tls import OwnSecret, WebhookTls
from tests.apiserver.conftest import eventually
from tests.apiserver.pools import manifest_of
from tests.chart import helm
from tests.members import status_of
from tests.pools import pool
from tests.unit.test_inject import user_pod

pytestmark = pytest.mark.helm

Json = dict[str, Any]
NAME = "kvcp-test-inject"
DAY = timedelta(days=1)


class Webhook:
    """One replica's webhook, in a thread of its own: watch, certificate and server as the operator has them."""

    def __init__(self, plane: ControlPlane, folder: Path, name: str = NAME) -> None:
        self._kubeconfig = plane.kubeconfig
        self._folder = folder
        self._name = name
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port: int = free.getsockname()[1]
        self.metrics = Metrics()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), daemon=True)
        self._loop: asyncio.AbstractEventLoop
        self._tls: WebhookTls
        self._stop: asyncio.Event

    def __enter__(self) -> "Webhook":
        self._thread.start()
        assert self._ready.wait(60), "the webhook did not start"
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(60)
        assert not self._thread.is_alive()

    def look_after_certificate(self) -> None:
        """What happens each minute."""
        asyncio.run_coroutine_threadsafe(self._tls.once(), self._loop).result(30)

    async def _run(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        configuration = Configuration()
        await load_kube_config(config_file=str(self._kubeconfig), client_configuration=configuration)  # type: ignore[no-untyped-call]
        async with ApiClient(configuration) as client:
            source = OwnSecret(
                Cluster(client), "default", self._name, self._name, ("localhost",),
                Lifetimes(authority=90 * DAY, server=60 * DAY),
            )  # fmt: skip
            self._tls = WebhookTls(source, self._folder)
            await self._tls.first(print)
            cache = WatchCache()
            admission = Admission(cache, self.metrics, self._tls, port=self.port, address="127.0.0.1")
            started = asyncio.Event()
            task = asyncio.create_task(
                handlers.watch(
                    cache, lambda _key: None, lambda: connection(client), namespaces=(),
                    started=started, stop=self._stop, extend=admission.install,
                )
            )  # fmt: skip
            waiting = asyncio.create_task(started.wait())
            await asyncio.wait((waiting, task), return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                task.result()
            self._ready.set()
            await task


def configuration(port: int) -> Json:
    """The chart's own, with the address of this process instead of a Service."""
    found = dict(helm.one(helm.defaults(), "MutatingWebhookConfiguration"))
    (hook,) = found["webhooks"]
    found["metadata"] = {"name": NAME}
    found["webhooks"] = [{**hook, "clientConfig": {"url": f"https://localhost:{port}/inject"}}]
    return found


@pytest.fixture(scope="module")
def webhook(plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Webhook]:
    """A running webhook that the API server knows, and the policy that judges what it made."""
    served = Webhook(plane, tmp_path_factory.mktemp("tls") / "files")
    objects = [
        configuration(served.port),
        {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": NAME, "namespace": "default"}},
        policy.policy(NAME),
        *policy.bindings(NAME),
    ]
    plane.kubectl.run("apply", "-f", "-", data=yaml.safe_dump_all(objects))
    with served:
        yield served
    for obj in objects:
        where = [f"--namespace={ns}"] if (ns := obj["metadata"].get("namespace")) else []
        plane.kubectl.run("delete", obj["kind"], obj["metadata"]["name"], *where)


class Joining:
    """A namespace with a pool that takes members."""

    def __init__(self, api: Api, namespace: str) -> None:
        self.api, self.namespace = api, namespace
        self.pool = self.make("demo")

    def make(self, name: str, status: Json | None = None) -> KVCachePool:
        subject = pool(name=name, namespace=self.namespace)
        base = f"/apis/{constants.API_VERSION}/namespaces/{self.namespace}/{constants.PLURAL}"
        manifest = manifest_of(subject)
        assert self.api.call("POST", base, manifest)[0] == 201
        accepted = {
            "type": "Accepted",
            "status": "True",
            "reason": "Valid",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }
        written = {"status": status_of(subject) | {"conditions": [accepted]} if status is None else status}
        assert self.api.call("PATCH", f"{base}/{name}/status", written, "application/merge-patch+json")[0] == 200
        return subject

    def pod(self, *args: str, pool: str = "demo", name: str = "mine") -> Json:
        result = user_pod(*args)
        result["metadata"] |= {"namespace": self.namespace, "name": name}
        result["metadata"]["labels"][constants.LABEL_POOL] = pool
        return result

    def stored(self, name: str = "mine") -> Json:
        code, answer = self.api.call("GET", f"/api/v1/namespaces/{self.namespace}/pods/{name}")
        assert code == 200, answer
        return answer


@pytest.fixture
def joining(webhook: Webhook, plane: ControlPlane, namespace: str) -> Joining:
    made = Joining(Api(plane.kubeconfig), namespace)
    said = [""]

    def admitted() -> bool:
        said[0] = made.api.create_pod(made.pod())
        return said[0] == ""

    try:
        eventually(admitted)
    except AssertionError:
        pytest.fail(said[0])
    return made


def test_a_pod_that_asks_is_completed_and_then_passes_the_policy(joining: Joining, webhook: Webhook) -> None:
    assert joining.api.create_pod(joining.pod(), keep=True) == ""
    pod = joining.stored()
    container = pod["spec"]["containers"][0]
    assert {"org/model", "--max-num-seqs=8", "--block-size=64", "--revision=r1"} <= set(container["args"])
    assert {"name": "PYTHONHASHSEED", "value": "0"} in container["env"]
    assert pod["metadata"]["labels"][constants.LABEL_SCHEMA] == status_of(joining.pool)["schema"]["digest"]
    assert pod["spec"]["initContainers"][0]["name"] == constants.WAIT_CONTAINER
    assert {"name": "kvcachepool-config", "mountPath": "/etc/kvcachepool", "readOnly": True} in container[
        "volumeMounts"
    ]
    assert constants.ANNOTATION_INJECTED in pod["metadata"]["annotations"]
    assert webhook.metrics.injections.labels("completed")._value.get() > 0


def test_a_completed_pod_that_comes_again_is_not_changed_again(joining: Joining) -> None:
    assert joining.api.create_pod(joining.pod(), keep=True) == ""
    pod = joining.stored()
    for volatile in ("uid", "resourceVersion", "creationTimestamp", "managedFields", "generation"):
        pod["metadata"].pop(volatile, None)
    pod["metadata"]["name"] = "again"
    pod["spec"].pop("nodeName", None)
    assert joining.api.create_pod(pod, keep=True) == ""
    once, twice = joining.stored()["spec"], joining.stored("again")["spec"]
    assert once["containers"] == twice["containers"]
    assert [v for v in once["volumes"] if "projected" not in v] == [v for v in twice["volumes"] if "projected" not in v]
    assert once["initContainers"] == twice["initContainers"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda j: j.pod("-tp", "4"), "tensor (-tp) is 4, the pool has 1"),
        (lambda j: j.pod(pool="dem0"), "names the pool dem0, which does not exist in namespace"),
        (
            lambda j: (j.make("fresh", status={"backend": "mooncake"}), j.pod(pool="fresh"))[1],
            "pool fresh takes no members yet",
        ),
    ],
)
def test_what_cannot_be_completed_is_refused_in_words(joining: Joining, change: Any, message: str) -> None:
    pod = change(joining)
    eventually(lambda: message in joining.api.create_pod(pod))
    said = joining.api.create_pod(pod)
    assert 'admission webhook "inject.kvcachepool.io" denied the request' in said


def test_a_pod_that_names_no_pool_is_told_so(joining: Joining) -> None:
    pod = joining.pod()
    del pod["metadata"]["labels"][constants.LABEL_POOL]
    assert "the label kvcachepool.io/pool that names it is missing" in joining.api.create_pod(pod)


def test_two_hundred_pods_at_once_are_all_completed(joining: Joining) -> None:
    def create(index: int) -> str:
        return joining.api.create_pod(joining.pod(name=f"many-{index}"), keep=True)

    with ThreadPoolExecutor(max_workers=20) as threads:
        answers = list(threads.map(create, range(200)))
    assert set(answers) == {""}
    code, listed = joining.api.call("GET", f"/api/v1/namespaces/{joining.namespace}/pods")
    assert code == 200
    many = [p for p in listed["items"] if p["metadata"]["name"].startswith("many-")]
    assert len(many) == 200
    for pod in many:
        assert pod["spec"]["containers"][0]["args"].count("--block-size=64") == 1


def served_certificate(webhook: Webhook) -> bytes:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with socket.create_connection(("127.0.0.1", webhook.port)) as plain, context.wrap_socket(plain) as secure:
        found = secure.getpeercert(binary_form=True)
        assert found is not None
        return found


def test_certificates_are_renewed_under_a_running_server_and_no_pod_is_lost(
    joining: Joining, webhook: Webhook, plane: ControlPlane
) -> None:
    before = served_certificate(webhook)
    secret = f"/api/v1/namespaces/default/secrets/{NAME}"
    for lost in ({"tls.crt": None}, {"ca.key": None}):  # the server's certificate, then the authority
        code, _ = joining.api.call("PATCH", secret, {"data": lost}, "application/merge-patch+json")
        assert code == 200
        webhook.look_after_certificate()  # makes anew, and tells the API server of a new authority
        assert joining.api.create_pod(joining.pod()) == ""
        webhook.look_after_certificate()  # serves it
        eventually(lambda: joining.api.create_pod(joining.pod()) == "")
        after = served_certificate(webhook)
        assert after != before
        before = after


def test_a_bundle_that_is_wiped_is_put_back(joining: Joining, webhook: Webhook) -> None:
    path = f"/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/{NAME}"
    wrong = base64.b64encode(ssl.DER_cert_to_PEM_cert(served_certificate(webhook)).encode()).decode()
    patch = {"webhooks": [{"name": "inject.kvcachepool.io", "clientConfig": {"caBundle": wrong}}]}
    assert joining.api.call("PATCH", path, patch, "application/strategic-merge-patch+json")[0] == 200
    webhook.look_after_certificate()
    eventually(lambda: joining.api.create_pod(joining.pod()) == "")
    assert joining.api.call("GET", path)[1]["webhooks"][0]["clientConfig"]["caBundle"] != wrong


def test_with_no_webhook_running_only_pods_that_ask_for_it_wait(joining: Joining, plane: ControlPlane) -> None:
    path = f"/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/{NAME}"
    working = joining.api.call("GET", path)[1]["webhooks"][0]["clientConfig"]["url"]
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))  # nobody listens
        dead = f"https://localhost:{closed.getsockname()[1]}/inject"
        point_to(joining.api, path, dead)
        eventually(lambda: "failed calling webhook" in joining.api.create_pod(joining.pod()))
        plain = joining.pod(name="plain")
        del plain["metadata"]["labels"][constants.LABEL_INJECT], plain["metadata"]["labels"][constants.LABEL_POOL]
        assert joining.api.create_pod(plain) == ""
        for excluded in ("kube-system",):
            there = joining.pod(name="system")
            there["metadata"]["namespace"] = excluded
            assert "failed calling webhook" not in joining.api.create_pod(there)
    point_to(joining.api, path, working)
    eventually(lambda: joining.api.create_pod(joining.pod()) == "")


def point_to(api: Api, path: str, url: str) -> None:
    patch = {"webhooks": [{"name": "inject.kvcachepool.io", "clientConfig": {"url": url}}]}
    assert api.call("PATCH", path, patch, "application/strategic-merge-patch+json")[0] == 200
