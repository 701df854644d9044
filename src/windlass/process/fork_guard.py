"""Owns the handling of forks that a handler makes: a fork must never continue as a
second worker.
"""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Callable
from contextlib import suppress
from types import FrameType
from typing import Any
from weakref import WeakSet

Handler = Callable[[int, FrameType | None], Any]
_loops: WeakSet[asyncio.AbstractEventLoop] = WeakSet()
_handled: dict[int, tuple[Handler, Any]] = {}
"""The signals that this process handles: the handler, and the one before it."""


class _Forks:
    """Number of forks between the first process and this one."""

    count = 0


def guard(loop: asyncio.AbstractEventLoop) -> None:
    """End a fork of this process as soon as it returns to this loop."""
    _loops.add(loop)


def unguard(loop: asyncio.AbstractEventLoop) -> None:
    """Let forks of this process continue."""
    _loops.discard(loop)


def handle_signal(number: int, handler: Handler) -> Any:
    """Handle a signal in this process, but not in its forks; return the previous handler.

    A fork that kept the handler could not be ended by `Process.terminate()`, nor by a pool's end.
    """
    before = signal.signal(number, handler)
    _handled[number] = handler, before
    return before


def forks() -> int:
    """Return a number that differs in a fork of this process that Python made.

    A fork that a library makes without Python must not return to Python at all.
    """
    return _Forks.count


def end_if_forked(since: int) -> None:
    """End this process if it was forked since `forks` returned this: it may not settle the job."""
    if _Forks.count != since:
        os._exit(0)


class _Masked(threading.local):
    """The signals that a thread had blocked before it forked."""

    before: set[int] | None = None


_masked = _Masked()


def _before_fork() -> None:
    """Block signals in a fork until it has its own handlers: before that they would be lost."""
    _masked.before = signal.pthread_sigmask(signal.SIG_BLOCK, _handled) if _handled else None


def _after_fork() -> None:
    if _masked.before is not None:
        signal.pthread_sigmask(signal.SIG_SETMASK, _masked.before)


def _in_fork() -> None:
    _Forks.count += 1
    for number, (handler, before) in _handled.items():
        # Only handlers of Windlass: a handler of the user's own is meant for forks, too.
        if signal.getsignal(number) is handler:
            # asyncio handled SIGINT before, for a loop that the fork does not run.
            is_asyncio = number == signal.SIGINT and before is not signal.SIG_IGN
            signal.signal(number, signal.default_int_handler if is_asyncio else before)
    _handled.clear()
    _after_fork()
    for loop in list(_loops):
        with suppress(RuntimeError):
            loop.call_soon(os._exit, 0)


os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_in_fork)
