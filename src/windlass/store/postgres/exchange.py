"""Owns a round trip of the hot line: statements by libpq alone, together if they are several.

What psycopg does for comfort takes as long again as all else that a worker does for a small group.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from psycopg import errors, generators, waiting
from psycopg.abc import PQGen
from psycopg.adapt import Transformer
from psycopg.pq import ConnStatus, ExecStatus, Format
from psycopg.pq.abc import PGconn, PGresult

from windlass.store.postgres.wire import AsyncWire, Row, check, preparing, put


@dataclass(frozen=True, slots=True)
class Query:
    """A statement whose placeholders are all `%s`, and its values as text, in their order."""

    statement: str
    values: Sequence[str | None] = ()


class Answer:
    """What the server answered to one query; the rows are read when somebody wants them."""

    __slots__ = ("_result", "_wire")

    def __init__(self, wire: AsyncWire, result: PGresult) -> None:
        self._wire = wire
        self._result = result

    def rows(self) -> list[Row]:
        """Return all rows."""
        loader = Transformer(self._wire)
        loader.set_pgresult(self._result)
        return loader.load_rows(0, self._result.ntuples, tuple)


async def exchange(
    wire: AsyncWire, queries: Sequence[Query], sent: Callable[[], None]
) -> list[Answer]:
    """Send queries in one transaction, and return their answers; `sent` is called in between.

    Whatever else than the server's own answer goes wrong, the connection is closed: nobody shall
    read there what was meant for another.

    Raises:
        psycopg.Error: one of them failed, so none has done anything; or the connection was lost,
            and nobody knows.
    """
    ready = [(_native(query.statement), _encoded(query.values)) for query in queries]
    try:
        results = await _carry(wire, ready, sent)
    except BaseException:
        wire.pgconn.finish()
        raise
    check(results)
    return [Answer(wire, result) for result in results]


async def _carry(
    wire: AsyncWire,
    queries: Sequence[tuple[bytes, list[bytes | None]]],
    sent: Callable[[], None],
) -> list[PGresult]:
    connection = wire.pgconn
    for statement, _ in queries:
        for prepare in preparing(wire, statement):
            sent()  # What has arrived does not wait for this, either.
            prepare()
            check(await wire.wait(generators.execute(connection)))
    together = len(queries) > 1
    if together:
        connection.enter_pipeline_mode()
    for statement, values in queries:
        put(wire, statement, values, Format.BINARY)
    if together:
        connection.pipeline_sync()
    sent()
    answers: PQGen[list[PGresult]] = (
        _synced(connection) if together else generators.execute(connection)
    )
    results = await wire.wait(answers)
    if together and connection.status == ConnStatus.OK:
        connection.exit_pipeline_mode()
    return results


def _synced(connection: PGconn) -> PQGen[list[PGresult]]:
    """Return the results up to the end of a pipeline; after one that failed, none counts."""
    while connection.flush():
        ready: Any = yield waiting.WAIT_RW
        if ready & waiting.READY_R:
            connection.consume_input()
    results: list[PGresult] = []
    while True:
        while connection.is_busy():
            yield waiting.WAIT_R
            try:
                connection.consume_input()
            except errors.OperationalError:
                if any(each.status == ExecStatus.FATAL_ERROR for each in results):
                    return results  # The server's last word says more than that it is gone.
                raise
        result = connection.get_result()
        if result is None:
            continue  # The end of one query's results.
        if result.status == ExecStatus.PIPELINE_SYNC:
            while connection.notifies():
                pass  # What a pooler's session hears on which somebody listened; it would pile up.
            return results
        results.append(result)


def _encoded(values: Sequence[str | None]) -> list[bytes | None]:
    return [None if value is None else value.encode() for value in values]


@lru_cache(maxsize=100)
def _native(statement: str) -> bytes:
    """Return a statement as libpq takes it, with its placeholders numbered."""
    first, *rest = statement.split("%s")
    if "%" in "".join([first, *rest]):
        raise ValueError(f"only %s can stand for a value: {statement}")
    return "".join([first, *(f"${number}{part}" for number, part in enumerate(rest, 1))]).encode()
