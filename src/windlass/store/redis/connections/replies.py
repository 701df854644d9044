"""Owns the meaning of a server's errors: which calls are sent again, and remedies for others."""

from __future__ import annotations

from collections.abc import Sequence

from windlass.core.errors import (
    QueueFull,
    StoreBusy,
    StoreError,
    StoreForbidden,
    StoreRefused,
    StoreUnavailable,
    WindlassError,
)
from windlass.store.redis.connections.servers.urls import Endpoint

Reply = bytes | int | str | None | list["Reply"]
UNKNOWN_SCRIPT = "NOSCRIPT"
MOVED = "MOVED"
ASK = "ASK"
LOOK_AGAIN = frozenset({"READONLY", "MASTERDOWN", "CLUSTERDOWN", "LOADING", MOVED})
"""Errors of a server that is not, or not yet, the master of the keys."""
FROM_REPLICA = frozenset({"READONLY", "MASTERDOWN"})
"""Errors of a replica."""
SEND_AGAIN = LOOK_AGAIN | {"TRYAGAIN", "NOREPLICAS", "BUSY", ASK}
"""Temporary errors: the server has done nothing."""
_REMEDIES = {
    "READONLY": "it is a replica: name the master in the URL, or use redis+sentinel://",
    "MASTERDOWN": "its master is away, wait for a failover",
    "CLUSTERDOWN": "some slots have no master, see CLUSTER INFO",
    "LOADING": "wait until it has loaded its data",
    "TRYAGAIN": "the slot is being moved to another node, wait for its end",
    "NOREPLICAS": "bring replicas back, or lower min-replicas-to-write",
    "MISCONF": "make room on its disk, and see its log",
    "NOAUTH": "put user and password into the URL: redis://user:password@host",
    "WRONGPASS": "check user and password in the URL",
    "NOPERM": "docs/redis.md lists the rights that the user needs",
    "CROSSSLOT": "use redis+cluster:// for a cluster",
}
_IN_SCRIPT = ("user executing the script can't", "ACL failure in script")
"""How Redis 7.0, and later servers and Valkey, say in a script that the user lacks a right."""


class ReplyError(Exception):
    """An error reply of a server; its first word is the code."""

    @property
    def code(self) -> str:
        """The first word, which is the kind of error."""
        return str(self).partition(" ")[0]

    @property
    def endpoint(self) -> Endpoint:
        """The node that MOVED and ASK name; without a host it has that of the node that answers."""
        host, _, port = str(self).split(" ")[2].rpartition(":")
        return Endpoint(host.strip("[]"), int(port))


class ConnectionLost(Exception):
    """A connection that cannot be made, or that broke; `sent` says whether it had sent."""

    def __init__(self, reason: str, *, sent: bool) -> None:
        super().__init__(reason)
        self.sent = sent


class NotMaster(ConnectionLost):
    """A server answered that is not the master."""


def reply_error(reason: str) -> ReplyError:
    """Make the error of a reply, for hiredis."""
    return ReplyError(reason)


def first_error(replies: Sequence[object]) -> ReplyError | None:
    """Return the first error among replies, or None."""
    for reply in replies:
        if isinstance(reply, ReplyError):
            return reply
    return None


def translate(error: ReplyError, location: str) -> WindlassError:
    """Return the store's own error for one of a server."""
    code, said = error.code, str(error)
    if code == "OOM":
        return QueueFull(
            None,
            f"{location} has reached its maxmemory; raise it, or let workers finish jobs and "
            "shorten their retention",
        )
    if any(text in said for text in _IN_SCRIPT):
        code = "NOPERM"
    remedy = _REMEDIES.get(code, "")
    if "max number of clients" in said:
        remedy = "raise maxclients, or let fewer processes connect"
    elif "DB index is out of range" in said:
        remedy = "name a database that the server has in the URL; the first one is /0"
    message = f"{location}: {said}; {remedy}" if remedy else f"{location}: {said}"
    if code == "BUSY":
        return StoreBusy(f"{message}; another client's script is running, try again")
    if code in SEND_AGAIN or code == "MISCONF" or "max number of clients" in said:
        return StoreUnavailable(message)
    if code in ("NOAUTH", "WRONGPASS") or "DB index is out of range" in said:
        return StoreRefused(message)
    if code == "NOPERM":
        return StoreForbidden(message)
    return StoreError(message)
