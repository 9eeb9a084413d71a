"""One completion request of the probe, measured.

The prompt goes as token ids, so that its length is exact whatever the tokenizer. Greedy, with a fixed seed and exactly
`max_tokens` tokens (`ignore_eos`), so that two answers can be compared token by token: `return_token_ids`, since the
text of arbitrary tokens is lossy. It streams, so that the time to the first token is seen.
"""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import aiohttp

from kvcachepool import constants
from kvcachepool.credentials import redact
from kvcachepool.observe.http import describe, host_port

MAX_TOKENS: Final = 16
_MAX_STREAM: Final = 8 * 1024 * 1024
_MOST_TOKENS: Final = 2**31
"""No context is so long; a status holds no number of any length."""
"""The first chunk repeats the prompt's ids: up to 131,072 of them."""
_MAX_ERROR: Final = 4096


@dataclass(frozen=True, slots=True)
class Prompt:
    """What to ask. A `salt` is hashed into every block, so that the prompt shares nothing with other salts."""

    tokens: Sequence[int]
    salt: str = ""
    max_tokens: int = MAX_TOKENS


@dataclass(frozen=True, slots=True)
class Reply:
    """A complete answer."""

    tokens: tuple[int, ...]
    text: str
    prompt_tokens: int
    cached_tokens: int
    ttft: float
    """Seconds from sending to the first token."""

    @property
    def answer(self) -> tuple[int, ...] | str:
        """What is compared: the token ids, or the text of an engine that gives no ids."""
        return self.tokens or self.text


class RequestError(Exception):
    """No complete answer. The message says why, in plain words."""


async def complete(
    session: aiohttp.ClientSession, host: str, model: str, prompt: Prompt, deadline: float, *, port: int = 0
) -> Reply:
    """Ask one engine; `deadline` in seconds for everything, since a load from a failing store can hang.

    Raises RequestError. Leaving early closes the connection, which makes the engine drop the request.
    """
    body: dict[str, Any] = {
        "model": model,
        "prompt": list(prompt.tokens),
        "max_tokens": prompt.max_tokens,
        "temperature": 0,
        "seed": 0,
        "ignore_eos": True,
        "return_token_ids": True,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    if prompt.salt:
        body["cache_salt"] = prompt.salt
    try:
        async with asyncio.timeout(deadline):
            return await _stream(
                session, f"http://{host_port(host, port or constants.ENGINE_PORT)}/v1/completions", body
            )
    except (TimeoutError, aiohttp.ClientError, OSError, ValueError) as error:
        raise RequestError(describe(error, deadline)) from error


async def _stream(session: aiohttp.ClientSession, url: str, body: dict[str, Any]) -> Reply:
    started = time.perf_counter()
    async with session.post(url, json=body, allow_redirects=False) as response:
        if response.status != 200:
            raise RequestError(_refusal(response.status, await response.content.read(_MAX_ERROR)))
        answer = _Answer()
        async for event in _events(response):
            if event == b"[DONE]":
                return answer.reply()
            answer.add(_parse(event), time.perf_counter() - started)
    raise RequestError(f"the answer broke off after {answer.pieces} tokens")


@dataclass(slots=True)
class _Answer:
    tokens: list[int] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    usage: dict[str, Any] | None = None
    ttft: float | None = None
    pieces: int = 0

    def add(self, event: dict[str, Any], elapsed: float) -> None:
        error = event.get("error")
        if error:
            message = error.get("message") if isinstance(error, dict) else error
            raise RequestError(f"the engine reported an error: {_short(str(message))}")
        choices = event.get("choices")
        choice = choices[0] if isinstance(choices, list) and choices and isinstance(choices[0], dict) else None
        if choice is not None:
            if self.ttft is None:
                self.ttft = elapsed
            ids, text = choice.get("token_ids"), choice.get("text")
            self.tokens += [i for i in ids if isinstance(i, int)] if isinstance(ids, list) else []
            self.texts += [text] if isinstance(text, str) else []
            self.pieces += 1
        if isinstance(event.get("usage"), dict):
            self.usage = event["usage"]

    def reply(self) -> Reply:
        if self.ttft is None or not (self.tokens or any(self.texts)):
            raise RequestError("the answer has no tokens")
        if self.usage is None:
            raise RequestError("the answer has no usage")
        details = self.usage.get("prompt_tokens_details")
        cached = details.get("cached_tokens") if isinstance(details, dict) else None
        prompt = self.usage.get("prompt_tokens")
        if not isinstance(cached, int):
            raise RequestError("the engine does not report cached tokens: it needs --enable-prompt-tokens-details")
        if not isinstance(prompt, int):
            raise RequestError("the answer has no number of prompt tokens")
        if not 0 <= cached <= prompt <= _MOST_TOKENS:
            raise RequestError(f"the answer's counts of prompt tokens cannot be: expected 0 to {_MOST_TOKENS}")
        return Reply(tuple(self.tokens), "".join(self.texts), prompt, cached, self.ttft)


async def _events(response: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
    """Payloads of server-sent events. Bounded, as the peer is only believed to be an engine."""
    buffer, seen = bytearray(), 0
    async for chunk in response.content.iter_any():
        seen += len(chunk)
        if seen > _MAX_STREAM:
            raise RequestError(f"the answer is longer than {_MAX_STREAM} bytes")
        buffer += chunk
        *lines, rest = buffer.split(b"\n")
        buffer = bytearray(rest)
        for line in lines:
            if line.startswith(b"data:"):
                yield bytes(line[5:].strip())


def _parse(event: bytes) -> dict[str, Any]:
    try:
        value = json.loads(event)
    except (ValueError, RecursionError) as error:
        raise RequestError("the answer is not a stream of JSON") from error
    if not isinstance(value, dict):
        raise RequestError("the answer is not a stream of JSON objects")
    return value


def _refusal(status: int, body: bytes) -> str:
    if status in (401, 403):
        return f"HTTP {status}: the engine wants an API key, which the operator does not have"
    try:
        document = json.loads(body)
        error = document.get("error", document) if isinstance(document, dict) else document
        message = error.get("message") if isinstance(error, dict) else None
    except (ValueError, RecursionError):
        message = None
    return f"HTTP {status}: {_short(message)}" if isinstance(message, str) and message else f"HTTP {status}"


def _short(text: str) -> str:
    return redact(" ".join(text.split()))[:200]
