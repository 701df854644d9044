"""Owns the threads of the SQLite store: one that writes, and some that read.

The writer takes everything that waits for it into one transaction, so that a hundred
acknowledgements and the next claim cost one flush to disk; each piece of work still succeeds or
fails by itself.
"""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Generic, TypeVar

from windlass.core.errors import StoreUnavailable
from windlass.store.sqlite.file import Turn, connect, prepare, unreachable

T = TypeVar("T")
Work = Callable[[sqlite3.Connection], T]
_LOOK_AT_FILE = 0.2
"""Seconds between looks whether the file is still the one that was opened."""
_BUSY = 5.0
_BUSY_LOOK = 0.01
_GROUP = 256
"""How many pieces of work share a transaction at most, so that the first does not wait for ever."""


@dataclass(frozen=True)
class _Command(Generic[T]):
    work: Work[T]
    durable: bool
    answer: Future[T]


class _Connection:
    """A connection that is made when it is needed, and anew if the file was replaced under it."""

    def __init__(self, path: Path, turn: Turn) -> None:
        self._path = path
        self._turn = turn
        self._connection: sqlite3.Connection | None = None
        self._inode = 0
        self._next_look = 0.0
        self._using = threading.Lock()

    def rest(self, patience: float) -> bool:
        """Close the connection, and let nobody open it before `resume`; say whether that worked."""
        if not self._using.acquire(timeout=patience):
            return False
        connection, self._connection = self._connection, None
        if connection is not None:
            # Without the turn: SQLite settles by itself who may tidy up, and we must not wait.
            connection.close()
        return True

    def resume(self) -> None:
        """Let the connection be opened again."""
        self._using.release()

    def _connected(self) -> sqlite3.Connection:
        self._look_at_file_if_due()
        if self._connection is None:
            with self._turn:
                prepare(self._path)
                self._connection = self._connect()
            self._inode = self._path.stat().st_ino
        return self._connection

    def _look_at_file_if_due(self) -> None:
        """Let go of a file that was deleted or replaced: what is written there is lost."""
        now = time.monotonic()
        if now < self._next_look:
            return
        self._next_look = now + _LOOK_AT_FILE
        try:
            inode = self._path.stat().st_ino
        except OSError:
            inode = 0
        connection = self._connection
        if inode != self._inode and connection is not None:
            self._connection = None
            connection.close()

    def _connect(self) -> sqlite3.Connection:
        return connect(self._path)

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with self._turn:
                connection.close()


class Watch(_Connection):
    """Sees that something was committed, by whomever."""

    def look(self) -> int:
        """Return a number that changes with every commit of any other connection."""
        with self._using:
            return self._version(self._connected())

    def glance(self) -> int | None:
        """Return the same number without waiting for anything; None if that cannot be done now.

        A few microseconds of shared memory, so that an event loop may do it.
        """
        if not self._using.acquire(blocking=False):
            return None
        try:
            self._look_at_file_if_due()
            return None if self._connection is None else self._version(self._connection)
        finally:
            self._using.release()

    def close(self) -> None:
        """Let go of the connection."""
        with self._using:
            self._disconnect()

    def _version(self, connection: sqlite3.Connection) -> int:
        version: int = connection.execute("PRAGMA data_version").fetchone()[0]
        return hash((self._inode, id(connection), version))


class _SqlThread(_Connection):
    """A thread that owns one connection and runs what it is given, in order."""

    def __init__(self, path: Path, turn: Turn, name: str) -> None:
        super().__init__(path, turn)
        self._commands: SimpleQueue[_Command[Any] | None] = SimpleQueue()
        self._gate = threading.Lock()
        self._closed = False
        # A daemon: a turn that never comes must not keep the process from ending.
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def submit(self, work: Work[T], *, durable: bool = True) -> Future[T]:
        """Run work on the connection, and answer when what it wrote is committed.

        Work that is not `durable` may be forgotten if the machine loses power right after.

        Raises:
            Closed: the thread takes no more work.
        """
        command = _Command(work, durable, Future[T]())
        with self._gate:
            if self._closed:
                raise Closed
            self._commands.put(command)
        return command.answer

    def close(self, timeout: float = 10) -> None:
        """Finish what was submitted, then let go of the connection."""
        with self._gate:
            self._closed = True
            self._commands.put(None)
        self._thread.join(timeout)

    def _run(self) -> None:
        while (commands := self._next()) is not None:
            ready = [c for c in commands if c.answer.set_running_or_notify_cancel()]
            if not ready:
                continue
            with self._using:
                try:
                    self._perform(ready)
                except BaseException as error:  # noqa: BLE001 - whoever waits must hear of it.
                    self._fail(ready, error)
        with self._using:
            self._disconnect()

    def _next(self) -> list[_Command[Any]] | None:
        command = self._commands.get()
        return None if command is None else [command]

    def _perform(self, commands: list[_Command[Any]]) -> None:
        connection = self._connected()
        for command in commands:
            command.answer.set_result(command.work(connection))

    def _fail(self, commands: list[_Command[Any]], error: BaseException) -> None:
        told: BaseException = error
        if isinstance(error, sqlite3.Error):
            told = unreachable(self._path, error)
        elif not isinstance(error, Exception):
            told = StoreUnavailable(f"{self._path}: interrupted by {error!r}")
        for command in commands:
            if not command.answer.done():
                command.answer.set_exception(told)
        if isinstance(error, sqlite3.OperationalError):
            # The connection may be part of the trouble; the next command begins with a new one.
            self._disconnect()


