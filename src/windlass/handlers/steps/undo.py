"""Owns how the steps of a job that failed for good are undone, the last first.

The handler runs for the sake of its calls only: recorded steps return what they returned and say
how they are undone, and the run ends once all of them have.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn

from windlass.core.errors import StepError
from windlass.core.failures.exceptions import is_a
from windlass.core.jobs.outcomes import Compensated
from windlass.core.workflows.step_log import Finished, Undone
from windlass.handlers.steps.step import DEFAULT, Call, enter
from windlass.observability.logs import get_logger

if TYPE_CHECKING:
    from windlass.handlers.steps.step_runner import StepRunner

log = get_logger("windlass.job")
_REPLAY_SECONDS = 30.0
"""Within which all tasks of a handler come to the steps that are to be undone."""
_REPLAY_POLL_SECONDS = 0.005


class Undo:
    """The undoing of one job's steps: first a replay of the handler, then the undos."""

    def __init__(self, runner: StepRunner) -> None:
        self._runner = runner
        self._calls: dict[str, Call] = {}
        self.retry = DEFAULT
        """How the undo that runs now is tried again."""

    def add(self, call: Call) -> None:
        """Take from a step that the handler calls how it is undone."""
        self._calls[call.name] = call

    async def replay(self, recorded: Finished | None) -> None:
        """Go on, or end the run: when all undos are known, or no more will come to be known.

        Where the handler has several tasks, the others may still come to theirs.
        """
        deadline = time.monotonic() + _REPLAY_SECONDS
        while recorded is None and self._others_may_add() and time.monotonic() < deadline:  # noqa: ASYNC110 - a thread may add one.
            await asyncio.sleep(_REPLAY_POLL_SECONDS)
        self._end_replay(recorded)

    def replay_blocking(self, recorded: Finished | None) -> None:
        """Do the same in the thread of a handler."""
        deadline = time.monotonic() + _REPLAY_SECONDS
        while recorded is None and self._others_may_add() and time.monotonic() < deadline:
            time.sleep(_REPLAY_POLL_SECONDS)
        self._end_replay(recorded)

    async def compensate(self, error: BaseException | None) -> NoReturn:
        """Undo the recorded steps; `error` is what the replay ended with.

        Raises:
            Suspended: all is undone.
            StepError: the handler no longer says how a step is undone.
        """
        for name in self._runner.steps.to_undo:
            call = self._calls.get(name)
            if call is None or call.undo is None:
                raise _undefined(name, error)
            self.retry = call.undo_retry
            await self._undo(call, call.undo)
            self.retry = DEFAULT
        raise self._runner.suspend(Compensated())

    async def _undo(self, call: Call, undo: Callable[..., Any]) -> None:
        began = time.perf_counter()
        recorded = self._runner.steps.finished.get(call.name)
        finished = recorded is not None
        result = None if recorded is None else self._runner.recorded(call, recorded)
        enter(self._runner.current(call, result=result, finished=finished))
        try:
            await self._runner.perform(call, undo)
        finally:
            enter(None)
        seconds = round(time.perf_counter() - began, 6)
        await self._runner.write(Undone(name=call.name, seconds=seconds))
        log.info("step.undone", step=call.name, duration=seconds)

    def _end_replay(self, recorded: Finished | None) -> None:
        if recorded is None or self._calls.keys() >= set(self._runner.steps.to_undo):
            raise self._runner.suspended or self._runner.suspend(None)

    def _others_may_add(self) -> bool:
        """Return whether undos are not known yet that other tasks of the handler may add."""
        steps = self._runner.steps
        missing = [name for name in steps.to_undo if name not in self._calls]
        return any(name not in steps.order for name in missing)


def _undefined(name: str, error: BaseException | None) -> BaseException:
    if error is not None and not is_a(error, StepError):
        return error  # The cause that kept the handler from coming there may be gone next time.
    return StepError(
        f"the handler no longer defines the undo of step {name!r}: it did not reach the step, "
        "or passed no undo=; restore that code, then redrive the job"
    )
