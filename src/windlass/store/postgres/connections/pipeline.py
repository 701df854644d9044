"""Owns the pipeline: the connection on which a worker sweeps, claims and settles.

Requests that wait while it is busy are sent together, in one round trip and one commit. So the
outcome of an idle worker is written at once, and the acknowledgements of a busy one travel with its
next claim. Statements are sent by libpq alone: psycopg's conveniences would take as long again as
everything else that a worker does for a small group.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import islice
from typing import Any

from msgspec import Struct
from psycopg import errors, generators, waiting
from psycopg.abc import PQGen
from psycopg.adapt import Transformer
from psycopg.pq import ConnStatus, ExecStatus, Format
from psycopg.pq.abc import PGconn, PGresult

from windlass.core.errors import StoreBusy, StoreUnavailable
from windlass.store.postgres.connections.connection import (
    LoopConnection,
    Row,
    check,
    prepare,
    send_statement,
)
from windlass.store.postgres.connections.dedicated import DedicatedConnection

_TEXT, _BINARY = Format.TEXT, Format.BINARY


class Query(Struct, frozen=True):
    """A statement whose placeholders are all `%s`, and its values, in their order.

    Values are text, or bytes in the server's own format for their type.
    """

    statement: str
    values: Sequence[str | bytes | None] = ()
    takes_durability: bool = False
    """Whether the query takes one more value: if the group's commit may skip the wait
    for the disk.
    """


class Answer:
    """The server's answer to one query; its rows are parsed on demand."""

    __slots__ = ("_connection", "_result")

    def __init__(self, connection: LoopConnection, result: PGresult) -> None:
        self._connection = connection
        self._result = result

    def rows(self) -> list[Row]:
        loader = Transformer(self._connection)
        loader.set_pgresult(self._result)
        return loader.load_rows(0, self._result.ntuples, tuple)


class _Request(Struct, eq=False):
    queries: Sequence[Query]
    durable: bool
    heavy: bool
    answers: asyncio.Future[list[Answer]]


class Pipeline(DedicatedConnection):
    """A connection on which all requests that wait are sent together."""

    def __init__(self, conninfo: str, location: str) -> None:
        super().__init__(conninfo, location)
        self._waiting: list[_Request] = []
        self._serving: asyncio.Task[None] | None = None
        self._arrived: list[tuple[_Request, list[Answer]]] = []

    async def send(
        self, queries: Sequence[Query], *, durable: bool = False, heavy: bool = False
    ) -> list[Answer]:
        """Send queries with the next group, and return their answers.

        If any request of a group is durable, its commit waits for the disk. Of `heavy` requests one
        is sent at a time, so that its answer is read while the server works on the next. A caller
        that is cancelled gives up the answers; the work is done nevertheless.
        """
        loop = asyncio.get_running_loop()
        request = _Request(queries, durable, heavy, loop.create_future())
        self._waiting.append(request)
        if self._serving is None or self._serving.done():
            self._serving = loop.create_task(self._serve(), name="windlass-pipeline")
        return await request.answers

    async def _serve(self) -> None:
        # Other tasks that are ready now may have a request, too.
        await asyncio.sleep(0)
        while self._waiting:
            group = self._next_group()
            try:
                await self._send_group(group)
            except BaseException as error:
                for request in group:
                    _fail(request, error)
                if not isinstance(error, Exception):
                    raise
            if not self._waiting:
                self._deliver_arrived()
            else:
                # The acknowledgements just delivered allow the next outcomes to be sent, too.
                await asyncio.sleep(0)

    def _next_group(self) -> list[_Request]:
        later = [request for request in self._waiting if request.heavy][1:]
        group = [request for request in self._waiting if request not in later]
        self._waiting = later
        return group

    async def _send_group(self, group: list[_Request]) -> None:
        try:
            answers = await self._run(lambda connection: self._round_trip(connection, group))
        except Exception as error:
            is_away = isinstance(error, StoreUnavailable) and not isinstance(error, StoreBusy)
            if len(group) == 1 or is_away:
                raise
            # One of them is rejected; the others must not fail because of it.
            for request in group:
                try:
                    await self._send_group([request])
                except Exception as error:  # noqa: BLE001 - the caller gets it.
                    _fail(request, error)
            return
        for request, its_answers in zip(group, answers, strict=True):
            if request.durable:
                _deliver(request, its_answers)
            else:
                self._arrived.append((request, its_answers))

    async def _round_trip(
        self, connection: LoopConnection, group: list[_Request]
    ) -> list[list[Answer]]:
        durable = any(request.durable for request in group)
        queries = [query for request in group for query in request.queries]
        answers = iter(await round_trip(connection, queries, self._deliver_soon, durable=durable))
        return [list(islice(answers, len(request.queries))) for request in group]

    def _deliver_soon(self) -> None:
        """Parse answers while the server is busy with the group that was just sent."""
        if self._arrived:
            asyncio.get_running_loop().call_soon(self._deliver_arrived)

    def _deliver_arrived(self) -> None:
        arrived, self._arrived = self._arrived, []
        for request, answers in arrived:
            _deliver(request, answers)


