"""The view of jobs shows every state, and no job from SQL can break it."""

from __future__ import annotations

import asyncio
from typing import LiteralString
from uuid import UUID

import psycopg
import pytest

from tests.store.postgres.schema_access import HOUR, connected, new, take
from tests.support.clocked_stores import opened
from windlass import Windlass
from windlass.core.jobs.job import ErrorInfo
from windlass.core.jobs.settle import Transition
from windlass.core.jobs.states import State

COLUMNS = {
    "id": "uuid",
    "job_type": "text",
    "payload": "jsonb",
    "status": "text",
    "priority": "integer",
    "attempts": "integer",
    "max_attempts": "integer",
    "scheduled_for": "timestamp with time zone",
    "started_at": "timestamp with time zone",
    "completed_at": "timestamp with time zone",
    "error_message": "text",
    "created_at": "timestamp with time zone",
    "updated_at": "timestamp with time zone",
}
"""What the requirement E1 wants to see of a queue."""


def test_the_view_shows_jobs_of_every_state(migrated_url: str) -> None:
    async def main() -> dict[UUID, State]:
        async with opened(migrated_url) as store:
            error = ErrorInfo(type="ValueError", message="broken")
            await store.enqueue([new(max_retries=2) for _ in range(4)])
            jobs = await take(store, 4)
            ends = (State.COMPLETED, State.CANCELLED, State.DEAD)
            moves = [
                Transition(
                    id=job.id, token=7, state=state, error=error, failures=int(state is State.DEAD)
                )
                for job, state in zip(jobs, ends, strict=False)
            ]
            assert all(await store.settle(moves))
            later, now = new(due=HOUR), new()
            await store.enqueue([later])
            await store.enqueue([now])
            ended = {move.id: move.state for move in moves}
            return ended | {
                jobs[3].id: State.RUNNING,
                later.id: State.SCHEDULED,
                now.id: State.PENDING,
            }

    expected = asyncio.run(main())
    with connected(migrated_url) as db:
        columns = dict(
            db.execute(
                "SELECT column_name, data_type FROM information_schema.columns "
                "WHERE table_schema = 'windlass' AND table_name = 'job_queue'"
            ).fetchall()
        )
        assert COLUMNS.items() <= columns.items()
        shown = db.execute("SELECT id, status FROM windlass.job_queue").fetchall()
        assert {id_: State(status) for id_, status in shown} == expected
        dead = db.execute(
            "SELECT job_type, payload, attempts, max_attempts, error_message, "
            "completed_at IS NOT NULL, started_at <= completed_at "
            "FROM windlass.job_queue WHERE status = 'dead'"
        ).fetchone()
        assert dead == ("work", {"n": 1}, 1, 3, "ValueError: broken", True, True)


def test_the_view_knows_how_often_a_kind_is_tried_by_its_workers(migrated_url: str) -> None:
    """Prevents a bound that is empty for every job that leaves it to its kind."""
    app = Windlass(migrated_url, max_retries=7)

    @app.job(max_retries=1)
    async def twice() -> None: ...

    @app.job
    async def often() -> None: ...

    def bounds() -> dict[str, int | None]:
        with connected(migrated_url) as db:
            rows = db.execute("SELECT job_type, max_attempts FROM windlass.job_queue").fetchall()
            return dict(rows)

    async def main() -> None:
        await twice.aenqueue()
        await often.aenqueue()
        await app.store.enqueue([new(kind="unknown"), new(kind="own", max_retries=4)])
        assert bounds() == {"twice": None, "often": None, "unknown": None, "own": 5}
        await asyncio.wait_for(app.arun_worker(burst=True), 60)
        assert bounds() == {"twice": 2, "often": 8, "unknown": None, "own": 5}
        await app.aclose()

    asyncio.run(main())


def test_the_attempts_of_the_view_are_those_that_its_max_attempts_bounds(migrated_url: str) -> None:
    """Prevents: a job that was released or snoozed a few times, and seems beyond its bound."""

    async def main() -> None:
        async with opened(migrated_url) as store:
            await store.enqueue([new(max_retries=1)])
            for state, failures in ((State.PENDING, 0), (State.PENDING, 1), (State.COMPLETED, 0)):
                (job,) = await take(store)
                seen.append(attempts())
                move = Transition(id=job.id, token=7, state=state, failures=failures)
                assert await store.settle([move]) == [True]
                seen.append(attempts())

    def attempts() -> tuple[str, int, int]:
        with connected(migrated_url) as db:
            text = "SELECT status, attempts, max_attempts FROM windlass.job_queue"
            row: tuple[str, int, int] | None = db.execute(text).fetchone()
            assert row is not None
            return row

    seen: list[tuple[str, int, int]] = []
    asyncio.run(main())
    assert seen == [
        ("running", 1, 2),
        ("pending", 0, 2),
        ("running", 1, 2),
        ("pending", 1, 2),
        ("running", 2, 2),
        ("completed", 2, 2),
    ]


def test_no_job_from_sql_can_keep_others_from_reading_the_view(migrated_url: str) -> None:
    """Prevents: a payload that jsonb cannot hold makes every look at the view an error."""
    hostile: tuple[LiteralString, ...] = (
        r'{"kind": "work", "payload": {"text": "before\u0000after"}}',
        r'{"kind": "work", "payload": {"n": 1e200000}}',
        r'{"kind": "work", "payload": {"text": "\ud800"}}',
    )
    with connected(migrated_url) as db:
        for each in hostile:
            with pytest.raises(psycopg.errors.DataError):
                db.execute("SELECT windlass.enqueue(%s::json)", [each])
        db.execute("""SELECT windlass.enqueue('{"kind": "work", "payload": {"n": 1}}')""")
        assert db.execute("SELECT payload FROM windlass.job_queue").fetchall() == [({"n": 1},)]
