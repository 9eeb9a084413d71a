"""`spec.transport`: how blocks travel between store and engines."""

from typing import Annotated, Literal

from pydantic import ConfigDict, Field, field_validator, model_validator

from kvcachepool.api.base import ApiModel
from kvcachepool.api.pods import ImageRef
from kvcachepool.api.rules import Matching, Rule, rules

ExtendedResource = Annotated[
    str,
    Matching(
        r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?/[A-Za-z0-9]([-A-Za-z0-9._]*[A-Za-z0-9])?$",
        "a resource name with its domain, such as rdma/hca_shared_devices_a",
        max_length=253,
    ),
]
Device = Annotated[
    str,
    Matching(r"^[A-Za-z0-9][A-Za-z0-9_.-]*$", "the name of one device without blanks, such as mlx5_0", max_length=63),
]
Network = Annotated[
    str,
    Matching(
        r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?/)?[a-z0-9]([-a-z0-9.]*[a-z0-9])?(@[a-z0-9]{1,15})?$",
        "a NetworkAttachmentDefinition as NAME, NAMESPACE/NAME or NAMESPACE/NAME@INTERFACE",
        max_length=253,
    ),
]
Selector = Annotated[list[Annotated[str, Field(min_length=1, max_length=63)]], Field(max_length=32)]


class DeviceSelectors(ApiModel):
    """Which network devices of a node are shared: any of each list, all of the lists that are given."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            Rule(
                "has(self.vendors) || has(self.deviceIDs) || has(self.drivers) || has(self.ifNames) "
                "|| has(self.linkTypes)",
                "at least one selector must be given",
            )
        )
    )

    vendors: Selector | None = None
    """PCI vendors in hexadecimal, such as 15b3."""
    device_ids: Annotated[Selector | None, Field(alias="deviceIDs")] = None
    """PCI devices in hexadecimal, such as 1017."""
    drivers: Selector | None = None
    """Kernel drivers, such as mlx5_core."""
    if_names: Selector | None = None
    """Network interfaces, such as ib0."""
    link_types: Selector | None = None
    """Link types: infiniband or ether."""

    @model_validator(mode="after")
    def _some(self) -> "DeviceSelectors":
        if not any(self.model_dump().values()):
            raise ValueError("at least one selector must be given, found none")
        return self


class DevicePlugin(ApiModel):
    """The RDMA shared device plugin, run by the operator in its own namespace: once for all pools that ask for it,
    until the last of them goes. The installation must allow it (chart value rdma.devicePlugin.enabled)."""

    selectors: DeviceSelectors
    """Devices that the resource stands for. Pools that share a resource must agree."""
    max_shares: Annotated[int, Field(ge=1, le=10000)] = 1000
    """How many pods of a node may hold the resource at once."""
    image: ImageRef | None = None
    """Image of the plugin; the installation's choice when left out."""


class Rdma(ApiModel):
    """What engines and store pods need for RDMA."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            Rule(
                "!self.hostNetwork || !has(self.networks) || size(self.networks) == 0",
                "networks are for pods with a network of their own: remove them, or hostNetwork",
                field=".networks",
                reason="FieldValueForbidden",
            )
        )
    )

    resource_name: ExtendedResource
    """Extended resource of the device plugin, in requests and limits of engines and store pods."""
    count: Annotated[int, Field(ge=1, le=64)] = 1
    """How many of it each pod gets."""
    provider: Literal["Verbs", "EFA"] = "Verbs"
    """Verbs is InfiniBand and RoCE; EFA is Amazon's adapter, which needs images with Mooncake's EFA build."""
    devices: list[Device] = Field(
        default_factory=list, max_length=32, json_schema_extra={"x-kubernetes-list-type": "set"}
    )
    """Device names in the order in which every member uses them. Left out, each member takes what its pod sees."""
    gid_index: Annotated[int, Field(ge=0, le=255)] | None = None
    """GID index of every member. Left out, each device's own choice; with macvlan it differs from pod to pod."""
    networks: list[Network] = Field(
        default_factory=list, max_length=16, json_schema_extra={"x-kubernetes-list-type": "set"}
    )
    """Secondary networks by Multus, for engines and store pods."""
    host_network: bool = False
    """Engines and store pods use the node's network. Then one engine of a pool fits on a node."""
    device_plugin: DevicePlugin | None = None
    """Let the operator run the RDMA shared device plugin; resourceName has only letters, digits and _ after its slash
    then. Left out, nodes must offer the resource already."""

    @field_validator("devices", "networks")
    @classmethod
    def _distinct(cls, names: list[str]) -> list[str]:
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"each may be named once, found more of {', '.join(twice)}")
        return names

    @model_validator(mode="after")
    def _one_network(self) -> "Rdma":
        if self.host_network and self.networks:
            raise ValueError("networks are for pods with a network of their own: remove them, or hostNetwork")
        return self


class Transport(ApiModel):
    """How blocks travel between store and engines. There is no automatic choice: what is asked for is what runs, or
    condition TransportMatched is False."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            Rule(
                "self.protocol != 'RDMA' || has(self.rdma)",
                "rdma is required with protocol RDMA",
                field=".rdma",
                reason="FieldValueRequired",
            )
        )
    )

    protocol: Literal["TCP", "RDMA"] = "TCP"
    """Over TCP a pool pays for large models, long prompts or fp8 caches; ReuseWorthwhile says whether yours does."""
    rdma: Rdma | None = None
    """Devices and networks of RDMA; not used over TCP."""

    @model_validator(mode="after")
    def _rdma_given(self) -> "Transport":
        if self.protocol == "RDMA" and self.rdma is None:
            raise ValueError("rdma is required with protocol RDMA, found none")
        return self

    @property
    def active_rdma(self) -> Rdma | None:
        """The RDMA settings that count: none over TCP."""
        return self.rdma if self.protocol == "RDMA" else None
