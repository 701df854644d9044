"""Owns a store that is full of everything a sample reads: jobs, dead ones, workers, records."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

from tests.support.postgres_workers import PostgresYard
from windlass.core.changes import Changes
from windlass.core.policies.breaker_record import (
    HISTORY,
    BreakerChange,
    BreakerState,
    BreakerStatus,
    record_of,
)
from windlass.core.policies.breaker_record import RECORD as BREAKER
from windlass.core.policies.limit import RECORD as LIMIT
from windlass.core.policies.slo import TARGETS
from windlass.core.records import Json
from windlass.core.stats import kind_history as kind_stats
from windlass.core.stats.kind_history import SPAN, WINDOW, NewError, Window, recorded
from windlass.core.workers import WorkerInfo
from windlass.store.postgres import PostgresStore

QUEUES = KINDS = 200
WORKERS = 100
BREAKERS = 50
LIMITED, SHARDS = 20, 64
"""How many kinds have a limit by keys, and over how many records each of these is spread."""
MILLION = """
INSERT INTO jobs (id, kind, queue, state, payload, due_at)
SELECT gen_random_uuid(), 'kind-' || n % 20, 'queue-' || n % 200,
       CASE WHEN n % 5 = 0 THEN 'scheduled' ELSE 'pending' END, '{"to": "somebody"}',
       now() + (n - 1000000) * interval '1 millisecond'
FROM generate_series(1, 1000000) AS n
"""
DEAD = """
INSERT INTO dead_jobs (seq, id, kind, queue, state, payload, finished_at, error, reason)
SELECT n, gen_random_uuid(), 'kind-' || n % 20, 'queue-' || n % 200, 'dead', '{"to": "somebody"}',
       now() - n * interval '1 second',
       json_build_object('type', 'ValueError', 'message', 'nobody is called ' || n,
                         'traceback', repeat('  File "shop.py", line 1, in pay' || chr(10), 40)),
       'gave up after 4 failures'
FROM generate_series(1, 100000) AS n
"""
NEWCOMERS = """
INSERT INTO jobs (id, kind, queue, payload)
SELECT new_id(now() - n * interval '0.8 ms'), 'kind-1', 'queue-' || n % 200, '{}'
FROM generate_series(1, 50000) AS n
"""
"""Fifty thousand jobs, made within the forty seconds before this begins."""


def fill(yard: PostgresYard) -> None:
    """Put a million jobs, and what goes with them, into a store."""
    yard.ask(MILLION)
    yard.ask(DEAD)
    asyncio.run(_staff(yard.plain_url))


async def _staff(url: str) -> None:
    store = PostgresStore(url, listen_url="off")
    now = datetime.now(UTC)
    kinds = tuple(f"kind-{number}" for number in range(KINDS))
    for number in range(WORKERS):
        await store.register(
            WorkerInfo(
                id=f"w{number}",
                name=f"w{number}",
                host=f"host-{number // 4}",
                pid=number,
                release="1",
                lease=timedelta(minutes=30),
                slots=20,
                kinds=kinds,
            )
        )
    figures = _figures(now)
    records: dict[str, Json] = {
        **{kind_stats.RECORD + kind: figures for kind in kinds},
        **{TARGETS + kind: {"target": 5.0} for kind in kinds[:20]},
        **{f"{BREAKER}b{number}": _breaker(now) for number in range(BREAKERS)},
        **{
            f"{LIMIT}kind:{kind}/{shard}": _account(shard)
            for kind in kinds[:LIMITED]
            for shard in range(SHARDS)
        },
    }
    await store.apply(sorted(records), lambda *_: Changes(answer=None, records=records))
    await store.close()


def _figures(now: datetime) -> Json:
    """Make the record of a kind that has run all the hour, for all sorts of times, and failed."""
    buckets = [part for bucket in range(20, 120, 2) for part in (bucket, 1000 + bucket)]
    error = NewError(line="ValueError: nobody is called that")
    errors = {f"fingerprint-{number}": error for number in range(10)}
    window = Window(
        completed=50_000,
        failed=500,
        durations=buckets,
        waits=buckets,
        errors=dict.fromkeys(errors, 50),
    )
    left = {f"queue-{number}": 1000 for number in range(0, QUEUES, 20)}
    record: Json | None = None
    for ago in reversed(range(SPAN // WINDOW)):
        record = recorded(record, window, left, now - ago * WINDOW, errors)
    assert record is not None
    return record


def _breaker(now: datetime) -> Json:
    change = BreakerChange(
        at=now,
        old=BreakerState.HALF_OPEN,
        new=BreakerState.CLOSED,
        why="a probe succeeded",
        by="w1",
    )
    return record_of(BreakerStatus(name="b", changes=HISTORY, history=(change,) * HISTORY))


def _account(shard: int) -> Json:
    """Make the record of a shard of a keyed limit: a few workers hold tokens of some keys."""
    holds = {
        f"w{(shard + number) % WORKERS}": {f"tenant-{shard}-{key}": 1 for key in range(3)}
        for number in range(5)
    }
    return {"concurrency": {"holds": holds}}
