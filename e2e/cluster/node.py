"""The node: containerd, kubelet, kube-proxy, kube-router and the pod network, as configuration.

The settings that differ from the defaults are those without which a node did
not start, leaked onto the host, or got in the way on a small machine; each
says which.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from .control import LOOPBACK, ControlPlan, write_kubeconfig
from .images import PAUSE
from .pki import Authority, Pair
from .processes import Daemon
from .settings import Settings

CNI_BIN = "/usr/lib/cni"
_GIB = 1024**3


@dataclass(frozen=True)
class NodePlan:
    """Files and addresses of the one node."""

    settings: Settings
    control: ControlPlan

    @property
    def state(self) -> Path:
        return self.settings.state

    @property
    def bin(self) -> Path:
        return self.control.bin

    @property
    def containerd_root(self) -> Path:
        return self.state / "containerd"

    @property
    def run(self) -> Path:
        return self.state / "run"

    @property
    def socket(self) -> Path:
        return self.run / "containerd.sock"

    @property
    def kubelet_root(self) -> Path:
        return self.state / "kubelet"

    @property
    def pod_logs(self) -> Path:
        return self.state / "pod-logs"

    @property
    def cni(self) -> Path:
        return self.state / "cni"

    @property
    def config(self) -> Path:
        return self.state / "config"


def prepare(plan: NodePlan, ca: Authority) -> None:
    """Write the configuration files."""
    for folder in (plan.config, plan.run, plan.cni / "net.d", plan.kubelet_root, plan.pod_logs):
        folder.mkdir(parents=True, exist_ok=True)
    settings, control = plan.settings, plan.control
    kubelet = ca.client("kubelet", user=f"system:node:{settings.node}", groups=["system:nodes"])
    write_kubeconfig(control, ca, control.kubeconfig("kubelet"), kubelet)
    proxy = ca.client("kube-proxy", user="system:kube-proxy")
    write_kubeconfig(control, ca, control.kubeconfig("kube-proxy"), proxy)
    router = ca.client("kube-router", user="kube-router", groups=["system:masters"])
    write_kubeconfig(control, ca, control.kubeconfig("kube-router"), router)
    serving = ca.server("kubelet-serving", common_name=settings.node, hosts=[settings.node, settings.network.node_ip])
    # Pods with `dnsPolicy: Default` must not reach for the host's resolver, which may be unreachable and slow to fail.
    (plan.config / "resolv.conf").write_text(f"nameserver {settings.network.dns_ip}\n")
    (plan.config / "containerd.toml").write_text(containerd_config(plan))
    (plan.cni / "net.d" / "10-kvcp.conflist").write_text(json.dumps(cni_config(plan), indent=2))
    (plan.config / "kubelet.yaml").write_text(yaml.safe_dump(kubelet_config(plan, ca, serving)))
    (plan.config / "kube-proxy.yaml").write_text(yaml.safe_dump(proxy_config(plan)))


def containerd(plan: NodePlan) -> Daemon:
    config = plan.config / "containerd.toml"
    # It finds its shim, and the shim finds runc, on PATH.
    path = f"{plan.bin}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    argv = (str(plan.bin / "containerd"), "--config", str(config))
    return Daemon("containerd", argv, configs=(config,), environment={"PATH": path})


def kubelet(plan: NodePlan) -> Daemon:
    config = plan.config / "kubelet.yaml"
    kubeconfig = plan.control.kubeconfig("kubelet")
    argv = (
        str(plan.bin / "kubelet"),
        f"--config={config}",
        f"--kubeconfig={kubeconfig}",
        f"--root-dir={plan.kubelet_root}",
        f"--cert-dir={plan.kubelet_root / 'pki'}",
        f"--hostname-override={plan.settings.node}",
        f"--node-ip={plan.settings.network.node_ip}",
        "-v=1",
    )
    return Daemon("kubelet", argv, configs=(config, kubeconfig))


def kube_proxy(plan: NodePlan) -> Daemon:
    config = plan.config / "kube-proxy.yaml"
    argv = (str(plan.bin / "kube-proxy"), f"--config={config}", "-v=1")
    return Daemon("kube-proxy", argv, configs=(config, plan.control.kubeconfig("kube-proxy")))


def kube_router(plan: NodePlan) -> Daemon:
    """Enforces NetworkPolicies; the bridge plugin and kube-proxy know none. Its other parts, a router and a proxy, are
    off. The health port would listen on all addresses."""
    kubeconfig = plan.control.kubeconfig("kube-router")
    argv = (
        str(plan.bin / "kube-router"),
        "--run-firewall=true",
        "--run-router=false",
        "--run-service-proxy=false",
        "--run-loadbalancer=false",
        "--enable-cni=false",
        f"--kubeconfig={kubeconfig}",
        f"--hostname-override={plan.settings.node}",
        f"--service-cluster-ip-range={plan.settings.network.service_cidr}",
        "--health-port=0",
        "--metrics-port=0",
    )
    return Daemon("kube-router", argv, configs=(kubeconfig,))


def containerd_config(plan: NodePlan) -> str:
    disabled = [
        "io.containerd.nri.v1.nri",
        "io.containerd.snapshotter.v1.blockfile",
        "io.containerd.snapshotter.v1.erofs",
    ]
    return f"""version = 3
