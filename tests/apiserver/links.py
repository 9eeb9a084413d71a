"""A TCP link between a replica and the API server that can break in the ways networks do."""

import asyncio
import threading
from collections.abc import Coroutine
from contextlib import suppress
from types import TracebackType
from typing import Any, Self

_CHUNK = 64 * 1024


class Link:
    """Forwards connections to `target`; TLS goes through untouched.

    `source` is the address from which the API server sees them, so that its audit log tells replicas apart.
    """

    def __init__(self, target: tuple[str, int], source: str) -> None:
        self.target = target
        self.source = source
        self.port = 0
        self._silent = False
        self._frozen: set[asyncio.StreamWriter] = set()
        self._open: set[asyncio.StreamWriter] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="link", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        self._run(self._listen())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._run(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    def cut(self) -> None:
        """Reset every connection; new ones are made at once."""
        self._run(self._reset())

    def freeze(self) -> None:
        """What is open now stays open and carries nothing any more; new connections work."""
        self._run(self._freeze())

    def silence(self, silent: bool) -> None:
        """As if packets were dropped: whatever is open or opened carries nothing."""
        self._silent = silent
        if not silent:
            self.cut()  # what waited in between is lost with its connection

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(10)

    async def _listen(self) -> None:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def _close(self) -> None:
        self._server.close()
        await self._reset()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    async def _reset(self) -> None:
        for writer in list(self._open):
            writer.transport.abort()

    async def _freeze(self) -> None:
        self._frozen |= self._open

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open.add(writer)
        try:
            there, back = await asyncio.open_connection(*self.target, local_addr=(self.source, 0))
        except OSError:
            writer.transport.abort()
            self._open.discard(writer)
            return
        self._open.add(back)
        try:
            await asyncio.gather(self._pump(reader, writer, back), self._pump(there, writer, writer))
        finally:
            for end in (writer, back):
                end.transport.abort()
                self._open.discard(end)
                self._frozen.discard(end)

    async def _pump(
        self, reader: asyncio.StreamReader, connection: asyncio.StreamWriter, to: asyncio.StreamWriter
    ) -> None:
        with suppress(OSError):
            while data := await reader.read(_CHUNK):
                if self._silent or connection in self._frozen:
                    continue
                to.write(data)
                await to.drain()
        if connection not in self._frozen and not self._silent:
            to.transport.abort()
