"""Names are looked up without holding up anybody (kopf#1095), and lead to nothing that only the operator reaches."""

import asyncio
import socket
import threading

import pytest

from kvcachepool.observe import resolver
from kvcachepool.observe.http import HttpReader


def found(*addresses):
    """As getaddrinfo answers."""
    return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, 9003)) for address in addresses]


async def test_a_name_server_that_does_not_answer_holds_up_no_other_name(monkeypatch):
    answer, asked = threading.Event(), []

    def lookup(host, port, **_):
        asked.append(host)
        if host.startswith("hanging"):
            answer.wait(60)
        return found("192.0.2.1")

    monkeypatch.setattr(resolver.socket, "getaddrinfo", lookup)
    reader = HttpReader(timeout=0.2)
    try:
        hanging = await asyncio.gather(*(reader.get(f"hanging-{n}.example", 9003, "/health") for n in range(20)))
        assert {result.error for result in hanging} == {"timed out after 0.2 s"}
        (address,) = await asyncio.wait_for(reader._resolver.resolve("fine.example", 9003), 30)
        assert address["host"] == "192.0.2.1"
        assert await asyncio.to_thread(lambda: "free") == "free", "asyncio's own threads are not taken"
    finally:
        answer.set()
        await reader.close()
    assert len(set(asked)) == 21


@pytest.mark.parametrize("address", ["127.0.0.1", "169.254.169.254", "0.0.0.0", "127.8.9.1"])
async def test_a_name_that_leads_to_the_operator_or_its_node_is_none(monkeypatch, address):
    monkeypatch.setattr(resolver.socket, "getaddrinfo", lambda *_, **__: found(address))
    async with HttpReader(timeout=30) as reader:
        assert (await reader.get("sneaky.example", 80, "/health")).error == "name not found"


async def test_an_address_among_others_is_taken(monkeypatch):
    monkeypatch.setattr(resolver.socket, "getaddrinfo", lambda *_, **__: found("127.0.0.1", "192.0.2.7"))
    made = resolver.Resolver()
    assert [entry["host"] for entry in await made.resolve("some.example", 80)] == ["192.0.2.7"]
    await made.close()


async def test_a_name_that_does_not_exist_is_an_answer(monkeypatch):
    def lookup(*_, **__):
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(resolver.socket, "getaddrinfo", lookup)
    async with HttpReader(timeout=30) as reader:
        assert (await reader.get("wrong.example", 9003, "/health")).error == "name not found"
