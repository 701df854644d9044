"""Payloads that nothing can hold are refused at the door; rows that got in otherwise die alone."""

from __future__ import annotations

import random
from typing import Any
from uuid import UUID

import pytest

from tests.support.postgres_workers import SqliteYard, on_sqlite
from tests.support.worker_processes import Yard, until
from windlass import Kind, PayloadError, PayloadInvalid, PayloadTooLarge, State, Windlass
from windlass.app.enqueueing.id_generator import IdGenerator


def deep(levels: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(levels):
        value = [value]
    return value


REFUSED: dict[str, tuple[Any, type[PayloadError], str]] = {
    "NUL": ("before\x00after", PayloadInvalid, "NUL"),
    "NUL in a key": ({"a\x00": 1}, PayloadInvalid, "NUL"),
    "lone surrogate": ("before\ud800after", PayloadInvalid, "surrogate"),
    "NaN": (float("nan"), PayloadInvalid, "NaN"),
    "infinity": ([1.0, float("inf")], PayloadInvalid, "infinities"),
    "minus infinity": ({"a": float("-inf")}, PayloadInvalid, "infinities"),
    "100 MB": ("x" * 100_000_000, PayloadTooLarge, "100,0"),
    "100k deep": (deep(100_000), PayloadInvalid, "nested"),
}


@on_sqlite
@pytest.mark.parametrize("what", REFUSED)
def test_a_payload_that_no_store_can_hold_is_refused_at_enqueue(
    what: str, yard: SqliteYard
) -> None:
    """Cases 38 and 39. Prevents an accepted job that no worker can ever read."""
    value, error, said = REFUSED[what]
    with pytest.raises(error, match=said) as raised:
        yard.enqueue("take", number=value)
    assert len(str(raised.value)) < 1_000
    if error is PayloadInvalid and what != "100k deep":
        assert isinstance(raised.value, PayloadInvalid)
        assert raised.value.field.startswith("number")
    assert yard.states() == {}


def test_a_megabyte_passes_by_every_way_to_enqueue(yard: Yard) -> None:
    """Case 24. Prevents a payload that is cut, or lost."""
    large = Windlass(yard.url, max_payload=2_000_000)
    kind = large.producer(Kind("take_text", dict[str, Any]))
    text = random.Random(1).randbytes(500_000).hex()
    handles = [kind.enqueue({"text": text}), kind.enqueue({"text": text[::-1]})]
    # As many as PostgreSQL gets by COPY.
    drafts = [kind.draft({"text": text[: 20_000 + number]}) for number in range(25)]
    handles += large.enqueue_many(drafts)

    yard.worker().started()
    done = [yard.settled(handle.id) for handle in handles]
    assert {job.state for job in done} == {State.COMPLETED}
    assert [job.result for job in done[:2]] == [f'"{text}"'.encode(), f'"{text[::-1]}"'.encode()]
    assert [len(job.result or b"") for job in done[2:]] == [20_002 + n for n in range(25)]
    large.close()


@pytest.mark.parametrize("what", REFUSED)
def test_a_payload_is_refused_by_its_handlers_own_producer_too(what: str) -> None:
    """Cases 38 and 39. Prevents a second door without a guard: typed handlers and bare kinds."""
    app = Windlass("memory://")

    @app.job
    async def anything(value: Any) -> None: ...

    value, error, said = REFUSED[what]
    with pytest.raises(error, match=said):
        anything.enqueue(value)
    with pytest.raises(error, match=said):
        app.producer(Kind("anything", Any)).draft(value)


DEEP = 100_000
BAD_PAYLOADS: dict[str, tuple[str | bytes, str]] = {
    "not JSON": ("{nonsense", "not valid JSON"),
    "empty": ("", "not valid JSON"),
    "too deep": ('{"number": ' + "[" * DEEP + "]" * DEEP + "}", ""),
    "wrong type": ('{"number": "many"}', "number"),
    "missing field": ("{}", "number"),
    "not an object": ("[1]", "object"),
    "NUL": ('{"number": \x001}', "not valid JSON"),
    "lone surrogate": ('{"text": "\\ud800"}', ""),
    "a number too long": ('{"number": ' + "9" * 10_000 + "}", ""),
}
INSERT = """
INSERT INTO jobs (id, kind, queue, priority, key, state, payload, due_at, created_at)
VALUES (?, ?, 'default', 0, '', 'pending', CAST(? AS TEXT), ?, 0)
"""


def insert(yard: SqliteYard, payload: str | bytes, due_at: int) -> UUID:
    """Put a job into the file behind everybody's back."""
    job = IdGenerator().next()
    with yard.raw() as db:
        kind = "take_text" if "text" in str(payload) else "take"
        db.execute(INSERT, (str(job), kind, payload, due_at))
    return job


@on_sqlite
def test_a_row_with_a_bad_payload_goes_to_dead_and_never_to_its_handler(yard: SqliteYard) -> None:
    """Case 39. Prevents a poisoned row from stopping the worker, or every job behind it."""
    behind = yard.enqueue("take", number=1)
    bad = {
        what: insert(yard, payload, number) for number, (what, (payload, _)) in
        enumerate(BAD_PAYLOADS.items())
    }  # fmt: skip
    worker = yard.worker()
    worker.started()

    for what, job in bad.items():
        dead = yard.settled(job)
        assert (dead.state, dead.attempt) == (State.DEAD, 1), what
        assert dead.error is not None, what
        assert dead.error.type.endswith("PayloadInvalid"), what
        assert BAD_PAYLOADS[what][1] in (dead.reason or ""), what
        assert dead.reason, what
    assert yard.settled(behind).result == b"1"
    assert [entry.job for entry in yard.ledger.entries()] == [str(behind)]
    assert worker.is_running()


UNREADABLE: dict[str, tuple[str, str | bytes]] = {
    "headers that are not JSON": ("headers", "{nonsense"),
    "headers of the wrong shape": ("headers", '{"a": [1]}'),
    "history that is not JSON": ("history", "{nonsense"),
    "an id that is none": ("id", "not-an-id"),
    "an id in another form": ("id", "01A1E0E2-6854-70D4-A79B-BD6891AB9162"),
    "a payload that is not UTF-8": ("payload", b'{"number": "\xff\xfe"}'),
    "a kind that is not UTF-8": ("kind", b"take\xff"),
    "a queue that is not UTF-8": ("queue", b"\xff\xfe"),
}


@on_sqlite
def test_a_row_that_cannot_be_read_dies_and_stops_nobody_else(yard: SqliteYard) -> None:
    """Case 39. Prevents one row that somebody edited by hand from stopping a whole queue."""
    behind = yard.enqueue("take", number=1)
    rows = {}
    for what, (column, value) in UNREADABLE.items():
        job = str(insert(yard, '{"number": 2}', 0))
        with yard.raw() as db:
            (rows[what],) = db.execute("SELECT seq FROM jobs WHERE id = ?", (job,)).fetchone()
            db.execute(f"UPDATE jobs SET {column} = CAST(? AS TEXT) WHERE id = ?", (value, job))
    worker = yard.worker()
    worker.started()

    until(lambda: _state(yard, str(behind)) == "completed", "the job behind the bad rows")
    for what, seq in rows.items():
        until(lambda: _fate(yard, seq)[0] == "dead", f"the death of {what}")  # noqa: B023
        assert _fate(yard, seq)[1], what
    assert [entry.job for entry in yard.ledger.entries()] == [str(behind)]
    assert worker.is_running()


@on_sqlite
@pytest.mark.parametrize("column", ["due_at", "expires_at"])
def test_a_time_beyond_all_calendars_is_the_end_of_time(yard: SqliteYard, column: str) -> None:
    """Case 39. Prevents one impossible time from stopping every sweep."""
    yard.enqueue("take", number=1)
    job = insert(yard, '{"number": 2}', 0)
    with yard.raw() as db:
        db.execute(f"UPDATE jobs SET {column} = ? WHERE id = ?", (2**62, str(job)))
    yard.worker().started()
    assert yard.settled(job).result == b"2"


def _state(yard: SqliteYard, job: str) -> str:
    with yard.raw() as db:
        return str(db.execute("SELECT state FROM jobs WHERE id = ?", (job,)).fetchone()[0])


def _fate(yard: SqliteYard, seq: int) -> tuple[str, str | None]:
    """Return the state and the reason of a row that may not be readable as a job."""
    with yard.raw() as db:
        state, reason = db.execute(
            "SELECT state, reason FROM jobs WHERE seq = ?", (seq,)
        ).fetchone()
        return state, reason
