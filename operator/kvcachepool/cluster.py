"""The only module that calls the API server (leader.py keeps the Lease through the client made here).

Children and status are written by server-side apply. Every write first asks how long this replica may still
write (the Lease's rest): without time left it raises NotLeaderError, and no write may take longer than that.
"""

import json
import logging
import math
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import aiohttp
from kubernetes.aio.client import ApiClient, Configuration
from kubernetes.aio.config import ConfigException, load_incluster_config, load_kube_config

from kvcachepool import constants
from kvcachepool.crd_skew import REMEDY, Path, undeclared_field, without

logger = logging.getLogger(__name__)

Json = dict[str, Any]

_TIMEOUT_SECONDS = 15.0
_PAGE = 200
"""Objects of an answer: the whole list of the pods of many pools would take more memory than all else."""
_MAX_MESSAGE = 1024
_SHOWN_ERROR = 500
_APPLY = "application/apply-patch+yaml"
_SKEW_SECONDS = 600.0
"""How long a field counts as undeclared before it is tried again: the CRD may have been upgraded."""
_METADATA_ONLY = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"


@dataclass(frozen=True, slots=True)
class Resource:
    """Where objects of a kind are served."""

    prefix: str
    plural: str

    def path(self, namespace: str | None, name: str = "", subresource: str = "") -> str:
        """URL path of one object, of a namespace's list, or (namespace None) of the list of all."""
        where = f"/namespaces/{namespace}" if namespace is not None else ""
        return "/".join(part for part in (f"{self.prefix}{where}/{self.plural}", name, subresource) if part)


RESOURCES: Mapping[str, Resource] = {
    constants.KIND: Resource(f"/apis/{constants.API_VERSION}", constants.PLURAL),
    "Pod": Resource("/api/v1", "pods"),
    "Service": Resource("/api/v1", "services"),
    "ConfigMap": Resource("/api/v1", "configmaps"),
    "Secret": Resource("/api/v1", "secrets"),
    "PersistentVolumeClaim": Resource("/api/v1", "persistentvolumeclaims"),
    "Event": Resource("/api/v1", "events"),
    "EndpointSlice": Resource("/apis/discovery.k8s.io/v1", "endpointslices"),
    "PodDisruptionBudget": Resource("/apis/policy/v1", "poddisruptionbudgets"),
    "NetworkPolicy": Resource("/apis/networking.k8s.io/v1", "networkpolicies"),
    "Deployment": Resource("/apis/apps/v1", "deployments"),
    "LeaderWorkerSet": Resource("/apis/leaderworkerset.x-k8s.io/v1", "leaderworkersets"),
    "DaemonSet": Resource("/apis/apps/v1", "daemonsets"),
    "Node": Resource("/api/v1", "nodes"),
    "Lease": Resource("/apis/coordination.k8s.io/v1", "leases"),
    "MutatingWebhookConfiguration": Resource("/apis/admissionregistration.k8s.io/v1", "mutatingwebhookconfigurations"),
}


class ApiError(Exception):
    """The API server refused or could not be reached. `status` is the HTTP status, 0 without an answer.

    `retry`: it may pass by itself (conflict, throttling, server or network trouble); otherwise the user or
    the installation must change something (forbidden, invalid, quota).
    """

    def __init__(self, status: int, message: str, *, retry: bool | None = None) -> None:
        super().__init__(f"{message} (HTTP {status})" if status else message)
        self.status = status
        self.message = message
        self.retry = status in (0, 401, 404, 408, 409, 410, 429) or status >= 500 if retry is None else retry


class NotLeaderError(Exception):
    """A write was attempted without time left on the Lease; nothing was sent."""


async def connect() -> ApiClient:
    """A client from the pod's service account, else from the kubeconfig."""
    configuration = Configuration()
    try:
        load_incluster_config(client_configuration=configuration)  # type: ignore[no-untyped-call]
    except ConfigException:
        await load_kube_config(client_configuration=configuration)  # type: ignore[no-untyped-call]
    return ApiClient(configuration)


