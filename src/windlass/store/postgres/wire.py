"""Owns connections to PostgreSQL: how they are made, how long they may take, how they are given up.

A network that swallows packets answers nothing, not even an error. So every wait of ours has a
deadline, after which the connection is closed and the next call makes a new one.
"""

from __future__ import annotations

import asyncio
import math
import random
import select
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

import psycopg
from psycopg import AsyncConnection, Connection, capabilities, errors, generators, waiting
from psycopg.abc import PQGen
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.pq import ConnStatus, ExecStatus, Format, PollingStatus
from psycopg.pq.abc import PGcancelConn, PGresult
from psycopg.types.numeric import Int8BinaryLoader
from psycopg.types.string import ByteaBinaryLoader

from windlass.core.errors import (
    ConfigError,
    SchemaMismatch,
    StoreBusy,
    StoreError,
    StoreUnavailable,
    WindlassError,
)

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
"""What a URL need not say: a dead peer is noticed within half a minute even by an idle socket."""
_READ = select.POLLIN | select.POLLERR | select.POLLHUP
_TRIES = 6
_COURTESY = 5.0
"""Seconds for which we try to tell a server that nobody waits for its answer any more."""
_PREPARED_AFTER = 3
_WRITES = 8
_WHO = "SELECT pg_backend_pid()"
_SILENT = "the server did not answer in time"
FORGOTTEN = (errors.InvalidSqlStatementName, errors.DuplicatePreparedStatement)
"""What a session says that does not know our prepared statements: it is of no more use to us."""
TRANSIENT = (errors.DeadlockDetected, errors.SerializationFailure)


def conninfo_of(url: str) -> str:
    """Return what libpq wants to know; whatever the URL says goes before our defaults.

    Raises:
        ConfigError: the URL, or an option in it, is wrong.
    """
    scheme, _, rest = url.partition("://")
    plain = f"{scheme.partition('+')[0]}://{rest}"
    try:
        given = conninfo_to_dict(plain)
    except psycopg.ProgrammingError as error:
        # Without the URL itself, which may hold a password.
        told = str(error).strip().partition("\n")[0]
        raise ConfigError(f"this is no URL that libpq takes: {told}") from None
    chosen = {k: v for k, v in _DEFAULTS.items() if k not in given}
    # Whatever the URL says: what we send is UTF-8.
    return make_conninfo(plain, **chosen | {"client_encoding": "utf8"})


def location_of(conninfo: str, schema: str) -> str:
    """Return where the jobs are, for people; without secrets."""
    parts = conninfo_to_dict(conninfo)
    user = f"{parts['user']}@" if parts.get("user") else ""
    host = str(parts.get("host") or parts.get("hostaddr") or "")
    port = f":{parts['port']}" if parts.get("port") else ""
    at = f"?host={host}{port}" if host.startswith("/") else ""
    where = "" if at else f"{host}{port}"
    return f"postgresql://{user}{where}/{parts.get('dbname') or ''}{at} (schema {schema})"


class Wire(Connection[Row]):
    """A blocking connection whose waits end at a deadline."""

    deadline: float | None = None
    made_at = 0.0
    idle_since = 0.0
    prepared: dict[bytes, bytes]
    """The names of the statements that are prepared here."""

    @classmethod
    def knock(cls, conninfo: str, deadline: float | None) -> Wire:
        """Connect, within whole seconds of a deadline, of which libpq takes no fewer than two."""
        told: dict[str, Any] = {}
        usual = _patience(conninfo)
        if deadline is not None:
            left = max(math.ceil(deadline - time.monotonic()), 1)
            told["connect_timeout"] = left if usual is None else min(left, usual)
        elif usual is not None:
            deadline = time.monotonic() + usual
        wire = cls.connect(conninfo, autocommit=True, prepare_threshold=None, **told)
        wire.prepared = {}
        wire.add_notify_handler(_not_for_us)
        wire.deadline = deadline  # The first word, too: a network can break off after a handshake.
        (pid,) = wire.execute(_WHO).fetchone() or (None,)
        wire.deadline = None
        wire.prepare_threshold = _threshold(wire, pid)
        return wire

    def ask(self, statement: bytes, values: list[bytes | None]) -> None:
        """Run a statement for its effect by libpq alone: what psycopg does for comfort takes time.

        Its values are text. On a direct connection it is prepared once.
        """
        for prepare in preparing(self, statement):
            prepare()
            check(self.wait(generators.execute(self.pgconn)))
        put(self, statement, values)
        check(self.wait(generators.execute(self.pgconn)))

    def wait(self, gen: PQGen[T], interval: float = 0.1, timeout: float | None = None) -> T:
        """Wait as psycopg does, but no longer than until the deadline."""
        if self.deadline is None or timeout is not None:
            return super().wait(gen, interval, timeout)
        try:
            return _wait_until(gen, self.pgconn.socket, self.deadline)
        except TimeoutError:
            self.pgconn.finish()
            raise errors.OperationalError(_SILENT) from None


