"""The RDMA shared device plugin: one DaemonSet for all pools that ask for it. Pure.

Source: Mellanox/k8s-rdma-shared-dev-plugin v1.5.3, README, deployment/k8s/base and pkg/resources/resources_manager.go:
it exits, for all pools, when a resource's name has other than letters, digits and `_` after its prefix, or when two
names differ in their prefix only. Two pools that ask for one resource with other devices cannot both be right: the
older one is, the other is told.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from pydantic import ValidationError

from kvcachepool import constants
from kvcachepool.api.pods import Scheduling
from kvcachepool.api.transport import DevicePlugin, Transport
from kvcachepool.facts import Object
from kvcachepool.hardware.placement import required_terms
from kvcachepool.hardware.selectors import node_faults
from kvcachepool.rbac import DEVICE_PLUGIN
from kvcachepool.render.hashing import content_hash
from kvcachepool.settings import Settings

Json = dict[str, Any]
Key = tuple[str, str]

NAME: Final = DEVICE_PLUGIN
"""Of the DaemonSet and its ConfigMap, in the operator's namespace."""
_FIELD: Final = "spec.transport.rdma.devicePlugin"
_UPDATE_SECONDS: Final = 300
_NAME: Final = re.compile(r"[A-Za-z0-9_]+")


@dataclass(frozen=True, slots=True)
class Wish:
    """What one pool asks for."""

    pool: Key
    resource: str
    plugin: DevicePlugin
    places: tuple[Scheduling, ...]
    """Where its engines and store pods may run."""

    @property
    def fault(self) -> str:
        """What of the places the API server would refuse, and with it the DaemonSet of all pools; "" for nothing."""
        found = next((fault for place in self.places for fault in node_faults(place)), None)
        return "" if found is None else f"{found[0]} in scheduling: {found[1]}"


@dataclass(frozen=True, slots=True)
class DevicePluginPlan:
    """What to run, and which pools cannot have what they ask for."""

    wishes: tuple[Wish, ...] = ()
    conflicts: Mapping[Key, str] = field(default_factory=dict)


def wishes(pools: Iterable[Object]) -> DevicePluginPlan:
    """Out of raw pools: a spec that is refused for something else still holds what runs for it."""
    taken: dict[str, Wish] = {}
    result: list[Wish] = []
    conflicts: dict[Key, str] = {}
    for raw in sorted(pools, key=_age):
        wish = _wish(raw)
        if wish is None:
            continue
        if wish.fault:
            conflicts[wish.pool] = (
                f"{_FIELD}: the device plugin runs on the nodes where the pool may run, which the API server would "
                f"refuse to take: {wish.fault}."
            )
            continue
        name = wish.resource.rpartition("/")[2]
        if not _NAME.fullmatch(name):
            conflicts[wish.pool] = (
                f"{_FIELD}: found {wish.resource} in spec.transport.rdma.resourceName, but the device plugin takes "
                "only letters, digits and _ after the slash."
            )
            continue
        first = taken.setdefault(name, wish)
        if (first.resource, first.plugin) != (wish.resource, wish.plugin):
            same = first.resource == wish.resource
            conflicts[wish.pool] = (
                f"{_FIELD}: pool {'/'.join(first.pool)} asks for {first.resource} "
                f"{'with other settings' if same else 'while names must differ after the slash'}, and counts because "
                "it is older; make them agree, or name another resource."
            )
            continue
        result.append(wish)
    return DevicePluginPlan(tuple(result), conflicts)


def objects(plan: DevicePluginPlan, settings: Settings, *, owner: Json) -> tuple[Json, ...]:
    """ConfigMap and DaemonSet; none when no pool asks for it. `owner` is what they go with: the installation."""
    if not plan.wishes:
        return ()
    config = json.dumps(
        {"periodicUpdateInterval": _UPDATE_SECONDS, "configList": _resources(plan.wishes)}, indent=2, sort_keys=True
    )
    labels = {
        "app.kubernetes.io/name": NAME,
        "app.kubernetes.io/managed-by": "kvcachepool-operator",
    }
    metadata = {"name": NAME, "namespace": settings.lease_namespace, "labels": labels, "ownerReferences": [owner]}
    chosen = next((wish.plugin.image for wish in plan.wishes if wish.plugin.image), None)
    template = {
        # The plugin reads its configuration at start only.
        "metadata": {"labels": labels, "annotations": {f"{constants.GROUP}/config-hash": content_hash(config)}},
        "spec": _pod(chosen or settings.device_plugin_image, settings, plan.wishes),
    }
    return (
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"config.json": config}},
        {
            "apiVersion": "apps/v1",
            "kind": "DaemonSet",
            "metadata": metadata,
            "spec": {
                "selector": {"matchLabels": {"app.kubernetes.io/name": NAME}},
                "updateStrategy": {"type": "RollingUpdate"},
                "template": template,
            },
        },
    )


