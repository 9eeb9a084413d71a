"""What every process that moves blocks is told about the transport: engines and store pods alike."""

from typing import Any, Final

from kvcachepool.api import KVCachePool
from kvcachepool.render.pod import env

_TCP: Final = {
    # Without it the transfer engine may still discover and use RDMA devices although TCP was asked for.
    "MC_FORCE_TCP": "true",
    # Stock settings queue 1,024 slices a peer; the engine sends one a layer and block, so beyond about 900 tokens
    # the first put hangs for a minute and every later one fails, while requests still get 200
    # (Mooncake#4209, Mooncake#3710). With these, none failed up to 73,728 slices.
    "MC_TCP_ENABLE_CONNECTION_POOL": "1",
    "MC_TCP_SLICE_SIZE": "1048576",
    "MC_TCP_MAX_QUEUED_TRANSFERS_PER_PEER": "65535",
    "MC_TCP_MAX_PENDING_ADMISSIONS_PER_PEER": "65535",
    "MC_TCP_ADMISSION_TIMEOUT_MS": "600000",
    # A peer that hangs accepts a transfer and never answers. The default waits 30 s for each slice, one after the other
    # on each of 4 lanes, until the store gives the whole transfer up after a fixed 60 s; a slice that comes too late is
    # computed instead. See docs/adr/0020.
    "MC_TCP_STATUS_TIMEOUT_SEC": "2",
    "MC_TCP_PROGRESS_TIMEOUT_SEC": "5",
}
_RPC: Final = {
    # The default of 30 s lets a master that hangs stall every request by that much; with 1 s it is about 1 s.
    "MC_RPC_TIMEOUT_MS": "1000",
    "MC_RPC_CONNECT_TIMEOUT_MS": "1000",
}
_PROVIDERS: Final = {"Verbs": "rdma", "EFA": "efa"}


def protocol(pool: KVCachePool) -> str:
    """Mooncake's name of the protocol: tcp, rdma or efa."""
    rdma = pool.spec.transport.active_rdma
    return "tcp" if rdma is None else _PROVIDERS[rdma.provider]


def device_names(pool: KVCachePool) -> str:
    """The devices of every member in the order given, joined by commas; empty over TCP, and where each member takes
    what its pod sees."""
    rdma = pool.spec.transport.active_rdma
    return "" if rdma is None else ",".join(rdma.devices)


def transport_env(pool: KVCachePool) -> tuple[dict[str, Any], ...]:
    """Variables for the pool's protocol and the bounded calls to the master.

    A GID index is set only where one was asked for, 0 included: with macvlan it differs from pod to pod
    (Mooncake#2729).
    """
    rdma = pool.spec.transport.active_rdma
    own = dict(_TCP) if rdma is None else {}
    if rdma is not None and rdma.gid_index is not None:
        own["MC_GID_INDEX"] = str(rdma.gid_index)
    return tuple(env(name, value) for name, value in (own | _RPC).items())
