"""An API server with its controllers and no node, for tests and benches.

What most tests need from a cluster is its API: CEL rules, admission policies,
RBAC, server-side apply, garbage collection. This gives exactly that in
seconds, in a folder of its own, on free loopback ports, several at a time.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import shutil
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Self

from . import control, processes
from .builder import require_tools
from .kubectl import Kubectl
from .processes import Record, Supervisor
from .settings import Ports
from .stages import Stages

_PREFIX = "kvcp-plane-"


class ControlPlane:
    """A context manager: started on entry, gone with its folder on exit.

    with ControlPlane() as plane:
        plane.kubectl.run("get", "namespaces")
        plane.stop_apiserver()
        ...
        plane.start_apiserver()
    """

    def __init__(
        self,
        *,
        scheduler: bool = False,
        controller_manager: bool = True,
        tools: Path | None = None,
        apiserver_args: tuple[str, ...] = (),
        keep: bool = False,
        quiet: bool = True,
    ) -> None:
        self._tools = tools
        self._with_scheduler = scheduler
        self._with_controllers = controller_manager
        self._apiserver_args = apiserver_args
        self._keep = keep
        self._stages = Stages("control plane", quiet=quiet)
        self.folder = Path()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def kubeconfig(self) -> Path:
        """Credentials of a cluster administrator."""
        return self.folder / "kubeconfig"

    @property
    def server(self) -> str:
        return self._plan.server

    @property
    def kubectl(self) -> Kubectl:
        return Kubectl(self._plan.bin / "kubectl", self.kubeconfig)

    def start(self) -> None:
        tools = self._tools or require_tools()
        sweep()
        self.folder = Path(tempfile.mkdtemp(prefix=_PREFIX))
        (self.folder / "owner.json").write_text(json.dumps(processes.myself().__dict__))
        atexit.register(self.stop)
        self._plan = control.ControlPlan(
            name="control-plane",
            bin=tools,
            state=self.folder,
            ports=Ports.free(),
            extra_apiserver=self._apiserver_args,
        )
        self._supervisor = Supervisor(self.folder)
        try:
            self._start()
        except BaseException:
            self._keep = True  # the logs say why
            self.stop()
            raise

    def _start(self) -> None:
        self._credentials = control.prepare(self._plan, self.kubeconfig)
        with self._stages.stage("etcd"):
            self._supervisor.ensure(control.etcd(self._plan))
            self._supervisor.wait_ready("etcd", control.answers(f"{self._plan.etcd_url}/health"), 30)
        self.start_apiserver()
        with self._stages.stage("controllers"):
            if self._with_scheduler:
                self._supervisor.ensure(control.scheduler(self._plan))
            if self._with_controllers:
                self._supervisor.ensure(control.controller_manager(self._plan, self._credentials))
                # Pods are refused until the namespace has its service account.
                account = ("get", "serviceaccount", "default", "--namespace=default")
                self._supervisor.wait_ready("kube-controller-manager", lambda: self.kubectl.succeeds(*account), 60)

    def start_apiserver(self) -> None:
        """Start the API server (again) on the same port with the same data and wait until it is ready."""
        with self._stages.stage("kube-apiserver"):
            self._supervisor.ensure(control.apiserver(self._plan, self._credentials))
            ready = control.answers(f"{self._plan.server}/readyz", self._credentials.ca.pair.cert)
            self._supervisor.wait_ready("kube-apiserver", ready, 90)

    def stop_apiserver(self, *, kill: bool = True) -> None:
        """Cut clients off from the API server, at once unless `kill` is false; etcd keeps the data."""
        if kill:
            self._supervisor.kill("kube-apiserver")
        self._supervisor.stop("kube-apiserver")

    def log(self, component: str) -> str:
        """Return the end of a component's log, for a failing test's message."""
        return self._supervisor.tail(component, 200)

    def stop(self) -> None:
        """Stop all by their recorded pids; the data is thrown away, so nobody needs to say goodbye."""
        _end(self._supervisor)
        atexit.unregister(self.stop)
        if not self._keep:
            shutil.rmtree(self.folder, ignore_errors=True)


def sweep(parent: Path | None = None) -> list[Path]:
    """Stop what test runs left behind that were killed before they could; returns the removed folders."""
    removed = []
    for folder in (parent or Path(tempfile.gettempdir())).glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError, ValueError, TypeError):  # it is just being made or removed
            owner = Record(**json.loads((folder / "owner.json").read_text()))
            if not owner.alive():
                _end(Supervisor(folder))
                shutil.rmtree(folder)
                removed.append(folder)
    return removed


def _end(supervisor: Supervisor) -> None:
    # Clients first; their order does not matter for data that is thrown away, only for what they log.
    for name in ("kube-scheduler", "kube-controller-manager", "kube-apiserver", "etcd"):
        supervisor.kill(name)
        supervisor.stop(name)
