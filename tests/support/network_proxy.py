"""Owns a network that tests can break: a TCP proxy between a client and a server.

A test says at run time how the traffic goes (`passing`, `black_hole`, `delay`), which packet is
held back (`hold`), and what becomes of new connections (`accept`, `refuse`, `drop`) and of those
that exist (`reset`). It is so once the call returns.
"""

from __future__ import annotations

import asyncio
import functools
import socket
import struct
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, Self
from urllib.parse import urlsplit

CHUNK = 65_536
PATIENCE = 60.0
"""Seconds within which the proxy's thread has done what it was told."""
RESET = struct.pack("ii", 1, 0)
"""To linger for no time at all: closing such a socket sends RST."""


class Proxy:
    """A TCP proxy in a thread of its own, to the server that a URL names."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._server = (parts.hostname or "127.0.0.1", parts.port or 5432)
        self._listener = reserved(0)
        self.port: int = self._listener.getsockname()[1]
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy", daemon=True)
        self._accepting = False
        self._links: dict[Link, asyncio.Task[None]] = {}
        self._swallows = False
        self._delay = 0.0
        self._changed = asyncio.Event()
        self._marker: bytes | None = None
        self._drops = 0
        self._released = asyncio.Event()
        self.is_holding = threading.Event()
        """Set once the packet that is to be held back has come."""

    def __enter__(self) -> Self:
        self._thread.start()
        self.accept()
        return self

    def __exit__(self, *_: object) -> None:
        self.refuse()
        self.reset()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(PATIENCE)
        self._listener.close()
        self._loop.close()

    def url(self, url: str) -> str:
        """Return a URL of the server as one that goes through the proxy."""
        parts = urlsplit(url)
        login, at, _ = parts.netloc.rpartition("@")
        return parts._replace(netloc=f"{login}{at}127.0.0.1:{self.port}").geturl()

    @property
    def connections(self) -> int:
        """How many connections there are, as far as the server may know."""
        return len(self._links)

    # -- traffic -------------------------------------------------------------------------------

    def passing(self) -> None:
        """Pass bytes on at once; what was delayed goes first.

        A connection of which bytes were swallowed stays dumb: half a message helps nobody.
        """
        self._tell(lambda: self._change(swallows=False, delay=0.0))

    def black_hole(self) -> None:
        """Swallow bytes both ways, and let neither side know, not even that the other has gone."""
        self._tell(lambda: self._change(swallows=True, delay=0.0))

    def delay(self, seconds: float) -> None:
        """Pass bytes on, but later; a very long delay is a line that is cut and may be mended."""
        self._tell(lambda: self._change(swallows=False, delay=seconds))

    def hold(self, marker: bytes) -> None:
        """Hold back the next packet of a client that contains a marker, and what follows on its
        connection, until `release`. All others pass, and the client may go away meanwhile.
        """
        self.is_holding.clear()
        self._tell(lambda: self._hold(marker))

    def release(self) -> None:
        """Let the packet go on to the server that was held back."""
        self._tell(self._released.set)

    # -- connections ---------------------------------------------------------------------------

    def accept(self) -> None:
        """Accept connections, as from the beginning."""
        self._tell(self._accept)

    def refuse(self) -> None:
        """Refuse new connections; those that exist live on."""
        self._tell(self._refuse)

    def lead_to(self, url: str) -> None:
        """Lead new connections to another server; those that exist stay where they are."""
        parts = urlsplit(url)
        self._server = (parts.hostname or "127.0.0.1", parts.port or 5432)

    def drop(self, count: int) -> None:
        """Reset the next connections, this number of them, as soon as they come."""
        self._tell(lambda: setattr(self, "_drops", count))

    def reset(self) -> None:
        """Reset every connection, towards the client and towards the server."""
        self._tell(self._reset)

    # -- in the proxy's thread -----------------------------------------------------------------

    def _tell(self, act: Callable[[], object]) -> None:
        async def acted() -> None:
            act()
            gone = [task for task in self._links.values() if task.cancelling()]
            if gone:
                await asyncio.wait(gone)

        asyncio.run_coroutine_threadsafe(acted(), self._loop).result(PATIENCE)

    def _change(self, *, swallows: bool, delay: float) -> None:
        self._swallows, self._delay = swallows, delay
        self._changed.set()
        self._changed = asyncio.Event()

    def _hold(self, marker: bytes) -> None:
        self._marker, self._released = marker, asyncio.Event()

    def _accept(self) -> None:
        if not self._accepting:
            self._accepting = True
            self._listener.listen(128)
            # Not by a task: one that is cancelled may lose a connection that it has accepted.
            self._loop.add_reader(self._listener, self._serve)

    def _refuse(self) -> None:
        if self._accepting:
            self._accepting = False
            self._loop.remove_reader(self._listener)
            self._listener.close()
            # Bound but not listening: the port refuses, and stays ours until we accept again.
            self._listener = reserved(self.port)

    def _reset(self) -> None:
        for link, task in self._links.items():
            link.abort()
            task.cancel()

    def _serve(self) -> None:
        try:
            client, _ = self._listener.accept()
        except (BlockingIOError, ConnectionAbortedError):
            return
        client.setblocking(False)
        if self._drops:
            self._drops -= 1
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
            client.close()
            return
        link = Link(client)
        task = self._loop.create_task(self._carry(link))
        self._links[link] = task
        task.add_done_callback(functools.partial(self._forget, link))

    def _forget(self, link: Link, _: asyncio.Task[None]) -> None:
        # Here, and not where it is carried: a task that is cancelled at once never gets there.
        del self._links[link]
        link.release()

    async def _carry(self, link: Link) -> None:
        """Carry one connection from its first byte to its last."""
        try:
            client = await link.open_client()
            if self._swallows:
                link.is_dumb = True
                await self._pump(link, client, client)
            else:
                server = await link.open_server(self._server)
                await first_of(self._pump(link, client, server), self._pump(link, server, client))
            link.close()
        except OSError:
            link.abort()
        finally:
            await link.closed()

    async def _pump(self, link: Link, source: Stream, sink: Stream) -> None:
        """Pass bytes on in one direction, as the traffic is at the moment, until there are none."""
        broken: OSError | None = None
        try:
            while chunk := await source[0].read(CHUNK):
                if self._delay:
                    await self._change_within(self._delay)
                link.is_dumb = link.is_dumb or self._swallows
                if self._marker is not None and self._marker in chunk:
                    self._marker = None
                    self.is_holding.set()
                    await self._released.wait()
                if not link.is_dumb:
                    sink[1].write(chunk)
                    await sink[1].drain()
        except OSError as error:
            broken = error
        # Whoever is cut off does not hear either that the other side has gone.
        while self._swallows and sink is not source:
            await self._change_within(None)
        if broken:
            raise broken

    async def _change_within(self, seconds: float | None) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(self._changed.wait(), seconds)


Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Link:
    """A client's connection together with the one to the server that serves it."""

    def __init__(self, client: socket.socket) -> None:
        self.is_dumb = False
        """Whether bytes were swallowed, so that none may follow."""
        self._sockets = [client]
        self._writers: list[asyncio.StreamWriter] = []

    async def open_client(self) -> Stream:
        return await self._open(self._sockets[0])

    async def open_server(self, address: tuple[str, int]) -> Stream:
        server = socket.socket()
        server.setblocking(False)
        self._sockets.append(server)
        await asyncio.get_running_loop().sock_connect(server, address)
        return await self._open(server)

    async def _open(self, side: socket.socket) -> Stream:
        side.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        reader, writer = await asyncio.open_connection(sock=side)
        self._writers.append(writer)
        return reader, writer

    def close(self) -> None:
        """Close both sides as the end of a conversation does."""
        for writer in self._writers:
            writer.close()

    def abort(self) -> None:
        """Reset both sides."""
        for side in self._sockets:
            with suppress(OSError):
                side.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        for writer in self._writers:
            writer.transport.abort()

    async def closed(self) -> None:
        """Wait until both sides are closed."""
        for writer in self._writers:
            with suppress(OSError):
                await writer.wait_closed()

    def release(self) -> None:
        """Let go of what is still open of the sockets."""
        for side in self._sockets:
            side.close()


async def first_of(*pumps: Coroutine[Any, Any, None]) -> None:
    """Run until one of the pumps has ended, and end the others."""
    tasks = [asyncio.ensure_future(pump) for pump in pumps]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def reserved(port: int) -> socket.socket:
    """Take a port without listening at it."""
    taken = socket.socket()
    taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    taken.setblocking(False)
    taken.bind(("127.0.0.1", port))
    return taken
