"""The control plane's programs and their arguments, shared by whole clusters and by tests.

Everything here is a function of the plan: what to run can be read, and tested,
without running it.
"""

from __future__ import annotations

import ssl
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from . import kubeconfig
from .pki import Authority, Pair, service_account_keys
from .processes import Daemon
from .settings import Network, Ports

LOOPBACK = "127.0.0.1"
# What Go's TLS allows is not what slows a start: leave ciphers alone; these only quieten and bound the programs.
_QUIET = ("--profiling=false", "-v=1")


@dataclass(frozen=True)
class ControlPlan:
    """Where a control plane lives: programs, state, address and ports."""

    name: str
    bin: Path
    state: Path
    ports: Ports
    address: str = LOOPBACK
    network: Network = field(default_factory=Network)
    extra_apiserver: tuple[str, ...] = ()

    @property
    def server(self) -> str:
        return f"https://{self.address}:{self.ports.apiserver}"

    @property
    def pki(self) -> Path:
        return self.state / "pki"

    @property
    def etcd_url(self) -> str:
        return f"http://{LOOPBACK}:{self.ports.etcd}"

    def kubeconfig(self, who: str) -> Path:
        return self.state / "kubeconfigs" / f"{who}.yaml"


@dataclass(frozen=True)
class Credentials:
    """Everything signed for one cluster."""

    ca: Authority
    front_proxy: Authority
    service_accounts: Pair
    serving: Pair
    kubelet_client: Pair
    proxy_client: Pair


def prepare(plan: ControlPlan, admin: Path) -> Credentials:
    """Write certificates and kubeconfigs; existing ones are kept."""
    ca = Authority(plan.pki, "ca")
    front_proxy = Authority(plan.pki, "front-proxy-ca")
    service = "kubernetes.default.svc"
    hosts = [plan.address, LOOPBACK, plan.network.apiserver_ip, "localhost", "kubernetes", "kubernetes.default"]
    credentials = Credentials(
        ca=ca,
        front_proxy=front_proxy,
        service_accounts=service_account_keys(plan.pki),
        serving=ca.server(
            "apiserver",
            common_name="kube-apiserver",
            hosts=[*dict.fromkeys(hosts), service, f"{service}.cluster.local"],
        ),
        kubelet_client=ca.client(
            "apiserver-kubelet-client", user="kube-apiserver-kubelet-client", groups=["system:masters"]
        ),
        proxy_client=front_proxy.client("front-proxy-client", user="front-proxy-client"),
    )
    users = ("kube-controller-manager", "kube-scheduler")
    for user in users:
        write_kubeconfig(plan, ca, plan.kubeconfig(user), ca.client(user, user=f"system:{user}"))
    write_kubeconfig(plan, ca, admin, ca.client("admin", user="kubernetes-admin", groups=["system:masters"]))
    return credentials


def write_kubeconfig(plan: ControlPlan, ca: Authority, path: Path, client: Pair) -> Path:
    return kubeconfig.write(path, cluster=plan.name, server=plan.server, ca=ca.pair.cert, client=client)


def etcd(plan: ControlPlan) -> Daemon:
    """A member of one, on loopback only; without fsync, since a test cluster's data need not survive a power cut."""
    peer = f"http://{LOOPBACK}:{plan.ports.etcd_peer}"
    argv = (
        str(plan.bin / "etcd"),
        "--name=default",
        f"--data-dir={plan.state / 'etcd'}",
        "--unsafe-no-fsync",
        "--log-level=warn",
        "--auto-compaction-mode=periodic",
        "--auto-compaction-retention=30m",
        f"--listen-client-urls={plan.etcd_url}",
        f"--advertise-client-urls={plan.etcd_url}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=default={peer}",
    )
    return Daemon("etcd", argv)


