"""`spec.store.master`: the pool's own master, several that elect a leader, or one that exists already."""

import json
import re
from typing import Annotated, Final

from pydantic import ConfigDict, Field, model_validator
from pydantic.alias_generators import to_camel

from kvcachepool.api.base import ApiModel
from kvcachepool.api.pods import Resources, Scheduling
from kvcachepool.api.rules import Matching, Rule, rules
from kvcachepool.constants import MASTER_HTTP_PORT

Ratio = Annotated[
    str,
    Matching(
        r"^(0\.[0-9]{0,3}[1-9]|0?\.[1-9][0-9]{0,3}|1(\.0+)?)$",
        'a share above 0 and up to 1, as a string such as "0.05"',
        max_length=8,
    ),
]
"""A share above 0 and up to 1, as a string: Kubernetes APIs carry no floats."""

_LABEL: Final = r"[A-Za-z0-9]([-A-Za-z0-9]*[A-Za-z0-9])?"
_PORT: Final = r":([1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5])"
_ENDPOINT: Final = rf"{_LABEL}(\.{_LABEL})*{_PORT}"
_QUALIFIED: Final = rf"{_LABEL}(\.{_LABEL})+{_PORT}"
ETCD: Final = "etcd://"
"""What a client's master address begins with where the leader's address is in etcd."""

Endpoint = Annotated[
    str,
    Matching(
        rf"^{_ENDPOINT}$",
        "host:port without a scheme: Mooncake speaks to etcd neither over TLS nor with a password (Mooncake#3557)",
        max_length=261,
        address=True,
    ),
]
ClusterId = Annotated[
    str,
    Matching(
        r"^[A-Za-z0-9]([-A-Za-z0-9._/]*[A-Za-z0-9])?$",
        "letters, digits and any of - . _ / between them",
        max_length=128,
    ),
]

_LOOPBACK: Final = r"^(etcd://)?(127|0|169\.254)\."
_REACHABLE: Final = "must be an address that other pods reach, not one of loopback or link-local"


class EtcdElection(ApiModel):
    """Leader election over an etcd of yours; the operator runs none."""

    endpoints: list[Endpoint] = Field(min_length=1, max_length=9, json_schema_extra={"x-kubernetes-list-type": "set"})
    """Members of the etcd cluster as host:port, which masters and all members of the pool must reach."""
    cluster_id: ClusterId | None = None
    """Where in etcd the leader's address lies, `mooncake-store/CLUSTERID/master_view`; NAMESPACE/NAME of the pool when
    left out. Pools of two Kubernetes clusters that share an etcd and these names need different ones."""


class HighAvailability(ApiModel):
    """Several masters, one of which leads. A failover keeps the service, not the cache: the new leader's index is
    empty."""

    etcd: EtcdElection


class ExternalMaster(ApiModel):
    """A master that somebody else runs. The operator makes none and changes nothing of it."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            Rule(
                "!self.address.startsWith('etcd://') || (has(self.httpAddress) && has(self.clusterId))",
                "httpAddress and clusterId are required with an etcd:// address, which names no leader",
                ("%s", "self.address"),
                field=".address",
                reason="FieldValueRequired",
            ),
            Rule(
                "self.address.startsWith('etcd://') || !has(self.clusterId)",
                "clusterId belongs to an etcd:// address",
                ("%s", "self.address"),
                field=".clusterId",
                reason="FieldValueForbidden",
            ),
            Rule(
                f"!self.address.matches({json.dumps(_LOOPBACK)})", _REACHABLE, ("%s", "self.address"), field=".address"
            ),
            Rule(
                f"!has(self.httpAddress) || !self.httpAddress.matches({json.dumps(_LOOPBACK)})",
                _REACHABLE,
                ("%s", "self.httpAddress"),
                field=".httpAddress",
            ),
        )
    )

    address: Annotated[
        str,
        Matching(
            rf"^({_QUALIFIED}|etcd://{_ENDPOINT}(;{_ENDPOINT})*)$",
            "host:port with the name qualified by its namespace, such as mooncake-master.cache.svc:50051, "
            "or etcd://host:port;host:port",
            max_length=1024,
            address=True,
        ),
    ]
    """Where clients find it: RPC address of one master, or the etcd in which several have their leader."""
    http_address: (
        Annotated[
            str,
            Matching(
                rf"^{_QUALIFIED}$",
                "host:port with the name qualified by its namespace, such as mooncake-master.cache.svc:9003",
                max_length=261,
                address=True,
            ),
        ]
        | None
    ) = None
    """Where it tells of its health, segments and metrics; port 9003 of `address` when left out."""
    cluster_id: ClusterId | None = None
    """`--cluster_id` of those masters, with an etcd:// address only."""

    @model_validator(mode="after")
    def _consistent(self) -> "ExternalMaster":
        by_etcd = self.address.startswith(ETCD)
        if by_etcd and (self.http_address is None or self.cluster_id is None):
            raise ValueError(
                "httpAddress and clusterId are required with an etcd:// address, which names no leader, "
                f"found {self.address}"
            )
        if self.cluster_id is not None and not by_etcd:
            raise ValueError(f"clusterId belongs to an etcd:// address, found {self.address}")
        for found in (self.address, self.http_address or ""):
            if re.match(_LOOPBACK, found):
                raise ValueError(f"{_REACHABLE}, found {found}")
        return self

    @property
    def http(self) -> tuple[str, int]:
        """(host, port) of its HTTP pages."""
        host, _, port = (self.http_address or self.address).rpartition(":")
        return host, int(port) if self.http_address else MASTER_HTTP_PORT

    @property
    def rpc(self) -> tuple[str, int] | None:
        """(host, port) of its RPC; None where only etcd knows."""
        if self.address.startswith(ETCD):
            return None
        host, _, port = self.address.rpartition(":")
        return host, int(port)


