"""Owns the threads of the SQLite store: one writer and the readers.

The writer takes all waiting operations into one transaction, so that a hundred completions and the
next claim cost one flush to disk; each operation still succeeds or fails by itself.
"""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Generic, TypeVar

from msgspec import Struct

from windlass.core.errors import StoreUnavailable, WriteUncertain
from windlass.store.sqlite.connections.connection import (
    FileConnection,
    Transaction,
    WaitingTransaction,
    is_busy,
)
from windlass.store.sqlite.connections.write_lock import WriteLock, unreachable

T = TypeVar("T")
Operation = Callable[[sqlite3.Connection], T]
_CLOSE_POLL_SECONDS = 0.5
_BLOCKED_SECONDS = 1.0
"""Seconds after which a write lock that is waited for counts as blocked."""
_MAX_GROUP = 256
"""Most operations that share a transaction: the first must not wait forever."""
_QUICK_SECONDS = 0.002
"""The longest that a commit may take, or a write that an event loop does itself."""
_PROOFS = 16
"""How many in a row must have been quick before a loop writes itself; a slow one halves the count.

After twice as many, a single slow one, as a busy machine has them, changes nothing yet.
"""
_MAX_PROOFS = 2 * _PROOFS


class Closed(Exception):
    """The store was closed in between; it opens again by itself."""


class _Command(Struct, Generic[T], frozen=True):
    operation: Operation[Any]
    durable: bool
    answer: Future[T]
    read: Operation[T] | None = None
    """Reads the answer after the commit, when other processes may write again."""


class Failure(Struct, frozen=True):
    """What an operation of a group raised."""

    error: BaseException


class Deferred(Exception):
    """An operation would have to wait, and nothing was written: the writer thread can wait."""


class _SqlThread(FileConnection):
    """A thread that owns one connection and runs the operations given to it, in order."""

    def __init__(self, path: Path, write_lock: WriteLock, name: str) -> None:
        super().__init__(path, write_lock)
        self._commands: SimpleQueue[_Command[Any] | None] = SimpleQueue()
        self._gate = threading.Lock()
        self._closed = False
        # A daemon: a write lock that never comes free must not keep the process from ending.
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def submit(self, operation: Operation[T], *, durable: bool = True) -> Future[T]:
        """Run an operation on the connection, and answer when its writes are committed.

        An operation that is not `durable` may be lost if the machine loses power right after.

        Raises:
            Closed: the thread takes no more operations.
        """
        return self._submit(_Command(operation, durable, Future[T]()))

    def _submit(self, command: _Command[T]) -> Future[T]:
        with self._gate:
            if self._closed:
                raise Closed
            self._commands.put(command)
        return command.answer

    def close(self, timeout: float = 10) -> None:
        """Finish the submitted operations, then close the connection.

        Operations that wait for a write lock held elsewhere are given up, so that a close ends.
        """
        with self._gate:
            self._closed = True
            self._commands.put(None)
        until = time.monotonic() + timeout
        while self._thread.is_alive() and time.monotonic() < until:
            self._thread.join(_CLOSE_POLL_SECONDS)
            if self._write_lock.waiting_seconds > _BLOCKED_SECONDS:
                return

    def _run(self) -> None:
        while (commands := self._next()) is not None:
            with self._in_use:
                try:
                    self._perform(commands)
                except BaseException as error:  # noqa: BLE001 - the callers wait for it.
                    self._fail(commands, error)
        with self._in_use:
            self._disconnect()

    def _next(self) -> list[_Command[Any]] | None:
        command = self._commands.get()
        return None if command is None else [command]

    def _perform(self, commands: list[_Command[Any]]) -> None:
        _drop_cancelled(commands)
        if not commands:
            return
        connection = self._connected()
        for command in commands:
            command.answer.set_result(command.operation(connection))

    def _fail(self, commands: list[_Command[Any]], error: BaseException) -> None:
        reported: BaseException = error
        if isinstance(error, sqlite3.Error):
            reported = unreachable(self._path, error)
        elif not isinstance(error, Exception):
            reported = StoreUnavailable(f"{self._path}: interrupted by {error!r}")
        for command in commands:
            answer = command.answer
            if not answer.done() and (answer.running() or answer.set_running_or_notify_cancel()):
                answer.set_exception(reported)
        if isinstance(error, sqlite3.OperationalError):
            # The connection may be the cause; the next command opens a new one.
            self._disconnect()


