"""Owns a process's access to the database file: its threads, their start, close and forks."""

from __future__ import annotations

import asyncio
import os
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from datetime import datetime, timedelta
from pathlib import Path
from typing import TypeVar

from msgspec import Struct

from windlass.core.errors import StoreUnavailable
from windlass.store.sqlite.connections.connection import ChangeWatch
from windlass.store.sqlite.connections.file import opening
from windlass.store.sqlite.connections.loop_writes import Answer, Item, LoopWrites, Run
from windlass.store.sqlite.connections.threads import (
    Closed,
    Deferred,
    Operation,
    Reader,
    Writer,
    give_up,
    late,
)
from windlass.store.sqlite.connections.write_lock import WriteLock

T = TypeVar("T")
_FORK_TIMEOUT_SECONDS = 5.0
_LOCK_TIMEOUT_SECONDS = 20.0
"""Seconds after which a write lock that is not released is an error; no write takes that long."""
_MIN_POLL_SECONDS = 0.001
_MAX_POLL_SECONDS = 0.02
_POLLS_PER_WAIT = 20
"""The pause between two polls is this fraction of the time since the last change."""


class Threads(Struct):
    """The threads and connections of one process; they are of no use in another."""

    write_lock: WriteLock
    writer: Writer
    sweeper: Reader
    reader: Reader
    watch: ChangeWatch

    @property
    def connections(self) -> tuple[Writer | Reader | ChangeWatch, ...]:
        """Everything that may have a connection open."""
        return (self.writer, self.sweeper, self.reader, self.watch)

    @property
    def replaced_at(self) -> datetime | None:
        """When another file, or none, was last found where an open one had been."""
        return max(filter(None, (each.replaced_at for each in self.connections)), default=None)


