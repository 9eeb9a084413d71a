"""Bounded GET: whatever the peer does is an answer in time."""

import asyncio

import pytest

from kvcachepool import constants
from kvcachepool.observe.http import Answer, HttpReader, describe, host_port, parse_json
from tests.unit.probe_fakes import free_ports, hang, loopback, raw_server  # noqa: F401

GOOD = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


def answers(raw: bytes):
    async def behaviour(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(raw)
        await writer.drain()

    return raw_server(behaviour)


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (GOOD, Answer("ok")),
        (b"HTTP/1.1 503 No\r\nContent-Length: 6\r\n\r\nsecret", Answer(error="HTTP 503")),
        (b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n", Answer(error="HTTP 302")),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nok", Answer(error="connection broke off")),
        (b"", Answer(error="connection broke off")),
        (b"SSH-2.0-OpenSSH\r\n\r\n", Answer(error="not HTTP")),
        (
            b"HTTP/1.1 200 OK\r\nContent-Length: 2000\r\n\r\n" + b"x" * 2000,
            Answer(error="answer is longer than 1000 bytes"),
        ),
    ],
)
async def test_every_answer_is_plain_words(raw, expected):
    async with answers(raw) as host, HttpReader(timeout=30, max_bytes=1000) as http:
        assert await http.get(host, constants.ENGINE_PORT, "/x") == expected


async def test_an_endless_answer_is_cut():
    async def endless(reader, writer):
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        while True:
            writer.write(b"x" * 65536)
            await writer.drain()

    async with raw_server(endless) as host, HttpReader(timeout=60, max_bytes=100_000) as http:
        assert (await http.get(host, constants.ENGINE_PORT, "/")).error == "answer is longer than 100000 bytes"


async def test_a_peer_that_accepts_and_never_answers_is_given_up():
    async with raw_server(hang) as host, HttpReader(timeout=0.2) as http:
        assert (await http.get(host, constants.ENGINE_PORT, "/")).error == "timed out after 0.2 s"


async def test_many_that_hang_keep_no_other_from_being_asked():
    async with raw_server(hang) as host, answers(GOOD) as good, HttpReader(timeout=60) as http:
        hanging = [asyncio.create_task(http.get(host, constants.ENGINE_PORT, "/")) for _ in range(150)]
        assert await http.get(good, constants.ENGINE_PORT, "/") == Answer("ok")
        assert not any(task.done() for task in hanging)
        for task in hanging:
            task.cancel()
        await asyncio.gather(*hanging, return_exceptions=True)


async def test_nobody_listens_and_no_such_name():
    async with HttpReader(timeout=30) as http:
        assert (await http.get(loopback(), constants.ENGINE_PORT, "/")).error == "refused"
        assert (await http.get("no-such-host.invalid", constants.ENGINE_PORT, "/")).error == "name not found"
        assert (await http.get("a b", constants.ENGINE_PORT, "/")).error


async def test_the_session_is_made_anew_after_close():
    async with answers(GOOD) as host:
        http = HttpReader(timeout=30)
        for _ in range(2):
            assert (await http.get(host, constants.ENGINE_PORT, "/")).ok
            await http.close()


async def test_cancellation_passes():
    async with raw_server(hang) as host, HttpReader(timeout=60) as http:
        task = asyncio.create_task(http.get(host, constants.ENGINE_PORT, "/"))
        await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


def test_ipv6_gets_brackets():
    assert host_port("fd00::1", 8000) == "[fd00::1]:8000"
    assert host_port("10.0.0.1", 8000) == "10.0.0.1:8000"


@pytest.mark.parametrize("text", ["", "{", "nan x", "[" * 200_000])
def test_bad_json_is_said(text):
    assert parse_json(Answer(text)) == (None, "not JSON")


def test_an_error_is_passed_on_by_the_json_parser():
    assert parse_json(Answer(error="refused")) == (None, "refused")


def test_unknown_errors_name_their_kind_only():
    assert describe(ValueError("http://user:secret@host"), 3) == "failed (ValueError)"
