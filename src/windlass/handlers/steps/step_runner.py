"""Owns one run's way along the steps of its job: what was done before is not done again.

Handlers call `Context`; `StepEnvironment` says where functions run, and records entries.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
import time
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from types import FunctionType
from typing import TYPE_CHECKING, Any, NoReturn

from msgspec import Raw
from msgspec.structs import replace

from windlass.core.errors import LeaseLost, StepError
from windlass.core.failures.describe import describe
from windlass.core.jobs.job import Job, Saga
from windlass.core.jobs.outcomes import Asleep, Compensated, Suspended
from windlass.core.jobs.retry import Retry
from windlass.core.values.durations import When
from windlass.core.workflows.step_log import (
    Done,
    Entry,
    Failed,
    Finished,
    Slept,
    Started,
    Steps,
    Walk,
    in_brief,
    written,
)
from windlass.handlers.steps.event_wait import Wait
from windlass.handlers.steps.step import Call, Step, StepEnvironment, enter, is_inside
from windlass.handlers.steps.step_results import StepResults
from windlass.handlers.steps.undo import Undo

if TYPE_CHECKING:
    from windlass.handlers.run_state import RunState


class StepRunner:
    """One run's way along its steps.

    While a job is undone, its handler is replayed only to collect its step calls: recorded steps
    return what they returned and register how they are undone. The run ends when every recorded
    step was seen.
    """

    def __init__(self, run: RunState, environment: StepEnvironment) -> None:
        self._run = run
        self._job = job = run.job
        self.environment = environment
        self.steps = Steps(job.steps)
        """The steps that were recorded before this run."""
        self._walk = Walk(self.steps)
        self._results = StepResults(run, environment.cipher)
        self._log: list[str] = []
        self._unrecorded: list[str] = []
        self._unconfirmed: list[str] = []
        """Entries that were sent to the store, which has not answered yet."""
        self._failed_step: str | None = None
        self._saga = job.saga
        self._is_undoing = job.saga is Saga.UNDOING
        self._undo = Undo(self)
        self._error: StepError | None = _unreadable(self.steps)
        self._sleeps = 0
        self._waits: Counter[str] = Counter()
        self._is_closed = False
        self._begun = set(self.steps.names)
        self._finished = len(self.steps.finished)
        self.suspended: Suspended | None = None
        """The exception that has ended the run, whatever its handler made of it."""

    @property
    def job(self) -> Job:
        """The job with what this run has added to the log of its steps."""
        return replace(self._job, steps=(*self._job.steps, *self._log), saga=self._saga)

    @property
    def unrecorded(self) -> tuple[str, ...]:
        """Entries that are yet to be recorded, with whatever comes next."""
        return tuple(self._unrecorded)

    @property
    def distance(self) -> int:
        """How far the job has come along its steps, with this run."""
        return len(self._begun) + self._finished

    @property
    def is_replaying(self) -> bool:
        """Whether an earlier attempt has come by this place of the handler's own task before."""
        if is_inside():
            return False
        return self._is_undoing or (self._walk.is_behind and self.is_in_main())

    @property
    def has_undos(self) -> bool:
        """Whether anything is left to undo."""
        return bool(self.steps.to_undo)

    @property
    def undo_retry(self) -> Retry:
        """How the undo that runs now is tried again."""
        return self._undo.retry

    def end(self) -> None:
        """Come to the end of the handler.

        Raises:
            StepError: the handler has passed over an error of its steps.
            StepsChanged: it has left out what was recorded.
        """
        if self._error is not None:
            raise self._error
        self._walk.end()

    def close(self) -> tuple[str, ...]:
        """Let whatever comes after this come too late. Return what is yet to be recorded."""
        self._is_closed = True
        # An entry that is there twice says nothing new.
        return (*self._unconfirmed, *self._unrecorded)

    async def compensate(self, error: BaseException | None) -> NoReturn:
        """Undo the recorded steps, after the handler's calls were replayed up to an `error`.

        Raises:
            Suspended: all is undone.
            StepError: the handler no longer says how a step is undone.
        """
        self.suspended = None
        if self.steps.unreadable and self._error is not None:
            raise self._error
        await self._undo.compensate(error)

    # -- steps ---------------------------------------------------------------------------------

    async def step(self, call: Call) -> Any:
        """Do a step, unless it is done already, and return its result."""
        main = asyncio.current_task() is self._run.main_task
        recorded = self.reach(call.name, main=main)
        if self._is_undoing:
            self._undo.add(call)
            await self._undo.replay(recorded)
        if recorded is not None:
            return self.recorded(call, recorded)
        if call.undo is not None:
            await self.write(Started(name=call.name, main=main), saga=Saga.READY)
        began = time.perf_counter()
        enter(self.current(call))
        try:
            value = await self.perform(call, call.function)
            raw, result = self._results.stored(call.name, call.function, value)
        except Exception as error:
            self._add_failure(call, began, error, main=main)
            raise
        finally:
            enter(None)
        await self.write(_done(call, raw, began, main=main))
        return result

    def step_blocking(self, call: Call) -> Any:
        """Do the same in the thread of a handler."""
        main = threading.get_ident() == self._run.thread_id
        recorded = self.reach(call.name, main=main)
        if self._is_undoing:
            self._undo.add(call)
            self._undo.replay_blocking(recorded)
        if recorded is not None:
            return self.recorded(call, recorded)
        if call.undo is not None:
            self._write_blocking(Started(name=call.name, main=main), saga=Saga.READY)
        began = time.perf_counter()
        enter(self.current(call))
        try:
            value = call.function(*call.args, **call.kwargs)
            raw, result = self._results.stored(call.name, call.function, value)
        except Exception as error:
            self._add_failure(call, began, error, main=main)
            raise
        finally:
            enter(None)
        self._write_blocking(_done(call, raw, began, main=main))
        return result

    async def sleep(self, due: When, name: str | None) -> None:
        """Sleep, unless that is over already."""
        name = self._name_of_sleep(name)
        main = asyncio.current_task() is self._run.main_task
        recorded = self.reach(name, main=main)
        await self.replay(recorded)
        self._sleep(due, name, recorded, main=main)

    def sleep_blocking(self, due: When, name: str | None) -> None:
        """Do the same in the thread of a handler."""
        name = self._name_of_sleep(name)
        main = threading.get_ident() == self._run.thread_id
        recorded = self.reach(name, main=main)
        self.replay_blocking(recorded)
        self._sleep(due, name, recorded, main=main)

    async def wait(self, event: str, timeout: timedelta | None, name: str | None) -> Any:
        """Wait for an event, unless it came already, and return what it brings along."""
        return await Wait(self, event, timeout, self._name_of_wait(event, name)).result()

    def wait_blocking(self, event: str, timeout: timedelta | None, name: str | None) -> Any:
        """Do the same in the thread of a handler."""
        return Wait(self, event, timeout, self._name_of_wait(event, name)).result_blocking()

    # -- parts of steps, sleeps and waits ------------------------------------------------------

    def reach(self, name: str, *, main: bool) -> Finished | None:
        """Reach a step, a sleep or a wait; return what is recorded of its end, if it had one.

        Raises:
            StepError: it cannot be here; the handler may pass over this, but not complete the job.
            Suspended: the run has ended before, and the handler goes on all the same.
        """
        if self.suspended is not None:
            raise self.suspended
        if self._is_closed:
            raise LeaseLost(self._job.id)
        if self._error is not None:
            raise self._error
        try:
            if main and self._failed_step is not None:
                raise StepError(
                    f"the step {self._failed_step!r} failed, but the handler continued with "
                    f"{name!r}; a later run could not repeat that, since errors are not stored. "
                    "Catch the error in the step's own function and return a value instead"
                )
            if is_inside():
                raise StepError(
                    f"the step {name!r} is called inside another step; call it in the handler, or "
                    "call its function directly"
                )
            return self._walk.come(name, main=main)
        except StepError as error:
            self._error = error
            raise

    async def write(self, entry: Entry, *, saga: Saga | None = None) -> None:
        """Add to the log of steps, and return once that is in the store.

        Raises:
            LeaseLost: the lease is gone, and others have the job.
        """
        # First: a later attempt, which finds the entry, does not stream this again.
        await self.flush_stream()
        job, entries, ready = self._add_entry(entry, saga)
        await self.environment.record(job, entries, ready)
        for recorded in entries:
            self._unconfirmed.remove(recorded)
        if isinstance(entry, Started | Finished):
            self._begun.add(entry.name)
            self._finished += not isinstance(entry, Started)

    async def flush_stream(self) -> None:
        """Return once what the run has streamed is in the store."""
        await self._run.flush_stream()

    def suspend(self, outcome: Asleep | Compensated | None) -> Suspended:
        """Return what is to be raised to end the run so; None: that is in the store already."""
        self.suspended = Suspended(outcome)
        return self.suspended

    def refuse(self, why: str) -> StepError:
        """Return the error of a call that cannot be, and which the job will not survive."""
        self._error = StepError(why)
        return self._error

    def is_in_main(self) -> bool:
        """Return whether this is the handler's own task; if it has none, its own thread."""
        if asyncio._get_running_loop() is not None:
            return asyncio.current_task() is self._run.main_task
        return threading.get_ident() == self._run.thread_id

    async def replay(self, recorded: Finished | None) -> None:
        """End the run here, if it is for its calls only, and knows them all."""
        if self._is_undoing:
            await self._undo.replay(recorded)

    def replay_blocking(self, recorded: Finished | None) -> None:
        """Do the same in the thread of a handler."""
        if self._is_undoing:
            self._undo.replay_blocking(recorded)

    def _write_blocking(self, entry: Entry, *, saga: Saga | None = None) -> None:
        asyncio.run_coroutine_threadsafe(
            self.write(entry, saga=saga), self.environment.loop
        ).result()

    def _add_entry(
        self, entry: Entry, saga: Saga | None
    ) -> tuple[Job, tuple[str, ...], Saga | None]:
        """Add an entry before it is written: it may be in the store before the answer comes."""
        if self._is_closed:
            raise LeaseLost(self._job.id)
        entries = (*self._unrecorded, written(entry))
        self._unrecorded.clear()
        self._log += entries
        self._unconfirmed += entries
        self._saga = saga or self._saga
        return self._job, entries, saga

    def recorded(self, call: Call, recorded: Finished) -> Any:
        """Return what a step has returned in an earlier run."""
        if not isinstance(recorded, Done):
            self._error = StepError(
                f"{call.name!r} was a sleep or a wait in an earlier attempt and is now a step; "
                "give the step another name"
            )
            raise self._error
        return self._results.recorded(call.name, call.function, bytes(recorded.result))

    def _add_failure(self, call: Call, began: float, error: Exception, *, main: bool) -> None:
        """Add a step that failed; it is recorded with whatever is recorded next."""
        brief = in_brief(describe(error, self._run.redaction))
        self._unrecorded.append(written(Failed(name=call.name, error=brief, seconds=_since(began))))
        if main:
            self._failed_step = call.name

    async def perform(self, call: Call, function: Callable[..., Any]) -> Any:
        """Call a function, or the undo of one, with the arguments of a step."""
        is_undo = function is not call.function
        return await call.within_timeout(self._called(call, function), is_undo=is_undo)

    async def _called(self, call: Call, function: Callable[..., Any]) -> Any:
        if is_async(function):
            return await function(*call.args, **call.kwargs)
        value = await self.environment.elsewhere(lambda: function(*call.args, **call.kwargs))
        # Like `lambda: fetch(page)`, where only the call itself was made elsewhere.
        return await value if inspect.isawaitable(value) else value

    def _name_of_sleep(self, name: str | None) -> str:
        if name is not None:
            return name
        self._sleeps += 1
        return f"sleep-{self._sleeps}"

    def _name_of_wait(self, event: str, name: str | None) -> str:
        if name is not None:
            return name
        self._waits[event] += 1
        count = self._waits[event]
        return event if count == 1 else f"{event}#{count}"

    def _sleep(self, due: When, name: str, recorded: Finished | None, *, main: bool) -> None:
        if recorded is not None:
            return
        if not main:
            raise self.refuse(
                "ctx.sleep ends the run, so it must be called in the handler's own task, not in "
                "another one"
            )
        steps = (written(Slept(name=name)),)
        raise self.suspend(Asleep(due=due, steps=steps, reason=f"asleep: {name}"))

    def current(self, call: Call, *, result: Any = None, finished: bool = False) -> Step:
        """Return the step as its function, or its undo, sees it."""
        return Step(
            name=call.name,
            job_id=self._job.id,
            life=self.steps.life,
            result=result,
            finished=finished,
        )


def is_async(function: Callable[..., Any]) -> bool:
    """Return whether a call of this is to be awaited, so that it needs no thread."""
    if isinstance(function, FunctionType):  # Most are; that is seen at a glance.
        return bool(function.__code__.co_flags & inspect.CO_COROUTINE)
    call = getattr(function, "__call__", None)  # noqa: B004 - an instance whose call is async.
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(call)


def _unreadable(steps: Steps) -> StepError | None:
    if not steps.unreadable:
        return None
    return StepError(
        "the log of its steps has an entry that this release cannot read; redrive the job on "
        "workers of the release that wrote it"
    )


def _done(call: Call, raw: bytes, began: float, *, main: bool) -> Done:
    return Done(name=call.name, result=Raw(raw), seconds=_since(began), main=main)


def _since(began: float) -> float:
    return round(time.perf_counter() - began, 6)
