"""Owns a child process's own end: its tether to the worker, and what makes it safe to kill.

The file descriptors here are above those that a handler is likely to close, or to find free.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from windlass.runtime.blackbox import BlackBox
from windlass.runtime.words import BROKEN, Frames, Order, Word, frame, order_of

_HIGH = 64
_PIECE = 65_536
_PR_SET_PDEATHSIG = 1


def take_place(parent: int, tether: int, box: int) -> tuple[Tether, BlackBox]:
    """Make this process a child that ends with its worker and by nobody else's signals."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        # Not SIG_IGN, which programs that a handler starts would inherit.
        signal.signal(number, _ignored)
    _end_with_parent(parent)
    black_box = BlackBox.attach(_lift(box))
    return Tether(_lift(tether)), black_box


class Tether:
    """The child's end of the socket. What was forked here is cut off from it."""

    def __init__(self, fd: int) -> None:
        self._socket = socket.socket(fileno=fd)
        self._identity = _identity(fd)
        self._pid = os.getpid()
        self._sending = threading.Lock()
        self._frames = Frames()
        self._waiting: list[bytes] = []
        os.register_at_fork(after_in_child=self._forsake)

    def send(self, word: Word) -> None:
        """Say something; a process that cannot be heard ends."""
        self.check()
        try:
            with self._sending:
                self._socket.sendall(frame(word))
        except OSError:
            os._exit(BROKEN)

    def receive(self) -> Order | None:
        """Return what the worker says next, or None if it has gone."""
        while not self._waiting:
            try:
                data = self._socket.recv(_PIECE)
            except OSError:
                return None
            if not data:
                return None
            self._waiting += self._frames.feed(data)
        return order_of(self._waiting.pop(0))

    def check(self) -> None:
        """End this process if a handler forked it, so that it has no job, or has closed its tether.

        The tether's number may be another file's by now, into which we must not write.
        """
        if os.getpid() != self._pid:
            os._exit(0)
        if _identity(self._socket.fileno()) != self._identity:
            os._exit(BROKEN)

    def _forsake(self) -> None:
        self._socket.close()


@contextmanager
def high_descriptors() -> Iterator[None]:
    """Let whatever is opened in this block have a high descriptor."""
    taken: list[int] = []
    try:
        while not taken or taken[-1] < _HIGH:
            taken.append(os.open(os.devnull, os.O_RDONLY))
        yield
    finally:
        for fd in taken:
            os.close(fd)


def _lift(fd: int) -> int:
    """Move a descriptor out of the way."""
    high = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, _HIGH)
    os.close(fd)
    return high


def _identity(fd: int) -> tuple[int, int] | None:
    try:
        found = os.fstat(fd)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _end_with_parent(parent: int) -> None:
    """Let the kernel kill this process when its worker dies, where the kernel does such things.

    Elsewhere, and if this process should be stuck, the end of the tether does it.
    """
    if sys.platform == "linux":
        with suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(0)


def _ignored(_number: int, _frame: object) -> None:
    """Do nothing: it is the worker who ends its children."""
