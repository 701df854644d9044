"""An enqueue that fails says whether its job may be there, and can be repeated without a second."""

from __future__ import annotations

import asyncio
import pickle
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import psycopg
import pytest

from tests.app.test_unreachable_stores import note_at, turn_held
from tests.support.app_on_store import PROMPT, STORES, Bed, impatient
from tests.support.network_proxy import Proxy
from windlass import (
    CalledFromEventLoop,
    EnqueueUncertain,
    StoreBusy,
    StoreUnavailable,
    Windlass,
    WriteUncertain,
)

pytestmark = pytest.mark.stores(*STORES)

on_postgres = pytest.mark.parametrize("bed", ["postgres"], indirect=True)
on_sqlite = pytest.mark.parametrize("bed", ["sqlite"], indirect=True)
on_servers = pytest.mark.parametrize("bed", ["postgres", "redis"], indirect=True)
on_shared_stores = pytest.mark.parametrize("bed", ["sqlite", "postgres", "redis"], indirect=True)


@contextmanager
def held(bed: Bed) -> Iterator[None]:
    """Keep everybody from writing jobs."""
    if bed.kind == "sqlite":
        # Not by the turn to write, for which a write waits that can still be taken back.
        with closing(sqlite3.connect(bed.path, isolation_level=None)) as db:
            db.execute("BEGIN EXCLUSIVE")
            yield
    elif bed.redis is not None:
        bed.redis.call("CLIENT", "PAUSE", 600_000, "WRITE")
        try:
            yield
        finally:
            bed.redis.call("CLIENT", "UNPAUSE")
    else:
        with psycopg.connect(bed.url) as db:
            db.execute("LOCK TABLE windlass.jobs")
            yield


async def number_of_jobs(app: Windlass) -> int:
    return sum(count.count for count in await app.store.counts())


@on_shared_stores
def test_blocking_code_can_repeat_an_enqueue_of_unknown_fate(bed: Bed) -> None:
    app, note = note_at(bed.url)
    note.enqueue()
    with held(bed), impatient(app):
        with pytest.raises(EnqueueUncertain, match="may or may not have been enqueued") as caught:
            note.enqueue()
        for _ in range(2):
            with pytest.raises(EnqueueUncertain) as again:
                caught.value.retry()
            assert again.value.drafts == caught.value.drafts == (caught.value.draft,)
    (handle,) = caught.value.retry()
    assert handle.id == caught.value.draft.job.id
    assert len(caught.value.retry()) == 1
    assert asyncio.run(number_of_jobs(app)) == 2
    app.close()


@on_shared_stores
def test_a_coroutine_can_repeat_an_enqueue_of_unknown_fate(bed: Bed) -> None:
    app, note = note_at(bed.url)

    async def main() -> None:
        await note.aenqueue()
        with held(bed), impatient(app):
            with pytest.raises(EnqueueUncertain, match="never adds them twice") as caught:
                await app.aenqueue_many([note.draft(), note.draft()])
            with pytest.raises(ValueError, match="too many values"):
                _ = caught.value.draft
            with pytest.raises(EnqueueUncertain) as again:
                await caught.value.aretry()
            assert again.value.drafts == caught.value.drafts
            with pytest.raises(CalledFromEventLoop):
                caught.value.retry()
        assert len(await caught.value.aretry()) == 2
        assert await number_of_jobs(app) == 3
        await app.aclose()

    asyncio.run(main())


@on_postgres
def test_an_enqueue_that_timed_out_is_cancelled_on_the_server(bed: Bed) -> None:
    app, note = note_at(bed.url)
    note.enqueue()
    with held(bed), impatient(app):
        for _ in range(3):
            with pytest.raises(StoreUnavailable):
                note.enqueue()
        with pytest.raises(StoreUnavailable):
            asyncio.run(note.aenqueue())
        with psycopg.connect(bed.url, autocommit=True) as db:
            waiting = (
                "SELECT FROM pg_stat_activity "
                "WHERE wait_event_type = 'Lock' AND datname = current_database()"
            )
            deadline = time.monotonic() + PROMPT
            while db.execute(waiting).fetchall():
                assert time.monotonic() < deadline, "a statement that was given up still waits"
    assert asyncio.run(number_of_jobs(app)) == 1
    app.close()


@on_servers
def test_a_server_that_was_never_reached_has_written_nothing_and_the_error_says_so(
    bed: Bed,
) -> None:
    with Proxy(bed.url) as proxy:
        proxy.refuse()
        app, note = note_at(proxy.url(bed.url), enqueue_timeout="500ms")
        with pytest.raises(StoreUnavailable) as blocking:
            note.enqueue()
        with pytest.raises(StoreUnavailable) as awaited:
            asyncio.run(note.aenqueue())
        proxy.accept()
        proxy.black_hole()
        with pytest.raises(StoreUnavailable) as unanswered:
            note.enqueue()
        with pytest.raises(StoreUnavailable) as unheard:
            asyncio.run(note.aenqueue())
        for caught in (blocking, awaited, unanswered, unheard):
            assert not isinstance(caught.value, WriteUncertain)
        app.close()


@on_postgres
def test_an_enqueue_that_the_server_refused_is_not_uncertain(bed: Bed) -> None:
    app, note = note_at(f"{bed.url}?options=-clock_timeout%3D100")
    note.enqueue()
    with held(bed):
        with pytest.raises(StoreBusy):
            note.enqueue()
        with pytest.raises(StoreBusy):
            asyncio.run(note.aenqueue())
    app.close()


@on_sqlite
def test_a_file_that_could_not_be_opened_has_nothing_written_to_it(bed: Bed) -> None:
    app, note = note_at(bed.url, enqueue_timeout="1s")
    with turn_held(bed.path):
        with pytest.raises(StoreUnavailable, match="nothing was written") as blocking:
            note.enqueue()
        with pytest.raises(StoreUnavailable, match="nothing was written") as awaited:
            asyncio.run(note.aenqueue())
    assert not isinstance(blocking.value, WriteUncertain)
    assert not isinstance(awaited.value, WriteUncertain)
    app.close()


@on_servers
def test_threads_and_coroutines_try_again_alike_while_a_server_restarts(bed: Bed) -> None:
    with Proxy(bed.url) as proxy:
        app, note = note_at(proxy.url(bed.url))
        proxy.drop(3)
        note.enqueue()
        proxy.drop(3)
        asyncio.run(note.aenqueue())
        app.close()


@on_servers
def test_an_error_that_went_to_another_process_has_the_drafts_to_repeat(bed: Bed) -> None:
    app, note = note_at(bed.url)
    note.enqueue()
    with held(bed), impatient(app), pytest.raises(EnqueueUncertain) as caught:
        note.enqueue()
    elsewhere: Any = pickle.loads(pickle.dumps(caught.value))
    assert str(elsewhere) == str(caught.value)
    with pytest.raises(RuntimeError, match=r"app\.enqueue_many\(error\.drafts\)"):
        elsewhere.retry()
    first, second = app.enqueue_many(elsewhere.drafts), caught.value.retry()
    assert [handle.id for handle in first] == [handle.id for handle in second]
    assert asyncio.run(number_of_jobs(app)) == 2
    app.close()
