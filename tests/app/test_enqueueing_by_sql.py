"""`SELECT windlass.enqueue(...)`: the way into the queue for psql and every other language."""

from __future__ import annotations

import asyncio
import json
import subprocess
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import psycopg
import pytest

from tests.support.app_on_store import Bed, in_state, serving, until
from tests.support.postgres.wheel import installations, newest
from windlass import Context, State, Unique, Windlass
from windlass.app.enqueueing.id_generator import IdGenerator
from windlass.core.jobs.queries import JobFilter

pytestmark = pytest.mark.parametrize("bed", ["postgres"], indirect=True)
ENQUEUE = "SELECT windlass.enqueue(%s)"
V4 = "1b4e28ba-2fa1-4d3b-a3f5-ef19b5a7633b"
V8 = "0190a8c2-2fa1-8d3b-a3f5-ef19b5a00000"


def app_on(bed: Bed) -> Windlass:
    app = bed.app()

    @app.job
    async def greet(ctx: Context, name: str, times: int = 1) -> list[Any]:
        return [name, times, dict(ctx.headers)]

    return app


def enqueue(bed: Bed, **job: Any) -> UUID:
    with psycopg.connect(bed.url) as db:
        row = db.execute(ENQUEUE, [json.dumps(job)]).fetchone()
        assert row is not None
        assert isinstance(row[0], UUID)
        return row[0]


def count(bed: Bed) -> int:
    with psycopg.connect(bed.url) as db:
        row = db.execute("SELECT count(*) FROM windlass.job_queue").fetchone()
        assert row is not None
        return int(row[0])


def test_a_job_from_sql_runs_in_a_worker(bed: Bed) -> None:
    app = app_on(bed)
    job_id = enqueue(
        bed, kind="greet", payload={"name": "Zoë", "times": 2}, headers={"from": "psql"}
    )

    async def main() -> None:
        async with serving(app):
            handle = app.handle(job_id)
            assert await handle.aresult("60s") == ["Zoë", 2, {"from": "psql"}]

    asyncio.run(main())


def test_psql_enqueues(bed: Bed) -> None:
    app = app_on(bed)
    psql = installations()[newest()] / "bin" / "psql"
    words = """SELECT windlass.enqueue('{"kind": "greet", "payload": {"name": "ada"}}')"""
    done = subprocess.run(
        [psql, "--no-psqlrc", "--tuples-only", "--no-align", "--command", words, bed.url],
        check=True,
        capture_output=True,
        text=True,
        timeout=30,
    )

    async def main() -> None:
        async with serving(app):
            assert await app.handle(done.stdout.strip()).aresult("60s") == ["ada", 1, {}]

    asyncio.run(main())


def test_options_are_heeded(bed: Bed) -> None:
    app = app_on(bed)
    moment = datetime.now(UTC).replace(microsecond=0) + timedelta(days=1)
    late = enqueue(bed, kind="greet", payload={"name": "a"}, at=moment.isoformat())
    soon = enqueue(
        bed,
        kind="greet",
        payload={"name": "b"},
        delay="5 minutes",
        queue="mail",
        priority=7,
        max_retries=2,
        timeout="30s",
        expires_in="1h",
    )

    async def main() -> None:
        job = await app.handle(late).ainfo()
        assert (job.state, job.due_at, job.queue) == (State.SCHEDULED, moment, "default")
        job = await app.handle(soon).ainfo()
        assert (job.state, job.queue, job.priority) == (State.SCHEDULED, "mail", 7)
        assert (job.max_retries, job.timeout) == (2, timedelta(seconds=30))
        assert job.due_at - job.created_at == timedelta(minutes=5)
        assert job.expires_at is not None
        assert job.expires_at - job.created_at == timedelta(hours=1)

    asyncio.run(main())


def test_a_more_urgent_job_is_claimed_first(bed: Bed) -> None:
    app = bed.app()
    ran: list[int] = []

    @app.job
    async def note(n: int) -> None:
        ran.append(n)

    for n in (0, 5, -5):
        enqueue(bed, kind="note", payload={"n": n}, priority=n)

    async def main() -> None:
        async with serving(app, concurrency=1):
            await until(lambda: len(ran) == 3)

    asyncio.run(main())
    assert ran == [5, 0, -5]


def test_a_unique_key_is_the_same_from_sql_and_from_python(bed: Bed) -> None:
    app = app_on(bed)
    first = enqueue(bed, kind="greet", payload={"name": "a"}, unique="once")
    assert enqueue(bed, kind="greet", payload={"name": "b"}, unique="once") == first
    assert enqueue(bed, kind="other", payload={}, unique="once") != first

    async def main() -> None:
        assert (await app.handle(first).ainfo()).unique_key == "greet:once"
        async with serving(app):
            await in_state(app.handle(first), State.COMPLETED)
        assert enqueue(bed, kind="greet", payload={"name": "c"}, unique="once") != first

    asyncio.run(main())


