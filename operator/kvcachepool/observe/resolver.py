"""Looks names up in threads of its own.

Pods are asked by address; only a master that somebody else runs is asked by name. A name server that does not answer
holds a thread for up to half a minute, whatever the asker's deadline is, and asyncio's own few threads are shared by
everything: without these, one such pool would hold up all.
"""

import asyncio
import ipaddress
import socket
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from aiohttp.abc import AbstractResolver, ResolveResult

_THREADS: Final = 64


class Resolver(AbstractResolver):
    """getaddrinfo, many at once."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="name-lookup")

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        """Addresses of a name. Raises OSError."""
        loop = asyncio.get_running_loop()
        found = await loop.run_in_executor(self._threads, _lookup, host, port, family)
        return [
            ResolveResult(
                hostname=host, host=address, port=number, family=kind, proto=protocol, flags=socket.AI_NUMERICHOST
            )
            for kind, protocol, address, number in found
        ]  # fmt: skip

    async def close(self) -> None:
        """Waits for no lookup."""
        self._threads.shutdown(wait=False, cancel_futures=True)


def _lookup(host: str, port: int, family: socket.AddressFamily) -> list[tuple[int, int, str, int]]:
    found = socket.getaddrinfo(host, port, family=family, type=socket.SOCK_STREAM, flags=socket.AI_ADDRCONFIG)
    known = [(int(kind), protocol, str(address[0]), int(address[1])) for kind, _, protocol, _, address in found]
    usable = [entry for entry in known if _elsewhere(entry[2])]
    if not usable:
        raise OSError(None, "not an address that other pods reach")
    return usable


def _elsewhere(address: str) -> bool:
    """What a user names must not lead to what only the operator reaches: itself, its node's metadata service."""
    parsed = ipaddress.ip_address(address.partition("%")[0])
    return not (parsed.is_loopback or parsed.is_link_local or parsed.is_unspecified)
