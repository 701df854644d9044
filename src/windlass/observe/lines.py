"""Owns the handler that writes a process's log lines, and those that it writes some at a time.

Every line of ours or of the user's is written at once, by one call. Only the two lines that each
run has come so often that a call for each would cost more than the job: they are posted, and
written together at the next turn of the event loop, before any other line, by a thread if the loop
does not turn for a while, and at exit. Where a worker has jobs to start, that waits for up to some
milliseconds: it will soon wait for its store. Who kills a process loses its last posted lines.
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

_MOMENT, _LONGEST = 0.002, 0.02
"""Seconds after which it is looked again whether this is a time to write, and after which it is."""
_PATIENCE = 0.2
_IDLE_ROUNDS = 10


class Lines(logging.StreamHandler[TextIO]):
    """The handler that `configure_logging` installs."""

    def __init__(
        self, stream: TextIO, chosen: LogFormat, formatter: logging.Formatter, *, as_json: bool
    ) -> None:
        super().__init__(stream)
        self.chosen = chosen
        self.setFormatter(formatter)
        self._given = formatter
        self._as_json = as_json
        self.posted: deque[Any] = deque()
        """What waits to be written, each with its maker first; who adds some looks at `is_due`."""
        self.is_due = False
        """Whether somebody is about to write them."""
        self._guard = _Guard(self)
        _all.add(self)

    @property
    def takes_posts(self) -> bool:
        """Whether what is posted looks like all other lines: as JSON, by our own formatter."""
        return self._as_json and self.formatter is self._given

    def schedule(self) -> None:
        """See to it that what was posted is written soon; called from an event loop's thread."""
        self.is_due = True
        loop = asyncio.get_running_loop()
        loop.call_soon(self._write_if_idle, loop, loop.time() + _LONGEST)
        if not self._guard.watch():
            self.write_posted()

    def _write_if_idle(self, loop: asyncio.AbstractEventLoop, until: float) -> None:
        """Write what was posted, unless this is not the time: then a little later."""
        if self.posted and loop.time() < until and any(is_busy() for is_busy in _busy):
            loop.call_later(_MOMENT, self._write_if_idle, loop, until)
        else:
            self.write_posted()

    def write_posted(self) -> None:
        """Write what was posted; what cannot be written is told of as logging does."""
        self.is_due = False
        self.acquire()
        try:
            if self.posted:
                # By its length: who posts meanwhile is written the next time.
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
        """Write a line, after what was posted before it."""
        if self.posted:
            self.write_posted()
        super().emit(record)

    def flush(self) -> None:
        """Write what was posted, and let go of all that the stream holds back."""
        if self.posted:
            self.write_posted()
        super().flush()

    def forget_posted(self) -> None:
        """Leave what was posted to the process that posted it: this one was forked from it."""
        self.posted.clear()
        self.is_due = False
        self._guard = _Guard(self)


class Witness(logging.Handler):
    """A handler that takes the start of a run as a line, without a record being made of it."""

    def note(self, line: str, job: str) -> None:
        """Take a line about a job; it raises nothing."""
        raise NotImplementedError


class _Guard:
    """A thread that writes what was posted when the loop does not: a handler may hold it for long.

    It sleeps without waking while nothing is posted.
    """

    def __init__(self, lines: Lines) -> None:
        self._lines = weakref.ref(lines)
        self._wanted = threading.Event()
        self._thread: threading.Thread | None = None

    def watch(self) -> bool:
        """See to it that what is posted now is written before long; say if that can be."""
        if self._thread is None:
            thread = threading.Thread(target=self._run, name="windlass-log", daemon=True)
            try:
                thread.start()
            except RuntimeError:  # There may be as many as there can be, and one less later.
                return False
            self._thread = thread
        self._wanted.set()
        return True

    def _run(self) -> None:
        idle = 0
        while True:
            time.sleep(_PATIENCE)
            lines = self._lines()
            if lines is None:
                return
            idle = 0 if lines.posted else idle + 1
            if lines.posted:
                lines.write_posted()
            del lines
            if idle > _IDLE_ROUNDS:
                self._rest()
                idle = 0

    def _rest(self) -> None:
        """Sleep until something is posted; what was posted while we lay down is seen, too."""
        self._wanted.clear()
        lines = self._lines()
        if lines is not None and not lines.posted:
            del lines
            self._wanted.wait()


_all: weakref.WeakSet[Lines] = weakref.WeakSet()
_busy: list[Callable[[], bool]] = []


@contextmanager
def giving_way(is_busy: Callable[[], bool]) -> Iterator[None]:
    """Let what is posted wait for a moment as long as somebody has better things to do."""
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
