"""Owns the event loop of a process that runs jobs: it runs until its main task is done.

A loop that ends before that, because a job stopped it, is a crash of the process: if its jobs were
given back as after a drain, the one that stopped the loop would run again forever, uncharged.
"""

from __future__ import annotations

import asyncio
import sys
import traceback
from collections.abc import Callable, Coroutine
from typing import Any, NoReturn

from windlass.observability.log_context import running
from windlass.observability.logs import get_logger
from windlass.process.tasks import GuardedTask

log = get_logger("windlass.worker")
LOOP_ENDED = 78
"""The exit code of a process whose event loop a job has ended."""
Crash = Callable[[str, int], NoReturn]
"""Ends the process at once, for a reason, with an exit code."""
_STEP = asyncio.Handle._run.__code__


class MainTask(asyncio.Task[None]):
    """The task for which the loop runs. Cancelling it ends the loop."""

    def __init__(
        self, coroutine: Coroutine[Any, Any, None], loop: asyncio.AbstractEventLoop, crash: Crash
    ) -> None:
        super().__init__(coroutine, loop=loop, name="windlass-main")
        self._crash = crash

    def cancel(self, msg: Any | None = None) -> bool:
        """Crash the process if a job cancels the task; here, the log line shows which job did it.

        Outside of jobs, `asyncio.timeout` and task groups of hooks cancel the task they are in.
        """
        if running.get() is not None:
            self._crash("a job cancelled the main task of its process", LOOP_ENDED)
        return super().cancel(msg)


def run_until_done(main: MainTask, crash: Crash) -> None:
    """Run the loop until the main task is done, whatever jobs raise or stop meanwhile.

    SystemExit and KeyboardInterrupt leave the loop when a task raises them. If a job has started
    that task, the loop continues: the exception belongs to the code that awaits the task.
    """
    loop = main.get_loop()
    while not main.done():
        try:
            loop.run_until_complete(main)
        except (SystemExit, KeyboardInterrupt) as error:
            if main.done():
                raise
            _go_on_after(error, crash)
        except RuntimeError:
            if main.done():
                raise
            crash("a job stopped the event loop", LOOP_ENDED)


def where() -> dict[str, Any]:
    """Return, for a log line, where a loop was ended: by which exception, or else by which call."""
    if sys.exc_info()[0] is not None:
        return {"exc_info": True}
    return {"stack": "".join(traceback.format_stack(limit=20))}


def _go_on_after(error: SystemExit | KeyboardInterrupt, crash: Crash) -> None:
    task, name = _task_of(error), type(error).__name__
    if task is None or isinstance(task, GuardedTask | MainTask):
        crash(f"{name} was raised in the event loop, outside any run", _code_of(error))
    log.warning("task.exited", task=task.get_name(), error=name, exc_info=error)


def _task_of(error: BaseException) -> asyncio.Task[Any] | None:
    tb = error.__traceback__
    while tb is not None and tb.tb_frame.f_code is not _STEP:
        tb = tb.tb_next
    if tb is None:
        return None
    callback = tb.tb_frame.f_locals["self"]._callback
    task = getattr(callback, "__self__", None)
    return task if isinstance(task, asyncio.Task) else None


def _code_of(error: SystemExit | KeyboardInterrupt) -> int:
    code = getattr(error, "code", None)
    return code if isinstance(code, int) and 0 < code < 256 else LOOP_ENDED
