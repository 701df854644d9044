"""Debian's Redis 7.0, the oldest that is supported: TLS, scripts, and a slot that moves."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from tests.store.redis.connections.conftest import WAYS, Ways
from tests.store.redis.connections.test_cluster import PATIENCE, SLOT, TWO, Load, other
from tests.support.redis_cluster import RedisCluster
from tests.support.redis_server import RedisServer, free_port
from tests.system.certificates import Certificates, Pair
from tests.system.debian import program
from windlass.core.errors import ConfigError, StoreRefused, StoreUnavailable
from windlass.store.redis.connections.process import RedisConnections
from windlass.store.redis.connections.script import Script
from windlass.store.redis.connections.servers.urls import parse

KEY = b"{windlass}:"
COUNT = Script.of("count", "#!lua\nreturn redis.call('INCR', KEYS[1] .. 'n')")


@dataclass(frozen=True, kw_only=True)
class TlsServer:
    """A server that listens with and without TLS, on two ports."""

    server: RedisServer
    port: int
    certificates: Certificates

    def url(self, host: str = "localhost", **options: str | Path) -> str:
        query = {"ssl_ca_certs": self.certificates.ca.certificate} | options
        return f"rediss://{host}:{self.port}?{urlencode(query)}"


@pytest.fixture(params=WAYS)
def ways(request: pytest.FixtureRequest) -> Ways:
    """Give each way to run commands."""
    return Ways(request.param)


@pytest.fixture(params=["no"])
def tls(
    request: pytest.FixtureRequest, tmp_path: Path, certificates: Certificates
) -> Iterator[TlsServer]:
    """Give a server with TLS, which may want to see certificates."""
    port = free_port()
    server = RedisServer(
        tmp_path,
        server=program("redis-server"),
        tls_port=port,
        tls_cert_file=str(certificates.server.certificate),
        tls_key_file=str(certificates.server.key),
        tls_ca_cert_file=str(certificates.ca.certificate),
        tls_auth_clients=request.param,
    )
    with server:
        yield TlsServer(server=server, port=port, certificates=certificates)


def shown(pair: Pair) -> dict[str, Any]:
    return {"ssl_certfile": pair.certificate, "ssl_keyfile": pair.key}


def test_a_server_with_the_right_certificate_is_trusted(tls: TlsServer, ways: Ways) -> None:
    async def test() -> None:
        async with ways.to(tls.url()) as run:
            assert await run((COUNT, KEY)) == [1]
            listed = tls.server.call("CLIENT", "LIST").decode().splitlines()
            (line,) = [line for line in listed if "name=windlass" in line]
            assert f"laddr=127.0.0.1:{tls.port} " in line
            # Larger than what TLS packs into one record.
            await run(("SET", KEY + b"big", b"x" * 300_000))
            assert await run(("GET", KEY + b"big"), (COUNT, KEY)) == [b"x" * 300_000, 2]
            tls.server.call("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
            await asyncio.sleep(0.2)
            assert await run((COUNT, KEY)) == [3]

    asyncio.run(test())


def test_the_listener_hears_by_tls(tls: TlsServer) -> None:
    async def test() -> None:
        connections = RedisConnections(parse(tls.url()))
        here = connections.here()
        async with asyncio.timeout(PATIENCE):
            while not here.listener.listening:
                await here.listener.wait(here.listener.mark, 1)
            mark = here.listener.mark
            tls.server.call("PUBLISH", KEY + b"wake:" + here.sleeper.encode(), "mail")
            assert await here.listener.wait(mark, PATIENCE) == b"mail"
        await connections.close()

    asyncio.run(test())


def test_a_server_that_does_not_answer_by_tls_keeps_nobody_beyond_the_deadline(
    tls: TlsServer, ways: Ways
) -> None:
    async def test() -> None:
        async with ways.to(tls.url()) as run:
            await run((COUNT, KEY))
            tls.server.pause()
            with pytest.raises(StoreUnavailable):
                await run((COUNT, KEY), timeout=0.5)
            tls.server.resume()
            assert (await run((COUNT, KEY), timeout=PATIENCE))[0] >= 2

    asyncio.run(test())


@pytest.mark.parametrize(
    ("host", "trust"), [("localhost", "system"), ("localhost", "wrong"), ("127.0.0.1", "right")]
)
def test_a_certificate_of_nobody_we_trust_or_for_another_host_is_refused(
    tls: TlsServer, ways: Ways, host: str, trust: str
) -> None:
    authorities = {
        "right": tls.certificates.ca.certificate,
        "wrong": tls.certificates.wrong_ca.certificate,
    }
    url = f"rediss://{host}:{tls.port}"
    if trust in authorities:
        url = tls.url(host, ssl_ca_certs=authorities[trust])

    async def test() -> None:
        async with ways.to(url) as run:
            with pytest.raises(StoreRefused, match="set ssl_ca_certs= to its CA"):
                await run((COUNT, KEY))
        assert tls.server.call("DBSIZE") == 0
        # Only if it is said that nobody looks.
        async with ways.to(f"rediss://{host}:{tls.port}?ssl_cert_reqs=none") as run:
            assert await run((COUNT, KEY)) == [1]

    asyncio.run(test())


@pytest.mark.parametrize("tls", ["yes"], indirect=True)
def test_a_server_that_wants_a_certificate_gets_ours(tls: TlsServer, ways: Ways) -> None:
    async def test() -> None:
        async with ways.to(tls.url(**shown(tls.certificates.client))) as run:
            assert await run((COUNT, KEY)) == [1]
        refused: list[dict[str, Any]] = [{}, shown(tls.certificates.wrong_client)]
        for pair in refused:
            async with ways.to(tls.url(**pair)) as run:
                with pytest.raises(StoreUnavailable):
                    await run((COUNT, KEY), timeout=3)
        assert tls.server.call("GET", KEY + b"n") == b"1"

    asyncio.run(test())


def test_tls_and_plain_do_not_fall_back_to_each_other(tls: TlsServer, ways: Ways) -> None:
    async def test() -> None:
        async with ways.to(f"rediss://localhost:{tls.server.port}") as run:
            with pytest.raises(StoreUnavailable):
                await run((COUNT, KEY), timeout=3)
        async with ways.to(f"redis://localhost:{tls.port}") as run:
            with pytest.raises(StoreUnavailable):
                await run((COUNT, KEY), timeout=3)
        assert tls.server.call("DBSIZE") == 0

    asyncio.run(test())


def test_files_that_cannot_be_read_are_named(tls: TlsServer, ways: Ways, tmp_path: Path) -> None:
    async def test() -> None:
        for option in ("ssl_ca_certs", "ssl_certfile"):
            missing: dict[str, Any] = {option: tmp_path / "none.pem"}
            async with ways.to(tls.url(**missing)) as run:
                with pytest.raises(ConfigError, match=rf"{option}.* must be .*none\.pem"):
                    await run((COUNT, KEY))

    asyncio.run(test())


def test_a_slot_of_redis_7_moves_without_a_script_that_sees_half_of_it(
    tmp_path: Path, ways: Ways
) -> None:
    async def test() -> None:
        source = cluster.owner(SLOT)
        target = other(cluster, source)
        async with ways.to(cluster.url) as run:
            await run(*[("SET", KEY + b"x%d" % n, n) for n in range(40)])
            async with Load(run) as load:
                await load.more(20)
                await asyncio.to_thread(cluster.begin_move, SLOT, source, target)
                await asyncio.to_thread(cluster.move_keys, SLOT, source, target, most=20)
                assert await run(("GET", KEY + b"x3"), timeout=PATIENCE) == [b"3"]
                await asyncio.to_thread(cluster.move_keys, SLOT, source, target)
                await asyncio.to_thread(cluster.end_move, SLOT, source, target)
                await load.more(20)
            assert load.counts == list(range(1, 1 + len(load.counts)))
            assert (await run((TWO, KEY))) == [1 + len(load.counts)]

    with RedisCluster(tmp_path, server=program("redis-server")) as cluster:
        asyncio.run(test())
