"""Owns a network that can be broken: a TCP proxy in front of a server, in the event loop."""

from __future__ import annotations

import asyncio
import socket
import struct
from contextlib import suppress

_CHUNK = 65_536
_RESET = struct.pack("ii", 1, 0)
"""To linger for no time at all: closing such a socket sends RST."""


class Proxy:
    """Passes bytes between clients and a server, unless it is asked to break that."""

    def __init__(self, host: str, port: int) -> None:
        self._target = (host, port)
        self._server: asyncio.Server | None = None
        self._links: set[tuple[asyncio.StreamWriter, asyncio.StreamWriter]] = set()
        self._serving: set[asyncio.Task[object] | None] = set()
        self._open = asyncio.Event()
        self._open.set()
        self._delay = 0.0
        self._is_refusing = False
        self.port = 0

    async def start(self) -> None:
        """Listen at a free port."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        """Listen no more, and close every connection."""
        if self._server is not None:
            self._server.close()
            self.reset()
            self._open.set()
            # Else the event loop would complain about them when it ends.
            await asyncio.gather(*filter(None, self._serving), return_exceptions=True)

    def stall(self) -> None:
        """Pass nothing on; what comes meanwhile is passed on later."""
        self._open.clear()

    def delay(self, seconds: float) -> None:
        """Pass everything on later by this many seconds."""
        self._delay = seconds

    def refuse(self) -> None:
        """Reset every connection, and every new one."""
        self._is_refusing = True
        self.reset()

    def reset(self) -> None:
        """Reset every connection, towards both sides."""
        for link in list(self._links):
            for writer in link:
                _abort(writer)

    def lead_to(self, port: int) -> None:
        """Reset every connection, and pass new ones on to another port of the same host."""
        self._target = (self._target[0], port)
        self.reset()

    def heal(self) -> None:
        """Pass everything on at once, as from the beginning."""
        self._delay, self._is_refusing = 0.0, False
        self._open.set()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        self._serving.add(task)
        try:
            await self._link(reader, writer)
        finally:
            self._serving.discard(task)

    async def _link(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._is_refusing:
            _abort(writer)
            return
        try:
            far_reader, far_writer = await asyncio.open_connection(*self._target)
        except OSError:
            _abort(writer)
            return
        link = (writer, far_writer)
        self._links.add(link)
        try:
            for each in link:
                each.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            pumps = [
                asyncio.ensure_future(self._pump(reader, far_writer)),
                asyncio.ensure_future(self._pump(far_reader, writer)),
            ]
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)
        finally:
            self._links.discard(link)
            for each in link:
                each.close()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while chunk := await reader.read(_CHUNK):
                if self._delay:
                    await asyncio.sleep(self._delay)
                await self._open.wait()
                writer.write(chunk)
                await writer.drain()


def _abort(writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    writer.transport.abort()
