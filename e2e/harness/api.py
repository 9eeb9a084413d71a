"""Plain calls to the API server, for tests that make hundreds of them."""

import base64
import json
import ssl
import tempfile
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import yaml

Json = dict[str, Any]


class Api:
    """The API server that a kubeconfig with client certificates leads to."""

    def __init__(self, kubeconfig: Path) -> None:
        config = yaml.safe_load(kubeconfig.read_text(encoding="utf-8"))
        cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
        self.server = cluster["server"]
        self._context = ssl.create_default_context(
            cadata=base64.b64decode(cluster["certificate-authority-data"]).decode()
        )
        with tempfile.NamedTemporaryFile(suffix=".pem") as file:
            file.write(base64.b64decode(user["client-certificate-data"]) + base64.b64decode(user["client-key-data"]))
            file.flush()
            self._context.load_cert_chain(file.name)

    def call(self, method: str, path: str, body: Any = None, content: str = "application/json") -> tuple[int, Json]:
        """Status code and answer."""
        data = json.dumps(body).encode() if body is not None else None
        request = urllib.request.Request(f"{self.server}{path}", data, {"Content-Type": content}, method=method)
        try:
            with urllib.request.urlopen(request, context=self._context, timeout=60) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            return error.code, json.load(error)

    def create_pod(self, pod: Json, *, keep: bool = False) -> str:
        """Empty when the pod is let in, else the API server's words. Nothing is stored unless `keep`."""
        dry = "" if keep else "?dryRun=All"
        code, answer = self.call("POST", f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods{dry}", pod)
        return "" if code < 300 else str(answer["message"])

    def patch_pod(self, namespace: str, name: str, patch: Json, subresource: str = "") -> str:
        """Empty when the change is let in."""
        path = f"/api/v1/namespaces/{namespace}/pods/{name}{subresource}"
        code, answer = self.call("PATCH", path, patch, "application/merge-patch+json")
        return "" if code < 300 else str(answer["message"])
