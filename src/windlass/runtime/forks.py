"""Owns what becomes of a fork that a handler makes: it must never go on as a second worker."""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress
from weakref import WeakSet

_loops: WeakSet[asyncio.AbstractEventLoop] = WeakSet()


class _Forks:
    """How many forks this process is away from the first one."""

    count = 0


def guard(loop: asyncio.AbstractEventLoop) -> None:
    """Let a fork of this process end as soon as it comes back to this loop."""
    _loops.add(loop)


def unguard(loop: asyncio.AbstractEventLoop) -> None:
    """Let forks do what they like again."""
    _loops.discard(loop)


def forks() -> int:
    """Return a number that is another one in a fork of this process, made by Python.

    What a library forks without a word to Python must not come back to Python at all.
    """
    return _Forks.count


def end_if_forked(since: int) -> None:
    """End this process if it was forked since `forks` said this: a job is not its to settle."""
    if _Forks.count != since:
        os._exit(0)


def _in_fork() -> None:
    _Forks.count += 1
    for loop in list(_loops):
        with suppress(RuntimeError):
            loop.call_soon(os._exit, 0)


os.register_at_fork(after_in_child=_in_fork)
