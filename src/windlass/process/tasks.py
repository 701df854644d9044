"""Owns the tasks of a worker, and their protection: a job can cancel its own run, nothing else."""

from __future__ import annotations

import asyncio
from typing import Any

from windlass.observability.log_context import Running, running


class GuardedTask(asyncio.Task[None]):
    """A task that only its owner and code outside of all jobs can cancel.

    Jobs share an event loop, and one task runs many of them. A job that cancels the task which it
    once had, or every task that it can find, must not harm another run or a service.
    """

    owner: Running | None = None
    """The run that the task serves now; None if it serves none, or is a service."""
    cancelled_outside: bool = False
    """Whether code outside of all jobs cancelled it last, as a program that ends does."""

    def cancel(self, msg: Any | None = None) -> bool:
        """Cancel the task, unless the caller is a job whose run this is not."""
        caller = running.get()
        if caller is not None and caller is not self.owner:
            return False
        self.cancelled_outside = caller is None
        return super().cancel(msg)

    def end(self) -> bool:
        """Cancel the task on behalf of the worker, from anywhere."""
        return super().cancel()


def is_cancelled(task: asyncio.Task[Any] | None) -> bool:
    """Return whether this task was cancelled itself, and not only what it waits for."""
    return task is not None and (task.done() or task.cancelling() > 0)
