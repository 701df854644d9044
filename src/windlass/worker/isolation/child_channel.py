"""Owns a child process's end of the channel to its worker, and makes the process safe to kill."""

from __future__ import annotations

import ctypes
import fcntl
import os
import signal
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import msgspec

from windlass.process.channel import Channel
from windlass.process.exits.black_box import BlackBox
from windlass.process.fork_guard import handle_signal
from windlass.worker.isolation.protocol import CHANNEL_LOST_EXIT_CODE, WorkerMessage

_LOWEST_DESCRIPTOR = 64
"""Handlers are unlikely to close descriptors above this number, or to be given them."""
_PR_SET_PDEATHSIG = 1


def become_child(parent: int, channel: int, box: int) -> tuple[ChildChannel, BlackBox]:
    """Make this process a child that ends with its worker and ignores signals from others."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        # Not SIG_IGN, which programs that a handler starts would inherit.
        handle_signal(number, _ignore)
    _end_with_parent(parent)
    black_box = BlackBox.attach(_lift(box))
    return ChildChannel(_lift(channel)), black_box


class ChildChannel(Channel[WorkerMessage]):
    """The child's end of the channel. A process that a handler forks is cut off from it."""

    def __init__(self, fd: int) -> None:
        super().__init__(socket.socket(fileno=fd), msgspec.msgpack.Decoder(WorkerMessage))
        self._identity = _identity(fd)
        os.register_at_fork(after_in_child=self.close)

    def send(self, message: msgspec.Struct) -> None:
        """Send a message; end the process if the channel is closed."""
        self.check()
        try:
            super().send(message)
        except OSError:
            os._exit(CHANNEL_LOST_EXIT_CODE)

    def check(self) -> None:
        """End this process if a handler forked it, or if a handler closed the channel.

        The channel's descriptor may be reused for another file, which must not be written to.
        """
        if os.getpid() != self._pid:
            os._exit(0)
        if _identity(self.fileno()) != self._identity:
            os._exit(CHANNEL_LOST_EXIT_CODE)


@contextmanager
def high_descriptors() -> Iterator[None]:
    """Give every file that is opened in this block a high descriptor."""
    taken: list[int] = []
    try:
        while not taken or taken[-1] < _LOWEST_DESCRIPTOR:
            taken.append(os.open(os.devnull, os.O_RDONLY))
        yield
    finally:
        for fd in taken:
            os.close(fd)


def _lift(fd: int) -> int:
    high = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, _LOWEST_DESCRIPTOR)
    os.close(fd)
    return high


def _identity(fd: int) -> tuple[int, int] | None:
    try:
        status = os.fstat(fd)
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _end_with_parent(parent: int) -> None:
    """Have the kernel kill this process when its worker dies, where the kernel supports that.

    Elsewhere, and if this process should be stuck, the end of the channel does it.
    """
    if sys.platform == "linux":
        with suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(0)


def _ignore(_number: int, _frame: object) -> None:
    pass