class AsyncWire(AsyncConnection[Row]):
    """A connection for an event loop: whoever gives up waiting closes it."""

    made_at = 0.0
    idle_since = 0.0
    is_spare = False
    """Whether it was lent for a worker's duty, beyond what users may have."""
    prepared: dict[bytes, bytes]
    """The names of the statements that are prepared here."""

    @classmethod
    async def knock(cls, conninfo: str) -> AsyncWire:
        """Connect for work, not to listen."""
        wire = await cls.connect(conninfo, autocommit=True, prepare_threshold=None)
        wire.prepared = {}
        wire.add_notify_handler(_not_for_us)
        try:
            async with asyncio.timeout(_patience(conninfo)):
                (pid,) = await (await wire.execute(_WHO)).fetchone() or (None,)
        except TimeoutError:
            raise errors.OperationalError(_SILENT) from None
        wire.prepare_threshold = _threshold(wire, pid)
        return wire

    async def ask(self, statement: bytes, values: list[bytes | None]) -> None:
        """Run a statement for its effect by libpq alone: what psycopg does for comfort takes time.

        Its values are text. On a direct connection it is prepared once.
        """
        for prepare in preparing(self, statement):
            prepare()
            check(await self.wait(generators.execute(self.pgconn)))
        put(self, statement, values)
        check(await self.wait(generators.execute(self.pgconn)))

    async def wait(self, gen: PQGen[T], interval: float = 0.1, timeout: float | None = None) -> T:
        """Wait as psycopg does; a cancelled wait neither lingers nor leaves its query running."""
        try:
            return await waiting.wait_async(_writing(gen), self.pgconn.socket, interval, timeout)
        except asyncio.CancelledError:
            self.abort()
            raise

    def abort(self) -> None:
        """Close the connection, and let the server know from a thread that it may stop."""
        if self.pgconn.status == ConnStatus.OK and capabilities.has_cancel_safe():
            cancel = self.pgconn.cancel_conn()
            threading.Thread(target=_cancel, args=(cancel,), daemon=True).start()
        self.pgconn.finish()


def _patience(conninfo: str) -> int | None:
    """Return how many seconds a connection may take, or None if that has no end."""
    told = int(conninfo_to_dict(conninfo).get("connect_timeout") or 0)
    return told if told > 0 else None


def _threshold(wire: Wire | AsyncWire, pid: int | None) -> int | None:
    """Return after how many uses a statement is prepared: never, if a pooler is in between.

    It tells a process id of its own invention, and gives our statements to whichever server process
    is free, which need not know them.
    """
    return _PREPARED_AFTER if pid == wire.pgconn.backend_pid else None


def preparing(wire: Wire | AsyncWire, statement: bytes) -> list[Callable[[], None]]:
    """Return what has to be sent first, if anything, so that a statement is known by its name."""
    if wire.prepare_threshold is None or statement in wire.prepared:
        return []
    name = b"windlass_%d" % len(wire.prepared)

    def prepare() -> None:
        # Should the server refuse it, that is an error of the connection, which is given up.
        wire.prepared[statement] = name
        wire.pgconn.send_prepare(name, statement)

    return [prepare]


