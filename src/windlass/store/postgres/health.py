"""Owns the problems that a look at the server finds: snapshots, bloat and listeners.

It changes nothing.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta

from psycopg import errors

from windlass.core.jobs.queries import Finding
from windlass.core.values.durations import brief
from windlass.store.postgres.connections.listener import Listener
from windlass.store.postgres.records import Cursor, Statements, fetch

MAX_AGE = timedelta(minutes=10)
"""How long a transaction may be open, or a bloated table may wait for its vacuum."""
MIN_DEAD_ROWS = 100_000
"""Dead rows below which a table is not reported; a busy fleet leaves that many between
two vacuums.
"""
_QUEUE_SHARE = 0.1
"""Share of the server's notification queue that is in use when a listener does not read."""


async def findings(cursor: Cursor, sql: Statements, listener: Listener) -> list[Finding]:
    """Return the problems of the server that affect jobs."""
    found = [each async for each in _snapshots(cursor, sql)]
    found += await bloat(cursor, sql)
    found += [each async for each in _listeners(cursor, sql, listener)]
    return found


async def lineage(cursor: Cursor, sql: Statements) -> str | None:
    """Return the server's identifier, its timeline, and the schema's own number.

    A recovery and a promotion begin a new timeline; an imported dump has a schema of its own. None
    on a standby, and where a managed service keeps it to itself.
    """
    try:
        rows = await fetch(cursor, sql["lineage"])
    except (errors.InsufficientPrivilege, errors.FeatureNotSupported, errors.UndefinedFunction):
        return None
    return None if not rows else str(rows[0][0])


async def _snapshots(cursor: Cursor, sql: Statements) -> AsyncIterator[Finding]:
    """Return the sessions and slots that keep the whole database from being vacuumed."""
    kept = "so rows deleted since then cannot be vacuumed"
    for pid, user, application, seconds in await fetch(
        cursor, sql["old_snapshots"], {"old": MAX_AGE}
    ):
        yield Finding(
            name="snapshot_held",
            problem=f"process {pid} ({application or user}) has held a transaction open for "
            f"{seconds / 60:,.0f} minutes, {kept}",
            remedy=f"end it, or: SELECT pg_terminate_backend({pid})",
        )
    for gid, owner, seconds in await fetch(cursor, sql["old_prepared"], {"old": MAX_AGE}):
        yield Finding(
            name="snapshot_held",
            problem=f"the transaction {gid} that {owner} prepared has been open for "
            f"{seconds / 60:,.0f} minutes, {kept}",
            remedy=f"ROLLBACK PREPARED '{gid}', or commit it",
        )
    for slot, age in await fetch(cursor, sql["idle_slots"]):
        yield Finding(
            name="snapshot_held",
            problem=f"the replication slot {slot} is not read and keeps the rows of {age:,} "
            f"transactions, {kept}",
            remedy=f"start its reader, or: SELECT pg_drop_replication_slot('{slot}')",
        )


async def bloat(
    cursor: Cursor, sql: Statements, *, dead_rows: int = MIN_DEAD_ROWS, old: timedelta = MAX_AGE
) -> list[Finding]:
    """Return tables with far more dead rows than live ones that no vacuum has visited."""
    values = {"dead_rows": dead_rows, "old": old}
    found = []
    for table, live, dead, size, seconds, is_on in await fetch(cursor, sql["bloat"], values):
        vacuumed = f"was vacuumed {brief(timedelta(seconds=seconds))} ago"
        if seconds < 0:
            vacuumed = "has not been vacuumed since the server started"
        remedy = (
            f"VACUUM (ANALYZE) {table}; then find what blocks autovacuum, such as an old snapshot"
        )
        if not is_on:
            remedy = f"VACUUM (ANALYZE) {table}, and turn autovacuum on: it is off"
        problem = (
            f"table {table} has {dead:,} dead rows and {live:,} live ones ({size / 1e6:,.0f} MB), "
            f"and {vacuumed}"
        )
        found.append(Finding(name="bloat", problem=problem, remedy=remedy))
    return found


async def _listeners(cursor: Cursor, sql: Statements, listener: Listener) -> AsyncIterator[Finding]:
    """Return whether notifications do not arrive, here or at other listeners."""
    if listener.is_deaf:
        yield Finding(
            problem="notifications do not arrive, so workers poll for new jobs: "
            f"{listener.trouble}",
            remedy="if this is a pooler, set WINDLASS_LISTEN_URL to the server's own URL, "
            "or to off",
        )
    for used, pid, application in await fetch(cursor, sql["notifications"]):
        if used > _QUEUE_SHARE:
            yield Finding(
                name="notifications_full",
                problem=f"the server's queue of notifications is {used:.0%} full; once it is full, "
                "nothing can be enqueued. A session listens without reading; the oldest in a "
                f"transaction is {pid} ({application})",
                remedy=f"end it, or: SELECT pg_terminate_backend({pid})",
            )
