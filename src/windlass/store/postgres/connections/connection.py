"""Owns connections to PostgreSQL: how they are opened, their deadlines, and how they are aborted.

A network that drops packets answers nothing, not even an error. So every wait has a deadline, after
which the connection is closed and the next call opens a new one.
"""

from __future__ import annotations

import asyncio
import math
import random
import select
import threading
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from itertools import zip_longest
from typing import Any, TypeVar

import psycopg
from psycopg import AsyncConnection, Connection, capabilities, errors, generators, waiting
from psycopg.abc import PQGen
from psycopg.adapt import AdaptersMap
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.pq import ConnStatus, ExecStatus, Format, PollingStatus
from psycopg.pq.abc import PGcancelConn, PGresult
from psycopg.types.array import ListBinaryDumper, ListDumper
from psycopg.types.numeric import Int8BinaryLoader
from psycopg.types.string import ByteaBinaryLoader

from windlass.core.errors import (
    ConfigError,
    StoreUnavailable,
)
from windlass.core.values.durations import backoff_seconds
from windlass.store.postgres.connections.server_errors import TRANSIENT
from windlass.store.postgres.connections.url_masking import masked_reason
from windlass.store.userinfo import check_userinfo

T = TypeVar("T")
Row = tuple[Any, ...]
_DEFAULTS: dict[str, str | int] = {
    "application_name": "windlass",
    "connect_timeout": 5,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 15_000,
}
"""Defaults of the URL: a dead peer is noticed within half a minute even by an idle socket."""
_READ = select.POLLIN | select.POLLERR | select.POLLHUP
_MAX_TRIES = 6
_CANCEL_SECONDS = 5.0
"""Seconds for which the server is asked to cancel a statement."""
_PREPARED_AFTER = 3
_MAX_BLIND_WRITES = 8
_BACKEND_PID = "SELECT pg_backend_pid()"
_NO_ANSWER = "the server did not answer in time"


def conninfo_of(url: str) -> str:
    """Return the connection string for libpq; options in the URL override the defaults.

    Raises: ConfigError: the URL, or an option in it, is wrong.
    """
    scheme, _, rest = url.partition("://")
    plain = f"{scheme.partition('+')[0]}://{rest}"
    check_userinfo(plain, "postgresql")
    try:
        given = conninfo_to_dict(plain)
    except psycopg.ProgrammingError as error:
        reason = masked_reason(str(error).strip().partition("\n")[0], plain)
        raise ConfigError(f"libpq refuses the URL: {reason}; see docs/postgresql.md") from None
    chosen = {k: v for k, v in _DEFAULTS.items() if k not in given}
    # Whatever the URL says: parameters are sent as UTF-8.
    return make_conninfo(plain, **chosen | {"client_encoding": "utf8"})


def location_of(conninfo: str, schema: str) -> str:
    """Return where the jobs are, for people; without secrets."""
    parts = conninfo_to_dict(conninfo)
    user = f"{parts['user']}@" if parts.get("user") else ""
    where = _hosts(parts)
    at = f"?host={where}" if where.startswith("/") else ""
    where = "" if at else where
    return f"postgresql://{user}{where}/{parts.get('dbname') or ''}{at} (schema {schema})"


def _hosts(parts: Mapping[str, Any]) -> str:
    """Return every host with its port, as users write them: `a:5432,b:5433`."""
    hosts = str(parts.get("host") or parts.get("hostaddr") or "").split(",")
    ports = str(parts.get("port") or "").split(",")
    if len(ports) == 1:
        ports *= len(hosts)  # As in libpq: a single port is for all hosts.
    pairs = zip_longest(hosts, ports, fillvalue="")
    return ",".join(f"{host}:{port}" if port else host for host, port in pairs)


