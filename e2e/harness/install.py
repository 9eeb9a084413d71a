"""From nothing to an installed operator: images, cluster, chart."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from e2e.cluster import builder
from e2e.cluster.provider import Provider, get_provider
from e2e.cluster.stages import Stages
from e2e.harness.kube import Kube
from images import build as images

REPOSITORY = Path(__file__).parents[2]
CHART = REPOSITORY / "charts" / "kvcachepool-operator"
NAMESPACE = "kvcachepool-system"
RELEASE = "kvcachepool"
IMAGES = ("operator", "mooncake", "engine-cpu")


class Installation:
    """A running cluster with our images in it."""

    def __init__(self, prefix: str) -> None:
        self.stages = Stages(prefix)
        self.provider: Provider = get_provider()
        self.images: dict[str, str] = {}

    def start(self) -> None:
        """Cluster up and images loaded; quick when they are."""
        tools = builder.build()
        with self.stages.stage(f"{self.provider.name} cluster"):
            self.provider.up()
        self.kube = Kube(tools / "kubectl", self.provider.kubeconfig)
        self._helm = tools / "helm"
        for name in IMAGES:
            with self.stages.stage(f"image {name}"):
                built = images.build(name)
                self.provider.load_image(built.archive, built.ref)
                self.images[name] = built.ref

    def helm(self, *arguments: str) -> str:
        """Run helm against the cluster; its own words are the error's text."""
        environment = {**os.environ, "KUBECONFIG": str(self.provider.kubeconfig)}
        outcome = subprocess.run(
            [str(self._helm), *arguments], capture_output=True, text=True, check=False, env=environment
        )
        if outcome.returncode:
            raise RuntimeError(f"helm {' '.join(arguments)}: {outcome.stderr.strip()}")
        return outcome.stdout

    def install(self, *values: str, release: str = RELEASE, namespace: str = NAMESPACE) -> str:
        """Install or upgrade the chart with the image that was built; waits until both replicas are ready."""
        reference, tag = self.images["operator"].rsplit(":", 1)
        registry, repository = reference.split("/", 1)
        settings = [
            f"--set=image.registry={registry}",
            f"--set=image.repository={repository}",
            f"--set=image.tag={tag}",
            "--set=image.pullPolicy=Never",
        ]
        return self.helm(
            "upgrade", "--install", release, str(CHART), "--namespace", namespace, "--create-namespace", "--wait",
            "--timeout=180s", *settings, *values,
        )  # fmt: skip

    def operator(self, replicas: int, *, release: str = RELEASE, namespace: str = NAMESPACE) -> None:
        """Scale the operator and wait until no pod is left or all are ready."""
        self.kube.run("scale", "deployment", "-n", namespace, "-l", f"app.kubernetes.io/instance={release}",
                      f"--replicas={replicas}")  # fmt: skip
        selector = f"app.kubernetes.io/instance={release}"

        def settled() -> bool:
            pods = self.kube.items("pods", "-n", namespace, "-l", selector)
            ready = [p for p in pods if any(c.get("ready") for c in p["status"].get("containerStatuses", []))]
            return len(pods) == len(ready) == replicas

        self.kube.wait(f"{replicas} operator pods", settled, timeout=120)
