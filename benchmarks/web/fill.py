"""Owns how a database is filled with millions of jobs: rows as workers leave them, made by SQL.

Finished jobs lie in the ring's days in the order in which they ended, as in production. Nothing is
made lighter than real: payloads, results, errors with tracebacks, and every index in place.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import psycopg

from benchmarks.web.shop import KINDS, QUEUES, TENANTS

_AT_ONCE = 250_000
DAYS = 7
"""How long finished jobs are kept by default."""

ID = """(lpad(to_hex((extract(epoch FROM {at}) * 1000)::bigint), 12, '0') || '7'
          || substr(md5(n::text), 1, 3) || '9' || substr(md5(n::text), 4, 15))::uuid"""
PAYLOAD = """json_build_object('order', n, 'customer', json_build_object(
    'id', n % 100000, 'email', 'customer' || n % 100000 || '@example.org', 'vip', n % 1000 = 0),
    'note', repeat(md5(n::text), 4))"""
"""The id and the payload of job number n; an id also says when its job was made."""
_NAMES = f"'kind_' || n % {KINDS} AS kind, 'queue_' || n % {KINDS} % {QUEUES} AS queue"

FINISHED = f"""
INSERT INTO windlass.finished_jobs (
    seq, id, kind, queue, state, payload, due_at, created_at, updated_at, started_at, attempt,
    worker, finished_at, result, slot)
SELECT n, {ID.format(at="created_at")}, kind, queue,
       CASE WHEN n % 200 = 0 THEN 'cancelled' ELSE 'completed' END, {PAYLOAD}, created_at,
       created_at, finished_at, finished_at - interval '80 ms', 1, 'worker-' || n % 4, finished_at,
       json_build_object('order', n), windlass.slot_of(finished_at)
FROM (SELECT n, {_NAMES}, now() - span * (1 - n / %(total)s::float8) AS finished_at,
             now() - span * (1 - n / %(total)s::float8) - interval '2 s' AS created_at
      FROM generate_series(%(first)s, %(last)s) AS n, (SELECT %(span)s::interval AS span) AS s)
"""

PENDING = f"""
INSERT INTO windlass.jobs (
    id, kind, queue, priority, key, state, payload, due_at, created_at, updated_at)
SELECT {ID.format(at="at")}, kind, queue, CASE n % 10 WHEN 0 THEN 5 ELSE 0 END,
       CASE WHEN n % {KINDS} = 3 THEN 'tenant-' || n % {TENANTS * KINDS} / {KINDS} ELSE '' END,
       state, {PAYLOAD}, at + CASE state WHEN 'scheduled' THEN interval '1 day' ELSE '0' END,
       at, at
FROM (SELECT n, {_NAMES}, CASE WHEN n % 50 = 0 THEN 'scheduled' ELSE 'pending' END AS state,
             now() - interval '2 hours' * (1 - n / %(total)s::float8) AS at
      FROM generate_series(%(first)s, %(last)s) AS n)
"""

# Errors come in bursts, and few of them are most of all: group k has about 1/k of the jobs.
DEAD = f"""
INSERT INTO windlass.dead_jobs (
    seq, id, kind, queue, state, payload, due_at, created_at, updated_at, started_at, attempt,
    failures, worker, error, reason, history, finished_at, fingerprint)
SELECT n, {ID.format(at="at")}, kind, queue, 'dead', {PAYLOAD}, at, at, at, at, 4, 4,
       'worker-' || n % 4, error, 'gave up after 4 failures',
       (SELECT json_agg(json_build_object('number', attempt, 'outcome', 'failed',
           'worker', 'worker-' || n % 4, 'started_at', at, 'ended_at', at, 'error', error))
        FROM generate_series(1, 4) AS attempt), at + interval '1 minute', error ->> 'fingerprint'
FROM (SELECT n, {_NAMES}, now() - span * (1 - n / %(total)s::float8) - interval '2 min' AS at,
             json_build_object('type', 'shop.errors.Refused' || g, 'message',
                 'order ' || n || ' was refused by service ' || g,
                 'fingerprint', substr(md5(g::text), 1, 12),
                 'traceback', repeat('  File "/srv/shop/orders.py", line ' || g
                     || ', in charge' || chr(10) || '    await client.post(url)' || chr(10), 25)
             ) AS error
      FROM generate_series(%(first)s, %(last)s) AS n,
           LATERAL (SELECT %(span)s::interval AS span,
                           floor(exp(random() * ln(%(groups)s)) + n * 0)::integer AS g) AS s)
"""


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """How many jobs there are."""

    finished: int
    pending: int
    dead: int
    groups: int

    def __str__(self) -> str:
        return (
            f"{self.finished:,} finished jobs of {DAYS} days, {self.pending:,} waiting, "
            f"{self.dead:,} dead of {self.groups:,} errors"
        )


def fill(url: str, sizes: Sizes, tell: Callable[[str], None]) -> None:
    """Add the jobs, and leave the tables as autovacuum does."""
    with psycopg.connect(url, autocommit=True) as db:
        db.execute("SET synchronous_commit = off")
        span = f"{DAYS * 24 - 1} hours"
        for name, statement, total, more in (
            ("finished", FINISHED, sizes.finished, {"span": span}),
            ("waiting", PENDING, sizes.pending, {}),
            ("dead", DEAD, sizes.dead, {"span": span, "groups": sizes.groups}),
        ):
            for first in range(1, total + 1, _AT_ONCE):
                last = min(first + _AT_ONCE - 1, total)
                add_jobs(db, statement, {"first": first, "last": last, "total": total, **more})
                tell(f"{name}: {last:,} of {total:,}")
        tell("VACUUM ANALYZE")
        db.execute("VACUUM ANALYZE")
        db.execute("CHECKPOINT")


def add_jobs(
    db: psycopg.Connection[tuple[object, ...]], statement: str, values: Mapping[str, object]
) -> None:
    """Add the jobs of one of these statements."""
    # Values are written into the statement: as parameters they would have no type.
    for name, value in values.items():
        text = str(value) if isinstance(value, int) else f"'{value}'"
        statement = statement.replace(f"%({name})s", text)
    db.execute(statement.encode())


def size_of(url: str) -> str:
    """Return the size of the database, as PostgreSQL writes it."""
    with psycopg.connect(url) as db:
        row = db.execute("SELECT pg_size_pretty(pg_database_size(current_database()))").fetchone()
    return "" if row is None else str(row[0])
