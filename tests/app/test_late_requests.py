"""A request that the network holds back until its repetition has run gives no job a second life."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest

from tests.support.app_on_store import PROMPT, Bed, serving_in_a_thread
from tests.support.network_proxy import Proxy
from windlass import Draft, EnqueueUncertain, Handle, Windlass
from windlass.app import Handler

on_servers = pytest.mark.parametrize("bed", ["postgres", "redis"], indirect=True)
on_postgres = pytest.mark.parametrize("bed", ["postgres"], indirect=True)
MARKER = "packet-to-be-held"
NAME = "held_back"
Note = Handler[[str], None, [str], None]


class Line:
    """A producer behind a network that holds packets back, and a worker that is not."""

    def __init__(self, bed: Bed, proxy: Proxy) -> None:
        self.proxy = proxy
        self.redis = bed.redis
        self.url = proxy.url(bed.url)
        if self.redis is None:
            self.url += f"?application_name={NAME}"
        self.direct = bed.url
        self.runs: Counter[str] = Counter()
        self.app, self.note = self._app(self.url)
        self.worker, _ = self._app(bed.url)

    def _app(self, url: str) -> tuple[Windlass, Note]:
        app = Windlass(url, enqueue_timeout="2s")

        @app.job
        def note(text: str) -> None:
            self.runs[text] += 1

        return app, note

    def deliver(self) -> None:
        """Let the packet go, and wait until the server has done with it."""
        self.proxy.release()
        self.app.close()
        deadline = time.monotonic() + PROMPT
        while self._is_under_way():
            assert time.monotonic() < deadline, "the server is not done with the packet"
            time.sleep(0.01)

    def _is_under_way(self) -> bool:
        if self.redis is not None:
            # Redis reads what has come before it answers those that connect later.
            is_passed_on = self.proxy.connections == 0
            self.redis.call("PING")
            return not is_passed_on
        with psycopg.connect(self.direct, autocommit=True) as db:
            asked = "SELECT FROM pg_stat_activity WHERE application_name = %s"
            return bool(db.execute(asked, [NAME]).fetchall())

    def outcomes(self) -> Counter[str]:
        """Return how many outcomes are recorded for each text, and how many jobs are alive."""
        if self.redis is not None:
            return self._runs_and_jobs_on_redis()
        with psycopg.connect(self.direct, autocommit=True) as db:
            rows = db.execute(
                "SELECT payload ->> 'text', count(*) FROM windlass.finished_jobs "
                "WHERE kind = 'note' GROUP BY 1"
            ).fetchall()
            (alive,) = db.execute("SELECT count(*) FROM windlass.jobs").fetchone() or (0,)
        return Counter(dict(rows)) + Counter({"alive": alive})

    def _runs_and_jobs_on_redis(self) -> Counter[str]:
        """Return how often each text ran, and how many jobs are in each state.

        A job has one record there, so that a second life shows in these.
        """
        app = Windlass(self.direct)
        counts = asyncio.run(app.store.counts())
        app.close()
        return self.runs + Counter({count.state: count.count for count in counts})


@pytest.fixture
def line(bed: Bed) -> Iterator[Line]:
    with Proxy(bed.url) as proxy:
        line = Line(bed, proxy)
        with serving_in_a_thread(line.worker):
            yield line
        line.app.close()
        line.worker.close()


def done(handles: list[Handle[Any]]) -> None:
    for handle in handles:
        handle.result(timeout="60s")


def by_one(line: Line) -> None:
    line.note.enqueue(MARKER)


def by_a_unique_one(line: Line) -> None:
    line.note.using(unique="only").enqueue(MARKER)


def by_some(line: Line) -> None:
    line.app.enqueue_many([line.note.draft(MARKER), line.note.draft("another")])


def by_many(line: Line) -> None:
    line.app.enqueue_many([*_texts(line), line.note.draft(MARKER)])


def by_a_fan_out(line: Line) -> None:
    line.app.fan_out([*_texts(line), line.note.draft(MARKER)])


def by_a_flow(line: Line) -> None:
    line.app.chain(line.note.draft(MARKER), line.note.draft("another")).enqueue()


def _texts(line: Line) -> list[Draft[Any]]:
    """Return enough drafts for a COPY."""
    return [line.note.draft(f"text {number}") for number in range(50)]


@on_servers
@pytest.mark.parametrize(
    "send", [by_one, by_a_unique_one, by_some, by_many, by_a_fan_out, by_a_flow]
)
def test_a_held_request_of_blocking_code_adds_nothing_when_it_comes(
    line: Line, send: Callable[[Line], None]
) -> None:
    line.note.enqueue("first").result(timeout="60s")
    line.proxy.hold(MARKER.encode())
    with pytest.raises(EnqueueUncertain) as caught:
        send(line)
    assert line.proxy.is_holding.is_set()
    done(caught.value.retry())
    before = line.outcomes()
    assert before[MARKER] == 1
    line.deliver()
    assert line.outcomes() == before
    assert set(line.runs.values()) == {1}


async def aby_one(line: Line) -> None:
    await line.note.aenqueue(MARKER)


async def aby_some(line: Line) -> None:
    await line.app.aenqueue_many([line.note.draft(MARKER), line.note.draft("another")])


async def aby_many(line: Line) -> None:
    await line.app.aenqueue_many([*_texts(line), line.note.draft(MARKER)])


async def aby_a_fan_out(line: Line) -> None:
    await line.app.afan_out([*_texts(line), line.note.draft(MARKER)])


async def aby_a_flow(line: Line) -> None:
    await line.app.chain(line.note.draft(MARKER), line.note.draft("another")).aenqueue()


@on_servers
@pytest.mark.parametrize("send", [aby_one, aby_some, aby_many, aby_a_fan_out, aby_a_flow])
def test_a_held_request_of_a_coroutine_adds_nothing_when_it_comes(
    line: Line, send: Callable[[Line], Awaitable[None]]
) -> None:
    async def main() -> None:
        await (await line.note.aenqueue("first")).aresult("60s")
        line.proxy.hold(MARKER.encode())
        with pytest.raises(EnqueueUncertain) as caught:
            await send(line)
        assert line.proxy.is_holding.is_set()
        for handle in await caught.value.aretry():
            await handle.aresult("60s")
        await line.app.aclose()

    asyncio.run(main())
    before = line.outcomes()
    line.deliver()
    assert line.outcomes() == before
    assert set(line.runs.values()) == {1}


@contextmanager
def in_a_thread(work: Callable[[], object]) -> Iterator[None]:
    """Do something beside a block, which cannot end before the block has."""
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    yield
    thread.join(PROMPT)
    assert not thread.is_alive()


@on_postgres
def test_a_held_statement_on_a_connection_of_the_users_adds_nothing_when_it_comes(
    line: Line,
) -> None:
    draft: Draft[Any] = line.note.draft(MARKER)
    line.proxy.hold(MARKER.encode())
    with (
        psycopg.connect(line.url, autocommit=True) as users,
        in_a_thread(lambda: line.app.enqueue_many([draft], tx=users)),
    ):
        assert line.proxy.is_holding.wait(PROMPT)
        done(line.app.enqueue_many([draft]))
        line.proxy.release()
    assert line.outcomes() == {MARKER: 1}
    assert line.runs == {MARKER: 1}


@on_postgres
def test_a_held_call_of_the_sql_function_adds_nothing_when_it_comes(line: Line) -> None:
    identity = line.note.draft("").job.id
    job = {"id": str(identity), "kind": "note", "payload": {"text": MARKER}}
    call = "SELECT windlass.enqueue(%s)"
    line.proxy.hold(MARKER.encode())
    with (
        psycopg.connect(line.url, autocommit=True) as held,
        psycopg.connect(line.direct, autocommit=True) as direct,
        in_a_thread(lambda: held.execute(call, [json.dumps(job)])),
    ):
        assert line.proxy.is_holding.wait(PROMPT)
        direct.execute(call, [json.dumps(job)])
        line.worker.handle(identity).result(timeout="60s")
        line.proxy.release()
    assert line.outcomes() == {MARKER: 1}
    assert line.runs == {MARKER: 1}


@on_postgres
def test_a_large_batch_whose_commit_is_held_is_added_once(line: Line) -> None:
    """A repetition waits for the first, whose rows are there, and then adds nothing."""
    line.note.enqueue("first").result(timeout="60s")
    drafts = [line.note.draft(f"text {number}") for number in range(50)]
    line.proxy.hold(b"COMMIT")
    with pytest.raises(EnqueueUncertain) as caught:
        line.app.enqueue_many(drafts)
    assert line.proxy.is_holding.is_set()
    with pytest.raises(EnqueueUncertain):
        caught.value.retry()
    line.proxy.release()
    done(caught.value.retry())
    line.deliver()
    assert line.outcomes() == Counter({f"text {n}": 1 for n in range(50)}) + Counter(first=1)
    assert set(line.runs.values()) == {1}


@on_postgres
def test_a_held_statement_in_a_transaction_with_one_snapshot_adds_nothing(line: Line) -> None:
    """A snapshot from before the repetition does not show it: the transaction cannot commit."""
    draft: Draft[Any] = line.note.draft(MARKER)
    with psycopg.connect(line.url) as users:
        users.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        users.execute("SELECT FROM windlass.jobs")
        line.proxy.hold(MARKER.encode())
        with in_a_thread(lambda: refused(lambda: line.app.enqueue_many([draft], tx=users))):
            assert line.proxy.is_holding.wait(PROMPT)
            done(line.app.enqueue_many([draft]))
            line.proxy.release()
        users.rollback()
    assert line.outcomes() == {MARKER: 1}


def refused(work: Callable[[], object]) -> None:
    with pytest.raises(psycopg.errors.SerializationFailure):
        work()
