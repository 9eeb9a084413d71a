"""What the installation (not the pool) decides; read from the environment that the chart sets."""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

_SWITCH: Final = {"true": True, "false": False}
_EXPECTED: Final[Mapping[object, str]] = {bool: "true or false"}


@dataclass(frozen=True, slots=True)
class Settings:
    """Installation-wide settings. Every field has an environment variable `KVCP_<NAME>`."""

    image_registry: str = ""
    """Prefix of every default image (`registry.internal:5000`); images named in a pool are taken as they are."""
    image_pull_secrets: tuple[str, ...] = ()
    """Added to every pod of every pool. The Secrets must exist in the pool's namespace."""
    namespaces: tuple[str, ...] = ()
    """Namespaces to watch; empty means all."""
    resync_seconds: float = 30.0
    """How often a pool is looked at without an event."""
    workers: int = 8
    """Pools that are worked on at the same time."""
    lease_name: str = "kvcachepool-operator"
    lease_namespace: str = ""
    """Where the leader's Lease lies; empty means the operator runs alone (development)."""
    identity: str = ""
    """This replica's name in the Lease; the pod's name."""
    network_policies: bool = False
    """Whether pools get NetworkPolicies, where they do not say otherwise."""
    pod_labels: tuple[str, ...] = ()
    """Labels of the operator's own pods, `name=value`: who asks masters and engines."""
    metrics_from: str = ""
    """Who else may read metrics of pools: a JSON list of NetworkPolicy peers."""
    device_plugin_account: str = ""
    """Service account, in the operator's namespace, of the RDMA device plugin; empty means that none may be run."""
    device_plugin_image: str = ""
    """Image of the plugin for pools that name none."""
    http_port: int = 8080
    """Port of /healthz, /readyz and /metrics."""
    probe_timeout_seconds: float = 90.0
    """Deadline of one request of the reuse probe: a load from a failing store can hang."""
    webhook_port: int = 0
    """Port of the webhook that completes pods; 0: there is none."""
    webhook_service: str = ""
    """Name of the webhook's Service, in `lease_namespace`."""
    webhook_name: str = ""
    """Name of the webhook configuration and of the Secret with its certificate."""
    webhook_certificate_dir: str = ""
    """Folder with a certificate that cert-manager keeps; empty: the operator keeps the Secret itself."""

    @property
    def metrics_peers(self) -> list[dict[str, Any]]:
        """`metrics_from`, parsed. Raises ValueError when it is not a JSON list of objects."""
        peers = json.loads(self.metrics_from or "[]")
        if not isinstance(peers, list) or not all(isinstance(peer, dict) for peer in peers):
            raise ValueError("KVCP_METRICS_FROM: expected a JSON list of NetworkPolicy peers")
        return peers

    @classmethod
    def from_env(cls, env: Mapping[str, str] = os.environ) -> "Settings":
        """Raises ValueError that names the variable, what was found and what is expected."""
        values: dict[str, object] = {}
        for name, annotation in cls.__annotations__.items():
            variable = f"KVCP_{name.upper()}"
            text = env.get(variable)
            if text is None or text == "":
                continue
            try:
                if annotation is int:
                    values[name] = int(text)
                elif annotation is float:
                    values[name] = float(text)
                elif annotation is bool:
                    values[name] = _SWITCH[text.lower()]
                elif annotation is str:
                    values[name] = text
                else:
                    values[name] = tuple(part.strip() for part in text.split(",") if part.strip())
            except (ValueError, KeyError) as error:
                raise ValueError(
                    f"{variable}: found {text!r}, expected {_EXPECTED.get(annotation, annotation.__name__)}"
                ) from error
        settings = cls(**values)  # type: ignore[arg-type]
        _ = settings.metrics_peers  # said at start, not at the first pass
        return settings
