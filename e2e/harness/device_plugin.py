"""The stand-in for the RDMA shared device plugin: a real device plugin of the real kubelet, without a card."""

from __future__ import annotations

from e2e.cluster import builder
from e2e.cluster.images import write_scratch_image
from e2e.cluster.settings import cache_dir
from e2e.harness.install import Installation

VARIABLE = "KVCP_STAND_IN_SHARES"
"""What an allocation sets in the container: the shares given, joined by commas."""
DEVICE = "/dev/infiniband/rdma_cm"
"""The device node that an allocation makes in the container."""


def load(installation: Installation) -> str:
    """Build it, put it into the cluster and return its image."""
    folder = builder.build_unit(builder.DEVICE_PLUGIN, stages=installation.stages)
    ref = f"localhost/kvcp-deviceplugin:{folder.name.rpartition('-')[2]}"
    archive = cache_dir() / "images" / f"{folder.name}.tar"
    write_scratch_image(archive, ref, {"/deviceplugin": folder / "deviceplugin"}, ["/deviceplugin"])
    installation.provider.load_image(archive, ref)
    return ref