class BlockingConnection(Connection[Row]):
    """A blocking connection whose waits end at a deadline."""

    deadline: float | None = None
    made_at = 0.0
    idle_since = 0.0
    lent_adapters: AdaptersMap | None = None
    """Adapters for a handler's own statements, while it has the connection."""
    prepared: dict[bytes, bytes]
    """The names of the statements that are prepared on this connection."""

    @classmethod
    def open(cls, conninfo: str, deadline: float | None) -> BlockingConnection:
        """Connect before a deadline, in whole seconds; libpq waits at least two."""
        options: dict[str, Any] = {}
        usual = _connect_timeout(conninfo)
        if deadline is not None:
            left = max(math.ceil(deadline - time.monotonic()), 1)
            options["connect_timeout"] = left if usual is None else min(left, usual)
        elif usual is not None:
            deadline = time.monotonic() + usual
        connection = cls.connect(conninfo, autocommit=True, prepare_threshold=None, **options)
        connection.prepared = {}
        _dump_lists_as_arrays(connection)
        connection.add_notify_handler(_ignore)
        # For the first statement, too: a network can fail after the handshake.
        connection.deadline = deadline
        (pid,) = connection.execute(_BACKEND_PID).fetchone() or (None,)
        connection.deadline = None
        connection.prepare_threshold = _threshold(connection, pid)
        return connection

    @property
    def adapters(self) -> AdaptersMap:
        return super().adapters if self.lent_adapters is None else self.lent_adapters

    def run(self, statement: bytes, values: list[bytes | None]) -> None:
        """Run a statement for its effect, prepared once, by libpq alone, which is faster."""
        if prepare(self, statement):
            check(self.wait(generators.execute(self.pgconn)))
        send_statement(self, statement, values)
        check(self.wait(generators.execute(self.pgconn)))

    def wait(self, gen: PQGen[T], interval: float = 0.1, timeout: float | None = None) -> T:
        """Wait as psycopg does, but no longer than until the deadline."""
        if self.deadline is None or timeout is not None:
            return super().wait(gen, interval, timeout)
        try:
            return _wait_until(gen, self.pgconn.socket, self.deadline)
        except TimeoutError:
            abort(self)
            raise errors.OperationalError(_NO_ANSWER) from None


class LoopConnection(AsyncConnection[Row]):
    """A connection for an event loop; a wait that is cancelled closes it."""

    made_at = 0.0
    idle_since = 0.0
    lent_adapters: AdaptersMap | None = None
    """Adapters for a handler's own statements, while it has the connection."""
    is_spare = False
    """Whether a worker's duty borrowed it beyond the connections that users may have."""
    prepared: dict[bytes, bytes]
    """The names of the statements that are prepared on this connection."""

    @classmethod
    async def open(cls, conninfo: str) -> LoopConnection:
        """Connect for statements, not to listen."""
        connection = await cls.connect(conninfo, autocommit=True, prepare_threshold=None)
        connection.prepared = {}
        _dump_lists_as_arrays(connection)
        connection.add_notify_handler(_ignore)
        try:
            async with asyncio.timeout(_connect_timeout(conninfo)):
                (pid,) = await (await connection.execute(_BACKEND_PID)).fetchone() or (None,)
        except TimeoutError:
            raise errors.OperationalError(_NO_ANSWER) from None
        connection.prepare_threshold = _threshold(connection, pid)
        return connection

    @property
    def adapters(self) -> AdaptersMap:
        return super().adapters if self.lent_adapters is None else self.lent_adapters

    async def run(self, statement: bytes, values: list[bytes | None]) -> None:
        """Run a statement for its effect, prepared once, by libpq alone, which is faster."""
        if prepare(self, statement):
            check(await self.wait(generators.execute(self.pgconn)))
        send_statement(self, statement, values)
        check(await self.wait(generators.execute(self.pgconn)))

    async def wait(self, gen: PQGen[T], interval: float = 0.1, timeout: float | None = None) -> T:
        """Wait as psycopg does; a cancelled wait ends at once, and cancels its query on
        the server.
        """
        try:
            return await waiting.wait_async(_writing(gen), self.pgconn.socket, interval, timeout)
        except asyncio.CancelledError:
            abort(self)
            raise


OurConnection = BlockingConnection | LoopConnection


def abort(connection: OurConnection) -> None:
    """Close a connection, and cancel its statement on the server from a thread.

    Otherwise a statement that waits for a lock there could still write after its caller gave up.
    """
    if connection.pgconn.status == ConnStatus.OK and capabilities.has_cancel_safe():
        cancel = connection.pgconn.cancel_conn()
        threading.Thread(target=_cancel, args=(cancel,), daemon=True).start()
    connection.pgconn.finish()


def _dump_lists_as_arrays(connection: OurConnection) -> None:
    """Send lists as arrays, even if the program has them sent as JSON by all its connections."""
    for dumper in (ListBinaryDumper, ListDumper):  # The last one is preferred.
        connection.adapters.register_dumper(list, dumper)


def _connect_timeout(conninfo: str) -> int | None:
    seconds = int(conninfo_to_dict(conninfo).get("connect_timeout") or 0)
    return seconds if seconds > 0 else None