def _age(raw: Object) -> tuple[str, str, str]:
    metadata = raw["metadata"]
    return str(metadata.get("creationTimestamp", "")), metadata.get("namespace", ""), metadata["name"]


def _wish(raw: Object) -> Wish | None:
    spec = _dict(raw, "spec")
    try:
        transport = Transport.model_validate(spec.get("transport") or {})
        base = Scheduling.model_validate(spec.get("scheduling") or {})
        places = [
            Scheduling.model_validate(_dict(spec, part).get("scheduling") or {}).over(base)
            for part in ("engines", "store")
        ]
    except ValidationError:
        return None
    rdma = transport.active_rdma
    if rdma is None or rdma.device_plugin is None or raw["metadata"].get("deletionTimestamp"):
        return None
    key = (raw["metadata"]["namespace"], raw["metadata"]["name"])
    return Wish(key, rdma.resource_name, rdma.device_plugin, tuple(places))


def _dict(raw: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = raw.get(key)
    return value if isinstance(value, Mapping) else {}


def _resources(asked: Sequence[Wish]) -> list[Json]:
    found = {}
    for wish in asked:
        prefix, _, name = wish.resource.rpartition("/")
        found[wish.resource] = {
            "resourcePrefix": prefix,
            "resourceName": name,
            "rdmaHcaMax": wish.plugin.max_shares,
            "selectors": wish.plugin.selectors.model_dump(by_alias=True, exclude_none=True),
        }
    return [found[name] for name in sorted(found)]


def _pod(image: str, settings: Settings, asked: Sequence[Wish]) -> Json:
    """As the project deploys it: it talks to the kubelet over a socket on the host, and reads the host's devices."""
    host = {
        "device-plugins": "/var/lib/kubelet/device-plugins",
        "plugins-registry": "/var/lib/kubelet/plugins_registry",
        "dev": "/dev",
    }
    spec: Json = {
        "serviceAccountName": settings.device_plugin_account,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "hostNetwork": True,
        "priorityClassName": "system-node-critical",
        "tolerations": [{"operator": "Exists"}],
        "containers": [
            {
                "name": "device-plugin",
                "image": image,
                "resources": {"requests": {"cpu": "10m", "memory": "32Mi"}, "limits": {"memory": "128Mi"}},
                "securityContext": {"privileged": True},
                "volumeMounts": [
                    *({"name": name, "mountPath": path} for name, path in host.items()),
                    {"name": "config", "mountPath": "/k8s-rdma-shared-dev-plugin", "readOnly": True},
                ],
            }
        ],
        "volumes": [
            *({"name": name, "hostPath": {"path": path}} for name, path in host.items()),
            {"name": "config", "configMap": {"name": NAME}},
        ],
    }
    if settings.image_pull_secrets:
        spec["imagePullSecrets"] = [{"name": name} for name in settings.image_pull_secrets]
    terms = _terms([place for wish in asked for place in wish.places])
    if terms is not None:
        required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
        spec["affinity"] = {"nodeAffinity": required}
    return spec


def _terms(places: Sequence[Scheduling]) -> list[Json] | None:
    """Node terms that cover every place; None when one of them is everywhere. Expects places without a fault."""
    found: list[Json] = []
    for place in places:
        selector = [
            {"key": key, "operator": "In", "values": [value]}
            for key, value in sorted((place.node_selector or {}).items())
        ]
        required = required_terms(place.affinity)
        if not selector and required is None:
            return None
        for term in ({},) if required is None else required:
            if required is not None and not (term.get("matchExpressions") or term.get("matchFields")):
                continue  # it holds for no node, and must not begin to
            merged = {**term, "matchExpressions": [*(term.get("matchExpressions") or ()), *selector]}
            if merged not in found:
                found.append(merged)
    return found or [{}]  # no node; the API server refuses an empty list