async def connection(client: ApiClient) -> Json:
    """What another HTTP client needs to connect as this one does: server, ca_path, token, certificate paths."""
    configuration = client.configuration
    header = await configuration.get_api_key_with_prefix("BearerToken") or ""
    return {
        "server": configuration.host,
        "ca_path": configuration.ssl_ca_cert,
        "insecure": not configuration.verify_ssl,
        "token": header.split(" ", 1)[-1] or None,
        "certificate_path": configuration.cert_file,
        "private_key_path": configuration.key_file,
    }


class Cluster:
    """Calls to the API server, counted by verb."""

    def __init__(
        self,
        client: ApiClient,
        *,
        write_seconds_left: Callable[[], float] = lambda: math.inf,
        on_call: Callable[[str, str, int], None] = lambda _verb, _kind, _status: None,
        identity: str = "",
    ) -> None:
        self._client = client
        self._write_seconds_left = write_seconds_left
        self._on_call = on_call
        self._identity = identity
        self._undeclared: dict[Path, float] = {}

    def undeclared(self) -> tuple[Path, ...]:
        """Status fields that the installed CRD does not know; empty unless it is older than the operator."""
        now = time.monotonic()
        self._undeclared = {path: until for path, until in self._undeclared.items() if until > now}
        return tuple(self._undeclared)

    async def served(self, kind: str = constants.KIND) -> bool:
        """Whether a CRD is installed and served; ours when none is named."""
        resource = RESOURCES[kind]
        try:
            found = await self._json("discover", kind, "GET", resource.prefix)
        except ApiError as error:
            if error.status == 404:
                return False
            raise
        return any(entry.get("name") == resource.plural for entry in found.get("resources", ()))

    async def get(self, kind: str, namespace: str | None, name: str) -> Json | None:
        """One object, or None when there is none."""
        try:
            return await self._json("get", kind, "GET", RESOURCES[kind].path(namespace, name))
        except ApiError as error:
            if error.status == 404:
                return None
            raise

    async def exists(self, kind: str, namespace: str, name: str) -> bool:
        """Whether an object exists; only its metadata is read, so that no secret value ever arrives here."""
        try:
            await self._json("get", kind, "GET", RESOURCES[kind].path(namespace, name), accept=_METADATA_ONLY)
        except ApiError as error:
            if error.status == 404:
                return False
            raise
        return True

    async def keys(self, kind: str, namespace: str, name: str) -> frozenset[str] | None:
        """Names of the data keys of a Secret or ConfigMap, None when there is none; values are dropped at once."""
        found = await self.get(kind, namespace, name)
        return None if found is None else frozenset(found.get("data") or ()) | frozenset(found.get("binaryData") or ())

    async def config(self, namespace: str, name: str) -> Mapping[str, str] | None:
        """The data of a ConfigMap, None when there is none."""
        found = await self.get("ConfigMap", namespace, name)
        return None if found is None else found.get("data") or {}

    async def list(
        self, kind: str, namespace: str | None, selector: str = "", *, keep: Callable[[Json], Json] = lambda item: item
    ) -> tuple[list[Json], str]:
        """All objects of a kind (in one namespace, or None for all) and the version of the list. `keep` gives what is
        kept of each while the next page is read."""
        items: list[Json] = []
        query = [("limit", str(_PAGE))] + ([("labelSelector", selector)] if selector else [])
        following = ""
        while True:
            page = await self._json(
                "list", kind, "GET", RESOURCES[kind].path(namespace),
                query=[*query, ("continue", following)] if following else query,
            )  # fmt: skip
            for item in page.get("items") or ():
                item["kind"] = kind
                items.append(keep(item))
            following = page["metadata"].get("continue") or ""
            if not following:
                return items, page["metadata"].get("resourceVersion", "")

    async def merge(
        self, kind: str, namespace: str | None, name: str, patch: Mapping[str, Any], *, strategic: bool = False
    ) -> Json:
        """Merges `patch` into an object that is not a pool's; `strategic`: lists by their items' keys. With a
        resourceVersion in it, a 409 says that the object was changed since."""
        content = f"application/{'strategic-' if strategic else ''}merge-patch+json"
        path = RESOURCES[kind].path(namespace, name)
        query = [("fieldManager", constants.FIELD_MANAGER)]
        return await self._json("patch", kind, "PATCH", path, query=query, body=patch, content_type=content)

    async def apply(self, obj: Mapping[str, Any], *, uid: str = "") -> Json:
        """Server-side apply of the fields in `obj`; the answer is the whole object.

        With `uid`, only an object of that uid is changed: a 409 says that another has its name.
        """
        metadata = dict(obj["metadata"]) | ({"uid": uid} if uid else {})
        path = RESOURCES[obj["kind"]].path(metadata["namespace"], metadata["name"])
        return await self._apply(obj["kind"], path, {**obj, "metadata": metadata})

    async def apply_status(self, namespace: str, name: str, uid: str, status: Mapping[str, Any]) -> Json:
        """Server-side apply of a pool's whole status; fields left out are removed.

        Fields that an older CRD does not declare are left out and remembered (`undeclared`).
        """
        path = RESOURCES[constants.KIND].path(namespace, name, "status")
        while True:
            body = {
                "apiVersion": constants.API_VERSION,
                "kind": constants.KIND,
                "metadata": {"namespace": namespace, "name": name, "uid": uid},
                "status": without(status, self.undeclared()),
            }
            try:
                return await self._apply(constants.KIND, path, body)
            except ApiError as error:
                unknown = undeclared_field(error.message)
                if unknown is None or unknown in self._undeclared:
                    raise
                self._undeclared[unknown] = time.monotonic() + _SKEW_SECONDS
                logger.warning("status.%s is not written: %s", ".".join(unknown), REMEDY)

    async def delete(self, kind: str, namespace: str, name: str, uid: str, *, grace_seconds: int | None = None) -> None:
        """Deletes the object of that uid; already gone or replaced by another is as good. `grace_seconds` replaces the
        time that a pod has to end."""
        body: Json = {"propagationPolicy": "Background", "preconditions": {"uid": uid}}
        if grace_seconds is not None:
            body["gracePeriodSeconds"] = grace_seconds
        try:
            await self._json("delete", kind, "DELETE", RESOURCES[kind].path(namespace, name), body=body)
        except ApiError as error:
            if error.status not in (404, 409):
                raise

    async def evict(self, namespace: str, pod: str, uid: str) -> bool:
        """Evicts the pod of that uid; whether it goes. It stays if its PodDisruptionBudget wants so (429), or if it is
        gone already."""
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": pod, "namespace": namespace},
            "deleteOptions": {"preconditions": {"uid": uid}},
        }
        try:
            path = RESOURCES["Pod"].path(namespace, pod, "eviction")
            await self._json("create", "Eviction", "POST", path, body=body)
        except ApiError as error:
            if error.status in (404, 409, 429):
                return False
            raise
        return True

    async def create(self, obj: Mapping[str, Any]) -> Json:
        """Creates an object; a 409 says that the name is taken."""
        path = RESOURCES[obj["kind"]].path(obj["metadata"]["namespace"])
        return await self._json("create", obj["kind"], "POST", path, body=obj)

    async def update(self, obj: Mapping[str, Any]) -> Json:
        """Replaces an object; a 409 says that it has changed since it was read."""
        path = RESOURCES[obj["kind"]].path(obj["metadata"]["namespace"], obj["metadata"]["name"])
        return await self._json("update", obj["kind"], "PUT", path, body=obj)

    async def post_event(
        self, key: tuple[str, str], uid: str, kind: str, reason: str, message: str, *, about: str = constants.KIND
    ) -> None:
        """Posts an Event about a pool, or about the `Pod` of that namespace and name; `kind` is Normal or Warning."""
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        namespace, name = key
        body = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"namespace": namespace, "name": f"{name[:200].rstrip('.-')}.{uuid.uuid4().hex[:16]}"},
            "involvedObject": {
                "apiVersion": constants.API_VERSION if about == constants.KIND else "v1", "kind": about,
                "namespace": namespace, "name": name, "uid": uid,
            },
            "type": kind,
            "reason": reason,
            "message": message if len(message) <= _MAX_MESSAGE else message[: _MAX_MESSAGE - 1] + "…",
            "source": {"component": constants.FIELD_MANAGER},
            "reportingComponent": constants.FIELD_MANAGER,
            "reportingInstance": self._identity,
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
        }  # fmt: skip
        await self.create(body)

    async def pod_log(
        self, namespace: str, pod: str, container: str, *, previous: bool, tail_lines: int | None, limit_bytes: int
    ) -> str:
        """A container's log: all of it, or the last `tail_lines`; of that the first `limit_bytes`. Empty when there is
        none."""
        query = [
            ("container", container),
            ("previous", str(previous).lower()),
            *([("tailLines", str(tail_lines))] if tail_lines is not None else []),
            ("limitBytes", str(limit_bytes)),
        ]
        try:
            data = await self._call("get", "Log", "GET", RESOURCES["Pod"].path(namespace, pod, "log"), query=query)
        except ApiError as error:
            if error.status in (400, 404):  # the container has not run yet, or its log is gone
                return ""
            raise
        return data[:limit_bytes].decode(errors="replace")

    async def _apply(self, kind: str, path: str, body: Mapping[str, Any]) -> Json:
        query = [("fieldManager", constants.FIELD_MANAGER), ("force", "true")]
        return await self._json("apply", kind, "PATCH", path, query=query, body=body, content_type=_APPLY)

    async def _json(self, verb: str, kind: str, method: str, path: str, **request: Any) -> Json:
        data = await self._call(verb, kind, method, path, **request)
        try:
            answer: Json = json.loads(data)
        except ValueError as error:
            raise ApiError(0, f"{verb} {kind}: the answer is no JSON") from error
        return answer

    async def _call(
        self,
        verb: str,
        kind: str,
        method: str,
        path: str,
        *,
        query: Any = (),
        body: Any = None,
        accept: str = "application/json",
        content_type: str = "application/json",
    ) -> bytes:
        timeout = _TIMEOUT_SECONDS
        if method != "GET":
            timeout = min(timeout, self._write_seconds_left())
            if timeout <= 0:
                raise NotLeaderError(f"{verb} {kind} was not sent: this replica does not hold the Lease")
        headers = {"Accept": accept, "Content-Type": content_type}
        status = 0
        try:
            request = await self._client.param_serialize(
                method, path, query_params=list(query), header_params=headers, body=body, auth_settings=["BearerToken"]
            )
            answer = await self._client.call_api(*request, _request_timeout=timeout)
            data: bytes = await answer.read()  # type: ignore[no-untyped-call]
            status = answer.status
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            cause = str(error) or type(error).__name__
            raise ApiError(0, f"{verb} {kind}: the API server did not answer: {cause}") from error
        finally:
            self._on_call(verb, kind, status)
        if not 200 <= status <= 299:
            raise ApiError(status, _message(data, answer.reason))
        return data


def _message(data: bytes, reason: str | None) -> str:
    """The API server's sentence out of its Status object."""
    try:
        text = str(json.loads(data)["message"])
    except (ValueError, KeyError, TypeError):
        text = reason or data.decode(errors="replace")
    return text if len(text) <= _SHOWN_ERROR else text[:_SHOWN_ERROR] + "…"
