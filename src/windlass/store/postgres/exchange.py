"""Owns a round trip of the hot line: statements by libpq alone, together if they are several.

What psycopg does for comfort takes as long again as all else that a worker does for a small group.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from psycopg import errors, generators, waiting
from psycopg.abc import PQGen
from psycopg.adapt import Transformer
from psycopg.pq import ExecStatus, Format
from psycopg.pq.abc import PGconn, PGresult

from windlass.store.postgres.wire import AsyncWire, Row

_PLACEHOLDER = re.compile(r"%(?:\(\w+\))?s")
_DONE = (ExecStatus.TUPLES_OK, ExecStatus.COMMAND_OK)


@dataclass(frozen=True, slots=True)
class Query:
    """A statement in psycopg's form, and its values as text, in the order of its placeholders."""

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

    Raises:
        psycopg.Error: one of them failed, so none of them has done anything.
    """
    names = [await _prepared(wire, query.statement) for query in queries]
    connection = wire.pgconn
    together = len(queries) > 1
    if together:
        connection.enter_pipeline_mode()
    for name, query in zip(names, queries, strict=True):
        _send(connection, name, query)
    if together:
        connection.pipeline_sync()
    sent()
    answers = _synced(connection) if together else generators.execute(connection)
    results = await wire.wait(answers)
    if together:
        connection.exit_pipeline_mode()
    for result in results:
        if result.status not in _DONE:
            raise errors.error_from_result(result)
    return [Answer(wire, result) for result in results]


async def _prepared(wire: AsyncWire, statement: str) -> bytes | None:
    """Return the name of a prepared statement; None if a pooler is in between."""
    if wire.prepare_threshold is None:
        return None
    native = _native(statement)
    name = wire.prepared.get(native)
    if name is None:
        name = b"windlass_%d" % len(wire.prepared)
        wire.pgconn.send_prepare(name, native)
        (result,) = await wire.wait(generators.execute(wire.pgconn))
        if result.status not in _DONE:
            raise errors.error_from_result(result)
        wire.prepared[native] = name
    return name


def _send(connection: PGconn, name: bytes | None, query: Query) -> None:
    values = [None if value is None else value.encode() for value in query.values]
    if name is None:
        statement = _native(query.statement)
        connection.send_query_params(statement, values, result_format=Format.BINARY)
    else:
        connection.send_query_prepared(name, values, result_format=Format.BINARY)


def _synced(connection: PGconn) -> PQGen[list[PGresult]]:
    """Return the results up to the end of a pipeline; one that failed is the last that counts."""
    while connection.flush():
        ready: Any = yield waiting.WAIT_RW
        if ready & waiting.READY_R:
            connection.consume_input()
    results: list[PGresult] = []
    while True:
        while connection.is_busy():
            yield waiting.WAIT_R
            connection.consume_input()
        result = connection.get_result()
        if result is None:
            continue  # The end of one query's results.
        if result.status == ExecStatus.PIPELINE_SYNC:
            while connection.notifies():
                pass  # What a pooler's session hears on which somebody listened; it would pile up.
            return results
        results.append(result)


@lru_cache(maxsize=100)
def _native(statement: str) -> bytes:
    """Return a statement as libpq takes it, with its placeholders numbered."""
    first, *rest = _PLACEHOLDER.split(statement)
    return "".join([first, *(f"${number}{part}" for number, part in enumerate(rest, 1))]).encode()