class FileAccess:
    """Runs operations on one file; opens it on first use, and again after a close or fork."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._threads: Threads | None = None
        self._opening: Future[Threads] | None = None
        self._suspended: list[Writer | Reader | ChangeWatch] = []
        self._inherited: Threads | None = None
        self._of_thread = threading.local()
        _all.add(self)

    async def opened(self) -> Threads:
        """Return the threads of this process, started on first use."""
        if (threads := self._threads) is not None:
            return threads
        ready = self._start_opening()
        try:
            async with asyncio.timeout(_LOCK_TIMEOUT_SECONDS):
                return await asyncio.wrap_future(ready)
        except TimeoutError:
            raise self._not_opened(_LOCK_TIMEOUT_SECONDS) from None

    def ready(self) -> Threads:
        """Return the same, but wait in this thread, without a timeout."""
        if (threads := self._threads) is not None:
            return threads
        if self._inherited is not None:
            raise StoreUnavailable(
                f"this process was forked while {self._path} was being written, and SQLite cannot "
                "be used on both sides of a fork; close the app before forking, or start a new "
                "process"
            )
        write_lock = WriteLock(self._path)
        with opening(self._path, write_lock):
            pass  # The threads open it when they need it; this raises if it cannot be opened.
        threads = Threads(
            write_lock=write_lock,
            writer=Writer(self._path, write_lock, "windlass-write"),
            sweeper=Reader(self._path, write_lock, "windlass-sweep"),
            reader=Reader(self._path, write_lock, "windlass-read"),
            watch=ChangeWatch(self._path, write_lock),
        )
        self._threads = threads
        return threads

    def close(self) -> None:
        """Finish the submitted operations, and close all connections."""
        with self._lock:
            threads, self._threads = self._threads, None
        if threads is not None:
            for thread in (threads.sweeper, threads.reader, threads.writer):
                thread.close()
            threads.watch.close()
            threads.write_lock.close()

    # -- operations ----------------------------------------------------------------------------

    async def read(self, operation: Operation[T]) -> T:
        return await self.run(lambda threads: threads.reader.submit(operation))

    async def run(self, submit: Callable[[Threads], Future[T]]) -> T:
        """Submit an operation and return its answer; a store closed meanwhile opens again."""
        while True:
            threads = await self.opened()
            try:
                answer = submit(threads)
            except Closed:
                continue
            return await asyncio.wrap_future(answer)

    async def write(self, operation: Operation[T], *, durable: bool = True) -> T:
        """Run an operation that writes.

        Raises:
            StoreUnavailable: the write lock did not come free, and nothing was written.
        """
        return await self._written(
            lambda threads: threads.writer.submit(operation, durable=durable)
        )

    async def write_then_read(self, operation: Operation[object], read: Operation[T]) -> T:
        """Run an operation that writes and is not durable; return what is read after its commit.

        Raises:
            StoreUnavailable: the write lock did not come free, and nothing was written.
        """
        return await self._written(lambda threads: threads.writer.submit_then_read(operation, read))

    async def _written(self, submit: Callable[[Threads], Future[T]]) -> T:
        while True:
            threads = await self.opened()
            try:
                answer = submit(threads)
            except Closed:
                continue
            return await _within_lock_timeout(answer, threads.write_lock)

    async def write_within(self, operation: Operation[T], timeout: timedelta, what: str) -> T:
        """Run an operation that writes, within a timeout.

        Raises:
            WriteUncertain: it took too long, and is under way.
            StoreUnavailable: it took too long, or failed, and is not written.
        """
        seconds = timeout.total_seconds()
        answer: Future[T] | None = None

        def submit(threads: Threads) -> Future[T]:
            nonlocal answer
            answer = threads.writer.submit(operation)
            return answer

        try:
            async with asyncio.timeout(seconds):
                return await self.run(submit)
        except TimeoutError:
            if answer is None:
                raise self._not_opened(seconds) from None
            return give_up(answer, seconds, what, WriteLock(self._path))

    def write_alone(
        self, items: Sequence[Item], run: Run[Item, Answer], *, is_statement: bool
    ) -> list[Answer] | None:
        """Write a few small items at once for an event loop whose only caller this is.

        Return None if nothing is written, since commits are slow or there are other callers.
        `is_statement` says that these items are a single statement.
        """
        threads = self._threads
        if threads is None or not threads.writer.is_quick:
            return None
        writes = self._loop_writes(threads.writer, run)
        if not writes.may_write_alone:
            return None
        try:
            return writes.write_alone(items, is_statement)
        except (Deferred, Closed):
            return None  # Nothing is written: `write_small_within` can wait.

    async def write_small_within(
        self,
        items: Sequence[Item],
        run: Run[Item, Answer],
        timeout: timedelta,
        what: str,
        *,
        is_statement: bool,
    ) -> list[Answer]:
        """Do the same for a few small items, in the loop's own thread if commits are quick.

        That waits for nobody; the timeout counts only for the writer thread. `is_statement` says
        that the items, if they are written alone, are a single statement.
        """
        threads = self._threads
        if threads is not None and threads.writer.is_quick:
            try:
                writes = self._loop_writes(threads.writer, run)
                return await writes.write(items, is_statement)
            except (Deferred, Closed):
                pass  # Nothing is written: the writer thread can wait, or the file opens again.
        return await self.write_within(lambda db: run(db, items), timeout, what)

    def write_blocking(
        self,
        operation: Operation[T],
        timeout: timedelta,
        what: str,
        *,
        durable: bool = True,
        is_statement: bool = False,
    ) -> T:
        """Do the same from a thread without an event loop."""
        seconds = timeout.total_seconds()
        while True:
            writer = (self._threads or self._ready_within(seconds)).writer
            try:
                if durable:
                    return writer.write(operation, seconds, what, is_statement=is_statement)
                return writer.wait_for(writer.submit(operation, durable=False), seconds, what)
            except Closed:
                continue

    async def wait_for_commit(self, mark: int, timeout: timedelta) -> None:
        """Return when the version of the file is not `mark` any more, or at timeout."""
        watch = (await self.opened()).watch
        began = time.monotonic()
        until = began + timeout.total_seconds()
        # Every commit ends the wait, but a woken worker only reads: heartbeats cause no writes.
        while self._threads is not None and watch.version_if_ready() == mark:
            if (now := time.monotonic()) >= until:
                return
            pause = min(max((now - began) / _POLLS_PER_WAIT, _MIN_POLL_SECONDS), _MAX_POLL_SECONDS)
            await asyncio.sleep(min(pause, until - now))

    # -- forks ---------------------------------------------------------------------------------

    def before_fork(self) -> None:
        """Close every connection.

        SQLite keeps an account of its locks for each process, and a fork copies the account but not
        the locks: a connection on the other side would believe in locks that it does not hold, and
        write into a log that others have deleted.
        """
        self._suspended = []
        threads = self._threads
        for connection in () if threads is None else threads.connections:
            if connection.suspend(_FORK_TIMEOUT_SECONDS):
                self._suspended.append(connection)

    def after_fork_in_parent(self) -> None:
        """Let the connections be opened again."""
        for connection in self._suspended:
            connection.resume()
        self._suspended = []

    def after_fork_in_child(self) -> None:
        """Start anew; refuse to if a connection could not be closed in time."""
        threads, self._threads = self._threads, None
        self._lock = threading.Lock()
        self._opening = None
        if threads is not None:
            if len(self._suspended) < len(threads.connections):
                self._inherited = threads
            # A child that outlives its parent must not hold a lock taken at that moment.
            threads.write_lock.close()

    def _loop_writes(self, writer: Writer, run: Run[Item, Answer]) -> LoopWrites[Item, Answer]:
        loop = asyncio.get_running_loop()
        writes: LoopWrites[Item, Answer] | None = getattr(self._of_thread, "writes", None)
        if writes is None or writes.loop is not loop or writes.writer is not writer:
            writes = self._of_thread.writes = LoopWrites(loop, writer, run)
        return writes

    # -- opening -------------------------------------------------------------------------------

    def _start_opening(self) -> Future[Threads]:
        """Begin to open the file, once for all callers: it may have to wait for the lock."""
        with self._lock:
            if self._opening is None or self._opening.done():
                self._opening = in_thread(self.ready)
            return self._opening

    def _ready_within(self, timeout: float) -> Threads:
        try:
            return self._start_opening().result(timeout)
        except TimeoutError:
            raise self._not_opened(timeout) from None

    def _not_opened(self, timeout: float) -> StoreUnavailable:
        return late(timeout, "opening the file", WriteLock(self._path))


async def _within_lock_timeout(answer: Future[T], write_lock: WriteLock) -> T:
    loop = asyncio.get_running_loop()
    # This does not cancel an operation that has the lock, however long that takes.
    timer = loop.call_later(_LOCK_TIMEOUT_SECONDS, answer.cancel)
    try:
        return await asyncio.wrap_future(answer)
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if loop.time() < timer.when() or (task is not None and task.cancelling()):
            raise
        raise late(_LOCK_TIMEOUT_SECONDS, "waiting for the write lock", write_lock) from None
    finally:
        timer.cancel()


def in_thread(call: Callable[[], T]) -> Future[T]:
    """Run a call that may wait for the write lock in a daemon thread of its own.

    Not in the event loop's executor: that would be used up, and would keep the program from ending.
    """
    answer: Future[T] = Future()
    answer.set_running_or_notify_cancel()

    def run() -> None:
        try:
            answer.set_result(call())
        except BaseException as error:  # noqa: BLE001 - the caller waits for it.
            answer.set_exception(error)

    threading.Thread(target=run, name="windlass-file", daemon=True).start()
    return answer


_all: weakref.WeakSet[FileAccess] = weakref.WeakSet()


def _for_all(action: Callable[[FileAccess], None]) -> Callable[[], None]:
    def run() -> None:
        for access in list(_all):
            action(access)

    return run


os.register_at_fork(
    before=_for_all(FileAccess.before_fork),
    after_in_parent=_for_all(FileAccess.after_fork_in_parent),
    after_in_child=_for_all(FileAccess.after_fork_in_child),
)