_ALONE: Final = "more than one replica needs ha: masters that elect no leader would each have an index of their own"
_TWO: Final = "ha needs at least 2 replicas, so that one can take over"
_EITHER: Final = "ha belongs to masters of the pool's own: remove it, or external"
_NOT_OURS: Final = (
    "evictionHighWatermark and the like belong to a master of the pool's own: set them where the external one is run"
)


class Master(ApiModel):
    """The Mooncake master: the pool's index. Its restart empties the index, and so the pool."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            Rule(
                "has(self.ha) || !has(self.replicas) || self.replicas == 1",
                _ALONE,
                ("%d", "self.replicas"),
                field=".replicas",
            ),
            Rule(
                "!has(self.ha) || !has(self.replicas) || self.replicas > 1",
                _TWO,
                ("%d", "self.replicas"),
                field=".replicas",
            ),
            Rule("!has(self.ha) || !has(self.external)", _EITHER, field=".ha", reason="FieldValueForbidden"),
            Rule(
                "!has(self.external) || (self.evictionHighWatermark == '0.9' && self.evictionRatio == '0.05' "
                "&& self.leaseTtlMilliseconds == 10000 && self.clientTtlSeconds == 10)",
                _NOT_OURS,
                field=".external",
                reason="FieldValueForbidden",
            ),
        )
    )

    replicas: Annotated[int, Field(ge=1, le=5)] | None = None
    """Masters, of which one leads; 1 when left out, 2 with `ha`."""
    ha: HighAvailability | None = None
    """How masters elect a leader. Without it there is one."""
    external: ExternalMaster | None = None
    """A master that exists already, instead of one of the pool's own."""
    resources: Resources = Resources(requests={"cpu": "500m", "memory": "1Gi"}, limits={"memory": "2Gi"})
    scheduling: Scheduling = Scheduling()
    eviction_high_watermark: Ratio = "0.9"
    """Share of the capacity at which eviction starts."""
    eviction_ratio: Ratio = "0.05"
    """Share of the keys that one eviction drops."""
    lease_ttl_milliseconds: Annotated[int, Field(ge=1000, le=600000)] = 10000
    """How long a block that is being read cannot be evicted; a load that takes longer fails and is
    recomputed."""
    client_ttl_seconds: Annotated[int, Field(ge=5, le=600)] = 10
    """How long a silent member keeps its segment. Until then reads of it fail and are recomputed."""

    @model_validator(mode="after")
    def _consistent(self) -> "Master":
        if self.ha is None and self.replicas not in (None, 1):
            raise ValueError(f"{_ALONE}, found {self.replicas}")
        if self.ha is not None and self.replicas == 1:
            raise ValueError(f"{_TWO}, found {self.replicas}")
        if self.ha is not None and self.external is not None:
            raise ValueError(_EITHER)
        if self.external is not None:
            given = self.model_dump(exclude_defaults=True, exclude={"external", "ha", "replicas"})
            if given:
                names = ", ".join(sorted(to_camel(name) for name in given))
                raise ValueError(f"{_NOT_OURS}, found {names}")
        return self

    @property
    def count(self) -> int:
        """Masters that the operator runs."""
        if self.external is not None:
            return 0
        return self.replicas or (2 if self.ha is not None else 1)
