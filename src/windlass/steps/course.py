"""Owns one run's way along the steps of its job: what was done before is not done again.

What a handler calls is on `Context`; where functions run, and how entries get into the store, is
for others to say (`Means`).
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
from typing import Any, NoReturn

from msgspec import Raw
from msgspec.structs import replace

from windlass.core.durations import When
from windlass.core.errors import Fenced, StepError
from windlass.core.failure import describe
from windlass.core.job import Job, Saga
from windlass.core.outcomes import Asleep, Compensated, Suspended
from windlass.core.redaction import Redaction
from windlass.core.steps import (
    Done,
    Entry,
    Failed,
    Finished,
    Slept,
    Started,
    Steps,
    Undone,
    Walk,
    in_brief,
    written,
)
from windlass.observe.logs import get_logger
from windlass.steps.results import Results
from windlass.steps.step import DEFAULT, Call, Means, Step, enter, is_inside
from windlass.steps.waiting import Wait

log = get_logger("windlass.job")
_PATIENCE = 30.0
"""Seconds in which all tasks of a handler have come to the steps that are to be undone."""
_LOOK = 0.005


class Course:
    """One run's way along its steps.

    In a job that is being undone, the handler runs for the sake of its calls only: recorded steps
    return what they returned and say how they are undone, and once all have, the run ends there.
    """

    def __init__(
        self,
        job: Job,
        means: Means,
        *,
        task: Callable[[], asyncio.Task[Any] | None],
        thread: Callable[[], int],
        redaction: Callable[[], Redaction],
        learn: Callable[[Any], None],
    ) -> None:
        self._job = job
        self._means = means
        self._task = task
        self._thread = thread
        self._redaction = redaction
        self._steps = Steps(job.steps)
        self._walk = Walk(self._steps)
        self._results = Results(job.kind, means.cipher, learn)
        self._log: list[str] = []
        self._unsaid: list[str] = []
        self._unheard: list[str] = []
        """What was sent to the store, which has not answered yet."""
        self._passed_over: str | None = None
        self._saga = job.saga
        self._is_undoing = job.saga is Saga.UNDOING
        self._undos: dict[str, Call] = {}
        self._error: StepError | None = _unreadable(self._steps)
        self._sleeps = 0
        self._waits: Counter[str] = Counter()
        self._is_closed = False
        self.suspended: Suspended | None = None
        """What has ended the run, whatever its handler made of it."""
        self.undo_retry = DEFAULT
        """By which the undo that runs now is tried again."""

    @property
    def job(self) -> Job:
        """The job with what this run has added to the log of its steps."""
        return replace(self._job, steps=(*self._job.steps, *self._log), saga=self._saga)

    @property
    def means(self) -> Means:
        """What its steps need of the place where the run is."""
        return self._means

    @property
    def steps(self) -> Steps:
        """What was recorded before this run."""
        return self._steps

    @property
    def unsaid(self) -> tuple[str, ...]:
        """What is yet to be recorded, with whatever comes next."""
        return tuple(self._unsaid)

    @property
    def has_undos(self) -> bool:
        """Whether anything is left to undo."""
        return bool(self._steps.to_undo)

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
        # What is there twice says nothing new.
        return (*self._unheard, *self._unsaid)

    # -- steps ---------------------------------------------------------------------------------

    async def step(self, call: Call) -> Any:
        """Do a step, unless it is done already, and return its result."""
        main = asyncio.current_task() is self._task()
        recorded = self.come(call.name, main=main)
        if self._is_undoing:
            self._undos[call.name] = call
            await self._replay(recorded)
        if recorded is not None:
            return self._recorded(call, recorded)
        if call.undo is not None:
            await self.write(Started(name=call.name, main=main), saga=Saga.READY)
        began = time.perf_counter()
        enter(self._current(call))
        try:
            value = await self._perform(call, call.function)
            raw, result = self._results.stored(call.name, call.function, value)
        except Exception as error:
            self._note_failure(call, began, error, main=main)
            raise
        finally:
            enter(None)
        await self.write(_done(call, raw, began, main=main))
        return result

    def step_blocking(self, call: Call) -> Any:
        """Do the same in the thread of a handler."""
        main = threading.get_ident() == self._thread()
        recorded = self.come(call.name, main=main)
        if self._is_undoing:
            self._undos[call.name] = call
            self._replay_blocking(recorded)
        if recorded is not None:
            return self._recorded(call, recorded)
        if call.undo is not None:
            self._write_blocking(Started(name=call.name, main=main), saga=Saga.READY)
        began = time.perf_counter()
        enter(self._current(call))
        try:
            value = call.function(*call.args, **call.kwargs)
            raw, result = self._results.stored(call.name, call.function, value)
        except Exception as error:
            self._note_failure(call, began, error, main=main)
            raise
        finally:
            enter(None)
        self._write_blocking(_done(call, raw, began, main=main))
        return result

    async def sleep(self, due: When, name: str | None) -> None:
        """Sleep, unless that is over already."""
        name = self._name_of_sleep(name)
        main = asyncio.current_task() is self._task()
        recorded = self.come(name, main=main)
        if self._is_undoing:
            await self._replay(recorded)
        self._sleep(due, name, recorded, main=main)

    def sleep_blocking(self, due: When, name: str | None) -> None:
        """Do the same in the thread of a handler."""
        name = self._name_of_sleep(name)
        main = threading.get_ident() == self._thread()
        recorded = self.come(name, main=main)
        if self._is_undoing:
            self._replay_blocking(recorded)
        self._sleep(due, name, recorded, main=main)

    async def wait(self, event: str, timeout: timedelta | None, name: str | None) -> Any:
        """Wait for an event, unless it came already, and return what it brings along."""
        return await Wait(self, event, timeout, self._name_of_wait(event, name)).result()

    def wait_blocking(self, event: str, timeout: timedelta | None, name: str | None) -> Any:
        """Do the same in the thread of a handler."""
        return Wait(self, event, timeout, self._name_of_wait(event, name)).result_blocking()

    # -- what they, and whatever else may end a run, are made of ---------------------------------

    def come(self, name: str, *, main: bool) -> Finished | None:
        """Come to a step, a sleep or a wait; return what is recorded of its end, if it had one.

        Raises:
            StepError: it cannot be here; the handler may pass over this, but not complete the job.
            Suspended: the run has ended before, and the handler goes on all the same.
        """
        if self.suspended is not None:
            raise self.suspended
        if self._is_closed:
            raise Fenced(self._job.id)
        if self._error is not None:
            raise self._error
        try:
            if main and self._passed_over is not None:
                raise StepError(
                    f"the step {self._passed_over!r} failed, and the handler went on to {name!r}: "
                    "a later run could not do the same, since an error cannot be stored. Catch it "
                    "in the step's own function, and return what the handler needs to know"
                )
            if is_inside():
                raise StepError(
                    f"the step {name!r} is called in another step: call it in the handler, or "
                    "call its function itself, as a part of the other one"
                )
            return self._walk.come(name, main=main)
        except StepError as error:
            self._error = error
            raise

    async def write(self, entry: Entry, *, saga: Saga | None = None) -> None:
        """Add to the log of steps, and return once that is in the store.

        Raises:
            Fenced: the lease is gone, and others have the job.
        """
        job, entries, ready = self._noted(entry, saga)
        await self._means.record(job, entries, ready)
        for each in entries:
            self._unheard.remove(each)

    def suspend(self, outcome: Asleep | Compensated | None) -> Suspended:
        """Return what is to be raised to end the run so; None: that is in the store already."""
        self.suspended = Suspended(outcome)
        return self.suspended

    def refuse(self, why: str) -> StepError:
        """Return the error of a call that cannot be, and which the job will not survive."""
        self._error = StepError(why)
        return self._error

    def is_home(self) -> bool:
        """Say whether this is the handler's own task; if it has none, its own thread."""
        if asyncio._get_running_loop() is not None:
            return asyncio.current_task() is self._task()
        return threading.get_ident() == self._thread()

    async def replay(self, recorded: Finished | None) -> None:
        """End the run here, if it is for its calls only, and knows them all."""
        if self._is_undoing:
            await self._replay(recorded)

    def replay_blocking(self, recorded: Finished | None) -> None:
        """Do the same in the thread of a handler."""
        if self._is_undoing:
            self._replay_blocking(recorded)

    def _write_blocking(self, entry: Entry, *, saga: Saga | None = None) -> None:
        asyncio.run_coroutine_threadsafe(self.write(entry, saga=saga), self._means.loop).result()

    def _noted(self, entry: Entry, saga: Saga | None) -> tuple[Job, tuple[str, ...], Saga | None]:
        """Take note of an entry before it is written: it may be in the store before we know."""
        if self._is_closed:
            raise Fenced(self._job.id)
        entries = (*self._unsaid, written(entry))
        self._unsaid.clear()
        self._log += entries
        self._unheard += entries
        self._saga = saga or self._saga
        return self._job, entries, saga

    def _recorded(self, call: Call, recorded: Finished) -> Any:
        if not isinstance(recorded, Done):
            self._error = StepError(
                f"{call.name!r} was a sleep or a wait in an earlier attempt, and is a step now: "
                "give the step another name"
            )
            raise self._error
        return self._results.recorded(call.name, call.function, bytes(recorded.result))

    def _note_failure(self, call: Call, began: float, error: Exception, *, main: bool) -> None:
        """Take note of a step that failed; it is recorded with whatever is recorded next."""
        told = in_brief(describe(error, self._redaction()))
        self._unsaid.append(written(Failed(name=call.name, error=told, seconds=_since(began))))
        if main:
            self._passed_over = call.name

    async def _perform(self, call: Call, function: Callable[..., Any]) -> Any:
        if call.timeout is None:
            return await self._called(call, function)
        async with asyncio.timeout(call.timeout.total_seconds()):
            return await self._called(call, function)

    async def _called(self, call: Call, function: Callable[..., Any]) -> Any:
        if is_async(function):
            return await function(*call.args, **call.kwargs)
        value = await self._means.elsewhere(lambda: function(*call.args, **call.kwargs))
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
                "ctx.sleep ends the run, which other tasks of the handler cannot do for it: call "
                "it in the handler's own task"
            )
        steps = (written(Slept(name=name)),)
        raise self.suspend(Asleep(due=due, steps=steps, reason=f"asleep: {name}"))

    # -- undoing -------------------------------------------------------------------------------

    async def compensate(self, error: BaseException | None) -> NoReturn:
        """Undo what is to be undone, the last first, after the handler's calls were replayed.

        `error` is what the replay ended with.

        Raises:
            Suspended: all is undone.
            StepError: the handler no longer says how a step is undone.
        """
        self.suspended = None
        if self._steps.unreadable and self._error is not None:
            raise self._error
        for name in self._steps.to_undo:
            call = self._undos.get(name)
            if call is None or call.undo is None:
                raise self._not_told(name, error)
            self.undo_retry = call.undo_retry
            await self._undo(call, call.undo)
            self.undo_retry = DEFAULT
        raise self.suspend(Compensated())

    async def _undo(self, call: Call, undo: Callable[..., Any]) -> None:
        recorded = self._steps.finished.get(call.name)
        result = None if recorded is None else self._recorded(call, recorded)
        began = time.perf_counter()
        finished = recorded is not None
        enter(self._current(call, result=result, finished=finished))
        try:
            await self._perform(call, undo)
        finally:
            enter(None)
        await self.write(Undone(name=call.name, seconds=_since(began)))
        log.info("step.undone", step=call.name, duration=_since(began))

    async def _replay(self, recorded: Finished | None) -> None:
        """Go on, or end the run: when all undos are known, or no more will come to be known.

        Where the handler has several tasks, the others may still come to theirs.
        """
        until = time.monotonic() + _PATIENCE
        while recorded is None and self._others_may_tell() and time.monotonic() < until:  # noqa: ASYNC110 - a thread may say so.
            await asyncio.sleep(_LOOK)
        self._end_replay(recorded)

    def _replay_blocking(self, recorded: Finished | None) -> None:
        until = time.monotonic() + _PATIENCE
        while recorded is None and self._others_may_tell() and time.monotonic() < until:
            time.sleep(_LOOK)
        self._end_replay(recorded)

    def _end_replay(self, recorded: Finished | None) -> None:
        if recorded is None or self._knows_all():
            raise self.suspended or self.suspend(None)

    def _others_may_tell(self) -> bool:
        """Say whether undos are not known yet that are for other tasks of the handler to tell."""
        missing = [name for name in self._steps.to_undo if name not in self._undos]
        return any(name not in self._steps.order for name in missing)

    def _current(self, call: Call, *, result: Any = None, finished: bool = False) -> Step:
        return Step(
            name=call.name,
            job_id=self._job.id,
            life=self._steps.life,
            result=result,
            finished=finished,
        )

    def _knows_all(self) -> bool:
        return all(name in self._undos for name in self._steps.to_undo)

    def _not_told(self, name: str, error: BaseException | None) -> BaseException:
        if error is not None and not isinstance(error, StepError):
            return error  # What kept the handler from coming there may be gone next time.
        return StepError(
            f"the handler no longer says how the step {name!r} is undone: it did not come to it, "
            "or gave it no undo=. Bring back the code that did, and redrive the job"
        )


def is_async(function: Callable[..., Any]) -> bool:
    """Say whether a call of this is to be awaited, so that it needs no thread."""
    if isinstance(function, FunctionType):  # Most are; that is seen at a glance.
        return bool(function.__code__.co_flags & inspect.CO_COROUTINE)
    call = getattr(function, "__call__", None)  # noqa: B004 - an instance whose call is async.
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(call)


def _unreadable(steps: Steps) -> StepError | None:
    if not steps.unreadable:
        return None
    return StepError(
        "the log of its steps has an entry that this release cannot read, so nobody knows what is "
        "done: let workers of the release run it that wrote it, and redrive the job"
    )


def _done(call: Call, raw: bytes, began: float, *, main: bool) -> Done:
    return Done(name=call.name, result=Raw(raw), seconds=_since(began), main=main)


def _since(began: float) -> float:
    return round(time.perf_counter() - began, 6)