@pytest.mark.parametrize("scope", ["kind", "queue", "global"])
def test_a_unique_key_has_the_same_scope_from_sql_and_from_python(bed: Bed, scope: Any) -> None:
    app = bed.app()

    @app.job(queue="letters", unique=Unique("name", scope=scope))
    async def greet(name: str) -> None: ...

    first = greet.enqueue("ada")
    told = {"kind": "greet", "queue": "letters", "unique": "ada", "unique_scope": scope}
    assert enqueue(bed, **told) == first.id


def test_a_duplicate_from_sql_changes_the_job_that_waits(bed: Bed) -> None:
    app = app_on(bed)
    told: dict[str, Any] = {"kind": "greet", "unique": "once", "on_duplicate": "supersede"}
    first = enqueue(bed, payload={"name": "a"}, **told)
    assert enqueue(bed, payload={"name": "b"}, delay="1 hour", headers={"n": "2"}, **told) == first

    async def main() -> None:
        handle = app.handle(first)
        job = await handle.ainfo()
        assert (job.payload, job.headers) == (b'{"name": "b"}', {"n": "2"})
        assert (job.state, job.due_at - job.created_at >= timedelta(hours=1)) == ("scheduled", True)
        async with serving(app):
            await app.control.aretry(first)
            await handle.aresult("60s")
        # Held until claimed, as in Python: so what comes later is never written to a job that runs.
        with psycopg.connect(bed.url) as db:
            assert db.execute("SELECT FROM windlass.unique_keys").fetchall() == []

    asyncio.run(main())


def test_a_rollback_leaves_nothing(bed: Bed) -> None:
    with psycopg.connect(bed.url) as db:
        db.execute(ENQUEUE, ['{"kind": "greet", "unique": "once"}'])
        db.rollback()
    assert count(bed) == 0
    enqueue(bed, kind="greet", unique="once")
    assert count(bed) == 1


def test_a_payload_that_the_handler_cannot_take_is_dead_with_the_reason(bed: Bed) -> None:
    app = app_on(bed)
    job_id = enqueue(bed, kind="greet", payload={"name": "a", "times": "many"})

    async def main() -> None:
        async with serving(app):
            job = await in_state(app.handle(job_id), State.DEAD)
            assert "times" in (job.reason or "")

    asyncio.run(main())


