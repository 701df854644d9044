"""A connection that is made, and then silent, keeps nobody waiting for ever; how one is made."""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import suppress

import psycopg
import pytest

from windlass.store.postgres.connections.connection import (
    BlockingConnection,
    LoopConnection,
    conninfo_of,
    location_of,
)


def _message(kind: bytes, body: bytes) -> bytes:
    return kind + struct.pack("!i", len(body) + 4) + body


HANDSHAKE = (
    _message(b"R", struct.pack("!i", 0))
    + _message(b"S", b"server_version\x0018.0\x00")
    + _message(b"S", b"client_encoding\x00UTF8\x00")
    + _message(b"K", struct.pack("!ii", 1, 2))
    + _message(b"Z", b"I")
)
"""Authenticated, and ready for a query."""


@pytest.fixture
def mute_url() -> Iterator[str]:
    """Return the URL of a server that greets, and never says anything after that."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        held: list[socket.socket] = []

        def serve() -> None:
            while True:
                try:
                    client, _ = listener.accept()
                except OSError:
                    return
                held.append(client)
                with suppress(OSError):
                    client.recv(4096)
                    client.sendall(HANDSHAKE)

        serving = threading.Thread(target=serve, daemon=True)
        serving.start()
        port = listener.getsockname()[1]
        yield f"postgresql://ann@127.0.0.1:{port}/db?sslmode=disable&gssencmode=disable"
        listener.shutdown(socket.SHUT_RDWR)  # It wakes who waits for the next one.
        for client in held:
            with suppress(OSError):
                client.shutdown(socket.SHUT_RDWR)
        serving.join(60)
        for client in held:
            client.close()


def test_a_network_that_breaks_off_after_the_handshake_keeps_no_heartbeat(mute_url: str) -> None:
    """Prevents: a lease that is lost, since its heartbeat waits without end for a first answer."""
    began = time.monotonic()
    with pytest.raises(psycopg.OperationalError, match="did not answer in time"):
        BlockingConnection.open(conninfo_of(mute_url), began + 0.5)
    assert 0.4 < time.monotonic() - began < 30


def test_a_call_without_a_deadline_waits_as_long_as_a_connect(mute_url: str) -> None:
    conninfo = conninfo_of(f"{mute_url}&connect_timeout=2")
    for connect in (
        lambda: BlockingConnection.open(conninfo, None),
        lambda: asyncio.run(LoopConnection.open(conninfo)),
    ):
        began = time.monotonic()
        with pytest.raises(psycopg.OperationalError, match="did not answer in time"):
            connect()
        assert 1 < time.monotonic() - began < 30


PATIENT = {
    "connect_timeout": "5",
    "keepalives_idle": "10",
    "keepalives_interval": "5",
    "keepalives_count": "3",
    "tcp_user_timeout": "15000",
}


def options(url: str) -> list[dict[str, str]]:
    """Return what libpq was told, by a blocking connection and by one that is awaited."""

    async def awaited() -> dict[str, str]:
        connection = await LoopConnection.open(conninfo_of(url))
        try:
            return connection.info.get_parameters()
        finally:
            await connection.close()

    with BlockingConnection.open(conninfo_of(url), None) as connection:
        return [connection.info.get_parameters(), asyncio.run(awaited())]


def test_a_peer_that_is_gone_is_noticed_within_half_a_minute_unless_the_url_says_otherwise(
    postgres_url: str,
) -> None:
    """Prevents: a connection that a firewall forgot, on which somebody waits for hours."""
    for told in options(postgres_url):
        assert {**told, **PATIENT, "application_name": "windlass"} == told
    given = {"connect_timeout": "7", "tcp_user_timeout": "60000", "application_name": "shop"}
    chosen = "&".join(f"{name}={value}" for name, value in given.items())
    for told in options(f"{postgres_url}?{chosen}"):
        assert {**told, **PATIENT, **given} == told


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://me:secret@a:1/jobs", "me@a:1/jobs"),
        ("postgresql://me@a:5610,b:5611/jobs", "me@a:5610,b:5611/jobs"),
        ("postgresql://127.0.0.1:1,127.0.0.1:2/jobs", "127.0.0.1:1,127.0.0.1:2/jobs"),
        ("postgresql://a,b/jobs?port=7", "a:7,b:7/jobs"),
        ("postgresql://a,b/jobs", "a,b/jobs"),
        ("postgresql:///jobs?host=/tmp&port=7", "/jobs?host=/tmp:7"),
        ("postgresql:///jobs", "/jobs"),
    ],
)
def test_every_host_is_shown_with_its_port(url: str, shown: str) -> None:
    assert location_of(conninfo_of(url), "windlass") == f"postgresql://{shown} (schema windlass)"
