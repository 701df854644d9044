"""Owns a worker as a process: its signals, and an end that always comes."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import threading
import time
from types import FrameType

from windlass.observe.logs import get_logger
from windlass.runtime import Worker
from windlass.runtime.graces import WORKER_GRACE
from windlass.runtime.leash import Leash, Leaving

log = get_logger("windlass.serve")
_SIGNALS = (signal.SIGTERM, signal.SIGINT)


def serve(worker: Worker, leash: Leash | None = None) -> None:
    """Run a worker until SIGTERM or SIGINT: the first drains, the second gives back at once.

    The end of the supervisor at the other end of the leash counts as a SIGTERM.

    Code of handlers that ignores its cancellation, or runs in a thread that never returns, would
    keep the interpreter from ending; the process then ends without it. Every job is settled then.
    """
    with asyncio.Runner() as runner:
        runner.run(_serve(worker, leash))
        if worker.left_behind:
            _exit(0)


async def _serve(worker: Worker, leash: Leash | None) -> None:
    loop = asyncio.get_running_loop()
    patience = (worker.shutdown_timeout + WORKER_GRACE).total_seconds()

    warned = False

    def stop() -> None:
        threading.Thread(target=_watch, args=(ended, patience), daemon=True).start()
        loop.call_soon_threadsafe(worker.stop)

    def told(number: int, _frame: FrameType | None) -> None:
        # Not by the loop, which a handler may block: this runs between any two steps of Python.
        nonlocal warned
        again, warned = warned, True  # At once: the next signal may interrupt this very function.
        if leash is not None and leash.is_held:
            if again and number != signal.SIGQUIT:
                return  # Who signals us all reaches us twice; the supervisor says when to hurry.
            # By a thread: what this interrupts may be a word on its way to the supervisor.
            word = Leaving("told to stop", replace=True)
            threading.Thread(target=leash.say, args=(word,), daemon=True).start()
        if number == signal.SIGQUIT:
            stop()
        stop()

    ended = threading.Event()
    if leash is not None:
        leash.start(orphaned=stop)
    before = {number: signal.signal(number, told) for number in _SIGNALS}
    if leash is not None:
        # A hangup that goes to all of us is meant for the supervisor, who rolls.
        before |= {signal.SIGQUIT: signal.signal(signal.SIGQUIT, told)}
        before |= {signal.SIGHUP: signal.signal(signal.SIGHUP, lambda *_: None)}
    try:
        await worker.run()
    finally:
        ended.set()
        threading.Thread(target=_see_off, daemon=True).start()
        for number, handler in before.items():
            # Below a supervisor this process has nothing more to do, and a signal nothing to end.
            signal.signal(number, handler if leash is None else signal.SIG_IGN)


def _see_off() -> None:
    """End the process, drained as it is, if a thread of some handler's keeps the interpreter."""
    time.sleep(WORKER_GRACE.total_seconds())
    _exit(0)


def _watch(ended: threading.Event, patience: float) -> None:
    """End the process if its shutdown does not end by itself: others will rescue its jobs."""
    if not ended.wait(patience):
        log.critical("worker.stuck", why="the event loop is blocked; ending without a drain")
        _exit(1)


def _exit(code: int) -> None:
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
