"""Owns the handler that writes a process's log lines, and the lines that it writes in groups.

Most lines are written at once, by one call. Only the two lines of every run are so frequent that a
call for each would cost more than the job: they are posted, and written together in the next
iteration of the event loop, before any other line, by a thread if the loop is blocked, and at exit.
While a worker has jobs to start, that waits for some milliseconds, until the worker waits for its
store. A killed process loses its last posted lines.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import groupby
from operator import itemgetter
from typing import Any, TextIO

from windlass.settings import LogFormat

_RETRY_SECONDS, _MAX_DELAY_SECONDS = 0.002, 0.02
"""While the worker is busy, a write is retried, and after a while done anyway."""
_GUARD_POLL_SECONDS = 0.2
_IDLE_POLLS = 10


class LogHandler(logging.StreamHandler[TextIO]):
    """The handler that `configure_logging` installs."""

    def __init__(
        self, stream: TextIO, chosen: LogFormat, formatter: logging.Formatter, *, as_json: bool
    ) -> None:
        super().__init__(stream)
        self.chosen = chosen
        self.setFormatter(formatter)
        self._given = formatter
        self.as_json = as_json
        self.posted: deque[Any] = deque()
        """Lines that wait to be written, each with its maker first; check `is_due` after adding."""
        self.is_due = False
        """Whether a write is scheduled."""
        self._guard = _Guard(self)
        _all.add(self)

    @property
    def takes_posts(self) -> bool:
        """Whether posted lines look like all others: JSON by Windlass's own formatter."""
        return self.as_json and self.formatter is self._given

    def schedule(self) -> None:
        """Schedule a write of the posted lines; called from an event loop's thread."""
        self.is_due = True
        loop = asyncio.get_running_loop()
        loop.call_soon(self._write_if_idle, loop, loop.time() + _MAX_DELAY_SECONDS)
        if not self._guard.watch():
            self.write_posted()

    def _write_if_idle(self, loop: asyncio.AbstractEventLoop, until: float) -> None:
        if self.posted and loop.time() < until and any(is_busy() for is_busy in _busy):
            loop.call_later(_RETRY_SECONDS, self._write_if_idle, loop, until)
        else:
            self.write_posted()

    def write_posted(self) -> None:
        """Write the posted lines; failures are handled as logging handles them."""
        self.is_due = False
        self.acquire()
        try:
            if self.posted:
                # By its length: lines posted meanwhile are written the next time.
                take = self.posted.popleft
                posts = [take() for _ in range(len(self.posted))]
                for maker, some in groupby(posts, key=itemgetter(0)):
                    self.stream.write(maker.written(list(some)))
                super().flush()
        except Exception:  # noqa: BLE001  A log line never costs the job that writes it.
            self.handleError(logging.makeLogRecord({"msg": "job.started or job.finished"}))
        finally:
            self.release()

    def emit(self, record: logging.LogRecord) -> None:
        """Write a line, after those that were posted before it."""
        if self.posted:
            self.write_posted()
        super().emit(record)

    def flush(self) -> None:
        """Write the posted lines, and flush the stream."""
        if self.posted:
            self.write_posted()
        super().flush()

    def forget_posted(self) -> None:
        """Drop the posted lines in a forked child: the parent writes them."""
        self.posted.clear()
        self.is_due = False
        self._guard = _Guard(self)


class Witness(logging.Handler):
    """A handler that takes the start of a run as text, without a log record."""

    def note(self, line: str, job: str) -> None:
        """Take a line about a job; must not raise."""
        raise NotImplementedError


class _Guard:
    """A thread that writes posted lines while the event loop is blocked.

    While nothing is posted, the thread sleeps without waking.
    """

    def __init__(self, lines: LogHandler) -> None:
        self._lines = weakref.ref(lines)
        self._wanted = threading.Event()
        self._thread: threading.Thread | None = None

    def watch(self) -> bool:
        """Start or wake the thread; return whether there is one."""
        if self._thread is None:
            thread = threading.Thread(target=self._run, name="windlass-log", daemon=True)
            try:
                thread.start()
            except RuntimeError:  # No more threads can be started now.
                return False
            self._thread = thread
        self._wanted.set()
        return True

    def _run(self) -> None:
        idle = 0
        while True:
            time.sleep(_GUARD_POLL_SECONDS)
            lines = self._lines()
            if lines is None:
                return
            idle = 0 if lines.posted else idle + 1
            if lines.posted:
                lines.write_posted()
            del lines
            if idle > _IDLE_POLLS:
                self._rest()
                idle = 0

    def _rest(self) -> None:
        """Sleep until a line is posted; one posted just before is not missed."""
        self._wanted.clear()
        lines = self._lines()
        if lines is not None and not lines.posted:
            del lines
            self._wanted.wait()


_all: weakref.WeakSet[LogHandler] = weakref.WeakSet()
_busy: list[Callable[[], bool]] = []


@contextmanager
def giving_way(is_busy: Callable[[], bool]) -> Iterator[None]:
    """Delay posted lines a little while `is_busy` returns True."""
    _busy.append(is_busy)
    try:
        yield
    finally:
        _busy.remove(is_busy)


def _forget_posted() -> None:
    for lines in _all:
        lines.forget_posted()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_posted)
