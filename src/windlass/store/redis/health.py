"""Owns the checks of the server: eviction, persistence, memory and replicas."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from windlass.core.errors import ConfigError
from windlass.core.jobs.queries import Finding
from windlass.core.values.sizes import human_size
from windlass.store.redis.connections.listener import Listener
from windlass.store.redis.scripting.calls import Names, Talk

UNKNOWN: Mapping[str, str] = {}
"""The facts about a server whose user may not run INFO."""
_FULL = 0.9
_MAX_LAG_SECONDS = 10
_REWRITES = {
    "rdb_last_bgsave_status": "write its last snapshot, and may refuse all writes until it can",
    "aof_last_bgrewrite_status": "rewrite its append-only file, which grows until it can",
}


def read_info() -> Talk[Mapping[str, str]]:
    """Return the output of INFO."""
    (text,) = yield [("INFO",)]
    pairs = (line.partition(":") for line in text.decode(errors="replace").splitlines())
    return {name: value for name, separator, value in pairs if separator}


def read_emptied(names: Names) -> Talk[datetime | None]:
    """Return when a worker found that all keys were deleted, if that is less than 12 hours ago."""
    (at,) = yield [("GET", names.key("emptied"))]
    return None if at is None else datetime.fromtimestamp(int(at) // 1_000_000, UTC)


def check(info: Mapping[str, str], location: str) -> None:
    """Refuse a server that deletes jobs when its memory is full.

    Raises:
        ConfigError: it evicts any key.
    """
    policy = info.get("maxmemory_policy", "noeviction")
    if policy.startswith("allkeys") and int(info.get("maxmemory", "0")):
        raise ConfigError(
            f"maxmemory-policy of {location} must be noeviction, got {policy}, which deletes jobs "
            "when memory is full; CONFIG SET maxmemory-policy noeviction, and the same in its file"
        )


def findings(
    info: Mapping[str, str], listener: Listener, *, emptied: datetime | None
) -> list[Finding]:
    """Return the problems of the server, each with its remedy."""
    found = [*_eviction(info), *_persistence(info), *_memory(info), *_replicas(info)]
    if not info:
        found = [
            Finding(
                name="unknown",
                problem="the user of the URL may not ask for the server's persistence and memory",
                remedy="grant +info; see docs/redis.md",
            )
        ]
    if emptied is not None:
        found.insert(
            0,
            Finding(
                name="emptied",
                problem=f"all jobs were deleted by {emptied:%Y-%m-%d %H:%M:%S} UTC, by another "
                "client (FLUSHALL, FLUSHDB) or a restart without persistence",
                remedy="restore them from a backup; give Windlass a server of its own, and other "
                "users no right to FLUSHALL",
            ),
        )
    if listener.is_deaf:
        found.append(
            Finding(
                problem=f"wake-ups do not arrive, so workers poll for new jobs: {listener.trouble}",
                remedy="allow SUBSCRIBE on the channels of the prefix; see docs/redis.md",
            )
        )
    return found


def _eviction(info: Mapping[str, str]) -> Iterator[Finding]:
    policy = info.get("maxmemory_policy", "noeviction")
    if policy != "noeviction":
        yield Finding(
            name="eviction",
            problem=f"maxmemory-policy is {policy}: the server deletes keys when memory is full, "
            + (
                "and with them jobs" if policy.startswith("allkeys") else "and large payloads early"
            ),
            remedy="CONFIG SET maxmemory-policy noeviction, and the same in its file",
        )


def _persistence(info: Mapping[str, str]) -> Iterator[Finding]:
    if info.get("aof_enabled", "0") == "0":
        yield Finding(
            name="persistence_off",
            problem="the append-only file is off: a crash of the server loses all jobs since its "
            "last snapshot, or all of them if it takes none",
            remedy="CONFIG SET appendonly yes, and the same in its file; see docs/redis.md",
        )
    elif info.get("aof_last_write_status", "ok") != "ok":
        yield Finding(
            name="persistence_failing",
            problem="the server could not write its append-only file",
            remedy="make room on its disk, and see its log",
        )
    for status, what in _REWRITES.items():
        if info.get(status, "ok") != "ok":
            yield Finding(
                name="persistence_failing",
                problem=f"the server could not {what}",
                remedy="make room on its disk and in its memory, which it needs up to twice; see "
                "its log",
            )


def _memory(info: Mapping[str, str]) -> Iterator[Finding]:
    limit, used = int(info.get("maxmemory", "0")), int(info.get("used_memory", "0"))
    if not limit:
        yield Finding(
            name="memory_unlimited",
            problem="maxmemory is not set: jobs may use all memory of the host",
            remedy="CONFIG SET maxmemory to two thirds of the host's memory",
        )
    elif used > _FULL * limit:
        yield Finding(
            name="memory_short",
            problem=f"{human_size(used)} of {human_size(limit)} memory is used; once it is full, "
            "nothing can be enqueued",
            remedy="raise maxmemory, add workers, or keep fewer finished jobs",
        )


def _replicas(info: Mapping[str, str]) -> Iterator[Finding]:
    if info.get("role", "master") != "master":
        yield Finding(
            name="replica",
            problem="the server is a replica, which refuses writes",
            remedy="name the master in the URL, or use redis+sentinel://",
        )
    for name, value in info.items():
        if name.startswith("slave") and "lag=" in value:
            fields: dict[str, Any] = dict(
                part.split("=", 1) for part in value.split(",") if "=" in part
            )
            if int(fields.get("lag", 0)) > _MAX_LAG_SECONDS:
                yield Finding(
                    name="replica_behind",
                    problem=f"the replica {fields.get('ip')}:{fields.get('port')} is "
                    f"{fields['lag']} s behind: a failover to it loses the jobs since then",
                    remedy="see its log and its network; wait_replicas= in the URL waits for it",
                )
