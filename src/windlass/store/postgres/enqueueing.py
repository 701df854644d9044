"""Owns the way of new jobs into the store: by one statement on any connection, in bulk by COPY."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from uuid import UUID

from psycopg import errors
from psycopg.rows import tuple_row

from windlass.core.job import Enqueued, NewJob
from windlass.store.postgres.foreign import aforeign, foreign
from windlass.store.postgres.fresh import Sent
from windlass.store.postgres.rows import (
    COPY_HEAD,
    COPY_TAIL,
    add_values,
    array_of,
    can_be_copied,
    copy_parked_rows,
    copy_rows,
    enqueue_document,
)
from windlass.store.postgres.wire import AsyncWire, Row, Wire

_FEW = 20
_CHUNK = 500
_WOKEN = 100


class Enqueueing:
    """Adds jobs by way of a connection that somebody else opened, and somebody else commits."""

    def __init__(self, statements: Mapping[str, str]) -> None:
        self._sql = statements
        self._add = statements["add"].encode()
        self._sent = Sent()
        self._may_copy = True

    def carry_blocking(self, wire: Wire, jobs: Sequence[NewJob]) -> list[Enqueued]:
        """Add jobs by a blocking connection of our own."""
        fresh = self._sent.take(jobs)
        if self._fits_copy(jobs):
            try:
                return self._copy_blocking(wire, jobs, fresh=fresh)
            except errors.InsufficientPrivilege:
                self._may_copy = False
            except errors.UniqueViolation:
                fresh = False  # Somebody else adds the same jobs; the function sorts it out.
        if fresh and len(jobs) == 1 and _is_plain(jobs[0]):
            wire.ask(self._add, add_values(jobs[0]))
            return [Enqueued(id=jobs[0].id)]
        document = enqueue_document(jobs, fresh=fresh)
        cursor = wire.cursor(row_factory=tuple_row)
        return _answers(cursor.execute(self._sql["enqueue"], (document,)).fetchall())

    async def carry(self, wire: AsyncWire, jobs: Sequence[NewJob]) -> list[Enqueued]:
        """Add jobs by a connection of our own."""
        fresh = self._sent.take(jobs)
        if self._fits_copy(jobs):
            try:
                return await self._copy(wire, jobs, fresh=fresh)
            except errors.InsufficientPrivilege:
                self._may_copy = False
            except errors.UniqueViolation:
                fresh = False
        if fresh and len(jobs) == 1 and _is_plain(jobs[0]):
            await wire.ask(self._add, add_values(jobs[0]))
            return [Enqueued(id=jobs[0].id)]
        document = enqueue_document(jobs, fresh=fresh)
        cursor = wire.cursor(row_factory=tuple_row)
        await cursor.execute(self._sql["enqueue"], (document,))
        return _answers(await cursor.fetchall())

    def carry_in(self, transaction: object, jobs: Sequence[NewJob]) -> list[Enqueued]:
        """Add jobs by a user's own blocking connection, in whatever transaction it is.

        Raises:
            ConfigError: this is no connection that we know, or one for event loops.
        """
        document = enqueue_document(jobs, fresh=self._sent.take(jobs))
        rows = foreign(transaction, self._sql["enqueue"], document)
        return _answers(_with_our_ids(rows))

    async def acarry_in(self, transaction: object, jobs: Sequence[NewJob]) -> list[Enqueued]:
        """Add jobs by a user's own connection for event loops.

        Raises:
            ConfigError: this is no connection that we know, or one that blocks.
        """
        document = enqueue_document(jobs, fresh=self._sent.take(jobs))
        rows = await aforeign(transaction, self._sql["enqueue"], document)
        return _answers(_with_our_ids(rows))

    def _fits_copy(self, jobs: Sequence[NewJob]) -> bool:
        return len(jobs) > _FEW and self._may_copy and all(map(can_be_copied, jobs))

    def _copy_blocking(self, wire: Wire, jobs: Sequence[NewJob], *, fresh: bool) -> list[Enqueued]:
        with wire.transaction():
            new = jobs
            if not fresh:
                known = wire.execute(self._sql["known_ids"], (_ids(jobs),)).fetchall()
                new = _unknown(jobs, known)
            cursor = wire.cursor()
            for statement, rows in _copies(self._sql, new):
                with cursor.copy(statement) as copy:
                    for piece in rows:
                        copy.write(piece)
            cursor.execute(self._sql["wake"], _lanes(new))
        return [Enqueued(id=job.id) for job in jobs]

    async def _copy(
        self, wire: AsyncWire, jobs: Sequence[NewJob], *, fresh: bool
    ) -> list[Enqueued]:
        async with wire.transaction():
            new = jobs
            if not fresh:
                cursor = await wire.execute(self._sql["known_ids"], (_ids(jobs),))
                new = _unknown(jobs, await cursor.fetchall())
            cursor = wire.cursor()
            for statement, rows in _copies(self._sql, new):
                async with cursor.copy(statement) as copy:
                    for piece in rows:
                        await copy.write(piece)
            await cursor.execute(self._sql["wake"], _lanes(new))
        return [Enqueued(id=job.id) for job in jobs]


def _is_plain(job: NewJob) -> bool:
    return can_be_copied(job) and job.waiting_for is None


def _answers(rows: Sequence[Row]) -> list[Enqueued]:
    return [Enqueued(id=id_, existing=existing) for id_, existing in rows]


def _with_our_ids(rows: Sequence[Row]) -> list[Row]:
    """Read ids that came as another library has them: as a class of its own, or as text."""
    return [(UUID(str(id_)), existing) for id_, existing in rows]


def _ids(jobs: Sequence[NewJob]) -> str:
    return array_of([job.id for job in jobs])


def _unknown(jobs: Sequence[NewJob], known: Sequence[Row]) -> Sequence[NewJob]:
    """Leave out the jobs whose ids the store has, and those that are in the batch twice."""
    seen = {row[0] for row in known}
    if not seen and len({job.id for job in jobs}) == len(jobs):
        return jobs
    return list({job.id: job for job in jobs if job.id not in seen}.values())


def _copies(
    sql: Mapping[str, str], jobs: Sequence[NewJob]
) -> Iterator[tuple[str, Iterator[bytes]]]:
    """Return the statements by which jobs are copied, each with what goes into it."""
    ready = [job for job in jobs if job.waiting_for is None]
    if len(ready) < len(jobs):
        parked = [job for job in jobs if job.waiting_for is not None]
        yield sql["copy_parked"], _pieces(parked, copy_parked_rows)
    if ready:
        yield sql["copy_jobs"], _pieces(ready, copy_rows)


def _pieces(jobs: Sequence[NewJob], rows: Callable[[Sequence[NewJob]], bytes]) -> Iterator[bytes]:
    yield COPY_HEAD
    for start in range(0, len(jobs), _CHUNK):
        yield rows(jobs[start : start + _CHUNK])
    yield COPY_TAIL


def _lanes(jobs: Sequence[NewJob]) -> tuple[list[str], list[str]]:
    """Return queues and kinds for whoever may be woken: each, the first as often as can help."""
    some = [(job.queue, job.kind) for job in jobs[:_WOKEN]]
    lanes = [*some, *{(job.queue, job.kind) for job in jobs}]
    return [queue for queue, _ in lanes], [kind for _, kind in lanes]
