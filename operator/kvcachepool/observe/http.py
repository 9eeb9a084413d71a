"""Bounded HTTP GET for everything a pass asks of pods.

A peer may accept and never answer, answer without end, or answer nonsense. So each request has one total
deadline and a size limit, follows no redirect, and ends in an `Answer`: nothing here raises into a pass.
"""

import asyncio
import json
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final

import aiohttp

from kvcachepool.observe.resolver import Resolver

TIMEOUT_SECONDS: Final = 3.0
"""Connect and read together. A healthy engine answers in milliseconds even under load: it serves HTTP from a
process of its own."""
MAX_BYTES: Final = 4 * 1024 * 1024
"""Engine metrics are 50 to 200 KB; a master with 10,000 segments lists about 4 MB."""
_CHUNK: Final = 64 * 1024


@dataclass(frozen=True, slots=True)
class Answer:
    """The body of a 200 answer, or why there is none."""

    text: str = ""
    error: str = ""
    """Empty when the answer is good; plain words without the address otherwise (`refused`, `HTTP 503`, …)."""

    @property
    def ok(self) -> bool:
        """Whether `text` is the whole body of an answer with status 200."""
        return not self.error


def host_port(host: str, port: int) -> str:
    """The authority part of a URL; IPv6 addresses get their brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def parse_json(answer: Answer) -> tuple[Any, str]:
    """(value, "") or (None, why not)."""
    if answer.error:
        return None, answer.error
    try:
        return json.loads(answer.text), ""
    except (ValueError, RecursionError):
        return None, "not JSON"


def writable(text: str) -> str:
    """Without what cannot be written as UTF-8: JSON may hold halves of surrogate pairs."""
    return text.encode("utf-8", "replace").decode()


def describe(error: BaseException, timeout: float) -> str:
    """A transport error in plain words, without addresses."""
    if isinstance(error, TimeoutError):
        return f"timed out after {timeout:g} s"
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return "name not found"
    if isinstance(error, aiohttp.ClientConnectorError):
        cause = error.os_error
        return "refused" if isinstance(cause, ConnectionRefusedError) else (cause.strerror or "no connection").lower()
    if isinstance(error, aiohttp.ServerDisconnectedError | aiohttp.ClientPayloadError | ConnectionError):
        return "connection broke off"
    if isinstance(error, aiohttp.ClientResponseError | aiohttp.http_exceptions.HttpProcessingError):
        return "not HTTP"
    return f"failed ({type(error).__name__})"


class HttpReader:
    """One client session for all pools.

    Connections are neither pooled nor limited: polls are farther apart than servers keep idle connections, and
    with a common limit one pool's hanging peers would hold up the others. `gather` bounds what one pass asks at once.
    """

    def __init__(self, timeout: float = TIMEOUT_SECONDS, max_bytes: int = MAX_BYTES) -> None:
        self.timeout = timeout
        self.max_bytes = max_bytes
        self._session: aiohttp.ClientSession | None = None
        self._resolver = Resolver()

    @property
    def session(self) -> aiohttp.ClientSession:
        """Made at first use, since it belongs to the running loop."""
        if self._session is None or self._session.closed:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0, force_close=True, resolver=self._resolver),
                cookie_jar=aiohttp.DummyCookieJar(),
                headers={"Accept-Encoding": "identity", "User-Agent": "kvcachepool-operator"},
                timeout=aiohttp.ClientTimeout(total=None),
                # unasked-for compression: a few KB could become gigabytes
                auto_decompress=False,
            )
        return self._session

    async def close(self) -> None:
        """Close the session, if there is one."""
        if self._session is not None:
            await self._session.close()
        await self._resolver.close()

    async def __aenter__(self) -> "HttpReader":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def get(self, host: str, port: int, path: str) -> Answer:
        """GET `path` (with its slash). Raises nothing but cancellation."""
        try:
            async with asyncio.timeout(self.timeout):
                return await self._get(f"http://{host_port(host, port)}{path}")
        except (TimeoutError, aiohttp.ClientError, OSError, ValueError) as error:
            return Answer(error=describe(error, self.timeout))

    async def _get(self, url: str) -> Answer:
        async with self.session.get(url, allow_redirects=False) as response:
            if response.status != 200:
                return Answer(error=f"HTTP {response.status}")
            body = bytearray()
            async for chunk in response.content.iter_chunked(_CHUNK):
                body += chunk
                if len(body) > self.max_bytes:
                    return Answer(error=f"answer is longer than {self.max_bytes} bytes")
            return Answer(text=body.decode("utf-8", "replace"))
