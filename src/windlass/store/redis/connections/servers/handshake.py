"""Owns the handshake of a connection: the login, and whether the server is a supported one."""

from __future__ import annotations

from collections.abc import Sequence

from windlass.core.errors import StoreRefused, StoreUnavailable
from windlass.store.redis.connections.replies import (
    ConnectionLost,
    NotMaster,
    ReplyError,
    translate,
)
from windlass.store.redis.connections.script import Command
from windlass.store.redis.connections.servers.urls import RedisAddress

CLIENT_NAME = "windlass"
_OLDEST = {"redis": (7, 0), "valkey": (8, 0)}
_NEEDED = "Redis 7.0 or newer, or Valkey 8.0 or newer"


def greeting(address: RedisAddress) -> list[Command]:
    """Return the commands that open a connection to a server with the keys."""
    select: list[Command] = [("SELECT", address.db)] if address.db else []
    return [_hello(address), *select]


def sentinel_greeting(address: RedisAddress, *, login: bool) -> list[Command]:
    """Return the commands that open a connection to a sentinel, which rarely requires a login."""
    return [_hello(address) if login else ("HELLO", "2", "SETNAME", CLIENT_NAME)]


def check_server(replies: Sequence[object], address: RedisAddress) -> None:
    """Refuse a server that is too old, or of another kind than the URL says.

    Raises:
        StoreRefused: waiting does not change it.
        NotMaster: it is a replica, at the moment.
    """
    check_login(replies, address)
    about = _described(replies[0])
    name, version = about.get("server", "redis"), about.get("version", "")
    if _numbers(version) < _OLDEST.get(name, _OLDEST["redis"]):
        raise StoreRefused(
            f"the server of {address.location} must be {_NEEDED}, got {name} {version}; upgrade it"
        )
    mode = about.get("mode", "standalone")
    if mode == "sentinel":
        raise StoreRefused(
            f"{address.location} is a sentinel; use redis+sentinel://host1,host2/master-name"
        )
    if (mode == "cluster") != address.is_cluster:
        right = "redis+cluster://" if mode == "cluster" else "redis://"
        raise StoreRefused(f"{address.location} is a server in {mode} mode; use {right}")
    if about.get("role", "master") != "master":
        raise NotMaster("the server is a replica", sent=False)


def check_login(replies: Sequence[object], address: RedisAddress) -> None:
    """Raise if the server refuses the login."""
    for reply in replies:
        if isinstance(reply, ReplyError):
            raise _refusal(reply, address)


def wants_login(replies: Sequence[object]) -> bool:
    """Return whether a sentinel requires a login."""
    return isinstance(replies[0], ReplyError) and replies[0].code == "NOAUTH"


def check_sentinel(replies: Sequence[object], address: RedisAddress) -> None:
    """Refuse a server that is not a sentinel.

    Raises:
        StoreRefused: it is not a sentinel, or refuses the login.
    """
    reply = replies[0]
    if isinstance(reply, ReplyError):
        raise _refusal(reply, address)
    if _described(reply).get("mode") != "sentinel":
        raise StoreRefused(
            f"the hosts of {address.location} must be sentinels, got another server; use redis:// "
            "with the master's host"
        )


def _hello(address: RedisAddress) -> Command:
    if address.user is None and address.password is None:
        return ("HELLO", "2", "SETNAME", CLIENT_NAME)
    user, password = address.user or "default", address.password or ""
    return ("HELLO", "2", "AUTH", user, password, "SETNAME", CLIENT_NAME)


def _refusal(error: ReplyError, address: RedisAddress) -> Exception:
    if "unknown command" in str(error).lower():
        return StoreRefused(
            f"the server of {address.location} must be {_NEEDED}, got one without HELLO; upgrade it"
        )
    refusal = translate(error, address.location)
    if isinstance(refusal, StoreUnavailable) and not isinstance(refusal, StoreRefused):
        # This error is temporary.
        return ConnectionLost(str(refusal).removeprefix(f"{address.location}: "), sent=False)
    return refusal


def _described(reply: object) -> dict[str, str]:
    if not isinstance(reply, list):
        return {}
    names, values = reply[::2], reply[1::2]
    return {
        name.decode(): value.decode()
        for name, value in zip(names, values, strict=False)
        if isinstance(name, bytes) and isinstance(value, bytes)
    }


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".") if part.isdigit())
