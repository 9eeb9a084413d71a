"""Requests to one engine from inside its own pod: no port-forward to keep alive, no way out of the pod network."""

from __future__ import annotations

import json
from typing import Any

from e2e.harness.kube import Kube

_SCRIPT = """
import json, sys, urllib.request
body = sys.stdin.buffer.read()
request = urllib.request.Request("http://127.0.0.1:8000/v1/completions", body, {"Content-Type": "application/json"})
sys.stdout.write(urllib.request.urlopen(request, timeout=float(sys.argv[1])).read().decode())
"""


def complete(
    kube: Kube, namespace: str, pod: str, prompt: list[int], *, tokens: int = 8, timeout: float = 120
) -> dict[str, Any]:
    """Greedy completion of a prompt of token ids; the engine's whole answer."""
    body = {"model": "tiny", "prompt": prompt, "max_tokens": tokens, "temperature": 0}
    answer = kube.run(
        "exec", "-i", "-n", namespace, pod, "-c", "engine", f"--request-timeout={timeout + 30:.0f}s", "--",
        "python3", "-c", _SCRIPT, str(timeout), data=json.dumps(body),
    )  # fmt: skip
    result: dict[str, Any] = json.loads(answer)
    return result
