"""One measured completion: real streams, and what should not be sent."""

from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvcachepool.observe.http import HttpReader
from kvcachepool.probe.client import Prompt, Reply, RequestError, _Answer, _parse, complete
from tests.unit.probe_fakes import free_ports, hang, raw_server  # noqa: F401

STREAM = (Path(__file__).parents[1] / "fixtures" / "http" / "completion_stream.txt").read_bytes()
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"


async def ask(raw: bytes, *, piece: int = 0, deadline: float = 60.0) -> Reply:
    async def behaviour(reader, writer):
        head = await reader.readuntil(b"\r\n\r\n")
        length = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
        await reader.readexactly(int(length.split(b":")[1]))
        for start in range(0, len(raw), piece or len(raw) or 1):
            writer.write(raw[start : start + (piece or len(raw))])
            await writer.drain()

    async with raw_server(behaviour) as host, HttpReader() as http:
        return await complete(http.session, host, "tiny", Prompt([20, 21], salt="s"), deadline)


def usage(cached: int, prompt: int) -> bytes:
    """An answer that counts so."""
    counted = f'{{"prompt_tokens":{prompt},"prompt_tokens_details":{{"cached_tokens":{cached}}}}}'
    return f'data: {{"choices":[{{"text":"a"}}],"usage":{counted}}}\n\ndata: [DONE]\n\n'.encode()


@pytest.mark.parametrize("piece", [0, 1, 7, 100])
async def test_a_real_stream(piece):
    reply = await ask(HEAD + STREAM, piece=piece)
    assert (reply.prompt_tokens, reply.cached_tokens) == (2000, 1984)
    assert reply.tokens == ()
    assert reply.answer == "\ufffdB\ufffdpu", "an engine that gives no ids is compared by text"
    assert reply.ttft > 0


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (HEAD, "broke off after 0 tokens"),
        (HEAD + STREAM[: STREAM.index(b"data: [DONE]")], "broke off after 4 tokens"),
        (HEAD + b"data: [DONE]\n\n", "no tokens"),
        (HEAD + b'data: {"choices":[{"text":""}]}\n\ndata: [DONE]\n\n', "no tokens"),
        (HEAD + b'data: {"choices":[{"text":"a"}]}\n\ndata: [DONE]\n\n', "no usage"),
        (HEAD + usage(-1, 8), "counts of prompt tokens cannot be"),
        (HEAD + usage(9, 8), "counts of prompt tokens cannot be"),
        (HEAD + usage(10**30, 10**40), "counts of prompt tokens cannot be"),
        (HEAD + usage(10**400, 10**400), "counts of prompt tokens cannot be"),
        (HEAD + b"data: hello\n\n", "not a stream of JSON"),
        (HEAD + b"data: [1]\n\n", "not a stream of JSON objects"),
        (
            HEAD + b'data: {"error":{"message":"load failed, hf_abcdefghijkl"}}\n\n',
            "reported an error: load failed, ***",
        ),
        (b"HTTP/1.1 503 No\r\nContent-Length: 0\r\n\r\n", "HTTP 503"),
        (b"HTTP/1.1 400 No\r\nContent-Length: 27\r\n\r\n" + b'{"error":{"message":"nope"}}'[:27], "HTTP 400"),
        (b"HTTP/1.1 307 Go\r\nLocation: /x\r\nContent-Length: 0\r\n\r\n", "HTTP 307"),
        (b"nonsense\r\n\r\n", "not HTTP"),
        (b"", "connection broke off"),
        (HEAD + b"data: " + b"x" * (9 * 2**20), "longer than"),
    ],
)
async def test_no_answer_says_why(raw, message):
    with pytest.raises(RequestError, match=message.replace("*", r"\*")):
        await ask(raw)


async def test_a_request_that_hangs_has_a_deadline():
    async with raw_server(hang) as host, HttpReader() as http:
        with pytest.raises(RequestError, match=r"timed out after 0.2 s"):
            await complete(http.session, host, "tiny", Prompt([20]), 0.2)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["choices", "text", "token_ids", "usage", "error", "prompt_tokens"]), inner)
    ),
    max_leaves=15,
)


@settings(deadline=None, max_examples=60)
@given(st.lists(st.dictionaries(st.sampled_from(["choices", "usage", "error"]), JSON), max_size=5))
def test_any_events_are_a_reply_or_a_request_error(events):
    answer = _Answer()
    try:
        for event in events:
            answer.add(event, 0.1)
        reply = answer.reply()
    except RequestError:
        return
    assert reply.answer


@settings(deadline=None, max_examples=60)
@given(st.binary(max_size=100))
def test_any_bytes_are_an_object_or_a_request_error(event):
    with suppress(RequestError):
        assert isinstance(_parse(event), dict)
