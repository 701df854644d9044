"""Owns the enqueue of new jobs: by one statement on any connection, in bulk by COPY."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from uuid import UUID

from psycopg import errors
from psycopg.rows import tuple_row

from windlass.core.jobs.ids import are_fresh
from windlass.core.jobs.job import Enqueued, NewJob
from windlass.store.postgres.connections.connection import BlockingConnection, LoopConnection, Row
from windlass.store.postgres.connections.user_connections import arun_on, run_on
from windlass.store.postgres.parameters import (
    COPY_HEADER,
    COPY_TRAILER,
    add_values,
    array_of,
    can_be_copied,
    copy_parked_rows,
    copy_rows,
    enqueue_document,
)

_MAX_WITHOUT_COPY = 20
_ROWS_PER_PIECE = 500
_MAX_WAKES = 100


class Enqueuer:
    """Adds jobs on a connection that the caller has opened, and commits."""

    def __init__(self, statements: Mapping[str, str]) -> None:
        self._sql = statements
        self._add = statements["add"].encode()
        self._may_copy = True

    def enqueue_blocking(
        self, connection: BlockingConnection, jobs: Sequence[NewJob]
    ) -> list[Enqueued]:
        """Add jobs on a blocking connection of the store."""
        fresh = _are_fresh(jobs)
        if self._fits_copy(jobs):
            try:
                return self._copy_blocking(connection, jobs, fresh=fresh)
            except errors.InsufficientPrivilege:
                self._may_copy = False
            except (errors.UniqueViolation, _RepeatedMeanwhile):
                # Another request adds, or has added, the same jobs; the function finds out which.
                pass
        if fresh and len(jobs) == 1 and _is_plain(jobs[0]):
            connection.run(self._add, add_values(jobs[0]))
            return [Enqueued(id=jobs[0].id)]
        document = enqueue_document(jobs, fresh=fresh)
        cursor = connection.cursor(row_factory=tuple_row)
        return _answers(cursor.execute(self._sql["enqueue"], (document,)).fetchall())

    async def enqueue(self, connection: LoopConnection, jobs: Sequence[NewJob]) -> list[Enqueued]:
        """Add jobs on an asynchronous connection of the store."""
        fresh = _are_fresh(jobs)
        if self._fits_copy(jobs):
            try:
                return await self._copy(connection, jobs, fresh=fresh)
            except errors.InsufficientPrivilege:
                self._may_copy = False
            except (errors.UniqueViolation, _RepeatedMeanwhile):
                pass
        if fresh and len(jobs) == 1 and _is_plain(jobs[0]):
            await connection.run(self._add, add_values(jobs[0]))
            return [Enqueued(id=jobs[0].id)]
        document = enqueue_document(jobs, fresh=fresh)
        cursor = connection.cursor(row_factory=tuple_row)
        await cursor.execute(self._sql["enqueue"], (document,))
        return _answers(await cursor.fetchall())

    def enqueue_in(self, transaction: object, jobs: Sequence[NewJob]) -> list[Enqueued]:
        """Add jobs on a user's own blocking connection, in its current transaction.

        Raises: ConfigError: the type of the connection is not supported, or is asynchronous.
        """
        document = enqueue_document(jobs, fresh=_are_fresh(jobs))
        rows = run_on(transaction, self._sql["enqueue"], document)
        return _answers(_with_uuids(rows))

    async def aenqueue_in(self, transaction: object, jobs: Sequence[NewJob]) -> list[Enqueued]:
        """Add jobs on a user's own asynchronous connection.

        Raises: ConfigError: the type of the connection is not supported, or is blocking.
        """
        document = enqueue_document(jobs, fresh=_are_fresh(jobs))
        rows = await arun_on(transaction, self._sql["enqueue"], document)
        return _answers(_with_uuids(rows))

    def _fits_copy(self, jobs: Sequence[NewJob]) -> bool:
        return len(jobs) > _MAX_WITHOUT_COPY and self._may_copy and all(map(can_be_copied, jobs))

    def _copy_blocking(
        self, connection: BlockingConnection, jobs: Sequence[NewJob], *, fresh: bool
    ) -> list[Enqueued]:
        with connection.transaction():
            new = jobs
            if not fresh:
                alive = connection.execute(self._sql["remember_ids"], (_ids(jobs),)).fetchall()
                new = _unknown(jobs, alive)
            cursor = connection.cursor()
            for statement, rows in _copies(self._sql, new):
                with cursor.copy(statement) as copy:
                    for piece in rows:
                        copy.write(piece)
            if fresh:
                cursor.execute(self._sql["wake_and_look"], (*_range(new), *_lanes(new)))
                _refuse_late(new, cursor.fetchone())
            else:
                cursor.execute(self._sql["drop_ended"], (_ids(new),))
                cursor.execute(self._sql["wake"], _lanes(new))
        return [Enqueued(id=job.id) for job in jobs]

    async def _copy(
        self, connection: LoopConnection, jobs: Sequence[NewJob], *, fresh: bool
    ) -> list[Enqueued]:
        async with connection.transaction():
            new = jobs
            if not fresh:
                cursor = await connection.execute(self._sql["remember_ids"], (_ids(jobs),))
                new = _unknown(jobs, await cursor.fetchall())
            cursor = connection.cursor()
            for statement, rows in _copies(self._sql, new):
                async with cursor.copy(statement) as copy:
                    for piece in rows:
                        await copy.write(piece)
            if fresh:
                await cursor.execute(self._sql["wake_and_look"], (*_range(new), *_lanes(new)))
                _refuse_late(new, await cursor.fetchone())
            else:
                await cursor.execute(self._sql["drop_ended"], (_ids(new),))
                await cursor.execute(self._sql["wake"], _lanes(new))
        return [Enqueued(id=job.id) for job in jobs]


class _RepeatedMeanwhile(Exception):
    """Jobs of which a repeated request arrived first, so that they may have ended."""


def _are_fresh(jobs: Sequence[NewJob]) -> bool:
    return are_fresh(((job.id.int, job.origin) for job in jobs), os.getpid())


def _range(jobs: Sequence[NewJob]) -> tuple[UUID, UUID]:
    ids = [job.id for job in jobs]
    return min(ids), max(ids)


def _refuse_late(jobs: Sequence[NewJob], row: Row | None) -> None:
    """Undo the transaction if a repeated request for any of these jobs arrived first.

    Raises: _RepeatedMeanwhile: one did.
    """
    repeated = set() if row is None else set(row[0])
    if repeated and not repeated.isdisjoint(job.id for job in jobs):
        raise _RepeatedMeanwhile


def _is_plain(job: NewJob) -> bool:
    return can_be_copied(job) and job.waiting_for is None


def _answers(rows: Sequence[Row]) -> list[Enqueued]:
    return [Enqueued(id=id_, is_duplicate=is_duplicate) for id_, is_duplicate in rows]


def _with_uuids(rows: Sequence[Row]) -> list[Row]:
    """Convert ids that another library returned as a class of its own, or as text."""
    return [(UUID(str(id_)), is_duplicate) for id_, is_duplicate in rows]


def _ids(jobs: Sequence[NewJob]) -> str:
    return array_of([job.id for job in jobs])


def _unknown(jobs: Sequence[NewJob], known: Sequence[Row]) -> Sequence[NewJob]:
    """Leave out the jobs whose ids the store has, and duplicates within the batch."""
    seen = {row[0] for row in known}
    if not seen and len({job.id for job in jobs}) == len(jobs):
        return jobs
    return list({job.id: job for job in jobs if job.id not in seen}.values())


def _copies(
    sql: Mapping[str, str], jobs: Sequence[NewJob]
) -> Iterator[tuple[str, Iterator[bytes]]]:
    ready = [job for job in jobs if job.waiting_for is None]
    if len(ready) < len(jobs):
        parked = [job for job in jobs if job.waiting_for is not None]
        yield sql["copy_parked"], _pieces(parked, copy_parked_rows)
    if ready:
        yield sql["copy_jobs"], _pieces(ready, copy_rows)


def _pieces(jobs: Sequence[NewJob], rows: Callable[[Sequence[NewJob]], bytes]) -> Iterator[bytes]:
    yield COPY_HEADER
    for start in range(0, len(jobs), _ROWS_PER_PIECE):
        yield rows(jobs[start : start + _ROWS_PER_PIECE])
    yield COPY_TRAILER


def _lanes(jobs: Sequence[NewJob]) -> tuple[list[str], list[str]]:
    """Return the queues and kinds whose workers to wake; the first as often as that can help."""
    first = [(job.queue, job.kind) for job in jobs[:_MAX_WAKES]]
    lanes = [*first, *{(job.queue, job.kind) for job in jobs}]
    return [queue for queue, _ in lanes], [kind for _, kind in lanes]
