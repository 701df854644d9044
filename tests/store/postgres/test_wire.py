"""A connection that is made, and then silent, keeps nobody waiting for ever."""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
import time
from collections.abc import Iterator

import psycopg
import pytest

from windlass.store.postgres.wire import AsyncWire, Wire, conninfo_of


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
                client.recv(4096)
                client.sendall(HANDSHAKE)

        threading.Thread(target=serve, daemon=True).start()
        port = listener.getsockname()[1]
        yield f"postgresql://ann@127.0.0.1:{port}/db?sslmode=disable&gssencmode=disable"
        for client in held:
            client.close()


def test_a_network_that_breaks_off_after_the_handshake_keeps_no_heartbeat(mute_url: str) -> None:
    """Prevents: a lease that is lost, since its heartbeat waits without end for a first answer."""
    began = time.monotonic()
    with pytest.raises(psycopg.OperationalError, match="did not answer in time"):
        Wire.knock(conninfo_of(mute_url), began + 0.5)
    assert 0.4 < time.monotonic() - began < 3


def test_who_has_no_deadline_waits_as_long_as_for_a_connection(mute_url: str) -> None:
    conninfo = conninfo_of(f"{mute_url}&connect_timeout=2")
    for connect in (
        lambda: Wire.knock(conninfo, None),
        lambda: asyncio.run(AsyncWire.knock(conninfo)),
    ):
        began = time.monotonic()
        with pytest.raises(psycopg.OperationalError, match="did not answer in time"):
            connect()
        assert 1 < time.monotonic() - began < 6
