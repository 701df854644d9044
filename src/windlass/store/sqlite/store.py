"""Owns the SQLite store: the contract's methods, each a piece of work for a writer or reader."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import threading
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TypeVar
from uuid import UUID

import msgspec

from windlass.core.changes import Applied, Decide, Hear
from windlass.core.errors import StoreUnavailable
from windlass.core.job import (
    AGING,
    Checkpoint,
    Claim,
    Depths,
    Enqueued,
    ErrorGroup,
    Finding,
    Job,
    JobFilter,
    Json,
    NewJob,
    News,
    Page,
    Progress,
    Pulse,
    QueueCount,
    Retention,
    Ringing,
    Standing,
    Sweep,
    WorkerInfo,
    WorkerRecord,
    first_id,
)
from windlass.core.settle import Transition
from windlass.core.states import State
from windlass.store.columns import as_json
from windlass.store.depths import QUEUES, depths_of
from windlass.store.protocol import Capabilities, Plain, Schema
from windlass.store.sql import Migration
from windlass.store.sqlite import news as news_work
from windlass.store.sqlite import work
from windlass.store.sqlite.file import MIGRATIONS, SCHEMA, Turn, prepare, schema_at, usage
from windlass.store.sqlite.repair import bury_unreadable, readable
from windlass.store.sqlite.rows import (
    group_of,
    instant,
    job_of,
    micros,
    worker_of,
    worker_values,
)
from windlass.store.sqlite.threads import Closed, Reader, Watch, Work, Writer, wait_for

T = TypeVar("T")
_WAL_LARGE = 256 * 1024 * 1024
_SLACK_LARGE = 64 * 1024 * 1024
_FORK_PATIENCE = 5.0
_WATCH_SHORTEST = 0.001
_WATCH_LONGEST = 0.02
_WATCH_SHARE = 20
"""How often the file is watched: after a twentieth of the time that nothing has happened."""


@dataclass
class _Threads:
    """What belongs to one process and is of no use in another: threads and connections."""

    turn: Turn
    writer: Writer
    sweeper: Reader
    looker: Reader
    watch: Watch

    @property
    def connections(self) -> tuple[Writer | Reader | Watch, ...]:
        """Everything that may have a connection open."""
        return (self.writer, self.sweeper, self.looker, self.watch)


class SqliteStore(Plain):
    """Keeps jobs in one file on one machine, for any number of its processes."""

    capabilities = Capabilities(shared=True, durable=True, bounded=False, transactional=False)

    def __init__(
        self, path: Path, *, clock: Callable[[], datetime] = lambda: datetime.now(UTC)
    ) -> None:
        self._path = path.absolute()
        self._clock = clock
        self._lock = threading.Lock()
        self._threads: _Threads | None = None
        self._opening: Future[_Threads] | None = None
        self._resting: list[Writer | Reader | Watch] = []
        self._inherited: _Threads | None = None
        _stores.add(self)

    @property
    def location(self) -> str:
        """The absolute path of the file."""
        return str(self._path)

    async def open(self) -> None:
        await self._opened()

    async def close(self) -> None:
        await asyncio.wrap_future(_in_thread(self._close))

    async def schema(self) -> Schema:
        found = await asyncio.wrap_future(_in_thread(lambda: schema_at(self._path)))
        return Schema(found=found, wanted=SCHEMA)

    async def migrate(self) -> list[str]:
        return await asyncio.wrap_future(_in_thread(self._migrate))

    async def migrations(self) -> list[Migration]:
        found = (await self.schema()).found or 0
        return [step for step in MIGRATIONS if step.number > found]

    # -- the hot path --------------------------------------------------------------------------

    async def enqueue(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        return await self._write(lambda db: work.insert(db, jobs, self._clock()))

    def enqueue_blocking(self, jobs: Sequence[NewJob], timeout: timedelta) -> list[Enqueued]:
        return self._write_blocking(
            lambda db: work.insert(db, jobs, self._clock()), timeout, "enqueue"
        )

    async def sweep(self, *, fresh: bool = True) -> Sweep:
        del fresh  # To look costs less than to remember.
        sweep = await self._run(
            lambda threads: threads.sweeper.submit(
                lambda db: work.sweep(db, threads.watch.look(), self._clock())
            )
        )
        if sweep is not None:
            return sweep
        await self._write(lambda db: bury_unreadable(db, micros(self._clock()), "pending"))
        return await self.sweep()

    async def wait(self, mark: int, timeout: timedelta) -> None:
        watch = (await self._opened()).watch
        began = time.monotonic()
        until = began + timeout.total_seconds()
        # It sees every commit; who wakes up only sweeps, so heartbeats make nobody write.
        while self._threads is not None and watch.glance() == mark:
            if (now := time.monotonic()) >= until:
                return
            pause = min(max((now - began) / _WATCH_SHARE, _WATCH_SHORTEST), _WATCH_LONGEST)
            await asyncio.sleep(min(pause, until - now))

    async def claim(self, claim: Claim, *, worker: str, token: int) -> list[Job]:
        return await self._write(
            lambda db: work.claim(db, claim, worker, token, micros(self._clock())), durable=False
        )

    async def settle(self, transitions: Sequence[Transition]) -> list[bool]:
        return await self._write(lambda db: work.settle_all(db, transitions, self._clock()))

    async def progress(self, job: UUID, token: int, progress: Progress) -> bool:
        values = (as_json(progress), str(job), token)
        return await self._write(
            lambda db: db.execute(work.sql["record_progress"], values).rowcount > 0, durable=False
        )

    async def promote(self, limit: int) -> int:
        def piece(db: sqlite3.Connection) -> int:
            return db.execute(work.sql["promote_jobs"], (micros(self._clock()), limit)).rowcount

        return await self._write(piece, durable=False)

    async def checkpoint(self, checkpoints: Sequence[Checkpoint]) -> list[bool]:
        return await self._write(lambda db: work.checkpoint(db, checkpoints))

    async def rescue(self, *, worker: str, token: int, limit: int) -> list[Job]:
        due = await self._look(
            lambda db: work.yes(db, "rescue_is_due", {"now": micros(self._clock())})
        )
        if not due:
            return []
        return await self._write(
            lambda db: work.rescue(db, worker, token, limit, micros(self._clock())), durable=False
        )

    async def prune(self, retention: Retention, limit: int) -> int:
        if not await self._look(
            lambda db: work.yes(db, "prune_is_due", work.horizons(retention, self._clock()))
        ):
            return 0
        return await self._write(
            lambda db: work.prune(db, work.horizons(retention, self._clock()), limit), durable=False
        )

    # -- leases --------------------------------------------------------------------------------

    async def register(self, worker: WorkerInfo) -> None:
        def piece(db: sqlite3.Connection) -> None:
            db.execute(work.sql["register_worker"], worker_values(worker, self._clock()))

        await self._write(piece, durable=False)

    def heartbeat(self, worker: str, pulse: Pulse, timeout: timedelta) -> bool:
        def piece(db: sqlite3.Connection) -> bool:
            values = {"id": worker, "pulse": as_json(pulse), "now": micros(self._clock())}
            return db.execute(work.sql["renew_lease"], values).rowcount > 0

        patience = timeout.total_seconds()
        while True:
            writer = (self._threads or self._ready_within(patience)).writer
            try:
                return wait_for(writer.submit(piece, durable=False), patience, "the heartbeat")
            except Closed:
                continue

    async def retire(self, worker: str) -> None:
        await self._write(lambda db: db.execute(work.sql["end_lease"], (worker,)), durable=False)

    async def held(self, worker: str) -> list[Job]:
        def piece(db: sqlite3.Connection) -> list[Job]:
            return [job_of(row) for row in db.execute(work.sql["held_jobs"], (worker,))]

        return await self._look(piece)

    async def cancel_requests(self, worker: str) -> list[UUID]:
        def piece(db: sqlite3.Connection) -> list[UUID]:
            return [UUID(row[0]) for row in db.execute(work.sql["cancel_requests"], (worker,))]

        return await self._look(piece)

    # -- records and whole changes -------------------------------------------------------------

    async def records(self, prefix: str) -> Mapping[str, Json]:
        def piece(db: sqlite3.Connection) -> dict[str, Json]:
            rows = db.execute(work.sql["read_records"], (prefix, prefix + "\U0010ffff"))
            return {name: msgspec.json.decode(value) for name, value in rows}

        return await self._look(piece)

    async def apply(self, names: Sequence[str], decide: Decide[T]) -> Applied[T]:
        return await self._write(lambda db: work.apply(db, names, decide, self._clock()))

    async def ringing(self, limit: int) -> Ringing:
        return await self._look(lambda db: news_work.ringing(db, limit, self._clock()))

    async def topics(self, limit: int) -> list[str]:
        return await self._look(lambda db: news_work.topics(db, limit))

    async def hear(self, topics: Sequence[str], decide: Hear[T]) -> Applied[T]:
        return await self._write(lambda db: news_work.hear(db, topics, decide, self._clock()))

    async def send(self, news: Sequence[News]) -> None:
        await self._write(lambda db: news_work.send(db, news, self._clock()))

    def send_blocking(self, news: Sequence[News], timeout: timedelta) -> None:
        self._write_blocking(
            lambda db: news_work.send(db, news, self._clock()), timeout, "send_event"
        )

    # -- looking -------------------------------------------------------------------------------

    async def get(self, job: UUID) -> Job | None:
        return await self._look(lambda db: work.get_job(db, job))

    async def get_many(self, jobs: Sequence[UUID]) -> dict[UUID, Job]:
        return await self._look(lambda db: work.get_jobs(db, jobs))

    async def done(self, kind: str, key: str) -> Job | None:
        return await self._look(lambda db: work.done_job(db, kind, key))

    async def find(self, which: JobFilter, *, limit: int, after: UUID | None = None) -> Page:
        limit = max(limit, 1)
        values = {
            "after": None if after is None else str(after),
            "states": as_json(which.states) if which.states else None,
            "kind": which.kind,
            "queue": which.queue,
            "worker": which.worker,
            "fingerprint": which.fingerprint,
            "limit": limit + 1,
        }

        def piece(db: sqlite3.Connection) -> Page:
            rows = db.execute(work.sql["find_jobs"], values)
            jobs = [job for row in rows for job in readable([row]) or ()]
            more = len(jobs) > limit
            return Page(jobs=tuple(jobs[:limit]), after=jobs[limit - 1].id if more else None)

        return await self._look(piece)

    async def error_groups(self, *, kind: str | None = None, limit: int) -> list[ErrorGroup]:
        values = {"kind": kind, "limit": max(limit, 1)}
        return await self._look(
            lambda db: [group_of(row) for row in db.execute(work.sql["error_groups"], values)]
        )

    async def counts(self) -> list[QueueCount]:
        def piece(db: sqlite3.Connection) -> list[QueueCount]:
            return [
                QueueCount(
                    queue=queue,
                    state=State(state),
                    count=count,
                    oldest=None if oldest is None else instant(oldest),
                )
                for queue, state, count, oldest in db.execute(work.sql["count_jobs"])
            ]

        return await self._look(piece)

    async def standing(self, job: UUID, *, limit: int) -> Standing:
        none = Standing()
        values = {
            "id": str(job),
            "limit": limit,
            "since": micros(self._clock() - none.span),
            "step": AGING // timedelta(microseconds=1),
        }

        def piece(db: sqlite3.Connection) -> Standing:
            row = db.execute(work.sql["standing"], values).fetchone()
            return none if row is None else Standing(ahead=row[0], ended=row[1])

        return await self._look(piece)

    async def depths(self, most: int) -> Depths:
        values = {"most": most, "queues": QUEUES}

        def piece(db: sqlite3.Connection) -> Depths:
            rows = db.execute(work.sql["depths"], values).fetchall()
            return depths_of(((queue, State(state), count) for queue, state, count in rows), most)

        return await self._look(piece)

    async def arrivals(
        self, since: datetime, until: datetime, most: int
    ) -> Mapping[str, int] | None:
        values = {"since": str(first_id(since)), "until": str(first_id(until)), "most": most}

        def piece(db: sqlite3.Connection) -> Mapping[str, int] | None:
            counted = dict(db.execute(work.sql["arrivals"], values).fetchall())
            return counted if sum(counted.values()) <= most else None

        return await self._look(piece)

    async def workers(self) -> list[WorkerRecord]:
        def piece(db: sqlite3.Connection) -> list[WorkerRecord]:
            return [
                worker_of(row)
                for row in db.execute(work.sql["list_workers"], {"now": micros(self._clock())})
            ]

        return await self._look(piece)

    async def findings(self) -> list[Finding]:
        return await asyncio.wrap_future(_in_thread(self._inspect))

    # -- threads and connections ---------------------------------------------------------------

    def _ready(self) -> _Threads:
        """Return the threads of this process, started on first use."""
        if (threads := self._threads) is not None:
            return threads
        if self._inherited is not None:
            raise StoreUnavailable(
                f"this process was forked while {self._path} was being written, and SQLite cannot "
                "be used on both sides of a fork: close the app before, or start a new process"
            )
        turn = Turn(self._path)
        with turn:
            prepare(self._path)
        threads = _Threads(
            turn=turn,
            writer=Writer(self._path, turn, "windlass-write"),
            sweeper=Reader(self._path, turn, "windlass-sweep"),
            looker=Reader(self._path, turn, "windlass-look"),
            watch=Watch(self._path, turn),
        )
        self._threads = threads
        return threads

    def _soon_ready(self) -> Future[_Threads]:
        """Begin to open the file, once for all who wait: it may have to wait for a turn."""
        with self._lock:
            if self._opening is None or self._opening.done():
                self._opening = _in_thread(self._ready)
            return self._opening

    def _ready_within(self, patience: float) -> _Threads:
        """Return the threads of this process, but wait no longer than that."""
        return wait_for(self._soon_ready(), patience, "opening the file")

    def _migrate(self) -> list[str]:
        turn = Turn(self._path)
        try:
            with turn:
                return [f"{step.number:04}_{step.name}" for step in prepare(self._path)]
        finally:
            turn.close()

    def _close(self) -> None:
        with self._lock:
            threads, self._threads = self._threads, None
        if threads is not None:
            for thread in (threads.sweeper, threads.looker, threads.writer):
                thread.close()
            threads.watch.close()
            threads.turn.close()

    def before_fork(self) -> None:
        """Let go of every connection.

        SQLite keeps an account of its locks for each process, and a fork copies the account but not
        the locks: a connection on the other side would believe in locks that nobody holds, and
        write into a log that others have deleted.
        """
        self._resting = []
        threads = self._threads
        for each in () if threads is None else threads.connections:
            if each.rest(_FORK_PATIENCE):
                self._resting.append(each)

    def after_fork_in_parent(self) -> None:
        """Go on."""
        for each in self._resting:
            each.resume()
        self._resting = []

    def after_fork_in_child(self) -> None:
        """Begin anew; with a connection that could not be closed in time, not at all."""
        threads, self._threads = self._threads, None
        self._lock = threading.Lock()
        self._opening = None
        if threads is not None:
            if len(self._resting) < len(threads.connections):
                self._inherited = threads
            # Not held by a child that outlives its parent, if it was taken at that moment.
            threads.turn.close()

    async def _opened(self) -> _Threads:
        if (threads := self._threads) is not None:
            return threads
        return await asyncio.wrap_future(self._soon_ready())

    async def _write(self, work: Work[T], *, durable: bool = True) -> T:
        return await self._run(lambda threads: threads.writer.submit(work, durable=durable))

    def _write_blocking(self, work: Work[T], timeout: timedelta, what: str) -> T:
        patience = timeout.total_seconds()
        while True:
            writer = (self._threads or self._ready_within(patience)).writer
            try:
                return writer.write(work, patience, what)
            except Closed:
                continue

    async def _look(self, work: Work[T]) -> T:
        return await self._run(lambda threads: threads.looker.submit(work))

    async def _run(self, submit: Callable[[_Threads], Future[T]]) -> T:
        """Submit work, and wait for it; if the store is closed meanwhile, it opens again."""
        while True:
            threads = await self._opened()
            try:
                answer = submit(threads)
            except Closed:
                continue
            return await asyncio.wrap_future(answer)

    # -- work for the threads ------------------------------------------------------------------

    def _inspect(self) -> list[Finding]:
        self._ready()
        found = []
        if self._path.stat().st_mode & 0o077:
            found.append(
                Finding(
                    problem=f"{self._path} can be read by other users of this machine",
                    remedy=f"chmod 600 {self._path}",
                )
            )
        wal = self._path.with_name(self._path.name + "-wal")
        size = wal.stat().st_size if wal.exists() else 0
        if size > _WAL_LARGE:
            found.append(
                Finding(
                    problem=f"the write-ahead log {wal} has grown to {size / 1e6:,.0f} MB",
                    remedy="find the program that holds a read transaction open, and end it",
                )
            )
        used, size = usage(self._path)
        if size - used > max(_SLACK_LARGE, used):
            found.append(
                Finding(
                    problem=f"of the {size / 1e6:,.0f} MB of {self._path}, jobs use "
                    f"{used / 1e6:,.0f}: so much was once in it",
                    remedy=f"while no worker runs: sqlite3 {self._path} VACUUM",
                )
            )
        return found


def _in_thread(work: Callable[[], T]) -> Future[T]:
    """Run what may wait for a turn in a daemon thread of its own.

    Not in the event loop's executor: that would be used up, and would keep the program from ending.
    """
    answer: Future[T] = Future()
    answer.set_running_or_notify_cancel()

    def run() -> None:
        try:
            answer.set_result(work())
        except BaseException as error:  # noqa: BLE001 - whoever waits must hear of it.
            answer.set_exception(error)

    threading.Thread(target=run, name="windlass-file", daemon=True).start()
    return answer


_stores: weakref.WeakSet[SqliteStore] = weakref.WeakSet()


def _each_store(action: Callable[[SqliteStore], None]) -> Callable[[], None]:
    def run() -> None:
        for store in list(_stores):
            action(store)

    return run


os.register_at_fork(
    before=_each_store(SqliteStore.before_fork),
    after_in_parent=_each_store(SqliteStore.after_fork_in_parent),
    after_in_child=_each_store(SqliteStore.after_fork_in_child),
)
