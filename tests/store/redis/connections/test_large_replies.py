"""Replies of any size arrive whole, in plain and over TLS, in threads and in event loops."""

from __future__ import annotations

import asyncio
import math
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from windlass.store.redis.connections.blocking_connection import BlockingConnection
from windlass.store.redis.connections.loop_connection import LoopConnection
from windlass.store.redis.connections.servers.urls import Endpoint

SIZES = (0, 4_000, 4_096, 17_000, 100_000, 700_000)
VALUES = [(b"%09d," % size * (size // 10 + 1))[:size] for size in SIZES]
REPLIES = b"".join(b"$%d\r\n%b\r\n" % (len(value), value) for value in VALUES)
ASK = b"*1\r\n$4\r\nMANY\r\n"
Sides = tuple[ssl.SSLContext | None, ssl.SSLContext | None]


@pytest.fixture(params=["plain", "tls"], scope="module")
def sides(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Sides:
    """Return a server's side of TLS and a client's that trusts it, or neither."""
    if request.param == "plain":
        return None, None
    certificate = certificate_in(tmp_path_factory.mktemp("tls"))
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(certificate)
    return server, ssl.create_default_context(cafile=certificate)


@pytest.fixture
def endpoint(sides: Sides) -> Iterator[Endpoint]:
    """Run a server that answers each question of one client with all values."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=answer, args=(listening, sides[0]))
        thread.start()
        yield Endpoint("localhost", listening.getsockname()[1])
        thread.join()


@pytest.mark.parametrize("calls", [1, 3])
def test_large_replies_arrive_whole_in_a_thread(
    endpoint: Endpoint, sides: Sides, calls: int
) -> None:
    sock = socket.create_connection(endpoint)
    if sides[1] is not None:
        sock = sides[1].wrap_socket(sock, server_hostname=endpoint.host)
    connection = BlockingConnection(endpoint, sock)
    for _ in range(calls):
        assert connection.send(ASK, len(VALUES), time.monotonic() + 30) == VALUES
    connection.close()


@pytest.mark.parametrize("calls", [1, 3])
def test_large_replies_arrive_whole_in_an_event_loop(
    endpoint: Endpoint, sides: Sides, calls: int
) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        make = partial(LoopConnection, endpoint)
        _, connection = await loop.create_connection(make, *endpoint, ssl=sides[1])
        for _ in range(calls):
            assert await connection.send(ASK, len(VALUES), math.inf) == VALUES
        connection.close()

    asyncio.run(main())


def answer(listening: socket.socket, context: ssl.SSLContext | None) -> None:
    """Answer the questions of one client until it goes."""
    client, _ = listening.accept()
    if context is not None:
        client = context.wrap_socket(client, server_side=True)
    with client, suppress(OSError):  # A client that aborts sends no farewell.
        while client.recv(len(ASK)):
            client.sendall(REPLIES)


def certificate_in(directory: Path) -> Path:
    """Make a certificate for localhost that signs itself, in one file with its key."""
    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.now(UTC)
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .sign(key, hashes.SHA256())
    )
    path = directory / "localhost.pem"
    pem = serialization.Encoding.PEM
    private = key.private_bytes(
        pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    path.write_bytes(private + certificate.public_bytes(pem))
    return path
