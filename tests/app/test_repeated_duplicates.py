"""A repeated enqueue whose first request changed the holder of its key changes nothing more."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest

from tests.support.app_on_store import PROMPT, Bed, in_state, serving
from windlass import Draft, State, Unique, Windlass
from windlass.app import Handler

pytestmark = pytest.mark.parametrize("bed", ["postgres"], indirect=True)
Note = Handler[[str], None, [str], Awaitable[None]]


def noting(bed: Bed) -> tuple[Windlass, Note, list[str]]:
    app = bed.app()
    ran: list[str] = []

    @app.job
    async def note(text: str) -> None:
        ran.append(text)

    return app, note, ran


def draft_of(note: Note, text: str, on_duplicate: Any, delay: str | None = None) -> Draft[Any]:
    unique = Unique("only", on_duplicate=on_duplicate)
    return note.using(unique=unique, delay=delay).draft(text)


@pytest.mark.parametrize("on_duplicate", ["replace", "push", "supersede"])
def test_a_repeated_duplicate_adds_no_job_after_the_holder_has_run(
    bed: Bed, on_duplicate: Any
) -> None:
    app, note, ran = noting(bed)

    async def main() -> None:
        (first,) = await app.aenqueue_many([draft_of(note, "first", on_duplicate)])
        draft = draft_of(note, "second", on_duplicate)
        (changed,) = await app.aenqueue_many([draft])
        assert (changed.id, changed.is_duplicate) == (first.id, True)
        async with serving(app):
            await in_state(first, State.COMPLETED)
            (again,) = await app.aenqueue_many([draft])
            assert (again.id, again.is_duplicate) == (first.id, True)
            # Whatever it had added would run before this.
            await (await note.aenqueue("last")).aresult("60s")

    asyncio.run(main())
    assert ran == ["first" if on_duplicate == "push" else "second", "last"]


def test_a_repeated_duplicate_does_not_undo_a_later_change(bed: Bed) -> None:
    app, note, ran = noting(bed)

    async def main() -> None:
        (first,) = await app.aenqueue_many([draft_of(note, "first", "replace")])
        draft = draft_of(note, "second", "replace")
        await app.aenqueue_many([draft])
        await app.aenqueue_many([draft_of(note, "third", "replace")])
        await app.aenqueue_many([draft])
        async with serving(app):
            await in_state(first, State.COMPLETED)

    asyncio.run(main())
    assert ran == ["third"]


def test_a_call_of_the_sql_function_with_an_id_is_repeated_as_safely(bed: Bed) -> None:
    app, note, ran = noting(bed)
    call = "SELECT windlass.enqueue(%s)"
    shared = '"kind": "note", "unique": "only", "on_duplicate": "replace"'
    draft = f'{{{shared}, "id": "{note.draft("").job.id}", "payload": {{"text": "second"}}}}'

    async def main() -> None:
        with psycopg.connect(bed.url, autocommit=True) as db:
            row = db.execute(call, [f'{{{shared}, "payload": {{"text": "first"}}}}']).fetchone()
            assert row is not None
            assert db.execute(call, [draft]).fetchone() == row
            async with serving(app):
                await in_state(app.handle(row[0]), State.COMPLETED)
                assert db.execute(call, [draft]).fetchone() == row
                await (await note.aenqueue("last")).aresult("60s")

    asyncio.run(main())
    assert ran == ["second", "last"]


@pytest.mark.parametrize("until", ["1 day", "settled"])
def test_a_late_request_that_loses_frees_the_key_that_it_took(bed: Bed, until: str) -> None:
    """Prevents a key that nobody's job holds, and that keeps others out for a day."""
    app, note, _ = noting(bed)
    job_id = note.draft("").job.id
    late = {"id": str(job_id), "kind": "note", "unique": "note:k", "unique_until": until}
    document = json.dumps([late | {"payload": {"text": "late"}, "fresh": True}])
    hold = "INSERT INTO windlass.unique_keys VALUES ('note:k', %s, false, NULL)"
    with (
        psycopg.connect(bed.url) as other,
        psycopg.connect(bed.url, autocommit=True) as db,
        ThreadPoolExecutor(1) as pool,
    ):
        other.execute(hold, [note.draft("").job.id])
        with psycopg.connect(bed.url, autocommit=True) as sender:
            sent = pool.submit(
                sender.execute, "SELECT * FROM windlass.enqueue_many(%s)", [document]
            )
            waits = "SELECT FROM pg_stat_activity WHERE pid = %s AND wait_event_type = 'Lock'"
            deadline = time.monotonic() + PROMPT
            while not db.execute(waits, [sender.info.backend_pid]).fetchall():
                assert time.monotonic() < deadline, "the late request does not wait for the key"
            db.execute("SELECT windlass.remember_ids(ARRAY[%s::uuid])", [job_id])
            other.rollback()
            sent.result(PROMPT)
        assert db.execute("SELECT FROM windlass.jobs").fetchall() == []
        assert db.execute("SELECT FROM windlass.unique_keys").fetchall() == []
    app.close()