def put(
    wire: Wire | AsyncWire,
    statement: bytes,
    values: Sequence[bytes | None],
    form: Format = Format.TEXT,
) -> None:
    """Put a statement on a connection, by its name if it has one; its answer comes in a form."""
    name = wire.prepared.get(statement)
    if name is None:
        wire.pgconn.send_query_params(statement, values, result_format=form)
    else:
        wire.pgconn.send_query_prepared(name, values, result_format=form)


def check(results: Sequence[PGresult]) -> None:
    """Raise the error that the server has answered with, if it has."""
    for result in results:
        if result.status not in (ExecStatus.TUPLES_OK, ExecStatus.COMMAND_OK):
            raise errors.error_from_result(result)


def _writing(gen: PQGen[T]) -> PQGen[T]:
    """Answer for the socket that it takes what we write, which it nearly always does.

    libpq keeps what it does not take. A turn of the loop for every statement costs more than the
    statement; after a few tries the loop is asked all the same.
    """
    tries = _WRITES
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


def _not_for_us(_notice: object) -> None:
    """Drop what a pooler's session hears on which somebody listened; psycopg would keep it all."""


def _cancel(cancel: PGcancelConn) -> None:
    # Not by PGcancel.cancel(): that waits without end, and holds the interpreter's lock meanwhile,
    # so that a server which does not answer would stop every thread of this process.
    deadline = time.monotonic() + _COURTESY
    with suppress(psycopg.Error, OSError):  # The server finds out by itself, too.
        cancel.start()
        while (state := cancel.poll()) in (PollingStatus.READING, PollingStatus.WRITING):
            poller = select.poll()
            reads = state == PollingStatus.READING
            poller.register(cancel.socket, _READ if reads else select.POLLOUT)
            if not poller.poll(max(deadline - time.monotonic(), 0) * 1000):
                break
    cancel.finish()


def adapt(connection: Connection[Any] | AsyncConnection[Any] | psycopg.abc.AdaptContext) -> None:
    """Let a connection of our own load JSON as bytes, and times as microseconds since 2000."""
    connection.adapters.register_loader("json", ByteaBinaryLoader)
    connection.adapters.register_loader("timestamptz", Int8BinaryLoader)


@contextmanager
def translated(location: str) -> Iterator[None]:
    """Turn what psycopg raises into the store's own errors, which name the remedy."""
    try:
        yield
    except psycopg.Error as error:
        raise translate(error, location) from error


def translate(error: Exception, location: str) -> WindlassError:
    """Return the store's own error for one of psycopg's."""
    told = str(error).strip().partition("\n")[0] or type(error).__qualname__
    if isinstance(
        error,
        errors.UndefinedTable | errors.UndefinedFunction | errors.InvalidSchemaName,
    ):
        return SchemaMismatch(f"{location} has no schema for this release; run: windlass migrate")
    if isinstance(error, errors.InsufficientPrivilege):
        return StoreError(f"{location}: {told}; docs/postgresql.md tells what to grant")
    if isinstance(error, FORGOTTEN):
        return StoreUnavailable(f"{location}: {told}; somebody dropped what we had prepared there")
    if isinstance(error, psycopg.DataError | psycopg.IntegrityError | psycopg.ProgrammingError):
        return StoreError(f"{location}: {told}")
    if isinstance(error, errors.LockNotAvailable):
        return StoreBusy(f"{location}: {told}; somebody else holds it, so try again")
    return StoreUnavailable(f"{location}: {told}{_remedy(told)}")


def _remedy(told: str) -> str:
    """Say what to do, where the server's own words do not."""
    if "authentication failed" in told or "no password supplied" in told:
        return "; check user and password, in the URL or in ~/.pgpass"
    if 'database "' in told and "does not exist" in told:
        return "; create it first, with createdb"
    return ""


async def retried(work: Callable[[], Awaitable[T]]) -> T:
    """Do work again that met a deadlock or the like; the server chose it, and it did nothing."""
    for attempt in range(_TRIES):
        try:
            return await work()
        except StoreUnavailable as error:
            if attempt == _TRIES - 1 or not isinstance(error.__cause__, TRANSIENT):
                raise
            await asyncio.sleep(0.01 * 2**attempt * random.uniform(0.5, 1))  # noqa: S311
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
