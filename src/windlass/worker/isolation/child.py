"""Owns the runs inside a child process, one at a time.

The child has three threads. The main thread runs `def` handlers, since there a signal can interrupt
them; one thread runs the event loop, with the middleware and `async def` handlers; one thread
listens to the worker, and so can stop a handler at any time.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import os
import resource
import signal
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from datetime import timedelta
from queue import SimpleQueue
from typing import Any, NoReturn

from windlass.core.errors import LeaseLost, StoreError
from windlass.core.jobs.job import Job, Progress, Saga
from windlass.core.jobs.outcomes import Outcome
from windlass.core.jobs.streams import Appended, ChunkGroup, StreamLimits
from windlass.core.payloads.redaction import Redaction
from windlass.handlers.context import Context
from windlass.handlers.idempotency import DoneBefore
from windlass.handlers.middleware.watching import tell_end
from windlass.handlers.parent_results import StoredParentResults
from windlass.handlers.provided import Provided
from windlass.handlers.registry import Middleware, Registration, Registry
from windlass.handlers.run_environment import RunEnvironment
from windlass.handlers.streams import StreamEnvironment
from windlass.observability.log_context import fields_of
from windlass.observability.logs import get_logger
from windlass.process.event_loop import MainTask, run_until_done, where
from windlass.process.exits.black_box import BlackBox
from windlass.process.fork_guard import handle_signal
from windlass.process.waits import deliver
from windlass.store import Store
from windlass.worker.engine.attempt_outcome import (
    flush_at_end,
    outcome_of,
    outcome_of_error,
    run_end,
)
from windlass.worker.engine.handler_runner import HandlerRunners
from windlass.worker.engine.settler import Settler
from windlass.worker.isolation.child_channel import ChildChannel, high_descriptors
from windlass.worker.isolation.protocol import (
    CHANNEL_LOST_EXIT_CODE,
    Begun,
    ChildMessage,
    Ending,
    Over,
    Recorded,
    Reported,
    Settled,
    Start,
    Stepped,
    Stop,
    StopNoticed,
    Streamed,
    WorkerMessage,
)

log = get_logger("windlass.child")
_INTERRUPT = signal.SIGUSR2
_REPORT_SECONDS = 0.05
"""Seconds between two reports of progress."""
_CLOSE_SECONDS = 2.0
"""Seconds within which all provided values together have to close."""


class _Run:
    def __init__(self, message: Start) -> None:
        self.job = message.job
        self.began = time.monotonic() - message.elapsed
        self.context: Context | None = None
        self.task: asyncio.Task[None] | None = None
        self.why: BaseException | None = None
        """The exception that is raised in a handler that must stop."""
        self.is_interrupt_handler = False
        self.progress: Progress | None = None
        self.is_reporting = False


class Child:
    """Runs the jobs that the worker sends, and reports the outcome of each."""

    def __init__(
        self,
        channel: ChildChannel,
        box: BlackBox,
        *,
        registry: Registry,
        middleware: Sequence[Middleware],
        store: Callable[[], Store],
        max_retries: int,
        max_result: int,
        stream_limits: StreamLimits,
        provided: Provided,
        redaction: Redaction,
    ) -> None:
        self._provided = provided
        self._redaction = redaction
        self._channel = channel
        self._box = box
        self._settler = Settler(registry, max_retries=max_retries)
        self._calls: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._run: _Run | None = None
        self._calling: _Run | None = None
        with high_descriptors():
            self._loop = asyncio.new_event_loop()
        self._noted = 0
        self._notes: dict[int, asyncio.Future[Recorded]] = {}
        environment = RunEnvironment(
            report=self._report,
            transact=lambda settling: store().transaction(settling),
            done=DoneBefore(store, self._loop),
            results=StoredParentResults(store, registry, self._loop),
            streams=StreamEnvironment(append=self._append, loop=self._loop, limits=stream_limits),
            provided=provided,
            redaction=redaction,
            max_result=max_result,
        )
        self._handlers = HandlerRunners(
            registry, middleware, self._in_main_thread, environment, self._record
        )
        threading.Thread(target=self._turn, name="windlass-loop", daemon=True).start()

    def call(self, coroutine: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine in the event loop before the first job."""
        asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()

    def serve(self) -> NoReturn:
        """Run jobs until the worker closes the channel; called in the main thread."""
        handle_signal(_INTERRUPT, self._interrupt_handler)
        threading.Thread(target=self._listen, name="windlass-worker-channel", daemon=True).start()
        while True:
            self._calls.get()()

    # -- messages of the worker ------------------------------------------------------------------

    def _listen(self) -> None:
        while (messages := self._channel.receive()) is not None:
            for message in messages:
                self._take(message)
        if self._run is not None:
            # The worker is dead, and another worker will run the job: no part of this run may
            # continue.
            os.killpg(os.getpgrp(), signal.SIGKILL)
        self._close_provided()
        os._exit(0)

    def _take(self, message: WorkerMessage) -> None:
        match message:
            case Start():
                self._run = run = _Run(message)
                self._loop.call_soon_threadsafe(self._begin, run, message.memory)
            case Stop(token=token, late=late):
                self._stop(token, late)
            case Recorded():
                self._loop.call_soon_threadsafe(self._recorded, message)

    def _close_provided(self) -> None:
        """Close the open provided, within the time that the worker waits for this
        process to end.
        """
        closing = asyncio.run_coroutine_threadsafe(self._provided.close(), self._loop)
        with suppress(Exception):
            closing.result(_CLOSE_SECONDS)
        _flush()

    def _stop(self, token: int, late: str | None) -> None:
        run = self._run
        if run is None or run.job.token != token or run.why is not None:
            return
        error = None if late is None else TimeoutError(late)
        run.why = error or asyncio.CancelledError("this run was cancelled")
        if run.context is not None:
            run.context.run_state.cancel(error)
        if self._calling is run:
            signal.pthread_kill(threading.main_thread().ident or 0, _INTERRUPT)
        else:
            self._loop.call_soon_threadsafe(self._cancel, run)

    def _cancel(self, run: _Run) -> None:
        if run.task is not None:
            run.task.cancel()

    # -- one run, in order, in the event loop --------------------------------------------------

    def _turn(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            run_until_done(MainTask(_wait_forever(), self._loop, _crash), _crash)
        finally:
            os._exit(
                CHANNEL_LOST_EXIT_CODE
            )  # Without its event loop a child can neither run jobs nor answer.

    def _begin(self, run: _Run, memory: int | None) -> None:
        self._box.clear()
        self._channel.send(Begun())
        _limit_memory(memory)
        run.task = self._loop.create_task(self._perform(run), name="windlass-run")
        run.task.add_done_callback(_exit_if_failed)

    async def _perform(self, run: _Run) -> None:
        outcome, value = None, None
        try:
            runner = self._handlers.runner(run.job.kind)
            context = run.context = runner.enter(run.job, run.task)
            if run.why is not None:
                raise run.why
            value = await runner.run(context)
            outcome = outcome_of(context, value, runner.target)
        except BaseException as error:  # noqa: BLE001 - SystemExit and the like are the job's own.
            if run.why is None:
                known = self._redaction if run.context is None else run.context.redaction
                outcome = outcome_of_error(error, known, run.context)
        self._channel.check()
        end = self._end_of(run, outcome)
        if outcome is not None and run.context is not None:
            await self._report_end(run, run.context, outcome, value, end)
        if run.context is not None and run.context.run_state.stream is not None:
            await flush_at_end(run.context)
        self._finish(end)

    async def _report_end(
        self, run: _Run, context: Context, outcome: Outcome, value: Any, message: ChildMessage
    ) -> None:
        """Call the callbacks of the kind; the worker calls them for a run that was stopped."""
        watchers = self._handlers.runner(run.job.kind).watchers
        if not watchers:
            return
        if isinstance(message, Settled | Over):
            # Sent before the callbacks are called: if one of them hangs and this process is killed,
            # the worker settles the job with this outcome, and reports no other one.
            self._channel.send(Ending(end=message))
        end = run_end(context, outcome, value, timedelta(seconds=time.monotonic() - run.began))
        try:
            await tell_end(watchers, context, end)
        except BaseException:  # noqa: BLE001 - its time is up; what the run was stays what it was.
            log.warning("callbacks.interrupted", **fields_of(run.job))

    def _finish(self, end: ChildMessage) -> None:
        _flush()
        self._run = None
        self._channel.send(end)

    def _end_of(self, run: _Run, outcome: Outcome | None) -> ChildMessage:
        if run.context is not None and run.context.run_state.is_over:
            return Over(parked=not run.context.run_state.settled)
        if outcome is None:
            return StopNoticed()
        steps = None if run.context is None else run.context.run_state.steps
        elapsed = timedelta(seconds=time.monotonic() - run.began)
        move = self._settler.end(run.job, steps, outcome, elapsed)
        return Settled.of(move, trips=self._settler.trips(run.job, outcome))

    async def _record(self, job: Job, entries: tuple[str, ...], saga: Saga | None) -> None:
        """Let the worker record a step; the worker notices a lost lease."""
        self._noted += 1
        await self._noted_by_worker(job, Stepped(number=self._noted, steps=entries, saga=saga))

    async def _append(self, job: Job, group: ChunkGroup) -> Appended:
        self._noted += 1
        answer = await self._noted_by_worker(job, Streamed(number=self._noted, group=group))
        return answer.appended or Appended(0, 0)

    async def _noted_by_worker(self, job: Job, message: Stepped | Streamed) -> Recorded:
        note = self._notes[message.number] = self._loop.create_future()
        self._channel.send(message)
        answer: Recorded = await note
        if answer.fenced:
            raise LeaseLost(job.id)
        if answer.problem:
            raise StoreError(answer.problem)
        return answer

    def _recorded(self, message: Recorded) -> None:
        note = self._notes.pop(message.number, None)
        if note is not None and not note.done():
            note.set_result(message)

    def _report(self, job: Job, progress: Progress) -> None:
        run = self._run
        if run is not None and run.job.token == job.token:
            run.progress = progress
            if not run.is_reporting:
                run.is_reporting = True
                self._loop.call_soon_threadsafe(self._send_report, run)

    def _send_report(self, run: _Run) -> None:
        """Send the latest progress, at intervals, since handlers report often."""
        run.is_reporting = False
        progress, run.progress = run.progress, None
        if progress is not None and self._run is run:
            run.is_reporting = True
            self._channel.send(Reported(progress=progress))
            self._loop.call_later(_REPORT_SECONDS, self._send_report, run)

    # -- `def` handlers, in the main thread ----------------------------------------------------

    async def _in_main_thread(self, call: Callable[[], Any], _kind: Registration) -> Any:
        """Run a call in the main thread; the worker ends a child whose handler takes too long."""
        run = self._run
        answer: asyncio.Future[Any] = self._loop.create_future()
        context = contextvars.copy_context()
        self._calls.put(lambda: self._answer(run, answer, lambda: context.run(call)))
        return await answer

    def _answer(
        self, run: _Run | None, answer: asyncio.Future[Any], call: Callable[[], Any]
    ) -> None:
        value, error = self._call(run, call)
        self._calling = None
        self._channel.check()
        self._loop.call_soon_threadsafe(deliver, answer, value, error)

    def _call(self, run: _Run | None, call: Callable[[], Any]) -> tuple[Any, BaseException | None]:
        try:
            self._calling = run
            try:
                if run is not None and run.why is not None:
                    raise run.why
                return call(), None
            finally:
                self._calling = None
        except BaseException as error:  # noqa: BLE001 - it is the job's, which waits for it.
            return None, error

    def _interrupt_handler(self, _number: int, _frame: object) -> None:
        run = self._calling
        if run is not None and run.why is not None and not run.is_interrupt_handler:
            run.is_interrupt_handler = True
            raise run.why


async def _wait_forever() -> None:
    """Keep the loop running; the listening thread ends the process."""
    await asyncio.get_running_loop().create_future()


def _crash(why: str, code: int) -> NoReturn:
    log.error("child.loop_ended", why=why, **where())
    _flush()
    os._exit(code)


def _flush() -> None:
    for stream in (*logging.getLogger().handlers, sys.stdout, sys.stderr):
        with suppress(Exception):
            stream.flush()


def _exit_if_failed(task: asyncio.Task[None]) -> None:
    """End a child whose own code failed: its worker would wait forever for a message."""
    if task.cancelled() or task.exception() is not None:
        log.error("child.broken", exc_info=None if task.cancelled() else task.exception())
        os._exit(CHANNEL_LOST_EXIT_CODE)


def _limit_memory(limit: int | None) -> None:
    """Limit the memory of this process where the worker cannot measure its use."""
    with suppress(OSError, ValueError):
        _, hard = resource.getrlimit(resource.RLIMIT_AS)
        soft = hard if limit is None else limit
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