class Reader(_SqlThread):
    """Runs what only looks."""


class Writer(_SqlThread):
    """Runs what changes anything: one at a time in its process, in turn with other processes."""

    def __init__(self, path: Path, turn: Turn, name: str) -> None:
        self._durable: bool | None = None
        super().__init__(path, turn, name)

    def write(self, work: Work[T], timeout: float, what: str) -> T:
        """Run durable work for a thread that waits for it, but not for ever.

        If nobody else writes or waits, this very thread does it: to wake another and to be woken by
        it would take longer than all the rest but the flush.

        Raises:
            StoreUnavailable: it took too long; repeating the call is safe.
            Closed: the thread takes no more work.
        """
        if self._commands.empty() and self._using.acquire(blocking=False):
            try:
                if self._closed:
                    raise Closed
                connection = self._connection
                # To open one may mean to wait for the turn, which is the writer thread's to do.
                if connection is not None and time.monotonic() < self._next_look:
                    return self._write_here(connection, work)
            except _Busy:
                pass  # The writer thread waits for whoever it is.
            except sqlite3.Error as error:
                self._inode = self._next_look = 0  # The writer thread begins with a new one.
                raise unreachable(self._path, error) from error
            finally:
                self._using.release()
        return wait_for(self.submit(work), timeout, what)

    def _write_here(self, connection: sqlite3.Connection, work: Work[T]) -> T:
        """Do one piece of work in a transaction of its own, if the turn is free.

        Raises:
            _Busy: somebody else has the turn, or writes without it.
        """
        taken = False
        try:
            taken = self._turn.take_if_free()
            if not taken:
                raise _Busy
            self._set_durable(connection, True)
            with _Transaction(connection):
                return work(connection)
        finally:
            if taken:
                self._turn.__exit__()

    def _next(self) -> list[_Command[Any]] | None:
        first = self._commands.get()
        if first is None:
            return None
        group = [first]
        while len(group) < _GROUP and not self._commands.empty():
            command = self._commands.get()
            if command is None:
                self._commands.put(None)
                break
            group.append(command)
        return group

    def _perform(self, commands: list[_Command[Any]]) -> None:
        connection = self._connected()
        with self._turn:
            self._set_durable(connection, any(command.durable for command in commands))
            with _PatientTransaction(connection):
                answers = [self._try(connection, command) for command in commands]
        for command, answer in zip(commands, answers, strict=True):
            if isinstance(answer, _Failure):
                command.answer.set_exception(answer.error)
            else:
                command.answer.set_result(answer)

    def _try(self, connection: sqlite3.Connection, command: _Command[Any]) -> Any:
        """Do one piece of work so that its failure undoes it, and nothing else of the group."""
        connection.execute("SAVEPOINT piece")
        try:
            answer = command.work(connection)
        except sqlite3.OperationalError:
            raise
        except Exception as error:  # noqa: BLE001 - it is the caller's, who waits for it.
            connection.execute("ROLLBACK TO piece")
            told = unreachable(self._path, error) if isinstance(error, sqlite3.Error) else error
            answer = _Failure(told)
        connection.execute("RELEASE piece")
        return answer

    def _connect(self) -> sqlite3.Connection:
        connection = super()._connect()
        connection.execute("PRAGMA busy_timeout = 0")
        self._durable = None
        return connection

    def _set_durable(self, connection: sqlite3.Connection, durable: bool) -> None:
        if self._durable is not durable:
            connection.execute(f"PRAGMA synchronous = {'FULL' if durable else 'NORMAL'}")
            self._durable = durable


class _Transaction:
    """Commits, or undoes everything. If somebody else writes, it does not begin."""

    __slots__ = ("_connection",)

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def __enter__(self) -> None:
        try:
            self._connection.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY:
                raise _Busy(str(error)) from error
            raise
        except BaseException:
            # A signal's handler raised, in the thread of a user who writes here.
            self._undo()
            raise

    def __exit__(self, error: object, *_: object) -> None:
        try:
            if error is None:
                self._connection.execute("COMMIT")
        finally:
            self._undo()

    def _undo(self) -> None:
        if self._connection.in_transaction:
            self._connection.execute("ROLLBACK")


class _PatientTransaction(_Transaction):
    """The same, but a writer that does not take turns is waited for, for a time.

    SQLite could wait by itself, but only for one time that is set with the connection.
    """

    __slots__ = ()

    def __enter__(self) -> None:
        until = time.monotonic() + _BUSY
        while True:
            try:
                super().__enter__()
            except _Busy:
                if time.monotonic() > until:
                    raise
                time.sleep(_BUSY_LOOK)
            else:
                return


class Closed(Exception):
    """The store was closed in between; it opens again by itself."""


class _Busy(sqlite3.OperationalError):
    """Somebody else is writing."""


@dataclass(frozen=True)
class _Failure:
    error: Exception


def wait_for(answer: Future[T], timeout: float, what: str) -> T:
    """Wait for an answer in this thread, but not for ever.

    Raises:
        StoreUnavailable: it took too long; repeating the call is safe.
    """
    try:
        return answer.result(timeout)
    except TimeoutError:
        fate = "nothing was written" if answer.cancel() else "it may still be written"
        raise StoreUnavailable(
            f"{what} took longer than {timeout:g} s ({fate}): another process holds the file"
        ) from None
