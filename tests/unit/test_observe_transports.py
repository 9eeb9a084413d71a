"""What a member's log says of the transport that it installed."""

from typing import Any

import pytest

from kvcachepool.constants import ENGINE, MASTER, STORE
from kvcachepool.facts import ContainerFacts, PodFacts
from kvcachepool.observe.memory import PoolMemory
from kvcachepool.observe.transports import installed, read_transports
from tests.pools import pool

# Seen with mooncake 0.3.13.post1 and MOONCAKE_PROTOCOL=rdma on a machine without a device.
FELL_BACK = """\
I1129 18:32:09.574581  3854 client_service.cpp:808] Set auto discovery ON by default for rdma protocol, since no device names provided
I1129 18:32:09.574781  3854 transfer_engine_impl.cpp:259] Auto-discovering topology...
W1129 18:32:09.574853  3854 topology.cpp:201] No RDMA devices found, check your device installation
I1129 18:32:09.574898  3854 transfer_engine_impl.cpp:274] Topology discovery complete. Found 0 HCAs.
I1129 18:32:09.575122  3854 tcp_transport.cpp:391] TcpTransport: listen on port 16320
"""
# As rdma_context.cpp and transfer_engine_impl.cpp write it.
DISCOVERED = """\
I1129 18:32:09.6  1 rdma_context.cpp:131] RDMA device: mlx5_0, LID: 0, GID: (GID_Index 3) 00:00:00:00
I1129 18:32:09.7  1 transfer_engine_impl.cpp:330] installTransport, type=rdma
"""
NAMED = "I1129 18:32:09.6  1 rdma_context.cpp:131] RDMA device: mlx5_0, LID: 7, GID: (GID_Index 0) fe:80\n"
NOT_INSTALLED = """\
I1129 18:32:33.3 1 client_service.cpp:884] Using specified RDMA devices: mlx5_0
E1129 18:32:33.4 1 rdma_transport.cpp:1139] RdmaTransport: No available RNIC
E1129 18:32:33.5 1 client_service.cpp:901] Failed to install RDMA transport with specified devices
"""
RDMA = {"transport": {"protocol": "RDMA", "rdma": {"resourceName": "rdma/hca"}}}


@pytest.mark.parametrize(
    ("log", "expected"),
    [
        (FELL_BACK, "TCP"),
        (DISCOVERED, "RDMA"),
        (NAMED, "RDMA"),
        ("installTransport, type=efa\n", "RDMA"),
        (DISCOVERED + FELL_BACK, "TCP"),
        (NOT_INSTALLED, ""),
        ("", ""),
    ],
    ids=["fell back", "discovered", "named", "efa", "one of two ranks", "failed", "empty"],
)
def test_the_log_tells(log: str, expected: str) -> None:
    assert installed(log) == expected


class Logs:
    """Answers by pod; counts."""

    def __init__(self, **logs: str | Exception) -> None:
        self.logs = logs
        self.asked: list[str] = []

    async def pod_log(self, namespace: str, pod: str, container: str, **how: Any) -> str:
        assert (namespace, container, how["previous"], how["tail_lines"]) == ("team-a", "main", False, None)
        self.asked.append(pod)
        answer = self.logs[pod]
        if isinstance(answer, Exception):
            raise answer
        return answer


def pod(name: str, component: str = STORE, *, ready: bool = True, restarts: int = 0) -> PodFacts:
    main = ContainerFacts("main", running=True, ready=ready, restarts=restarts)
    return PodFacts(name, f"uid-{name}", component, "", ready=ready, containers=(main,))


async def test_each_start_is_read_once() -> None:
    memory, logs = PoolMemory(), Logs(s=FELL_BACK, e=DISCOVERED, old="")
    pods = [pod("s"), pod("e", ENGINE), pod("old"), pod("m", MASTER), pod("starts", ready=False)]
    for _ in range(3):
        assert await read_transports(pool(RDMA), pods, logs, memory) == {"s": "TCP", "e": "RDMA"}
    assert sorted(logs.asked) == ["e", "old", "s"]
    logs.logs["s"] = DISCOVERED
    assert await read_transports(pool(RDMA), [pod("s", restarts=1)], logs, memory) == {"s": "RDMA"}
    assert list(memory.transports) == [("uid-s", 1)]


async def test_a_log_that_cannot_be_read_is_asked_for_again() -> None:
    memory, logs = PoolMemory(), Logs(s=RuntimeError("no API server"))
    assert await read_transports(pool(RDMA), [pod("s")], logs, memory) == {}
    logs.logs["s"] = FELL_BACK
    assert await read_transports(pool(RDMA), [pod("s")], logs, memory) == {"s": "TCP"}


async def test_over_tcp_no_log_is_read() -> None:
    logs = Logs(s=FELL_BACK)
    assert await read_transports(pool(), [pod("s")], logs, PoolMemory()) == {}
    assert logs.asked == []
