"""Which servers are refused when a connection is made, and as whom we may speak to them."""

from __future__ import annotations

import asyncio

import pytest

from tests.store.redis.connections.conftest import Ways
from tests.support.redis_server import RedisServer
from windlass.core.errors import StoreError, StoreRefused, StoreUnavailable
from windlass.store.redis.connections.replies import NotMaster, ReplyError
from windlass.store.redis.connections.script import Script
from windlass.store.redis.connections.servers.handshake import check_server
from windlass.store.redis.connections.servers.urls import parse

KEY = b"{windlass}:"
COUNT = Script.of("count", "#!lua\nreturn redis.call('INCR', KEYS[1] .. 'n')")
RIGHTS = ("+evalsha", "+eval", "+hello", "+ping", "+incr", "+get", "+select", "+subscribe")


def hello(
    server: str, version: str, mode: str = "standalone", role: str = "master"
) -> list[object]:
    pairs = {"server": server, "version": version, "mode": mode, "role": role}
    return [[word.encode() for pair in pairs.items() for word in pair]]


@pytest.mark.parametrize(
    ("server", "version"),
    [("redis", "6.2.14"), ("redis", "5.0"), ("valkey", "7.2.8"), ("keydb", "6.3.4"), ("redis", "")],
)
def test_an_old_server_is_refused_by_name(server: str, version: str) -> None:
    with pytest.raises(StoreRefused, match=f"got {server} {version}; upgrade it"):
        check_server(hello(server, version), parse("redis://host"))


@pytest.mark.parametrize(
    ("server", "version"), [("redis", "7.0.0"), ("redis", "8.2.1"), ("valkey", "8.0.0-rc1")]
)
def test_a_server_that_is_new_enough_is_accepted(server: str, version: str) -> None:
    check_server(hello(server, version), parse("redis://host"))


def test_a_server_that_knows_no_hello_is_too_old() -> None:
    said = ReplyError("ERR unknown command `HELLO`, with args beginning with: `2`, ")
    with pytest.raises(StoreRefused, match=r"must be Redis 7\.0 or newer"):
        check_server([said], parse("redis://host"))


def test_a_replica_is_not_the_master() -> None:
    with pytest.raises(NotMaster):
        check_server(hello("redis", "7.2.0", role="replica"), parse("redis://host"))


def test_a_user_needs_no_more_rights_than_those_of_the_commands(
    server: RedisServer, ways: Ways
) -> None:
    server.call(
        "ACL", "SETUSER", "shop", "on", ">hush/hush", "~{windlass}:*", "&{windlass}:*", *RIGHTS
    )
    url = server.url.replace("redis://", "redis://shop:hush%2Fhush@")

    async def test() -> None:
        async with ways.to(url) as run:
            assert await run((COUNT, KEY)) == [1]
            assert await run(("GET", KEY + b"n")) == [b"1"]
            with pytest.raises(StoreError, match=r"docs/redis\.md lists the rights") as refused:
                await run(("FLUSHALL",))
            assert not isinstance(refused.value, StoreUnavailable)
            with pytest.raises(StoreError, match=r"docs/redis\.md lists the rights"):
                await run(("GET", "another's"))

    asyncio.run(test())


def test_a_wrong_password_is_refused_with_what_to_do_and_is_not_shown(
    server: RedisServer, ways: Ways
) -> None:
    server.call("ACL", "SETUSER", "shop", "on", ">right-one", "~*", "&*", "+@all")
    url = server.url.replace("redis://", "redis://shop:wrong-one@")

    async def test() -> None:
        async with ways.to(url) as run:
            with pytest.raises(StoreRefused, match="check user and password in the URL") as refused:
                await run((COUNT, KEY))
            assert "wrong-one" not in str(refused.value)

    asyncio.run(test())


def test_a_missing_password_is_asked_for(server: RedisServer, ways: Ways) -> None:
    server.call("CONFIG", "SET", "requirepass", "right-one")

    async def test() -> None:
        async with ways.to(server.url) as run:
            with pytest.raises(StoreRefused, match="put user and password into the URL"):
                await run((COUNT, KEY))
        async with ways.to(server.url.replace("redis://", "redis://:right-one@")) as run:
            assert await run((COUNT, KEY)) == [1]

    asyncio.run(test())


def test_a_database_that_the_server_has_not_is_refused(server: RedisServer, ways: Ways) -> None:
    async def test() -> None:
        async with ways.to(f"{server.url}/99") as run:
            with pytest.raises(StoreRefused, match="out of range; name a database"):
                await run((COUNT, KEY))

    asyncio.run(test())


def test_a_server_without_room_for_connections_is_waited_for(
    server: RedisServer, ways: Ways
) -> None:
    async def test() -> None:
        with server.client() as other:
            assert other("PING") == b"PONG"
            other("CONFIG", "SET", "maxclients", 1)
            async with ways.to(server.url) as run:
                with pytest.raises(StoreUnavailable, match="reached; raise maxclients"):
                    await run((COUNT, KEY), timeout=3)
                waiting = asyncio.create_task(run((COUNT, KEY), timeout=60))
                await asyncio.sleep(0.1)
                other("CONFIG", "SET", "maxclients", 100)
                assert await waiting == [1]

    asyncio.run(test())