def _threshold(connection: OurConnection, pid: int | None) -> int | None:
    """Return after how many uses a statement is prepared: never behind a pooler.

    A pooler reports a process id that it made up, and sends statements to whichever server process
    is free, which need not know them.
    """
    return _PREPARED_AFTER if pid == connection.pgconn.backend_pid else None


def prepare(connection: OurConnection, statement: bytes) -> bool:
    """Send the preparation of a statement, unless it is prepared; return whether an answer will
    come.
    """
    if connection.prepare_threshold is None or statement in connection.prepared:
        return False
    name = b"windlass_%d" % len(connection.prepared)
    # If the server rejects it, that is an error of the connection, which is closed.
    connection.prepared[statement] = name
    connection.pgconn.send_prepare(name, statement)
    return True


def send_statement(
    connection: OurConnection,
    statement: bytes,
    values: Sequence[bytes | None],
    formats: Sequence[Format] | None = None,
    *,
    result_format: Format = Format.TEXT,
) -> None:
    """Send a statement with its values, as text if no formats are given; by its name if it
    has one.
    """
    name, pgconn = connection.prepared.get(statement), connection.pgconn
    if name is None:
        pgconn.send_query_params(
            statement, values, param_formats=formats, result_format=result_format
        )
    else:
        pgconn.send_query_prepared(name, values, formats, result_format=result_format)


def check(results: Sequence[PGresult]) -> None:
    """Raise the error of the first result that has one."""
    for result in results:
        if result.status not in (ExecStatus.TUPLES_OK, ExecStatus.COMMAND_OK):
            raise errors.error_from_result(result)


def _writing(gen: PQGen[T]) -> PQGen[T]:
    """Assume that the socket can be written to, which is nearly always true.

    libpq buffers what the socket does not take. One more iteration of the loop per statement costs
    more than the statement; after a few tries the loop is asked nevertheless.
    """
    tries = _MAX_BLIND_WRITES
    try:
        state = next(gen)
        while True:
            if state & waiting.WAIT_W and tries:
                tries -= 1
                state = gen.send(waiting.READY_W)
            else:
                state = gen.send((yield state))
    except StopIteration as end:
        answer: T = end.value
        return answer


def _ignore(_notice: object) -> None:
    """Drop a notification that a pooler's session receives; psycopg would keep all of them."""


def _cancel(cancel: PGcancelConn) -> None:
    # Not by PGcancel.cancel(): that waits without a timeout and holds the interpreter's lock, so
    # that a server which does not answer would stop every thread of this process.
    deadline = time.monotonic() + _CANCEL_SECONDS
    # The server notices the closed connection by itself, too.
    with suppress(psycopg.Error, OSError):
        cancel.start()
        while (state := cancel.poll()) in (PollingStatus.READING, PollingStatus.WRITING):
            poller = select.poll()
            reads = state == PollingStatus.READING
            poller.register(cancel.socket, _READ if reads else select.POLLOUT)
            if not poller.poll(max(deadline - time.monotonic(), 0) * 1000):
                break
    cancel.finish()


def adapt(connection: Connection[Any] | AsyncConnection[Any] | psycopg.abc.AdaptContext) -> None:
    """Make a connection load JSON as bytes, and times as microseconds since 2000."""
    connection.adapters.register_loader("json", ByteaBinaryLoader)
    connection.adapters.register_loader("timestamptz", Int8BinaryLoader)


async def retried(work: Callable[[], Awaitable[T]]) -> T:
    """Repeat work that met a deadlock or the like, since the server has rolled it back."""
    for attempt in range(_MAX_TRIES):
        try:
            return await work()
        except StoreUnavailable as error:
            if attempt == _MAX_TRIES - 1 or not isinstance(error.__cause__, TRANSIENT):
                raise
            jitter = random.random()  # noqa: S311 - spreads load.
            await asyncio.sleep(backoff_seconds(attempt + 1, jitter, first=0.01, longest=1.0))
    raise AssertionError("unreachable")


def _wait_until(gen: PQGen[T], fileno: int, deadline: float) -> T:
    poller = select.poll()
    try:
        state = next(gen)
        while True:
            left = deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError
            wants = (_READ if state & waiting.WAIT_R else 0) | (
                select.POLLOUT if state & waiting.WAIT_W else 0
            )
            poller.register(fileno, wants)
            ready = 0
            for _, event in poller.poll(left * 1000):
                ready |= (waiting.READY_R if event & ~select.POLLOUT else 0) | (
                    waiting.READY_W if event & select.POLLOUT else 0
                )
            state = gen.send(ready)
    except StopIteration as end:
        answer: T = end.value
        return answer
