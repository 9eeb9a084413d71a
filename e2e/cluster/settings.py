"""What can be chosen about a cluster, read once from the environment.

Everything has a default that works on a plain Linux machine, so that a first
`up` needs no configuration; every port and range can be moved, so that a
machine that already runs something is no obstacle.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, fields
from pathlib import Path

DEFAULT_NAME = "kvcp"
DEFAULT_PORT_BASE = 16400
# A Linux network device name has at most 15 bytes and ours is the cluster's name and "0".
MAX_NAME = 14


def cache_dir(env: Mapping[str, str] | None = None) -> Path:
    """Where built programs and cluster state live: outside the repository, so a clean checkout reuses them."""
    env = os.environ if env is None else env
    return Path(env.get("KVCP_CACHE") or Path.home() / ".cache" / "kvcachepool").expanduser().absolute()


@dataclass(frozen=True)
class Ports:
    """Ports on the host."""

    apiserver: int
    etcd: int
    etcd_peer: int
    kubelet: int
    kubelet_healthz: int
    proxy_metrics: int
    proxy_healthz: int
    controller_manager: int
    scheduler: int

    @classmethod
    def block(cls, base: int = DEFAULT_PORT_BASE) -> Ports:
        """Take the usual last two digits in a block of its own, clear of another cluster on the host."""
        return cls(
            apiserver=base + 43,
            etcd=base + 79,
            etcd_peer=base + 80,
            kubelet=base + 50,
            kubelet_healthz=base + 48,
            proxy_metrics=base + 49,
            proxy_healthz=base + 56,
            controller_manager=base + 57,
            scheduler=base + 59,
        )

    @classmethod
    def free(cls) -> Ports:
        """Ask the kernel for ports that nobody uses, all at once so that they differ."""
        with ExitStack() as stack:
            ports = []
            for _ in fields(cls):
                listener = stack.enter_context(socket.socket())
                listener.bind(("127.0.0.1", 0))
                ports.append(listener.getsockname()[1])
        return cls(*ports)


@dataclass(frozen=True)
class Network:
    """Address ranges; `pod_prefix` names a /24, whose first address is the bridge and the node."""

    pod_prefix: str = "10.244.0"
    service_prefix: str = "10.96"

    @property
    def pod_cidr(self) -> str:
        return f"{self.pod_prefix}.0/24"

    @property
    def node_ip(self) -> str:
        return f"{self.pod_prefix}.1"

    @property
    def service_cidr(self) -> str:
        return f"{self.service_prefix}.0.0/16"

    @property
    def apiserver_ip(self) -> str:
        return f"{self.service_prefix}.0.1"

    @property
    def dns_ip(self) -> str:
        return f"{self.service_prefix}.0.10"


@dataclass(frozen=True)
class Hardware:
    """The accelerators a node pretends to have: extended resources and GPU feature discovery's labels."""

    gpus: int = 8
    gpu_resource: str = "nvidia.com/gpu"
    product: str = "NVIDIA-H100-80GB-HBM3"
    memory_mib: int = 81559
    driver: str = "570.124.06"
    cuda: str = "12.8"
    extra: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Settings:
    """One cluster's choices."""

    name: str = DEFAULT_NAME
    cache: Path = field(default_factory=cache_dir)
    ports: Ports = field(default_factory=Ports.block)
    network: Network = field(default_factory=Network)
    hardware: Hardware = field(default_factory=Hardware)

    def __post_init__(self) -> None:
        if not (self.name.isascii() and self.name.replace("-", "").isalnum() and self.name == self.name.lower()):
            raise ValueError(f"cluster name {self.name!r}: only lower-case letters, digits and '-' are possible")
        if len(self.name) > MAX_NAME:
            raise ValueError(f"cluster name {self.name!r} is longer than {MAX_NAME} characters")

    @property
    def state(self) -> Path:
        return self.cache / "state" / self.name

    @property
    def bridge(self) -> str:
        return f"{self.name}0"

    @property
    def node(self) -> str:
        return f"{self.name}-node"

    @property
    def kubeconfig(self) -> Path:
        return self.state / "kubeconfig"


def parse_resources(text: str) -> dict[str, int]:
    """Read `rdma/hca=8,example.com/nic=2`."""
    resources: dict[str, int] = {}
    for item in filter(None, (part.strip() for part in text.split(","))):
        name, separator, count = item.rpartition("=")
        if not separator or "/" not in name or not count.isdigit():
            raise ValueError(f"extended resource {item!r}: want domain/name=count")
        resources[name] = int(count)
    return resources


def from_environment(name: str | None = None, env: Mapping[str, str] | None = None) -> Settings:
    """Read the `KVCP_*` variables that docs and `--help` list."""
    env = os.environ if env is None else env
    hardware = Hardware(
        gpus=int(env.get("KVCP_GPUS", Hardware.gpus)),
        gpu_resource=env.get("KVCP_GPU_RESOURCE", Hardware.gpu_resource),
        product=env.get("KVCP_GPU_PRODUCT", Hardware.product),
        memory_mib=int(env.get("KVCP_GPU_MEMORY_MIB", Hardware.memory_mib)),
        driver=env.get("KVCP_GPU_DRIVER", Hardware.driver),
        cuda=env.get("KVCP_GPU_CUDA", Hardware.cuda),
        extra=parse_resources(env.get("KVCP_EXTENDED_RESOURCES", "")),
    )
    return Settings(
        name=name or env.get("KVCP_CLUSTER") or DEFAULT_NAME,
        cache=cache_dir(env),
        ports=Ports.block(int(env.get("KVCP_PORT_BASE", DEFAULT_PORT_BASE))),
        network=Network(
            env.get("KVCP_POD_PREFIX", Network.pod_prefix),
            env.get("KVCP_SERVICE_PREFIX", Network.service_prefix),
        ),
        hardware=hardware,
    )
