"""Owns the encoding of commands, and of scripts, which a server knows by a digest of the source.

A server forgets its scripts when it restarts, when a replica takes over, and by SCRIPT FLUSH.
It says so before it has done anything, and the same call is sent again with the whole source.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Any

from hiredis import pack_command
from msgspec import Struct

_packed: Callable[[tuple[Any, ...]], bytes] = pack_command
Argument = bytes | str | int | float
_NO_WRITES = "no-writes"
_SECOND_KEY = b"-"
# fmt: off
READS = frozenset({
    "CLUSTER", "EXISTS", "GET", "HEXISTS", "HGET", "HGETALL", "HKEYS", "HLEN", "HMGET", "HSCAN",
    "INFO", "LLEN", "LRANGE", "MGET", "PING", "PTTL", "ROLE", "SCARD", "SENTINEL", "SISMEMBER",
    "SMEMBERS", "STRLEN", "TIME", "TTL", "TYPE", "WAIT", "ZCARD", "ZCOUNT", "ZLEXCOUNT",
    "ZMSCORE", "ZRANGE", "ZRANGEBYLEX", "ZRANGEBYSCORE", "ZREVRANGEBYLEX", "ZSCORE",
})
# fmt: on
"""Commands that change nothing, and can always be sent again."""


class Script(Struct, frozen=True, eq=False):
    """A Lua script. A command that begins with one calls it: `(script, key, *arguments)`.

    The one key decides on which node of a cluster it runs.
    """

    name: str
    source: bytes
    sha: bytes
    writes: bool = True

    @classmethod
    def of(cls, name: str, source: str) -> Script:
        """Make a script from its source, whose first line says whether it writes."""
        text = source.encode()
        sha = hashlib.sha1(text, usedforsecurity=False).hexdigest().encode()
        writes = _NO_WRITES not in source.partition("\n")[0]
        return cls(name, text, sha, writes)


Command = tuple[Script | Argument, ...]


def pack(command: Command, in_cluster: bool, *, whole: bool = False) -> bytes:
    """Return a command as it is sent; a script by its digest, or by its `whole` source.

    In a cluster a call names a second key, which does not exist either. While a slot is moved from
    node to node, its keys are on both, and a script would find half of them missing and make them
    anew. Nodes refuse commands of several missing keys for that time, but not those of one.
    """
    first = command[0]
    if type(first) is not Script:
        return _packed(command)
    verb, text = (b"EVAL", first.source) if whole else (b"EVALSHA", first.sha)
    if not in_cluster:
        return _packed((verb, text, b"1", *command[1:]))
    key = command[1]
    second = (key if isinstance(key, bytes) else str(key).encode()) + _SECOND_KEY
    return _packed((verb, text, b"2", key, second, *command[2:]))


def pack_all(commands: Sequence[Command], in_cluster: bool) -> bytes:
    """Return commands as they are sent for the first time, in one piece."""
    if len(commands) == 1:
        return pack(commands[0], in_cluster)
    return b"".join([pack(each, in_cluster) for each in commands])


def is_write(command: Command) -> bool:
    """Return whether a command may change something."""
    first = command[0]
    if isinstance(first, Script):
        return first.writes
    name = first.decode() if isinstance(first, bytes) else str(first)
    return name.upper() not in READS
