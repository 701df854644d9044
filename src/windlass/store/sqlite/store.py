"""Owns the SQLite store: the contract's methods, each a piece of work for a writer or reader."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar
from uuid import UUID

import msgspec
from msgspec.structs import replace

from windlass.core.changes import Applied, Decide, Move, Verb, moved
from windlass.core.errors import Fenced, StoreUnavailable
from windlass.core.job import (
    Claim,
    Enqueued,
    Finding,
    Head,
    Job,
    JobFilter,
    Json,
    Lane,
    NewJob,
    Page,
    Progress,
    Pulse,
    QueueCount,
    Retention,
    Sweep,
    WorkerInfo,
    WorkerRecord,
)
from windlass.core.settle import Transition
from windlass.core.states import State
from windlass.store.protocol import WORKERS_KEPT, Capabilities, Schema
from windlass.store.sql import load_statements, repeat_values
from windlass.store.sqlite.file import SCHEMA, Turn, prepare, schema_at
from windlass.store.sqlite.repair import bury_unreadable, readable
from windlass.store.sqlite.rows import (
    Row,
    as_json,
    instant,
    is_plain,
    job_of,
    micros,
    move_values,
    new_row,
    plain_row,
    settle_values,
    worker_of,
    worker_values,
)
from windlass.store.sqlite.threads import Closed, Reader, Watch, Work, Writer, wait_for

T = TypeVar("T")
_sql = load_statements("windlass.store.sqlite")
_ROWS_AT_ONCE = 100
_INSERT_MANY = repeat_values(_sql["insert_jobs"], _ROWS_AT_ONCE)
_INSERT_MANY_PLAIN = repeat_values(_sql["insert_plain_jobs"], _ROWS_AT_ONCE)
_WAL_LARGE = 256 * 1024 * 1024
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


class SqliteStore:
    """Keeps jobs in one file on one machine, for any number of its processes."""

    capabilities = Capabilities(shared=True, durable=True, bounded=False)

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

    # -- the hot path --------------------------------------------------------------------------

    async def enqueue(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        return await self._write(lambda db: self._insert(db, jobs))

    def enqueue_blocking(self, jobs: Sequence[NewJob], timeout: timedelta) -> list[Enqueued]:
        patience = timeout.total_seconds()
        while True:
            writer = (self._threads or self._ready_within(patience)).writer
            try:
                return writer.write(lambda db: self._insert(db, jobs), patience, "enqueue")
            except Closed:
                continue

    async def sweep(self) -> Sweep:
        sweep = await self._run(
            lambda threads: threads.sweeper.submit(lambda db: self._sweep(db, threads.watch.look()))
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
        return await self._write(lambda db: self._claim(db, claim, worker, token), durable=False)

    async def settle(self, transitions: Sequence[Transition]) -> list[bool]:
        return await self._write(lambda db: _settle_all(db, transitions, self._clock()))

    async def progress(self, job: UUID, token: int, progress: Progress) -> bool:
        values = (as_json(progress), str(job), token)
        return await self._write(
            lambda db: db.execute(_sql["record_progress"], values).rowcount > 0, durable=False
        )

    async def promote(self, limit: int) -> int:
        def work(db: sqlite3.Connection) -> int:
            return db.execute(_sql["promote_jobs"], (micros(self._clock()), limit)).rowcount

        return await self._write(work, durable=False)

    async def rescue(self, *, worker: str, token: int, limit: int) -> list[Job]:
        due = await self._look(lambda db: _yes(db, "rescue_is_due", {"now": micros(self._clock())}))
        if not due:
            return []
        return await self._write(lambda db: self._rescue(db, worker, token, limit), durable=False)

    async def prune(self, retention: Retention, limit: int) -> int:
        if not await self._look(
            lambda db: _yes(db, "prune_is_due", _horizons(retention, self._clock()))
        ):
            return 0
        return await self._write(
            lambda db: _prune(db, _horizons(retention, self._clock()), limit), durable=False
        )

    # -- leases --------------------------------------------------------------------------------

    async def register(self, worker: WorkerInfo) -> None:
        def work(db: sqlite3.Connection) -> None:
            db.execute(_sql["register_worker"], worker_values(worker, self._clock()))

        await self._write(work, durable=False)

    def heartbeat(self, worker: str, pulse: Pulse, timeout: timedelta) -> bool:
        def work(db: sqlite3.Connection) -> bool:
            values = {"id": worker, "pulse": as_json(pulse), "now": micros(self._clock())}
            return db.execute(_sql["renew_lease"], values).rowcount > 0

        patience = timeout.total_seconds()
        while True:
            writer = (self._threads or self._ready_within(patience)).writer
            try:
                return wait_for(writer.submit(work, durable=False), patience, "the heartbeat")
            except Closed:
                continue

    async def retire(self, worker: str) -> None:
        await self._write(lambda db: db.execute(_sql["end_lease"], (worker,)), durable=False)

    async def held(self, worker: str) -> list[Job]:
        def work(db: sqlite3.Connection) -> list[Job]:
            return [job_of(row) for row in db.execute(_sql["held_jobs"], (worker,))]

        return await self._look(work)

    async def cancel_requests(self, worker: str) -> list[UUID]:
        def work(db: sqlite3.Connection) -> list[UUID]:
            return [UUID(row[0]) for row in db.execute(_sql["cancel_requests"], (worker,))]

        return await self._look(work)

    # -- records and whole changes -------------------------------------------------------------

    async def records(self, prefix: str) -> Mapping[str, Json]:
        def work(db: sqlite3.Connection) -> dict[str, Json]:
            rows = db.execute(_sql["read_records"], (prefix, prefix + "\U0010ffff"))
            return {name: msgspec.json.decode(value) for name, value in rows}

        return await self._look(work)

    async def apply(self, names: Sequence[str], decide: Decide[T]) -> Applied[T]:
        return await self._write(lambda db: self._apply(db, names, decide))

    # -- looking -------------------------------------------------------------------------------

    async def get(self, job: UUID) -> Job | None:
        return await self._look(lambda db: _get(db, job))

    async def find(self, which: JobFilter, *, limit: int, after: UUID | None = None) -> Page:
        limit = max(limit, 1)
        values = {
            "after": None if after is None else str(after),
            "states": as_json(which.states) if which.states else None,
            "kind": which.kind,
            "queue": which.queue,
            "worker": which.worker,
            "limit": limit + 1,
        }

        def work(db: sqlite3.Connection) -> Page:
            rows = db.execute(_sql["find_jobs"], values)
            jobs = [job for row in rows for job in readable([row]) or ()]
            more = len(jobs) > limit
            return Page(jobs=tuple(jobs[:limit]), after=jobs[limit - 1].id if more else None)

        return await self._look(work)

    async def counts(self) -> list[QueueCount]:
        def work(db: sqlite3.Connection) -> list[QueueCount]:
            return [
                QueueCount(
                    queue=queue,
                    state=State(state),
                    count=count,
                    oldest=None if oldest is None else instant(oldest),
                )
                for queue, state, count, oldest in db.execute(_sql["count_jobs"])
            ]

        return await self._look(work)

    async def workers(self) -> list[WorkerRecord]:
        def work(db: sqlite3.Connection) -> list[WorkerRecord]:
            return [
                worker_of(row)
                for row in db.execute(_sql["list_workers"], {"now": micros(self._clock())})
            ]

        return await self._look(work)

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

    def _insert(self, db: sqlite3.Connection, jobs: Sequence[NewJob]) -> list[Enqueued]:
        now = self._clock()
        for job in jobs:
            if job.unique is not None:
                return [_insert_one(db, each, now) for each in jobs]
        _insert_all(db, jobs, now)
        return [Enqueued(id=job.id) for job in jobs]

    def _sweep(self, db: sqlite3.Connection, mark: int) -> Sweep | None:
        """Walk the lanes; None says that the name of one cannot be read."""
        try:
            heads = [
                Head(lane=Lane(queue, kind, priority, key), position=instant(due_at))
                for queue, kind, priority, key, due_at in db.execute(_sql["sweep_heads"])
            ]
        except sqlite3.OperationalError as error:
            if "decode" in str(error):
                return None
            raise
        due = db.execute(_sql["next_due"]).fetchone()
        next_due = None if due is None else instant(due[0])
        return Sweep(heads=tuple(heads), next_due=next_due, now=self._clock(), mark=mark)

    def _claim(self, db: sqlite3.Connection, claim: Claim, worker: str, token: int) -> list[Job]:
        now = micros(self._clock())
        if db.execute(_sql["worker_is_live"], {"id": worker, "now": now}).fetchone() is None:
            return []
        values: dict[str, Any] = {"worker": worker, "token": token, "now": now}
        budgets = dict(claim.budgets)
        taken: list[Job] = []
        for ask in claim.asks:
            room = min((ask.count, *(budgets[name] for name in ask.draws)))
            if room <= 0:
                continue
            got = _claim_lane(db, {**values, **ask.lane._asdict(), "count": room})
            for name in ask.draws:
                budgets[name] -= len(got)
            taken += got
        for job in taken:
            if job.unique_key is not None:
                db.execute(_sql["free_unique_key_on_claim"], (job.unique_key, str(job.id)))
        return taken

    def _rescue(self, db: sqlite3.Connection, worker: str, token: int, limit: int) -> list[Job]:
        now = micros(self._clock())
        if not _yes(db, "worker_may_rescue", {"id": worker, "now": now}):
            return []
        db.execute(_sql["end_expired_leases"], {"now": now})
        jobs = readable(db.execute(_sql["orphaned_jobs"], (limit,)))
        if jobs is None:
            bury_unreadable(db, now, "running")
            jobs = [job_of(row) for row in db.execute(_sql["orphaned_jobs"], (limit,))]
        db.executemany(_sql["take_over_job"], [(worker, token, str(job.id)) for job in jobs])
        return [replace(job, token=token) for job in jobs]

    def _apply(self, db: sqlite3.Connection, names: Sequence[str], decide: Decide[T]) -> Applied[T]:
        now = self._clock()
        known = {}
        for name in names:
            if (row := db.execute(_sql["read_record"], (name,)).fetchone()) is not None:
                known[name] = msgspec.json.decode(row[0])
        changes = decide(known, now)
        settled = _settle_all(db, changes.settle, now)
        if not all(settled):
            raise Fenced(changes.settle[settled.index(False)].id)
        for name, record in changes.records.items():
            if record is None:
                db.execute(_sql["delete_record"], (name,))
            else:
                db.execute(_sql["write_record"], (name, as_json(record)))
        self._insert(db, changes.enqueue)
        done = tuple(_move(db, move, now) for move in changes.moves)
        return Applied(answer=changes.answer, moved=done)

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


def _yes(db: sqlite3.Connection, name: str, values: Mapping[str, Any]) -> bool:
    row = db.execute(_sql[name], values).fetchone()
    return row is not None and bool(row[0])


def _claim_lane(db: sqlite3.Connection, values: Mapping[str, Any]) -> list[Job]:
    """Start the oldest jobs of a lane; what cannot be read is buried, and stops nobody."""
    db.execute("SAVEPOINT lane")
    jobs = readable(_in_order(db.execute(_sql["claim_lane"], values)))
    if jobs is None:
        db.execute("ROLLBACK TO lane")
        bury_unreadable(db, values["now"], "pending")
        jobs = [job_of(row) for row in _in_order(db.execute(_sql["claim_lane"], values))]
    db.execute("RELEASE lane")
    return jobs


def _in_order(rows: Iterable[Row]) -> Iterator[Row]:
    """Sort rows of RETURNING, which promises no order, as the lane is: due time, then arrival."""
    yield from sorted(rows, key=lambda row: (row[8], row[0]))


def _insert_one(db: sqlite3.Connection, new: NewJob, now: datetime) -> Enqueued:
    if new.unique is not None and not db.execute(_sql["job_exists"], (str(new.id),)).fetchone():
        key, until = new.unique.key, new.unique.until
        holder = db.execute(_sql["unique_holder"], (key, micros(now))).fetchone()
        if holder is not None:
            return Enqueued(id=UUID(holder[0]), existing=True)
        ends = micros(now + until) if isinstance(until, timedelta) else None
        db.execute(_sql["hold_unique_key"], (key, str(new.id), until == "claimed", ends))
    _insert_all(db, [new], now)
    return Enqueued(id=new.id)


def _insert_all(db: sqlite3.Connection, jobs: Sequence[NewJob], now: datetime) -> None:
    created_at = micros(now)
    whole = len(jobs) - len(jobs) % _ROWS_AT_ONCE
    for start in range(0, whole, _ROWS_AT_ONCE):
        group = jobs[start : start + _ROWS_AT_ONCE]
        plain = all(map(is_plain, group))
        row = plain_row if plain else new_row
        values: list[Any] = []
        for job in group:
            values += row(job, now, created_at)
        db.execute(_INSERT_MANY_PLAIN if plain else _INSERT_MANY, values)
    for job in jobs[whole:]:
        if is_plain(job):
            db.execute(_sql["insert_plain_jobs"], plain_row(job, now, created_at))
        else:
            db.execute(_sql["insert_jobs"], new_row(job, now, created_at))


def _settle_all(
    db: sqlite3.Connection, transitions: Sequence[Transition], now: datetime
) -> list[bool]:
    successes = [move for move in transitions if _is_plain_success(move)]
    # In a group that settles a job twice, the first settle counts; so its order matters.
    in_any_order = len({move.id for move in transitions}) == len(transitions)
    done = in_any_order and len(successes) > 1 and _complete_all(db, successes, now)
    settled = [(done and _is_plain_success(move)) or _settle(db, move, now) for move in transitions]
    _free_keys(db, [move.id for move in transitions])
    return settled


def _is_plain_success(move: Transition) -> bool:
    return (
        move.state is State.COMPLETED
        and move.attempt is None
        and not move.failures
        and not move.crashes
    )


def _complete_all(db: sqlite3.Connection, successes: Sequence[Transition], now: datetime) -> bool:
    """Record successes by one statement, or none if any is fenced: then each goes by itself.

    One statement is one release of the interpreter's lock, which a busy event loop may take some
    milliseconds to give back.
    """
    rows = [
        (move.id, move.token, None if move.result is None else move.result.decode(), move.reason)
        for move in successes
    ]
    db.execute("SAVEPOINT successes")
    values = {"now": micros(now), "successes": as_json(rows)}
    complete = db.execute(_sql["complete_jobs"], values).rowcount == len(successes)
    if not complete:
        db.execute("ROLLBACK TO successes")
    db.execute("RELEASE successes")
    return complete


def _settle(db: sqlite3.Connection, move: Transition, now: datetime) -> bool:
    return db.execute(_sql["settle_job"], settle_values(move, now)).rowcount > 0


def _free_keys(db: sqlite3.Connection, jobs: Sequence[UUID]) -> None:
    """Free the unique keys of those jobs that are finished; most have none."""
    if db.execute(_sql["any_unique_key"]).fetchone() is not None:
        db.execute(_sql["free_unique_keys"], (as_json(jobs),))


def _get(db: sqlite3.Connection, job: UUID) -> Job | None:
    row = db.execute(_sql["get_job"], (str(job),)).fetchone()
    return None if row is None else job_of(row)


def _move(db: sqlite3.Connection, move: Move, now: datetime) -> Job | None:
    job = _get(db, move.id)
    after = None if job is None else moved(job, move, now)
    if after is None:
        return None
    if move.verb is Verb.PURGE:
        db.execute(_sql["delete_job"], (str(move.id),))
        return after
    db.execute(_sql["write_move"], move_values(after))
    _free_keys(db, [move.id])
    return after


def _horizons(retention: Retention, now: datetime) -> dict[str, int | None]:
    """Return the times before which things are past keeping; None is before everything."""
    return {
        "finished": None if retention.finished is None else micros(now - retention.finished),
        "dead": None if retention.dead is None else micros(now - retention.dead),
        "workers": micros(now - WORKERS_KEPT),
        "now": micros(now),
    }


def _prune(db: sqlite3.Connection, horizons: Mapping[str, int | None], limit: int) -> int:
    pruned = 0
    for state, horizon in (
        (State.COMPLETED, "finished"),
        (State.CANCELLED, "finished"),
        (State.DEAD, "dead"),
    ):
        values = (state.value, horizons[horizon], limit - pruned)
        pruned += db.execute(_sql["prune_jobs"], values).rowcount
    pruned += db.execute(_sql["prune_unique_keys"], (horizons["now"],)).rowcount
    return pruned + db.execute(_sql["prune_workers"], (horizons["workers"],)).rowcount