root = {_toml(plan.containerd_root)}
state = {_toml(plan.run / "containerd")}
# The node resource interface would listen outside our folder; the snapshotters want programs that are not there.
disabled_plugins = {json.dumps(disabled)}
# Another containerd's drop-in files on this host are not meant for us.
imports = []

[grpc]
  address = {_toml(plan.socket)}

[ttrpc]
  address = {_toml(f"{plan.socket}.ttrpc")}

[plugins.'io.containerd.internal.v1.opt']
  path = {_toml(plan.state / "opt")}

[plugins.'io.containerd.cri.v1.images']
  snapshotter = 'overlayfs'

[plugins.'io.containerd.cri.v1.images'.pinned_images]
  # No registry: the image that holds a pod's namespaces is our own.
  sandbox = {_toml(PAUSE)}

[plugins.'io.containerd.cri.v1.runtime']
  # Without this runc fails with "can't get final child's PID from pipe: EOF" where oom_score_adj cannot be lowered.
  restrict_oom_score_adj = true
  # Network namespaces stay in our folder, where `down` finds every one of them.
  netns_mounts_under_state_dir = true

[plugins.'io.containerd.cri.v1.runtime'.cni]
  bin_dirs = ['{CNI_BIN}']
  conf_dir = {_toml(plan.cni / "net.d")}

[plugins.'io.containerd.cri.v1.runtime'.containerd]
  default_runtime_name = 'runc'

[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
  runtime_type = 'io.containerd.runc.v2'

[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
  SystemdCgroup = false
  Root = {_toml(plan.run / "runc")}
"""


def cni_config(plan: NodePlan) -> dict[str, Any]:
    network = plan.settings.network
    return {
        "cniVersion": "1.0.0",
        "name": plan.settings.name,
        "plugins": [
            {
                "type": "bridge",
                "bridge": plan.settings.bridge,
                "isGateway": True,
                "ipMasq": True,
                # A pod may reach itself through its own Service.
                "hairpinMode": True,
                "ipam": {
                    "type": "host-local",
                    "dataDir": str(plan.cni / "ipam"),
                    "ranges": [[{"subnet": network.pod_cidr, "gateway": network.node_ip}]],
                    "routes": [{"dst": "0.0.0.0/0"}],
                },
            },
            {"type": "portmap", "capabilities": {"portMappings": True}},
        ],
    }


def kubelet_config(plan: NodePlan, ca: Authority, serving: Pair) -> dict[str, Any]:
    network, ports = plan.settings.network, plan.settings.ports
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": network.node_ip,
        "port": ports.kubelet,
        "readOnlyPort": 0,
        "healthzBindAddress": LOOPBACK,
        "healthzPort": ports.kubelet_healthz,
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": str(ca.pair.cert)},
        },
        "authorization": {"mode": "Webhook"},
        "tlsCertFile": str(serving.cert),
        "tlsPrivateKeyFile": str(serving.key),
        "containerRuntimeEndpoint": f"unix://{plan.socket}",
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{plan.settings.name}",
        # The machine may have only cgroup v1, or swap; both are refused by default.
        "failCgroupV1": False,
        "failSwapOn": False,
        "clusterDomain": "cluster.local",
        "clusterDNS": [network.dns_ip],
        "resolvConf": str(plan.config / "resolv.conf"),
        "podLogsDir": str(plan.pod_logs),
        "containerLogMaxSize": "20Mi",
        "containerLogMaxFiles": 3,
        "volumePluginDir": str(plan.kubelet_root / "volume-plugins"),
        "maxPods": 200,
        # Percentages of a large, mostly full disk would evict pods that have ample room; images cannot be pulled
        # again, so they are never collected.
        "evictionHard": {
            "memory.available": "200Mi",
            "nodefs.available": str(_GIB),
            "nodefs.inodesFree": "10000",
            "imagefs.available": str(_GIB),
            "imagefs.inodesFree": "10000",
        },
        "imageGCHighThresholdPercent": 100,
        "imageGCLowThresholdPercent": 99,
        "serializeImagePulls": True,
        "registerNode": True,
        "logging": {"format": "text"},
    }


def proxy_config(plan: NodePlan) -> dict[str, Any]:
    network, ports = plan.settings.network, plan.settings.ports
    return {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": "iptables",  # nftables mode wants the nft program
        "bindAddress": network.node_ip,
        "clientConnection": {"kubeconfig": str(plan.control.kubeconfig("kube-proxy"))},
        "clusterCIDR": network.pod_cidr,
        "hostnameOverride": plan.settings.node,
        "healthzBindAddress": f"{LOOPBACK}:{ports.proxy_healthz}",
        "metricsBindAddress": f"{LOOPBACK}:{ports.proxy_metrics}",
        # Node ports stay inside: only on the node's address, which is the bridge's.
        "nodePortAddresses": ["primary"],
        "iptables": {"localhostNodePorts": False, "minSyncPeriod": "1s"},
        # The host's connection tracking limits are not ours to change.
        "conntrack": {"maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"},
    }


def _toml(value: Path | str) -> str:
    return json.dumps(str(value))
