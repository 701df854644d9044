"""The proxy of chaos: passes, stalls, delays, resets, refuses, and heals."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from windlass.chaos.proxy import Proxy

PATIENCE = 30.0
"""Seconds after which what has not happened will not."""
Line = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@asynccontextmanager
async def network() -> AsyncIterator[Proxy]:
    """Give a proxy in front of a server that answers with what it gets."""

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while chunk := await reader.read(1000):
                writer.write(chunk)
                await writer.drain()
        except OSError:
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    proxy = Proxy("127.0.0.1", server.sockets[0].getsockname()[1])
    await proxy.start()
    try:
        yield proxy
    finally:
        await proxy.close()
        server.close()


async def connect(proxy: Proxy) -> Line:
    return await asyncio.open_connection("127.0.0.1", proxy.port)


async def answered(line: Line, text: bytes) -> bytes:
    line[1].write(text)
    return await asyncio.wait_for(line[0].readexactly(len(text)), PATIENCE)


async def is_cut(line: Line) -> bool:
    try:
        return await asyncio.wait_for(line[0].read(1), PATIENCE) == b""
    except ConnectionError:
        return True


def test_bytes_pass_both_ways() -> None:
    async def main() -> None:
        async with network() as proxy:
            line = await connect(proxy)
            assert await answered(line, b"hello") == b"hello"
            line[1].close()

    asyncio.run(main())


def test_a_stalled_network_passes_everything_on_when_it_heals() -> None:
    async def main() -> None:
        async with network() as proxy:
            line = await connect(proxy)
            await answered(line, b"first")
            proxy.stall()
            line[1].write(b"late")
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(line[0].readexactly(4), 0.2)
            proxy.heal()
            assert await asyncio.wait_for(line[0].readexactly(4), PATIENCE) == b"late"
            line[1].close()

    asyncio.run(main())


def test_a_reset_cuts_every_connection_and_lets_new_ones_pass() -> None:
    async def main() -> None:
        async with network() as proxy:
            line = await connect(proxy)
            await answered(line, b"first")
            proxy.reset()
            assert await is_cut(line)
            again = await connect(proxy)
            assert await answered(again, b"again") == b"again"
            line[1].close()
            again[1].close()

    asyncio.run(main())


def test_a_cut_network_refuses_new_connections_until_it_heals() -> None:
    async def main() -> None:
        async with network() as proxy:
            proxy.refuse()
            line = await connect(proxy)
            assert await is_cut(line)
            proxy.heal()
            again = await connect(proxy)
            assert await answered(again, b"again") == b"again"
            line[1].close()
            again[1].close()

    asyncio.run(main())


def test_a_proxy_that_leads_elsewhere_cuts_old_connections_and_passes_new_ones_there() -> None:
    async def main() -> None:
        async with network() as proxy, network() as other:
            line = await connect(proxy)
            await answered(line, b"first")
            other.refuse()
            proxy.lead_to(other.port)
            assert await is_cut(line)
            refused = await connect(proxy)
            assert await is_cut(refused)
            other.heal()
            again = await connect(proxy)
            assert await answered(again, b"again") == b"again"
            for each in (line, refused, again):
                each[1].close()

    asyncio.run(main())


def test_a_closed_proxy_leaves_no_task_behind() -> None:
    """Prevents complaints of the event loop when a run ends."""

    async def main() -> None:
        async with network() as proxy:
            line = await connect(proxy)
            await answered(line, b"first")
            line[1].close()
            await proxy.close()
            serving = [task for task in asyncio.all_tasks() if "_serve" in repr(task)]
            assert not serving

    asyncio.run(main())