def apiserver(plan: ControlPlan, credentials: Credentials) -> Daemon:
    # On loopback nobody could use the endpoint that it would publish, and the API itself refuses such an address.
    reconciler = ("--endpoint-reconciler-type=none",) if plan.address == LOOPBACK else ()
    argv = (
        str(plan.bin / "kube-apiserver"),
        f"--etcd-servers={plan.etcd_url}",
        f"--bind-address={plan.address}",
        f"--advertise-address={plan.address}",
        f"--secure-port={plan.ports.apiserver}",
        f"--service-cluster-ip-range={plan.network.service_cidr}",
        "--authorization-mode=Node,RBAC",
        "--enable-admission-plugins=NodeRestriction",
        "--allow-privileged=true",
        f"--client-ca-file={credentials.ca.pair.cert}",
        f"--tls-cert-file={credentials.serving.cert}",
        f"--tls-private-key-file={credentials.serving.key}",
        "--service-account-issuer=https://kubernetes.default.svc.cluster.local",
        f"--service-account-key-file={credentials.service_accounts.cert}",
        f"--service-account-signing-key-file={credentials.service_accounts.key}",
        # Without this exec and logs look the node's name up in a DNS that does not know it.
        "--kubelet-preferred-address-types=InternalIP",
        f"--kubelet-certificate-authority={credentials.ca.pair.cert}",
        f"--kubelet-client-certificate={credentials.kubelet_client.cert}",
        f"--kubelet-client-key={credentials.kubelet_client.key}",
        f"--requestheader-client-ca-file={credentials.front_proxy.pair.cert}",
        "--requestheader-allowed-names=front-proxy-client",
        "--requestheader-extra-headers-prefix=X-Remote-Extra-",
        "--requestheader-group-headers=X-Remote-Group",
        "--requestheader-username-headers=X-Remote-User",
        f"--proxy-client-cert-file={credentials.proxy_client.cert}",
        f"--proxy-client-key-file={credentials.proxy_client.key}",
        *reconciler,
        *plan.extra_apiserver,
        *_QUIET,
    )
    return Daemon("kube-apiserver", argv, configs=(credentials.serving.cert,))


def controller_manager(plan: ControlPlan, credentials: Credentials) -> Daemon:
    config = plan.kubeconfig("kube-controller-manager")
    argv = (
        str(plan.bin / "kube-controller-manager"),
        *_delegated(config),
        f"--secure-port={plan.ports.controller_manager}",
        f"--root-ca-file={credentials.ca.pair.cert}",
        f"--service-account-private-key-file={credentials.service_accounts.key}",
        f"--cluster-signing-cert-file={credentials.ca.pair.cert}",
        f"--cluster-signing-key-file={credentials.ca.pair.key}",
        "--use-service-account-credentials=true",
        # Namespaces that many tests leave behind would be cleaned minutes later at the usual 20 requests a second.
        "--kube-api-qps=100",
        "--kube-api-burst=150",
        # A small machine under load must not have its only node declared lost.
        "--node-monitor-grace-period=120s",
        *_QUIET,
    )
    return Daemon("kube-controller-manager", argv, configs=(config,))


def scheduler(plan: ControlPlan) -> Daemon:
    config = plan.kubeconfig("kube-scheduler")
    argv = (
        str(plan.bin / "kube-scheduler"),
        *_delegated(config),
        f"--secure-port={plan.ports.scheduler}",
        *_QUIET,
    )
    return Daemon("kube-scheduler", argv, configs=(config,))


def _delegated(config: Path) -> tuple[str, ...]:
    # One copy of each runs, so an election would only delay its start.
    return (
        f"--kubeconfig={config}",
        f"--authentication-kubeconfig={config}",
        f"--authorization-kubeconfig={config}",
        f"--bind-address={LOOPBACK}",
        "--leader-elect=false",
    )


def answers(url: str, ca: Path | None = None) -> Callable[[], bool]:
    """Make a check that a URL answers 200; anonymous, as `/readyz` and `/healthz` allow."""
    context = ssl.create_default_context(cafile=str(ca)) if ca else None
    handlers: list[urllib.request.BaseHandler] = [urllib.request.ProxyHandler({})]
    if context:
        handlers.append(urllib.request.HTTPSHandler(context=context))
    opener = urllib.request.build_opener(*handlers)

    def check() -> bool:
        try:
            with opener.open(url, timeout=3) as response:
                return bool(response.status == 200)
        except OSError:
            return False

    return check
