"""Engines that speak the probe's part of vLLM's HTTP API over loopback and share a store, and can be told to misbehave.

Only for the prober's own code paths; that real engines behave so is shown by the e2e tests.
"""

import asyncio
import hashlib
import json
import random
import socket
from collections import Counter
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from aiohttp import web

from kvcachepool import constants

BLOCK = 32


@pytest.fixture(autouse=True)
def free_ports(monkeypatch):
    """Engines and masters of a test listen on ports that nothing on this machine uses. Import it to have it."""
    with socket.socket() as one, socket.socket() as two:
        for name, found in (("ENGINE_PORT", one), ("MASTER_HTTP_PORT", two)):
            found.bind(("", 0))
            monkeypatch.setattr(constants, name, found.getsockname()[1])


def loopback() -> str:
    """An address of this machine that no other test uses: all engines listen on one port."""
    return f"127.{random.randint(1, 250)}.{random.randint(1, 250)}.{random.randint(2, 250)}"


@asynccontextmanager
async def raw_server(behaviour, port: int = 0):
    """A server on a loopback address that does what `behaviour(reader, writer)` says; gives the address."""
    handlers: set[asyncio.Task[None]] = set()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        handlers.add(task)
        try:
            await behaviour(reader, writer)
        except (asyncio.CancelledError, ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()
            handlers.discard(task)

    host = loopback()
    server = await asyncio.start_server(handle, host, port or constants.ENGINE_PORT)
    try:
        yield host
    finally:
        server.close()
        pending = list(handlers)
        for task in pending:
            task.cancel()
        await asyncio.gather(*pending, return_exceptions=True)
        await asyncio.sleep(0)  # transports close in the next turn of the loop


async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Accepts and never answers."""
    await asyncio.sleep(3600)


@dataclass
class FakeStore:
    """The shared pool: names of blocks."""

    blocks: set[str] = field(default_factory=set)


@dataclass
class FakeEngine:
    store: FakeStore
    host: str = field(default_factory=loopback)
    max_model_len: int = 4096
    model: str = "org/model"
    shares: bool = True
    wrong_bytes: bool = False
    ignores_salt: bool = False
    saves: bool = True
    saves_fail: bool = False
    """All but the first block."""
    loads_fail: bool = False
    shows_saves_late: bool = False
    """Counters of saves appear at the next request only."""
    numerics: str = ""
    """Mixed into answers of cold runs: as another chunking would."""
    restless: bool = False
    """No cold answer is given twice."""
    no_details: bool = False
    prefix_cache: bool = True
    hang_on_hit: bool = False
    status: int = 200
    drop_after: int | None = None
    user_tokens: int = 0
    """Tokens that users load from the pool whenever the probe does."""

    def __post_init__(self) -> None:
        self.local: set[str] = set()
        self.sources: Counter[str] = Counter(local_compute=0, local_cache_hit=0, external_kv_transfer=0)
        self.queries = 0
        self.shown: Counter[str] = Counter()
        self.pending: Counter[str] = Counter()
        self.requests: list[dict[str, Any]] = []
        self.hit = asyncio.Event()
        """Something was found in the pool."""

    @asynccontextmanager
    async def running(self):
        app = web.Application(client_max_size=64 * 2**20)
        app.add_routes(
            [
                web.get("/metrics", self._metrics),
                web.get("/health", self._health),
                web.get("/v1/models", self._models),
                web.post("/v1/completions", self._complete),
            ]
        )
        runner = web.AppRunner(app, shutdown_timeout=0.05)
        await runner.setup()
        await web.TCPSite(runner, self.host, constants.ENGINE_PORT).start()
        try:
            yield self
        finally:
            await runner.cleanup()

    async def _health(self, _: web.Request) -> web.Response:
        return web.Response()

    async def _models(self, _: web.Request) -> web.Response:
        return web.json_response({"data": [{"id": self.model, "max_model_len": self.max_model_len}]})

    async def _metrics(self, _: web.Request) -> web.Response:
        lines = ["# TYPE vllm:mooncake_store_operation_total counter"]
        lines += [f'vllm:prompt_tokens_by_source_total{{source="{s}"}} {n}' for s, n in self.sources.items()]
        lines.append(f"vllm:external_prefix_cache_queries_total {self.queries}")
        for name, value in self.shown.items():
            operation, member = name.split("/")
            lines.append(f'vllm:mooncake_store_operation_{member}_total{{operation="{operation}",status="ok"}} {value}')
        return web.Response(text="\n".join(lines) + "\n")

    def _names(self, tokens: list[int], salt: str) -> list[str]:
        names, digest = [], "" if self.ignores_salt else salt
        for start in range(0, len(tokens) - BLOCK + 1, BLOCK):
            digest = hashlib.sha256(f"{digest}{tokens[start : start + BLOCK]}".encode()).hexdigest()
            names.append(digest)
        return names

    def _lookup(self, names: list[str], tokens: int) -> tuple[int, int]:
        """(local, external) cached tokens; the last token is always computed."""
        usable = names[: (tokens - 1) // BLOCK]
        local = next((n for n, name in enumerate(usable) if name not in self.local), len(usable))
        local = local if self.prefix_cache else 0
        both = next((n for n, name in enumerate(usable) if n >= local and name not in self.store.blocks), len(usable))
        return local * BLOCK, (max(0, both - local) * BLOCK if self.shares else 0)

    async def _complete(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        self.requests.append(body)
        self.shown.update(self.pending)
        self.pending.clear()
        if self.status != 200:
            return web.json_response(
                {"error": {"message": "engine is dead, token=hf_abcdefghijklmn"}}, status=self.status
            )
        tokens, salt = body["prompt"], body.get("cache_salt", "")
        names = self._names(tokens, salt)
        local, external = self._lookup(names, len(tokens))
        if external:
            self.hit.set()
        if external and self.hang_on_hit:
            await asyncio.sleep(3600)
        self._count(len(tokens), local, external)
        corrupt = self.wrong_bytes and external > 0
        self.local.update(names)
        answer = self._answer(tokens, hit=local + external > 0, corrupt=corrupt)[: body["max_tokens"]]
        response = web.StreamResponse()
        await response.prepare(request)
        for number, token in enumerate(answer):
            if number == self.drop_after:
                request.transport.close()
                return response
            await response.write(_event({"choices": [{"index": 0, "text": "\ufffd", "token_ids": [token]}]}))
        self._save(names)
        usage: dict[str, Any] = {"prompt_tokens": len(tokens), "completion_tokens": len(answer)}
        if not self.no_details:
            usage["prompt_tokens_details"] = {"cached_tokens": local + external}
        await response.write(_event({"choices": [], "usage": usage}) + b"data: [DONE]\n\n")
        return response

    def _count(self, total: int, local: int, external: int) -> None:
        self.sources.update(
            local_compute=total - local - external, local_cache_hit=local, external_kv_transfer=external
        )
        self.queries += total - local
        if external:
            loaded = external + self.user_tokens
            self.sources["external_kv_transfer"] += self.user_tokens
            self.shown.update({"load_get/keys": loaded // BLOCK, "load_get/bytes": loaded * 1000})
            self.shown["load_get/failed_keys"] += 1 if self.loads_fail else 0

    def _save(self, names: list[str]) -> None:
        new = [name for name in names if name not in self.store.blocks]
        failed = [] if self.saves and not self.saves_fail else new[self.saves :]
        self.store.blocks.update(set(new) - set(failed))
        counted = {"save_put/keys": len(new), "save_put/failed_keys": len(failed)}
        (self.pending if self.shows_saves_late else self.shown).update(counted)

    def _answer(self, tokens: list[int], *, hit: bool, corrupt: bool) -> list[int]:
        seed = f"{tokens}{'corrupt' if corrupt else ''}{'' if hit else self.numerics}"
        if self.restless and not hit:
            seed += str(len(self.requests))
        return list(hashlib.sha256(seed.encode()).digest()[:16])


@asynccontextmanager
async def engines(*found: FakeEngine):
    async with AsyncExitStack() as stack:
        for engine in found:
            await stack.enter_async_context(engine.running())
        yield found


def _event(value: dict[str, Any]) -> bytes:
    return f"data: {json.dumps(value)}\n\n".encode()