@pytest.mark.parametrize(
    ("job", "told", "hint"),
    [
        ('{"kind": "greet", "priorty": 1}', "no field 'priorty'", "there are: kind, payload"),
        ('{"payload": {}}', "kind must be the name of a handler, got", "name the handler"),
        ('{"kind": ""}', "kind must be the name of a handler, got", "name the handler"),
        ('{"kind": "windlass.flow"}', "a name that does not begin with windlass", "for itself"),
        ('{"kind": "windlass"}', "a name that does not begin with windlass", "for itself"),
        ('{"kind": "greet", "max_retries": 1099511627776}', "got 1099511627776", "the kind says"),
        ("[]", "a job must be a JSON object, got", "write: {"),
        ("null", "a job must be a JSON object, got", "write: {"),
        (
            '{"kind": "greet", "payload": []}',
            "payload must be an object, got a JSON array",
            "arguments by name",
        ),
        (
            '{"kind": "greet", "payload": "x"}',
            "payload must be an object, got a JSON string",
            "arguments by name",
        ),
        ('{"kind": "greet", "priority": 1001}', "between -1000 and 1000", "more urgent"),
        ('{"kind": "greet", "priority": "high"}', "between -1000 and 1000", "more urgent"),
        ('{"kind": "greet", "priority": 1.5}', "between -1000 and 1000", "more urgent"),
        (
            '{"kind": "greet", "queue": "a\\nb"}',
            "must be without control characters",
            "in one line",
        ),
        ('{"kind": "greet", "queue": ""}', "queue must be a name", "leave out"),
        ('{"kind": "greet", "unique": ""}', "unique must be a text", "leave out"),
        ('{"kind": "greet", "unique_scope": "host"}', "kind, queue or global", "for each kind"),
        ('{"kind": "greet", "on_duplicate": "raise"}', "push or supersede", "keep what there is"),
        ('{"kind": "greet", "headers": {"n": 1}}', "an object of texts", "quote the values"),
        ('{"kind": "greet", "headers": {"idempotency-key": ""}}', "1 to 200", "shorten it"),
        ('{"kind": "greet", "headers": []}', "an object of texts", "quote the values"),
        ('{"kind": "greet", "max_retries": -1}', "between 0 and 1000000", "what the kind says"),
        (
            '{"kind": "greet", "timeout": "0s"}',
            "timeout must be between 1 microsecond and 36525 days, got",
            "30 seconds",
        ),
        (
            '{"kind": "greet", "timeout": "1000000 years"}',
            "timeout must be between 1 microsecond and 36525 days, got",
            "30 seconds",
        ),
        (
            '{"kind": "greet", "timeout": "soon"}',
            "timeout must be between 1 microsecond and 36525 days, got",
            "30 seconds",
        ),
        ('{"kind": " "}', "kind must be the name of a handler, got", "name the handler"),
        ('{"kind": "greet", "key": "a\\nb"}', "must be without control characters", "in one line"),
        (json.dumps({"kind": "g" * 201}), "at most 200 characters", "shorten"),
        (json.dumps({"kind": "greet", "queue": "q" * 201}), "at most 200 characters", "shorten"),
        (json.dumps({"kind": "greet", "key": "k" * 201}), "at most 200 characters", "shorten"),
        (json.dumps({"kind": "greet", "unique": "u" * 201}), "at most 200 characters", "shorten"),
        ('{"kind": "greet", "delay": "-1 second"}', "delay must be between", "10 minutes"),
        ('{"kind": "greet", "delay": "200000 years"}', "delay must be between", "10 minutes"),
        ('{"kind": "greet", "delay": "later"}', "delay must be between", "10 minutes"),
        ('{"kind": "greet", "delay": {}}', "delay must be between", "10 minutes"),
        ('{"kind": "greet", "expires_in": "-1 hour"}', "expires_in must be between", "1 day"),
        ('{"kind": "greet", "expires_in": "never"}', "expires_in must be between", "1 day"),
        ('{"kind": "greet", "at": "infinity"}', "at must be a time in", "2030-01-31"),
        ('{"kind": "greet", "at": "20000-01-01"}', "at must be a time in", "2030-01-31"),
        ('{"kind": "greet", "at": "noon"}', "at must be a time in", "2030-01-31"),
        (
            '{"kind": "greet", "expires_at": "infinity"}',
            "expires_at must be a time in",
            "2030-01-31",
        ),
        (
            '{"kind": "greet", "expires_at": "1000-01-01 BC"}',
            "expires_at must be a time in",
            "2030-01",
        ),
        ('{"kind": "greet", "expires_at": 7}', "expires_at must be a time in", "2030-01-31"),
        ('{"kind": "greet", "at": "2030-01-01", "delay": "1s"}', "left out where", "leave out one"),
        (
            '{"kind": "greet", "expires_at": "2030-01-01", "expires_in": "1s"}',
            "left out where",
            "leave out one",
        ),
        ('{"kind": "greet", "unique": "u", "unique_until": "0s"}', "claimed, settled or", "1 day"),
        ('{"kind": "greet", "unique": "u", "unique_until": "done"}', "claimed, settled", "1 day"),
        (json.dumps({"kind": "greet", "id": V4}), "id must be a UUIDv7, got", "repeated safely"),
        (json.dumps({"kind": "greet", "id": V8}), "id must be a UUIDv7, got", "repeated safely"),
        ('{"kind": "greet", "id": "42"}', "id must be a UUIDv7, got", "repeated safely"),
    ],
)
def test_wrong_values_are_refused_with_a_correct_example(
    bed: Bed, job: str, told: str, hint: str
) -> None:
    with psycopg.connect(bed.url) as db, pytest.raises(psycopg.DataError) as caught:
        db.execute(ENQUEUE, [job])
    assert told in str(caught.value)
    assert hint in (caught.value.diag.message_hint or "")
    assert count(bed) == 0


def test_values_at_their_bounds_are_accepted(bed: Bed) -> None:
    taken: tuple[dict[str, Any], ...] = (
        {"kind": "g" * 200, "queue": "q" * 200, "key": "k" * 200, "unique": "u" * 200},
        {"kind": "greet", "delay": 0, "expires_in": "36525 days", "timeout": "1 microsecond"},
        {"kind": "greet", "at": "9999-12-30 00:00+00", "expires_at": "0001-01-02 00:00+00"},
        {"kind": "greet", "unique": "u", "unique_until": "claimed"},
        {"kind": "greet", "unique": "v", "unique_until": "settled"},
        {"kind": "greet", "unique": "w", "unique_until": "36525 days", "key": ""},
    )
    for job in taken:
        enqueue(bed, **job)
    app = bed.app()

    async def main() -> None:
        found = await app.store.find(JobFilter(), limit=10)
        assert len(found.jobs) == len(taken)

    asyncio.run(main())


def test_a_call_with_an_id_is_repeated_safely_even_when_the_job_has_ended(bed: Bed) -> None:
    app = app_on(bed)
    job_id = str(IdGenerator().next())
    told: dict[str, Any] = {"kind": "greet", "payload": {"name": "a"}, "id": job_id}

    async def main() -> None:
        async with serving(app):
            enqueue(bed, **told)
            await in_state(app.handle(job_id), State.COMPLETED)
            assert str(enqueue(bed, **told | {"id": job_id.upper().replace("-", "")})) == job_id
        assert count(bed) == 1

    asyncio.run(main())


def test_fields_that_are_null_are_as_good_as_left_out(bed: Bed) -> None:
    names = "payload queue priority key delay at expires_in expires_at max_retries timeout unique"
    more = "unique_until unique_scope on_duplicate headers id"
    job_id = enqueue(bed, kind="greet", **dict.fromkeys([*names.split(), *more.split()]))
    with psycopg.connect(bed.url) as db:
        row = db.execute("SELECT queue, priority, payload FROM windlass.jobs").fetchone()
    assert (job_id.version, row) == (7, ("default", 0, {}))