class Reader(_SqlThread):
    """Runs operations that only read."""


class Writer(_SqlThread):
    """Runs operations that write, one group at a time among all processes."""

    def __init__(self, path: Path, write_lock: WriteLock, name: str) -> None:
        self._durable: bool | None = None
        self._quick_commits = 0
        super().__init__(path, write_lock, name)

    @property
    def is_quick(self) -> bool:
        """Whether commits have lately been so quick that an event loop may do them itself."""
        return self._quick_commits >= _PROOFS

    def write(
        self, operation: Operation[T], timeout: float, what: str, *, is_statement: bool = False
    ) -> T:
        """Run a durable operation for the calling thread, within a timeout.

        If nothing else writes or waits, the calling thread runs it: a switch to the writer thread
        and back would take longer than all the rest but the flush. One that is a single statement
        needs no other to begin and to commit.

        Raises:
            WriteUncertain: it took too long, and is under way.
            StoreUnavailable: it took too long, or failed, and is not written.
            Closed: the thread takes no more operations.
        """
        try:
            return self.write_here(operation, is_statement=is_statement)
        except Deferred:
            return self.wait_for(self.submit(operation), timeout, what)

    def wait_for(self, answer: Future[T], timeout: float, what: str) -> T:
        """Wait in this thread for a submitted operation.

        Raises:
            WriteUncertain: it took too long, and is under way.
            StoreUnavailable: it took too long, and is not written.
        """
        try:
            return answer.result(timeout)
        except TimeoutError:
            return give_up(answer, timeout, what, self._write_lock)

    def write_at_once(self, operations: Sequence[Operation[Any]]) -> list[Any]:
        """Run durable operations in the calling thread, in one transaction.

        Return the answer of each, or a `Failure`.

        Raises:
            Deferred: that would have to wait.
            StoreError: the transaction failed; nothing is written.
            Closed: the thread takes no more operations.
        """
        if len(operations) == 1:
            return [self.write_here(operations[0])]
        return self.write_here(
            lambda connection: [self._try(connection, each) for each in operations]
        )

    def write_here(self, operation: Operation[T], *, is_statement: bool = False) -> T:
        """Run a durable operation in the calling thread; raises what `write_at_once` does."""
        if not self._commands.empty() or not self._in_use.acquire(blocking=False):
            raise Deferred
        try:
            if self._closed:
                raise Closed
            connection = self._connection
            # Opening may have to wait for the write lock: only the writer thread does that.
            if connection is None or time.monotonic() >= self._next_file_check:
                raise Deferred
            return self._write_locked(connection, operation, is_statement)
        except sqlite3.Error as error:
            if is_busy(error):
                raise Deferred from None  # The writer thread waits for the other connection.
            self._inode = self._next_file_check = 0  # The writer thread connects again.
            raise unreachable(self._path, error) from error
        finally:
            self._in_use.release()

    def _write_locked(
        self, connection: sqlite3.Connection, operation: Operation[T], is_statement: bool
    ) -> T:
        locked = False
        try:
            locked = self._write_lock.acquire_if_free()
            if not locked:
                raise Deferred
            if not self._durable:
                self._set_durable(connection, True)
            began = time.perf_counter()
            # A transaction by itself, unless a signal kept an earlier one from its end.
            if is_statement and not connection.in_transaction:
                answer = operation(connection)
            else:
                with Transaction(connection):
                    answer = operation(connection)
            self._note(time.perf_counter() - began)
            return answer
        finally:
            if locked:
                self._write_lock.release()

    def submit_then_read(self, operation: Operation[object], read: Operation[T]) -> Future[T]:
        """Run an operation that is not durable, and answer with a look at what it has committed.

        Raises:
            Closed: the thread takes no more operations.
        """
        return self._submit(_Command(operation, False, Future[T](), read))

    def _next(self) -> list[_Command[Any]] | None:
        first = self._commands.get()
        if first is None:
            return None
        group = [first]
        while len(group) < _MAX_GROUP and not self._commands.empty():
            command = self._commands.get()
            if command is None:
                self._commands.put(None)
                break
            group.append(command)
        return group

    def _perform(self, commands: list[_Command[Any]]) -> None:
        connection = self._connected()
        with self._write_lock:
            # Only now: a caller that gave up waiting for the lock relies on nothing being written.
            _drop_cancelled(commands)
            if not commands:
                return
            self._set_durable(connection, any(command.durable for command in commands))
            with WaitingTransaction(connection) as transaction:
                answers = [self._try(connection, command.operation) for command in commands]
            self._note(transaction.commit_seconds)
        readers = []
        for command, answer in zip(commands, answers, strict=True):
            if isinstance(answer, Failure):
                command.answer.set_exception(answer.error)
            elif command.read is not None:
                readers.append((command.read, command.answer))  # After those that need none.
            else:
                command.answer.set_result(answer)
        for read, answer in readers:
            self._read(connection, read, answer)

    def _read(
        self, connection: sqlite3.Connection, read: Operation[Any], answer: Future[Any]
    ) -> None:
        try:
            answer.set_result(read(connection))
        except Exception as error:  # noqa: BLE001 - it goes to the caller, who waits for it.
            is_sql = isinstance(error, sqlite3.Error)
            answer.set_exception(unreachable(self._path, error) if is_sql else error)
            if isinstance(error, sqlite3.OperationalError):
                self._disconnect()  # The connection may be the cause.

    def _try(self, connection: sqlite3.Connection, operation: Operation[Any]) -> Any:
        """Run one operation so that its failure undoes it, and nothing else of the group."""
        connection.execute("SAVEPOINT operation")
        try:
            answer = operation(connection)
        except sqlite3.OperationalError:
            raise
        except Exception as error:  # noqa: BLE001 - it goes to the caller, who waits for it.
            connection.execute("ROLLBACK TO operation")
            is_sql = isinstance(error, sqlite3.Error)
            answer = Failure(unreachable(self._path, error) if is_sql else error)
        connection.execute("RELEASE operation")
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

    def _note(self, seconds: float) -> None:
        if not self._durable:
            return
        if seconds > _QUICK_SECONDS:
            self._quick_commits //= 2
        elif self._quick_commits < _MAX_PROOFS:
            self._quick_commits += 1


def _drop_cancelled(commands: list[_Command[Any]]) -> None:
    """Drop commands whose callers gave up; the others cannot be cancelled from now on."""
    commands[:] = [command for command in commands if command.answer.set_running_or_notify_cancel()]


def give_up(answer: Future[T], timeout: float, what: str, write_lock: WriteLock) -> T:
    """Stop waiting for a submitted operation; return its answer if it has just been done.

    Raises:
        WriteUncertain: it is under way.
        StoreUnavailable: it is not done, and never will be.
    """
    if answer.cancel():
        raise late(timeout, what, write_lock)
    if answer.done():
        return answer.result()
    raise WriteUncertain(f"{what} took longer than {timeout:g} s: {write_lock.blame()}")


def late(timeout: float, what: str, write_lock: WriteLock) -> StoreUnavailable:
    """Return the error that names the slow operation, and the process that blocks it."""
    return StoreUnavailable(
        f"{what} took longer than {timeout:g} s (nothing was written): {write_lock.blame()}"
    )
