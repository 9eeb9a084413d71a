"""A whole one-node cluster from plain processes on this machine: no docker, no registry, no network.

Pods are real containers with Service DNS, logs, exec and admission; only the
accelerators are pretended.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import datetime
from pathlib import Path

from . import control, dns, firewall, hardware, host, node
from .builder import require_tools
from .containerd import Containerd
from .errors import ClusterError
from .images import COREDNS, PAUSE, write_scratch_image
from .kubectl import Kubectl
from .locks import locked
from .processes import Daemon, Supervisor, wait
from .settings import Settings
from .stages import Stages

_CONTROL_PLANE = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler")
_NODE = ("containerd", "kubelet", "kube-proxy", "kube-router")
# Pods' processes first lose who would restart them, then the runtime goes, the API last.
_STOP_ORDER = (
    "kubelet",
    "kube-proxy",
    "kube-router",
    "kube-scheduler",
    "kube-controller-manager",
    "containerd",
    "kube-apiserver",
    "etcd",
)
# What `down` keeps, since making it again takes long: images, and nothing that remembers the cluster.
_KEPT = ("containerd", "logs", "images")


class EmbeddedProvider:
    """Implements `Provider` with a supervisor's pid files as its only memory."""

    name = "embedded"

    def __init__(self, settings: Settings, *, quiet: bool = False) -> None:
        self._settings = settings
        self._supervisor = Supervisor(settings.state)
        self._stages = Stages(f"cluster {settings.name}", quiet=quiet)

    @property
    def kubeconfig(self) -> Path:
        return self._settings.kubeconfig

    def up(self) -> Path:
        host.check_prerequisites()
        tools = require_tools(self._settings.cache)
        with self._locked():
            return self._up(tools)

    def down(self, *, purge: bool = False) -> None:
        host.check_prerequisites()
        with self._locked():
            self._down(purge=purge)

    def _locked(self) -> AbstractContextManager[None]:
        state = self._settings.state
        return locked(state.with_name(f"{state.name}.lock"), self._stages, "start or stop of this cluster")

    def _up(self, tools: Path) -> Path:
        plan = node.NodePlan(self._settings, self._control_plan(tools))
        self._settings.state.mkdir(parents=True, exist_ok=True)
        host.claim(self._settings)
        fresh = not (self._settings.state / "etcd").exists()
        with self._stages.stage("host: bridge, certificates, configuration"):
            host.prepare(self._settings)
            credentials = control.prepare(plan.control, self.kubeconfig)
            node.prepare(plan, credentials.ca)
        self._start(node.containerd(plan), self._containerd(tools).ready, 60)
        self._start_control_plane(plan.control, credentials)
        self._own_images(plan, fresh=fresh)
        self._start_node(plan)
        self._cluster_services(plan)
        self._stages.say(f"ready: export KUBECONFIG={self.kubeconfig}")
        return self.kubeconfig

    def _down(self, *, purge: bool) -> None:
        state = self._settings.state
        with self._stages.stage("stopping"):
            for name in dict.fromkeys((*_STOP_ORDER, *self._supervisor.names())):
                self._supervisor.stop(name, grace=1)
            problems = host.release(self._settings)
        if problems:
            raise ClusterError("could not be removed:\n  " + "\n  ".join(problems))
        if state.is_dir():
            for path in state.iterdir():
                if purge or path.name not in _KEPT:
                    shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
            if purge:
                state.rmdir()
        self._stages.say("down" + ("" if purge else "; images are kept, remove them too with --purge"))

    def load_image(self, archive: Path, ref: str) -> None:
        tools = require_tools(self._settings.cache)
        with self._stages.stage(f"image {ref}"):
            if not self._containerd(tools).load(archive, ref):
                self._stages.say(f"{ref} is there already")

    def status(self) -> dict[str, str]:
        return {name: self._state(name) for name in (*_CONTROL_PLANE, *_NODE)}

    def _state(self, name: str) -> str:
        record = self._supervisor.record(name)
        if record is None:
            return "stopped"
        return f"running, pid {record.pid}" if self._supervisor.alive(name) else "died"

    def _control_plan(self, tools: Path) -> control.ControlPlan:
        settings = self._settings
        return control.ControlPlan(
            name=settings.name,
            bin=tools,
            state=settings.state,
            ports=settings.ports,
            # The bridge's address serves host and pods alike and is reachable from nowhere else.
            address=settings.network.node_ip,
            network=settings.network,
        )

    def _containerd(self, tools: Path) -> Containerd:
        return Containerd(tools, node.NodePlan(self._settings, self._control_plan(tools)).socket)

    def _kubectl(self, plan: node.NodePlan) -> Kubectl:
        return Kubectl(plan.bin / "kubectl", self.kubeconfig)

    def _start(self, daemon: Daemon, ready: Callable[[], bool], timeout: float) -> bool:
        if self._supervisor.current(daemon) and ready():
            return False
        with self._stages.stage(daemon.name):
            self._supervisor.ensure(daemon)
            self._supervisor.wait_ready(daemon.name, ready, timeout)
        return True

    def _start_control_plane(self, plan: control.ControlPlan, credentials: control.Credentials) -> None:
        ca = credentials.ca.pair.cert
        self._start(control.etcd(plan), control.answers(f"{plan.etcd_url}/health"), 60)
        self._start(control.apiserver(plan, credentials), control.answers(f"{plan.server}/readyz", ca), 120)
        self._supervisor.ensure(control.controller_manager(plan, credentials))
        self._supervisor.ensure(control.scheduler(plan))

    def _own_images(self, plan: node.NodePlan, *, fresh: bool) -> None:
        """Load pause and CoreDNS; for a new cluster first forget the pods of the former."""
        containerd = self._containerd(plan.bin)
        if fresh and (forgotten := containerd.forget_containers()):
            self._stages.say(f"forgot {forgotten} containers of the former cluster")
            # Its Kubernetes part remembers them until it starts anew.
            self._supervisor.stop("containerd")
            self._start(node.containerd(plan), containerd.ready, 60)
        archives = self._settings.state / "images"
        for ref, program in ((PAUSE, "pause"), (COREDNS, "coredns")):
            archive = archives / f"{program}.tar"
            write_scratch_image(archive, ref, {f"/{program}": plan.bin / program}, [f"/{program}"])
            if containerd.load(archive, ref):
                self._stages.say(f"loaded {ref}")

    def _start_node(self, plan: node.NodePlan) -> None:
        healthz = f"http://{control.LOOPBACK}:{self._settings.ports.kubelet_healthz}/healthz"
        self._start(node.kubelet(plan), control.answers(healthz), 120)
        self._supervisor.ensure(node.kube_proxy(plan))
        kubectl, name = self._kubectl(plan), self._settings.node
        with self._stages.stage(f"node {name} ready"):
            started = self._supervisor.since("kubelet")
            self._supervisor.wait_ready("kubelet", lambda: _node_ready(kubectl, name, started), 120)
        # It wants to know the node, and its chains must stand before those that let everything through.
        self._start(node.kube_router(plan), firewall.enforces, 60)
        with self._stages.stage("accelerators"):
            hardware.advertise(kubectl, name, self._settings.hardware)

    def _cluster_services(self, plan: node.NodePlan) -> None:
        kubectl = self._kubectl(plan)
        with self._stages.stage("cluster DNS"):
            kubectl.apply(dns.manifests(self._settings.network))
            answered = wait(lambda: _available(kubectl), 120, interval=0.5)
        if not answered:
            pods = _answer(kubectl, "describe", "pods", f"--namespace={dns.NAMESPACE}")
            raise ClusterError(f"cluster DNS did not become ready:\n{pods}")
        account = ("get", "serviceaccount", "default", "--namespace=default")
        self._supervisor.wait_ready("kube-controller-manager", lambda: kubectl.succeeds(*account), 60)
        self._supervisor.wait_ready("kube-scheduler", lambda: self._supervisor.alive("kube-scheduler"), 5)
        proxy = control.answers(f"http://{control.LOOPBACK}:{self._settings.ports.proxy_healthz}/healthz")
        self._supervisor.wait_ready("kube-proxy", proxy, 60)


def _answer(kubectl: Kubectl, *arguments: str) -> str:
    try:
        return kubectl.run(*arguments)
    except ClusterError:
        return ""


def _node_ready(kubectl: Kubectl, node_name: str, since: float) -> bool:
    """Tell whether this kubelet, not the one before a crash, has called the node ready."""
    ready = "jsonpath={range .status.conditions[?(@.type=='Ready')]}{.status} {.lastHeartbeatTime}{end}"
    status, _, heartbeat = _answer(kubectl, "get", "node", node_name, "-o", ready).partition(" ")
    # The API's times have whole seconds.
    return status == "True" and datetime.fromisoformat(heartbeat).timestamp() >= int(since)


def _available(kubectl: Kubectl) -> bool:
    """Ask CoreDNS itself: after a crash the API still tells what was true before it."""
    jsonpath = "jsonpath={range .items[*]}{.status.podIP} {end}"
    addresses = _answer(
        kubectl, "get", "pods", f"--namespace={dns.NAMESPACE}", f"--selector={dns.SELECTOR}", "-o", jsonpath
    ).split()
    return any(control.answers(f"http://{address}:{dns.READY_PORT}/ready")() for address in addresses)
