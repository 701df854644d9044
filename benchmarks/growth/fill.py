"""Owns the store that has grown: how many jobs it holds, and how it is filled with them by SQL.

Rows are as workers leave them: finished jobs in the ring's days in the order in which they ended,
with payloads and results; dead ones with errors and history; every index in place.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta

import psycopg

from benchmarks.web.fill import ID, PAYLOAD, add_jobs

KINDS = 20
"""Each queue has the jobs of one of them, so that there are as many lanes as queues."""
DAYS = 7
OVERDUE = timedelta(days=60)
"""Age of the rows that are past every retention that is measured."""
_AT_ONCE = 100_000
_CONNECTIONS = 3
_NAMES = "'kind_' || n % {kinds} AS kind, 'queue_' || n % {queues} AS queue"
_NUMBERS = """(
    SELECT n, now() - oldest + (oldest - newest) * ((n - %(shift)s) / %(total)s::float8) AS at
    FROM generate_series(%(first)s::bigint + %(shift)s, %(last)s::bigint + %(shift)s) AS n,
         (SELECT %(oldest)s::interval AS oldest, %(newest)s::interval AS newest) AS ages)"""
_SHIFT = 100_000_000
_shifts = itertools.count(1)
"""Jobs of different calls have different numbers, and so different ids."""
_ERROR = """json_build_object(
    'type', 'shop.errors.Refused' || n % 50, 'message', 'order ' || n || ' was refused',
    'fingerprint', substr(md5((n % 50)::text), 1, 12), 'traceback',
    repeat('  File "/srv/shop/orders.py", line 7, in charge' || chr(10), 12))"""

FINISHED = f"""
INSERT INTO windlass.finished_jobs (
    seq, id, kind, queue, state, payload, due_at, created_at, updated_at, started_at, attempt,
    worker, finished_at, result, slot)
SELECT n, {ID.format(at="created_at")}, kind, queue, 'completed', {PAYLOAD}, created_at,
       created_at, finished_at, finished_at - interval '80 ms', 1, 'worker-' || n % 4, finished_at,
       json_build_object('order', n), windlass.slot_of(finished_at)
FROM (SELECT n, %(names)s, at AS finished_at, at - interval '2 s' AS created_at FROM {_NUMBERS})
"""
DEAD = f"""
INSERT INTO windlass.dead_jobs (
    seq, id, kind, queue, state, payload, due_at, created_at, updated_at, started_at, attempt,
    failures, worker, error, reason, history, finished_at, fingerprint)
SELECT n, {ID.format(at="at")}, kind, queue, 'dead', {PAYLOAD}, at, at, at, at, 2, 2,
       'worker-' || n % 4, error, 'gave up after 2 failures',
       json_build_array(json_build_object('number', 1, 'outcome', 'failed', 'worker',
           'worker-' || n % 4, 'started_at', at, 'ended_at', at, 'error', error)),
       at, error ->> 'fingerprint'
FROM (SELECT n, at, %(names)s, {_ERROR} AS error FROM {_NUMBERS})
"""
LIVE = f"""
INSERT INTO windlass.jobs (id, kind, queue, state, payload, due_at, created_at, updated_at)
SELECT {ID.format(at="at")}, kind, queue, %(state)s, {PAYLOAD}, at + %(ahead)s::interval, at, at
FROM (SELECT n, at, %(names)s FROM {_NUMBERS})
"""


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """How many jobs a store holds, and in how many queues they are."""

    finished: int
    dead: int
    scheduled: int
    pending: int
    queues: int = 1_000

    def __str__(self) -> str:
        return (
            f"{self.finished:,} finished, {self.dead:,} dead, {self.scheduled:,} scheduled and "
            f"{self.pending:,} pending jobs in {self.queues:,} queues"
        )

    @property
    def names(self) -> str:
        """The columns with kind and queue of job number n."""
        return _NAMES.format(kinds=KINDS, queues=self.queues)


def fill(url: str, sizes: Sizes, tell: Callable[[str], None]) -> None:
    """Add the jobs, and leave the tables as autovacuum does."""
    span = f"{DAYS * 24 - 1} hours"
    add_to(url, FINISHED, sizes, sizes.finished, tell, oldest=span)
    add_to(url, DEAD, sizes, sizes.dead, tell, oldest=span)
    add_to(url, LIVE, sizes, sizes.scheduled, tell, state="scheduled", ahead="1 day")
    add_to(url, LIVE, sizes, sizes.pending, tell, state="pending", ahead="0")
    with psycopg.connect(url, autocommit=True) as db:
        db.execute("VACUUM ANALYZE")
        db.execute("CHECKPOINT")


def add_to(
    url: str,
    statement: str,
    sizes: Sizes,
    total: int,
    tell: Callable[[str], None] = lambda _: None,
    *,
    oldest: str = "2 hours",
    newest: str = "0",
    **values: str,
) -> None:
    """Add jobs whose ages lie between these, spread over the queues of a store."""
    shift = next(_shifts) * _SHIFT
    numbers = {"total": total, "shift": shift, "oldest": oldest, "newest": newest}
    text = statement.replace("%(names)s", sizes.names)

    def add(first: int) -> None:
        last = min(first + _AT_ONCE - 1, total)
        with psycopg.connect(url, autocommit=True) as db:
            db.execute("SET synchronous_commit = off")
            add_jobs(db, text, {"first": first, "last": last, **numbers, **values})
        tell(f"{last:,} of {total:,}")

    with ThreadPoolExecutor(_CONNECTIONS) as pool:
        # Listed: an error in one of them is raised here.
        list(pool.map(add, range(1, total + 1, _AT_ONCE)))