def _deliver(request: _Request, answers: list[Answer]) -> None:
    if not request.answers.done():
        request.answers.set_result(answers)


def _fail(request: _Request, error: BaseException) -> None:
    if not request.answers.done():
        request.answers.set_exception(error)
        request.answers.exception()  # Retrieved, since the caller may be gone.


async def round_trip(
    connection: LoopConnection,
    queries: Sequence[Query],
    sent: Callable[[], None],
    *,
    durable: bool = True,
) -> list[Answer]:
    """Send queries in one transaction, and return their answers; `sent` is called in between.

    After any other error than the server's own, the connection is closed: otherwise a later request
    could read the answers of this one.

    Raises: psycopg.Error: one query failed, so none has had an effect; or the connection was lost,
    and the effect is unknown.
    """
    statements = [(_native(query.statement), *_encoded(query, durable)) for query in queries]
    try:
        results = await _results(connection, statements, sent)
    except BaseException:
        connection.pgconn.finish()
        raise
    check(results)
    return [Answer(connection, result) for result in results]


def _encoded(query: Query, durable: bool) -> tuple[list[bytes | None], list[Format]]:
    """Return the values of a query as they are sent, and the format of each."""
    values = [value.encode() if isinstance(value, str) else value for value in query.values]
    formats = [_BINARY if isinstance(value, bytes) else _TEXT for value in query.values]
    if query.takes_durability:
        values.append(b"f" if durable else b"t")
        formats.append(_TEXT)
    return values, formats


@lru_cache(maxsize=100)
def _native(statement: str) -> bytes:
    """Return a statement as libpq takes it, with its placeholders numbered."""
    first, *rest = statement.split("%s")
    if "%" in "".join([first, *rest]):
        raise ValueError(f"only %s placeholders are supported: {statement}")
    return "".join([first, *(f"${number}{part}" for number, part in enumerate(rest, 1))]).encode()


async def _results(
    connection: LoopConnection,
    statements: Sequence[tuple[bytes, list[bytes | None], list[Format]]],
    sent: Callable[[], None],
) -> list[PGresult]:
    pgconn = connection.pgconn
    for statement, *_ in statements:
        if prepare(connection, statement):
            sent()  # Answers that have arrived already do not wait for this one.
            check(await connection.wait(generators.execute(pgconn)))
    together = len(statements) > 1
    if together:
        pgconn.enter_pipeline_mode()
    for statement, values, formats in statements:
        send_statement(connection, statement, values, formats, result_format=Format.BINARY)
    if together:
        pgconn.pipeline_sync()
    sent()
    answers: PQGen[list[PGresult]] = _synced(pgconn) if together else generators.execute(pgconn)
    results = await connection.wait(answers)
    if together and pgconn.status == ConnStatus.OK:
        pgconn.exit_pipeline_mode()
    return results


def _synced(pgconn: PGconn) -> PQGen[list[PGresult]]:
    """Return the results up to the end of a pipeline; after a failure, none counts."""
    while pgconn.flush():
        ready: Any = yield waiting.WAIT_RW
        if ready & waiting.READY_R:
            pgconn.consume_input()
    results: list[PGresult] = []
    while True:
        while pgconn.is_busy():
            yield waiting.WAIT_R
            try:
                pgconn.consume_input()
            except errors.OperationalError:
                if any(result.status == ExecStatus.FATAL_ERROR for result in results):
                    return results  # The server's last answer says more than the lost connection.
                raise
        result = pgconn.get_result()
        if result is None:
            continue  # The end of one query's results.
        if result.status == ExecStatus.PIPELINE_SYNC:
            while pgconn.notifies():
                pass  # A pooler's session may receive notifications, which would accumulate.
            return results
        results.append(result)
