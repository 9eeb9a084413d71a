"""`make demo`: from nothing to a pool that is Ready and whose reuse is proven."""

from __future__ import annotations

import argparse
import sys
import time

from rich.console import Console
from rich.table import Table

from e2e.cluster.errors import ClusterError
from e2e.harness.install import NAMESPACE, RELEASE, Installation
from e2e.harness.kube import Json, Kube, WaitTimeoutError
from e2e.harness.pools import tiny_pool
from e2e.harness.traffic import complete

POOL, IN = "demo", "kvcachepool-demo"
_MARK = {"True": "[green]True[/]", "False": "[red]False[/]"}


def up(installation: Installation, console: Console) -> None:
    """Install the operator, apply the pool, wait, and show it."""
    installation.start()
    kube, stages = installation.kube, installation.stages
    with stages.stage("helm install, two operator replicas ready"):
        installation.install()
    with stages.stage("pool applied"):
        kube.namespace(IN, enforce="restricted")
        kube.create(tiny_pool(installation.images, POOL, IN))
    with stages.stage("store and both engines ready"):
        _follow(kube, stages.say)
    with stages.stage("reuse verified: one engine answered from what the other computed"):
        kube.wait_condition(IN, POOL, "ReuseVerified", "True", timeout=600)
    with stages.stage("some users' requests, each prompt first to one engine, then to the other"):
        _traffic(kube)
    _show(kube, console)


def _follow(kube: Kube, say: object) -> None:
    """Print each new reason of Ready while it is not True."""
    assert callable(say)
    deadline, last = time.monotonic() + 1200, ""
    while True:
        found = kube.condition(IN, POOL, "Ready")
        line = f"  Ready={found.get('status', '?')} {found.get('reason', '')}: {found.get('message', '')}"
        if line != last:
            say(line)
            last = line
        if found.get("status") == "True":
            return
        if time.monotonic() > deadline:
            raise WaitTimeoutError(f"the pool is not Ready after 20 minutes\n{kube.describe(IN, POOL)}")
        time.sleep(2)


def _traffic(kube: Kube) -> None:
    """A few prompts, so that there is a hit rate to show: the probe's own tokens do not count."""
    pods = kube.items("pods", "-n", IN, "-l", "kvcachepool.io/component=engine")
    engines = [pod["metadata"]["name"] for pod in pods]
    for number in range(3):
        prompt = [(7 * i + 13 * number) % 400 + 20 for i in range(2048)]
        for engine in engines:
            complete(kube, IN, engine, prompt)
    kube.wait("a hit rate", lambda: kube.pool(IN, POOL)["status"].get("hitRate", {}).get("total"), timeout=120)


def _show(kube: Kube, console: Console) -> None:
    status: Json = kube.pool(IN, POOL)["status"]
    console.print(kube.run("get", "kvpool", "-n", IN), highlight=False)
    table = Table("condition", "status", "reason", "message", title="Conditions")
    for condition in status["conditions"]:
        mark = _MARK.get(condition["status"], condition["status"])
        table.add_row(condition["type"], mark, condition["reason"], condition.get("message", ""))
    console.print(table)
    seen = status["verification"]
    console.print(
        f"A prompt of {seen['promptTokens']} tokens, time to first token: "
        f"recomputed {seen['ttftRecomputeMs']} ms, from the pool {seen['ttftReuseMs']} ms "
        f"({seen['reusedTokens']} tokens reused).",
        highlight=False,
    )
    console.print(
        f"""
Look further:
  eval "$(.venv/bin/python -m e2e.cluster env)"
  kubectl get kvpool -n {IN} {POOL} -o yaml
  kubectl get pods -n {IN} -o wide
  kubectl get events -n {IN} --field-selector involvedObject.kind=KVCachePool
Remove everything:
  make demo-down""",
        highlight=False,
        markup=False,
    )


def down(installation: Installation) -> None:
    """Stop the cluster; with a provider that keeps it, remove what the demo made."""
    if installation.provider.name == "existing":
        installation.start()
        installation.kube.run("delete", "namespace", IN, "--ignore-not-found")
        installation.helm("uninstall", RELEASE, "--namespace", NAMESPACE, "--ignore-not-found")
    else:
        installation.provider.down()


def main(arguments: list[str] | None = None) -> int:
    """Command line."""
    parser = argparse.ArgumentParser(prog="python -m e2e.demo", description=__doc__)
    parser.add_argument("command", choices=["up", "down"], nargs="?", default="up")
    options = parser.parse_args(arguments)
    installation = Installation("demo")
    try:
        if options.command == "down":
            down(installation)
        else:
            up(installation, Console(width=None if sys.stdout.isatty() else 160))
    except (ClusterError, WaitTimeoutError, RuntimeError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
