"""Owns databases that are as good as new for each test, at the price of a few deletes.

A copy of a template takes tens of milliseconds at best, and hundreds while the disk is busy;
emptying the tables of the last test takes a few. So a process keeps one copy and empties it,
and makes another only if a test has left more than rows: other tables, statistics, or much dirt.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import psycopg
from psycopg import sql

from tests.support.postgres.cluster import NAME, Cluster

Prepare = Callable[[str], None]

DIRT = 4 * 2**20
"""Bytes of dead rows that a database may gather before it is made anew."""

EVICT = """
SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid()
"""
FORSAKEN = "SELECT gid FROM pg_prepared_xacts WHERE database = current_database()"
TABLES = """
SELECT n.nspname, c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.oid >= 16384 AND c.relkind = %s AND n.nspname NOT LIKE 'pg\\_%%' ORDER BY 1, 2
"""
SIZE = "SELECT coalesce(sum(pg_relation_size(oid)), 0)::bigint FROM pg_class WHERE oid >= 16384"
SHAPE = """
SELECT md5(string_agg(fact, ',' ORDER BY fact)) FROM (
    SELECT concat_ws('/', 'class', oid, xmin, relpages, reltuples) FROM pg_class
    WHERE oid >= 16384
    UNION ALL SELECT concat_ws('/', 'attribute', attrelid, attnum, xmin) FROM pg_attribute
    WHERE attrelid >= 16384
    UNION ALL SELECT concat_ws('/', 'statistic', starelid, staattnum, xmin) FROM pg_statistic
    WHERE starelid >= 16384
    UNION ALL SELECT concat_ws('/', 'setting', setrole, s.xmin) FROM pg_db_role_setting s
    JOIN pg_database d ON d.oid = setdatabase WHERE datname = current_database()
    UNION ALL SELECT concat_ws('/', 'index', indexrelid, xmin) FROM pg_index
    WHERE indexrelid >= 16384
    UNION ALL SELECT concat_ws('/', 'namespace', oid, xmin) FROM pg_namespace
    WHERE nspname NOT LIKE 'pg\\_temp\\_%' AND nspname NOT LIKE 'pg\\_toast\\_temp\\_%'
    UNION ALL SELECT concat_ws('/', 'proc', oid, xmin) FROM pg_proc WHERE oid >= 16384
    UNION ALL SELECT concat_ws('/', 'type', oid, xmin) FROM pg_type WHERE oid >= 16384
    UNION ALL SELECT concat_ws('/', 'constraint', oid, xmin) FROM pg_constraint WHERE oid >= 16384
    UNION ALL SELECT concat_ws('/', 'trigger', oid, xmin) FROM pg_trigger WHERE oid >= 16384
    UNION ALL SELECT concat_ws('/', 'default', oid, xmin) FROM pg_attrdef WHERE oid >= 16384
    UNION ALL SELECT concat_ws('/', 'rule', oid, xmin) FROM pg_rewrite WHERE oid >= 16384
    UNION ALL SELECT concat_ws('/', 'policy', oid, xmin) FROM pg_policy
    UNION ALL SELECT concat_ws('/', 'extension', oid, xmin) FROM pg_extension
) AS facts (fact)
"""
"""A digest of everything in a database but its rows; an updated catalog row has another xmin."""


@dataclass(frozen=True, kw_only=True)
class Pristine:
    """What a database is like before its first test."""

    shape: str
    size: int
    wipe: sql.Composed
    seeds: dict[tuple[str, str], bytes]


class Scratch:
    """A database that a function has prepared, as good as new whenever it is asked for."""

    def __init__(self, cluster: Cluster, prepare: Prepare) -> None:
        self.replaced = 0
        """How often emptying the tables was not enough."""
        self._cluster = cluster
        self._prepare = prepare
        self._template = f"windlass_{uuid4().hex[:12]}"
        self._name = f"{self._template}_copy"
        self._pristine: Pristine | None = None
        # Kept open: half of the time would go into connecting, and a new backend knows no table.
        self._db: psycopg.Connection[Any] | None = None

    def fresh(self) -> str:
        """Return the URL of the database, in which nothing is left of the last test."""
        if self._pristine is None:
            self._prepare(self._cluster.create_database(self._template))
            self._pristine = self._copy()
        elif not self._is_wiped(self._pristine):
            self.replaced += 1
            self._pristine = self._copy()
        return self._cluster.url(self._name)

    def close(self) -> None:
        """Drop the database and its template."""
        self._disconnect()
        self._cluster.drop_database(self._name)
        self._cluster.drop_database(self._template)

    def _copy(self) -> Pristine:
        self._disconnect()
        self._cluster.drop_database(self._name)
        with self._cluster.connection(self._template) as db:
            # A template in use cannot be copied, and a connection that was closed is for a moment.
            db.execute(EVICT)
        url = self._cluster.create_database(self._name, self._template, strategy="FILE_COPY")
        self._db = psycopg.connect(url, autocommit=True, application_name=NAME)
        return survey(self._db)

    def _is_wiped(self, pristine: Pristine) -> bool:
        assert self._db is not None
        try:
            return wipe(self._db, pristine)
        except psycopg.OperationalError:
            # The test has dropped the database, or ended whoever was connected to it.
            return False

    def _disconnect(self) -> None:
        if self._db is not None:
            self._db.close()


def wipe(db: psycopg.Connection[Any], pristine: Pristine) -> bool:
    """Empty the tables, and say whether that has made the database as good as new."""
    db.execute(EVICT)
    for (gid,) in db.execute(FORSAKEN).fetchall():
        db.execute(sql.SQL("ROLLBACK PREPARED {}").format(sql.Literal(gid)))
    if one(db, SHAPE) != pristine.shape or one(db, SIZE) > pristine.size + DIRT:
        return False
    with db.transaction():
        db.execute(pristine.wipe)
        for table, rows in pristine.seeds.items():
            sow(db, table, rows)
    return True


def survey(db: psycopg.Connection[Any]) -> Pristine:
    """See what a database is like, and how to make it so again once rows have changed."""
    tables = db.execute(TABLES, ["r"]).fetchall()
    rows = {table: reaped(db, table) for table in tables}
    sequences = db.execute(TABLES, ["S"]).fetchall()
    # As a replica, so that neither foreign keys nor triggers have a say in the order.
    wipes: list[sql.Composable] = [sql.SQL("SET LOCAL session_replication_role = replica")]
    wipes += [sql.SQL("DELETE FROM {}").format(sql.Identifier(*table)) for table in tables]
    wipes += [rewound(db, sequence) for sequence in sequences]
    return Pristine(
        shape=one(db, SHAPE),
        size=one(db, SIZE),
        wipe=sql.SQL("; ").join(wipes),
        seeds={table: seeds for table, seeds in rows.items() if seeds},
    )


def rewound(db: psycopg.Connection[Any], sequence: tuple[str, str]) -> sql.Composed:
    """Return the statement that sets a sequence to where it is now."""
    words = sql.SQL("SELECT last_value, is_called FROM {}").format(sql.Identifier(*sequence))
    row = db.execute(words).fetchone()
    assert row is not None
    name = sql.Literal(sql.Identifier(*sequence).as_string(db))
    last, called = map(sql.Literal, row)
    return sql.SQL("SELECT setval({}::regclass, {}, {})").format(name, last, called)


def reaped(db: psycopg.Connection[Any], table: tuple[str, str]) -> bytes:
    """Return the rows of a table as COPY writes them."""
    words = sql.SQL("COPY {} TO STDOUT").format(sql.Identifier(*table))
    with db.cursor() as cursor, cursor.copy(words) as copy:
        return b"".join(bytes(part) for part in copy)


def sow(db: psycopg.Connection[Any], table: tuple[str, str], rows: bytes) -> None:
    """Put rows into a table that COPY wrote."""
    words = sql.SQL("COPY {} FROM STDIN").format(sql.Identifier(*table))
    with db.cursor() as cursor, cursor.copy(words) as copy:
        copy.write(rows)


def one(db: psycopg.Connection[Any], words: Any) -> Any:
    """Return the one value that a query has."""
    row = db.execute(words).fetchone()
    assert row is not None
    return row[0]


class Scratches:
    """A scratch database for each function that prepares one."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._made: dict[Prepare, Scratch] = {}

    def of(self, prepare: Prepare) -> Scratch:
        """Return the database that a function prepares."""
        if prepare not in self._made:
            self._made[prepare] = Scratch(self._cluster, prepare)
        return self._made[prepare]

    def close(self) -> None:
        """Drop all of them."""
        for scratch in self._made.values():
            scratch.close()
