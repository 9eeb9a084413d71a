"""A bounded loop of requests from a pod of its own, through the pool's Service."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from e2e.harness.kube import Kube

_SCRIPT = """
import json, sys, time, urllib.request
url, prompts, seconds = sys.argv[1], json.loads(sys.argv[2]), float(sys.argv[3])
end, number = time.monotonic() + seconds, 0
while time.monotonic() < end:
    which = number % len(prompts)
    body = {"model": "tiny", "prompt": prompts[which], "max_tokens": 8, "temperature": 0, "return_token_ids": True}
    request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
    try:
        answer = json.load(urllib.request.urlopen(request, timeout=90))
        said = {"prompt": which, "tokens": answer["choices"][0]["token_ids"]}
    except Exception as error:
        said = {"prompt": which, "error": f"{type(error).__name__}: {error}"}
    print(json.dumps(said), flush=True)
    number += 1
    time.sleep(0.5)
"""


class Load:
    """What the loop has seen so far."""

    def __init__(self, kube: Kube, namespace: str, name: str) -> None:
        self._kube, self._namespace, self._name = kube, namespace, name

    def answers(self) -> list[dict[str, Any]]:
        """Every request's outcome: `prompt` and either `tokens` or `error`."""
        log = self._kube.run("logs", "-n", self._namespace, self._name)
        return [json.loads(line) for line in log.splitlines() if line.startswith("{")]


@contextmanager
def load(
    kube: Kube, namespace: str, image: str, url: str, prompts: list[list[int]], *, seconds: int = 1800
) -> Iterator[Load]:
    """Requests one after the other while the context lasts, at most `seconds`."""
    name = "load"
    container = {
        "name": name,
        "image": image,
        "imagePullPolicy": "Never",
        "command": ["python3", "-c", _SCRIPT, url, json.dumps(prompts), str(seconds)],
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    }
    identity = {"runAsNonRoot": True, "runAsUser": 65532, "seccompProfile": {"type": "RuntimeDefault"}}
    kube.create(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": namespace},
            "spec": {
                "restartPolicy": "Never",
                "enableServiceLinks": False,
                "terminationGracePeriodSeconds": 1,
                "securityContext": identity,
                "containers": [container],
            },
        }
    )
    try:
        yield Load(kube, namespace, name)
    finally:
        kube.run("delete", "pod", name, "-n", namespace, "--ignore-not-found")
