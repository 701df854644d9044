"""What producers may send by SQL has the bounds that Python has, whichever function takes it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from tests.support.clocked_stores import opened
from tests.support.database_roles import MAY_ENQUEUE, role
from windlass.app.enqueueing.id_generator import IdGenerator
from windlass.core.jobs.job import NewJob
from windlass.core.jobs.queries import JobFilter

IDS = IdGenerator()
ADD = "SELECT windlass.add(%s, %s, %s, %s, %s, %s, %s, %s, %s)"
MANY = "SELECT id, is_duplicate FROM windlass.enqueue_many(%s)"
DEEP = '{"a": ' + "[" * 200 + "]" * 200 + "}"
DEEP_IN_TEXT = json.dumps({"text": '"[{' * 300, "list": [[1]] * 250})
MEGABYTE = 1024 * 1024


@pytest.fixture
def producer(migrated_url: str) -> Iterator[psycopg.Connection[Any]]:
    """The connection of a role that may enqueue, and nothing else."""
    with role(migrated_url, MAY_ENQUEUE) as url, psycopg.connect(url, autocommit=True) as db:
        yield db


def add(db: psycopg.Connection[Any], **fields: Any) -> None:
    base = {
        "kind": "work", "queue": "default", "priority": 0, "key": "", "payload": "{}",
        "max_retries": None, "timeout": None, "headers": None,
    }  # fmt: skip
    db.execute(ADD, [IDS.next(), *(base | fields).values()])


def many(db: psycopg.Connection[Any], **fields: Any) -> None:
    for name in ("payload", "headers"):
        if fields.get(name) is not None:
            fields[name] = json.loads(fields[name])
    sound = {"kind": "work", "payload": {}}
    db.execute(MANY, [json.dumps([sound, {"id": str(IDS.next())} | sound | fields])])


OF_ANY_JOB = [
    ({"priority": 99_999}, "priority must be a whole number between"),
    ({"priority": -1001}, "priority must be a whole number between"),
    ({"queue": ""}, "queue must be a name"),
    ({"queue": "  "}, "queue must be a name"),
    ({"kind": ""}, "kind must be the name of a handler"),
    ({"kind": "x" * 201}, "at most 200 characters"),
    ({"queue": "x" * 201}, "at most 200 characters"),
    ({"key": "ü" * 201}, "at most 200 characters"),
    ({"key": "a\tb"}, "must be without control characters"),
    ({"max_retries": -1}, "max_retries must be a whole number between"),
    ({"max_retries": 1_000_001}, "max_retries must be a whole number between"),
    ({"timeout": "100000000 years"}, "timeout must be between 1 microsecond and 36525 days, got"),
    ({"timeout": "0"}, "timeout must be between 1 microsecond and 36525 days, got"),
    ({"timeout": "-1 s"}, "timeout must be between 1 microsecond and 36525 days, got"),
    ({"payload": DEEP}, "nested more than 200"),
    ({"payload": r'{"a": "\u0000"}'}, r"a NUL character|\\u0000|unsupported Unicode"),
    ({"payload": json.dumps({"a": "x" * (64 * MEGABYTE)})}, "the limit is 67108864"),
    ({"headers": "[1]"}, "an object of texts"),
    ({"headers": '{"a": 1}'}, "an object of texts"),
    ({"headers": json.dumps({"a": "x" * 16_384})}, "the limit is 16384"),
]
OF_SOME_JOBS = [
    ({"delay": "40000 days"}, "delay must be between"),
    ({"delay": "-1 s"}, "delay must be between"),
    ({"expires_in": "1000000 years"}, "expires_in must be between"),
    ({"at": "infinity"}, "in the years 1 to 9999"),
    ({"at": "10000-01-01 00:00+00"}, "in the years 1 to 9999"),
    ({"expires_at": "4000-01-01 BC"}, "in the years 1 to 9999"),
    ({"unique": ""}, "unique must be"),
    ({"unique": "x" * 501}, "unique must be"),
    ({"unique": "a\nb"}, "unique must be"),
    ({"unique": "a", "unique_until": "1000000 years"}, "unique_until must be"),
    ({"unique": "a", "on_duplicate": "explode"}, "on_duplicate must be"),
    ({"waiting_for": "x" * 501}, "waiting_for must be"),
]
SOUND = [
    {"priority": 1000, "queue": "ü" * 200, "kind": "a b", "key": "x" * 200},
    {"max_retries": 0, "timeout": "1 microsecond"},
    {"max_retries": 1_000_000, "timeout": "36525 days"},
    {"payload": '{"a": ' + "[" * 199 + "1" + "]" * 199 + "}"},
    {"payload": DEEP_IN_TEXT},
    {"payload": r'{"path": "C:\\u0000"}'},
    {"payload": json.dumps({"a": "x" * MEGABYTE})},
    {"headers": "{}"},
    {"headers": json.dumps({"a": "x" * 16_000, 'quo"ted': "back\\slash", "": ""})},
]


@pytest.mark.parametrize(("fields", "problem"), OF_ANY_JOB)
def test_a_producer_cannot_add_what_python_would_refuse(
    producer: psycopg.Connection[Any], fields: dict[str, Any], problem: str
) -> None:
    for send in (add, many):
        with pytest.raises(psycopg.DataError, match=problem):
            send(producer, **fields)


@pytest.mark.parametrize(("fields", "problem"), OF_SOME_JOBS)
def test_nor_the_rarer_options(
    producer: psycopg.Connection[Any], fields: dict[str, Any], problem: str
) -> None:
    with pytest.raises(psycopg.errors.InvalidParameterValue, match=problem):
        many(producer, **fields)


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"payload": "5"}, "payload must be an object, got a JSON number"),
        ({"payload": "[]"}, "payload must be an object, got a JSON array"),
        ({"priorty": 5}, "a job has no field 'priorty'"),
        ({"priority": 1.5}, "priority must be a whole number between -1000 and 1000, got 1.5"),
        ({"priority": "high"}, 'priority must be a whole number .*, got "high"'),
        ({"max_retries": 2**40}, "max_retries must be a whole number .*, got 1099511627776"),
        ({"timeout": "soon"}, 'timeout must be between .*, got "soon"'),
        ({"at": "noon"}, 'at must be a time in the years 1 to 9999, got "noon"'),
        ({"id": "42"}, 'id must be a UUIDv7, got "42"'),
        ({"kind": "windlass.flow"}, "a name that does not begin with windlass, got"),
        ({"kind": "windlass"}, "a name that does not begin with windlass, got"),
    ],
)
def test_both_functions_refuse_in_the_same_words(
    producer: psycopg.Connection[Any], fields: dict[str, Any], problem: str
) -> None:
    with pytest.raises(psycopg.errors.InvalidParameterValue, match=problem) as by_many:
        many(producer, **fields)
    job = {"kind": "work"} | fields
    if "payload" in job:
        job["payload"] = json.loads(job["payload"])
    with pytest.raises(psycopg.errors.InvalidParameterValue, match=problem) as by_one:
        producer.execute("SELECT windlass.enqueue(%s)", [json.dumps(job)])
    assert by_many.value.diag.message_primary == by_one.value.diag.message_primary


@pytest.mark.parametrize("given", ["{}", "5", '[{"kind": "work"}, 5]'])
def test_many_takes_a_list_of_jobs(producer: psycopg.Connection[Any], given: str) -> None:
    with pytest.raises(
        psycopg.errors.InvalidParameterValue, match=r"must be a JSON (array|object)"
    ):
        producer.execute(MANY, [given])


@pytest.mark.parametrize("fields", SOUND)
def test_values_that_python_accepts_are_accepted_in_sql(
    producer: psycopg.Connection[Any], fields: dict[str, Any]
) -> None:
    for send in (add, many):
        send(producer, **fields)


def test_of_many_jobs_with_a_bad_one_among_them_none_is_added(
    producer: psycopg.Connection[Any], migrated_url: str
) -> None:
    with pytest.raises(psycopg.errors.InvalidParameterValue):
        many(producer, priority=99_999)
    with psycopg.connect(migrated_url) as db:
        assert db.execute("SELECT count(*) FROM windlass.jobs").fetchone() == (0,)


@pytest.mark.parametrize(
    ("topic", "body", "problem"),
    [
        ("event:paid", DEEP, "nested more than 200"),
        ("event:paid", "[" * 960 + "]" * 960, "nested more than 200"),
        ("event:paid", r'"\u0000"', "NUL character|unsupported Unicode"),
        ("event:", "1", "an event has a name"),
        ("event:" + "x" * 201, "1", "an event has a name"),
        ("event:a\nb", "1", "an event has a name"),
    ],
)
def test_nor_can_a_producer_send_such_news(
    producer: psycopg.Connection[Any], topic: str, body: str, problem: str
) -> None:
    pieces = [("event:paid", "1"), (topic, body), ("event:paid", "2")]
    news = ", ".join(
        f'{{"topic": {json.dumps(each)}, "id": "{IDS.next()}", "body": {text}}}'
        for each, text in pieces
    )
    with pytest.raises(psycopg.DataError, match=problem):
        producer.execute("SELECT windlass.send_news(%s)", [f"[{news}]"])
    if topic == "event:paid":
        with pytest.raises(psycopg.errors.DataError):
            producer.execute("SELECT windlass.send_event('paid', %s)", [body])


def test_queries_survive_rows_with_values_out_of_bounds(migrated_url: str) -> None:
    """Prevents: one row from elsewhere that nobody can look at, nor at what is beside it."""

    async def run() -> None:
        async with opened(migrated_url) as store:
            sound = NewJob(id=IDS.next(), kind="work", payload=b"{}")
            await store.enqueue([sound])
            with psycopg.connect(migrated_url) as db:
                db.execute(
                    "INSERT INTO windlass.jobs (id, kind, queue, priority, payload, timeout,"
                    " due_at, expires_at, headers)"
                    " VALUES (%s, '', '', 99999, %s, '100000000 years', 'infinity', '-infinity',"
                    " '[1]')",
                    [bad := IDS.next(), "[" * 960 + "]" * 960],
                )
            page = await store.find(JobFilter(), limit=10)
            brief = await store.find(JobFilter(), limit=10, brief=True)
            for each in (page, brief):
                assert {job.id for job in each.jobs} == {sound.id, bad}
            assert await store.get(bad) is not None
            await store.counts()
            await store.sweep()

    asyncio.run(run())
