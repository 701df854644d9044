"""Owns what a look at the server finds wrong: snapshots, bloat and listeners; changes nothing."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta

from windlass.core.job import Finding
from windlass.core.reasons import span
from windlass.store.postgres.listen import Ear
from windlass.store.postgres.work import Cursor, Statements, fetch

OLD = timedelta(minutes=10)
"""How long a transaction may be open, or a table with much to clean up wait for its vacuum."""
DEAD_ROWS = 100_000
"""Of fewer nobody takes notice. A busy fleet leaves that many behind between two vacuums."""
_FULL = 0.1
"""The share of the server's notifications that is in use when somebody does not read them."""


async def findings(cursor: Cursor, sql: Statements, ear: Ear) -> list[Finding]:
    """Tell of whatever at the server does not do jobs good."""
    found = [each async for each in _snapshots(cursor, sql)]
    found += await bloat(cursor, sql)
    found += [each async for each in _listeners(cursor, sql, ear)]
    return found


async def _snapshots(cursor: Cursor, sql: Statements) -> AsyncIterator[Finding]:
    """Tell who holds up the cleaning of the whole database."""
    kept = "so that nothing deleted since can be cleaned up"
    for pid, user, application, seconds in await fetch(cursor, sql["old_snapshots"], {"old": OLD}):
        yield Finding(
            problem=f"process {pid} ({application or user}) has held a transaction open for "
            f"{seconds / 60:,.0f} minutes, {kept}",
            remedy=f"end it, or: SELECT pg_terminate_backend({pid})",
        )
    for gid, owner, seconds in await fetch(cursor, sql["old_prepared"], {"old": OLD}):
        yield Finding(
            problem=f"the transaction {gid} that {owner} prepared has been open for "
            f"{seconds / 60:,.0f} minutes, {kept}",
            remedy=f"ROLLBACK PREPARED '{gid}', or commit it",
        )
    for slot, age in await fetch(cursor, sql["idle_slots"]):
        yield Finding(
            problem=f"nobody reads the replication slot {slot}, which keeps the rows of {age:,} "
            f"transactions, {kept}",
            remedy=f"start its reader, or: SELECT pg_drop_replication_slot('{slot}')",
        )


async def bloat(
    cursor: Cursor, sql: Statements, *, dead_rows: int = DEAD_ROWS, old: timedelta = OLD
) -> list[Finding]:
    """Tell of tables with far more dead rows than live ones, which no vacuum has looked at."""
    values = {"dead_rows": dead_rows, "old": old}
    found = []
    for table, live, dead, size, seconds, is_on in await fetch(cursor, sql["bloat"], values):
        vacuumed = f"was vacuumed {span(timedelta(seconds=seconds))} ago"
        if seconds < 0:
            vacuumed = "was never vacuumed since the server started"
        remedy = f"VACUUM (ANALYZE) {table}; what keeps autovacuum from it? An old snapshot does"
        if not is_on:
            remedy = f"VACUUM (ANALYZE) {table}, and turn autovacuum on: it is off"
        problem = (
            f"table {table} has {dead:,} dead rows and {live:,} live ones ({size / 1e6:,.0f} MB), "
            f"and {vacuumed}"
        )
        found.append(Finding(problem=problem, remedy=remedy))
    return found


async def _listeners(cursor: Cursor, sql: Statements, ear: Ear) -> AsyncIterator[Finding]:
    """Tell whether notifications arrive, here and at others."""
    if ear.is_deaf:
        yield Finding(
            problem=f"notifications do not arrive, so that new jobs are found by polling: "
            f"{ear.trouble}",
            remedy="if this is a pooler, set WINDLASS_LISTEN_URL to the server's own URL, "
            "or to off",
        )
    for used, pid, application in await fetch(cursor, sql["notifications"]):
        if used > _FULL:
            yield Finding(
                problem=f"the server's queue of notifications is {used:.0%} full; when it is, "
                "nothing can be enqueued. Some session listens and does not read: the oldest in a "
                f"transaction is {pid} ({application})",
                remedy=f"end it, or: SELECT pg_terminate_backend({pid})",
            )
