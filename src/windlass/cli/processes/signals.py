"""Owns a worker as a process: its signals, and an end that always comes.

At SIGTERM it stops the worker, whose `shutdown` drains it.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from types import FrameType
from typing import NoReturn

from windlass.observability.logs import get_logger
from windlass.process.event_loop import MainTask, run_until_done, where
from windlass.process.fork_guard import handle_signal
from windlass.process.grace_periods import WORKER_GRACE
from windlass.process.supervisor_channel import Leaving, SupervisorChannel
from windlass.worker import Worker

log = get_logger("windlass.signals")
_LOOP_ANSWER_SECONDS = 0.5
"""Seconds within which an event loop that is not blocked answers."""
_SIGNALS = (signal.SIGTERM, signal.SIGINT)


def serve(worker: Worker, channel: SupervisorChannel | None = None) -> None:
    """Run a worker until SIGTERM or SIGINT: the first drains, the second gives jobs back at once.

    The end of the supervisor at the other end of the channel counts as a SIGTERM.

    Handler code that ignores its cancellation, or runs in a thread that never returns, would keep
    the interpreter from ending; the process then ends without it. Every job is settled by then.

    A job that ends the event loop crashes the process: no job is given back as after a drain.
    """
    with asyncio.Runner() as runner:
        main = MainTask(_serve(worker, channel), runner.get_loop(), _crash)
        run_until_done(main, _crash)
        if worker.left_behind:
            _exit(0)


async def _serve(worker: Worker, channel: SupervisorChannel | None) -> None:
    loop = asyncio.get_running_loop()
    patience = (worker.shutdown_timeout + WORKER_GRACE).total_seconds()

    warned = False

    def stop() -> None:
        watched = (ended, patience, partial(_why_stuck, loop, worker))
        threading.Thread(target=_watch, args=watched, daemon=True).start()
        loop.call_soon_threadsafe(worker.stop)

    def handle(number: int, _frame: FrameType | None) -> None:
        # Not by the loop, which a handler may block: a signal handler runs between any two steps of
        # Python.
        nonlocal warned
        again, warned = warned, True  # Set first: the next signal may interrupt this very function.
        if channel is not None and channel.is_held:
            channel.is_signalled = True
            if again and number != signal.SIGQUIT:
                # A signal to the process group arrives twice; the supervisor says when to hurry.
                return
            # In a thread: this signal may have interrupted a message on its way to the supervisor.
            message = Leaving("signal received", replace=True)
            threading.Thread(target=channel.say, args=(message,), daemon=True).start()
        if number == signal.SIGQUIT:
            stop()
        stop()

    ended = threading.Event()
    if channel is not None:
        channel.start(orphaned=stop)
    before = {number: handle_signal(number, handle) for number in _SIGNALS}
    if channel is not None:
        # A hangup of the whole process group is meant for the supervisor, which restarts the
        # workers.
        before |= {signal.SIGQUIT: handle_signal(signal.SIGQUIT, handle)}
        before |= {signal.SIGHUP: handle_signal(signal.SIGHUP, lambda *_: None)}
    try:
        await worker.run()
    finally:
        ended.set()
        threading.Thread(target=_end_after_grace, daemon=True).start()
        for number, handler in before.items():
            # Below a supervisor this process has nothing more to do, and signals are ignored.
            signal.signal(number, handler if channel is None else signal.SIG_IGN)


def _end_after_grace() -> None:
    """End the drained process even if a handler's thread keeps the interpreter alive."""
    time.sleep(WORKER_GRACE.total_seconds())
    _exit(0)


def _watch(ended: threading.Event, patience: float, why: Callable[[], str]) -> None:
    """End the process if its shutdown does not end by itself; other workers rescue its jobs."""
    if not ended.wait(patience):
        log.critical("worker.stuck", why=why(), effect="the worker ends without draining")
        _exit(1)


def _why_stuck(loop: asyncio.AbstractEventLoop, worker: Worker) -> str:
    """Return what a shutdown waits for: a blocked loop, or one of its steps."""
    moved = threading.Event()
    loop.call_soon_threadsafe(moved.set)
    if not moved.wait(_LOOP_ANSWER_SECONDS):
        return "the event loop is blocked"
    return worker.shutdown.waits_for


def _crash(why: str, code: int) -> NoReturn:
    """End the process as it is: its supervisor finds its jobs, and runs each alone."""
    log.critical(
        "worker.crashed",
        why=why,
        remedy="the jobs that were running are suspects; each runs alone next",
        **where(),
    )
    _exit(code)


def _exit(code: int) -> NoReturn:
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
