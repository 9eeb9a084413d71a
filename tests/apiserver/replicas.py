"""Replicas of the operator as processes, each with the chart's account and a link of its own to the API server.

The test is their kubelet: one that ends, or whose /healthz fails three times, is started anew.
"""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import yaml

from e2e.cluster.controlplane import ControlPlane
from tests.apiserver.conftest import ROOT
from tests.apiserver.links import Link
from tests.chart import helm

ACCOUNT = "kvcp-kvcachepool-operator"
LEASE = "resilience"
_ROLES = {"ServiceAccount", "Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding"}
_FAILURES_TO_RESTART = 3


def roles() -> list[dict[str, Any]]:
    """What the chart gives the operator's account, cluster-wide."""
    return [item for item in helm.template() if item["kind"] in _ROLES]


class Replica:
    """One replica; `tend` is what the kubelet does with it."""

    def __init__(self, plane: ControlPlane, folder: Path, name: str, source: str) -> None:
        self.name = name
        host, port = plane.server.removeprefix("https://").split(":")
        self.link = Link((host, int(port)), source)
        self.link.__enter__()
        config = yaml.safe_load(plane.kubectl.run("config", "view", "--raw", "-o", "yaml"))
        self.token = plane.kubectl.run("create", "token", ACCOUNT, f"--namespace={helm.NAMESPACE}").strip()
        config["clusters"][0]["cluster"]["server"] = f"https://127.0.0.1:{self.link.port}"
        config["users"][0]["user"] = {"token": self.token}
        self._kubeconfig = folder / f"{name}.yaml"
        self._kubeconfig.write_text(yaml.safe_dump(config))
        self.log = folder / f"{name}.log"
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self._port = free.getsockname()[1]
        self.starts = 0
        self._failures = 0
        self.away = False
        self.start()

    def start(self) -> None:
        environment = {
            **os.environ,
            "KUBECONFIG": str(self._kubeconfig),
            "PYTHONPATH": str(ROOT / "operator"),
            "KVCP_LEASE_NAMESPACE": helm.NAMESPACE,
            "KVCP_LEASE_NAME": LEASE,
            "KVCP_IDENTITY": self.name,
            "KVCP_HTTP_PORT": str(self._port),
            "KVCP_RESYNC_SECONDS": "5",
        }
        with self.log.open("a") as output:
            command = [sys.executable, "-m", "kvcachepool.cli", "run"]
            self.process = subprocess.Popen(command, env=environment, stdout=output, stderr=subprocess.STDOUT)
        self.starts += 1
        self._failures = 0

    def get(self, path: str) -> tuple[int, str]:
        """Status and body; (0, why) without an answer."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self._port}{path}", timeout=5) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()
        except OSError as error:
            return 0, str(error)

    @property
    def leads(self) -> bool:
        return re.search(r"^kvcachepool_operator_leader 1", self.get("/metrics")[1], re.M) is not None

    def tend(self) -> None:
        """Called every second or so."""
        if self.away:
            return
        if self.process.poll() is not None:
            self.start()
            return
        code, _ = self.get("/healthz")
        self._failures = self._failures + 1 if code >= 400 else 0
        if self._failures >= _FAILURES_TO_RESTART:
            self.process.terminate()
            self.process.wait(timeout=30)
            self.start()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Frozen, as a process on an overcommitted machine; it knows nothing of it afterwards."""
        self.process.send_signal(signal.SIGSTOP)
        with self.untended():
            yield
        self.process.send_signal(signal.SIGCONT)

    @contextmanager
    def untended(self) -> Iterator[None]:
        """Without a kubelet, as on a node that is lost: within the context nobody starts it anew."""
        self.away = True
        try:
            yield
        finally:
            self.away = False

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(timeout=30)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        self.link.__exit__(None, None, None)


@dataclass
class Replicas:
    """All replicas, tended while a test waits."""

    all: list[Replica] = field(default_factory=list)

    def until(self, holds: Callable[[], Any], seconds: float, what: str) -> float:
        """Seconds until it held; fails with the ends of the logs when it did not within `seconds`."""
        started = time.monotonic()
        while True:
            for replica in self.all:
                replica.tend()
            if holds():
                return time.monotonic() - started
            assert time.monotonic() - started < seconds, f"{what}: not within {seconds:.0f} s\n{self._logs()}"
            time.sleep(1)

    @property
    def leaders(self) -> list[Replica]:
        return [replica for replica in self.all if not replica.away and replica.leads]

    def leader(self, seconds: float = 40) -> Replica:
        """The one that leads."""
        self.until(lambda: len(self.leaders) == 1, seconds, "one leads")
        return self.leaders[0]

    def follower(self) -> Replica:
        leader = self.leader()
        return next(replica for replica in self.all if replica is not leader)

    def _logs(self) -> str:
        return "\n".join(
            f"--- {replica.name}, started {replica.starts} times\n"
            + "\n".join(replica.log.read_text().splitlines()[-25:])
            for replica in self.all
        )


AUDIT_POLICY = """\
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
  - level: Request
    verbs: [create, update, patch, delete]
    resources: [{group: coordination.k8s.io, resources: [leases]}]
    namespaces: [NAMESPACE]
  - level: Metadata
    verbs: [create, update, patch, delete]
    users: ["system:serviceaccount:NAMESPACE:ACCOUNT"]
  - level: None
""".replace("NAMESPACE", helm.NAMESPACE).replace("ACCOUNT", ACCOUNT)


@dataclass(frozen=True)
class Write:
    """One write that the API server accepted."""

    time: float
    source: str
    what: str
    holder: str | None
    """Of a write to the Lease: who holds it afterwards."""


def writes(audit: Path) -> list[Write]:
    """By time; each at the moment when the API server had done it."""
    found = []
    for line in audit.read_text().splitlines():
        entry = json.loads(line)
        if not 200 <= entry["responseStatus"]["code"] <= 299:
            continue
        about, body = entry["objectRef"], entry.get("requestObject") or {}
        lease = about["resource"] == "leases" and about.get("name", LEASE) == LEASE
        if about["resource"] == "leases" and not lease:
            continue
        found.append(
            Write(
                datetime.fromisoformat(entry["stageTimestamp"]).timestamp(),
                entry["sourceIPs"][0],
                f"{entry['verb']} {about['resource']} {about.get('name', '')}",
                (body.get("spec") or {}).get("holderIdentity", "") if lease else None,
            )
        )
    return sorted(found, key=lambda write: write.time)


def overlaps(found: list[Write], names: dict[str, str]) -> list[Write]:
    """Writes of a replica (by source address in `names`) while another held the Lease."""
    holder, wrong = "", []
    for write in found:
        if write.holder is not None:
            holder = write.holder
        elif holder and names[write.source] != holder:
            wrong.append(write)
    return wrong
