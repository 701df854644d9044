"""Owns the runs inside a child process, one at a time.

It has three threads. The main one runs `def` handlers, since there a signal can interrupt them; one
runs the event loop, with the middleware and `async def` handlers; one listens to the worker, and
can therefore tell a handler to stop whatever it does.
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

from windlass.context import Context, Site
from windlass.core.errors import Fenced, StoreError
from windlass.core.job import Job, Progress, Saga
from windlass.core.outcomes import Outcome
from windlass.core.redaction import Redaction
from windlass.core.settle import Transition
from windlass.observe.logs import get_logger
from windlass.registry import Middleware, Registration, Registry
from windlass.resources import Resources
from windlass.runtime.attempt import Handlers, outcome_of, outcome_of_error
from windlass.runtime.blackbox import BlackBox
from windlass.runtime.judge import Judge
from windlass.runtime.results import Results
from windlass.runtime.tether import Tether, high_descriptors
from windlass.runtime.words import (
    BROKEN,
    Begun,
    Heeded,
    Over,
    Recorded,
    Reported,
    Settled,
    Start,
    Stepped,
    Stop,
    Word,
)
from windlass.store import DoneBefore, Store, Transaction

log = get_logger("windlass.child")
_NUDGE = signal.SIGUSR2
_REPORTS = 0.05
"""Seconds between two reports of progress."""
_CLOSING = 2.0
"""Seconds that all resources together have to close."""


class _Run:
    """One attempt of one job."""

    def __init__(self, order: Start) -> None:
        self.job = order.job
        self.began = time.monotonic() - order.elapsed
        self.context: Context | None = None
        self.task: asyncio.Task[None] | None = None
        self.why: BaseException | None = None
        """What a handler that is told to stop is told."""
        self.is_nudged = False
        self.progress: Progress | None = None
        self.is_reporting = False


class Child:
    """Runs the jobs that the worker sends, and says what became of each."""

    def __init__(
        self,
        tether: Tether,
        box: BlackBox,
        *,
        registry: Registry,
        middleware: Sequence[Middleware],
        transact: Callable[[Transition], Transaction],
        store: Callable[[], Store],
        max_retries: int,
        resources: Resources,
        redaction: Redaction,
    ) -> None:
        self._resources = resources
        self._redaction = redaction
        self._tether = tether
        self._box = box
        self._judge = Judge(registry, max_retries=max_retries)
        self._calls: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._run: _Run | None = None
        self._calling: _Run | None = None
        with high_descriptors():
            self._loop = asyncio.new_event_loop()
        self._noted = 0
        self._notes: dict[int, asyncio.Future[Recorded]] = {}
        site = Site(
            report=self._report,
            transact=transact,
            done=DoneBefore(store, self._loop),
            results=Results(store, registry, self._loop),
            resources=resources,
            redaction=redaction,
        )
        self._handlers = Handlers(registry, middleware, self._in_main_thread, site, self._record)
        threading.Thread(target=self._turn, name="windlass-loop", daemon=True).start()

    def call(self, coroutine: Coroutine[Any, Any, None]) -> None:
        """Run something in the event loop before there are jobs."""
        asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()

    def serve(self) -> NoReturn:
        """Run jobs until the worker has gone; called in the main thread."""
        signal.signal(_NUDGE, self._nudged)
        threading.Thread(target=self._listen, name="windlass-tether", daemon=True).start()
        while True:
            self._calls.get()()

    # -- what the worker says ------------------------------------------------------------------

    def _listen(self) -> None:
        while (order := self._tether.receive()) is not None:
            match order:
                case Start():
                    self._run = run = _Run(order)
                    self._loop.call_soon_threadsafe(self._begin, run, order.memory)
                case Stop(token=token, late=late):
                    self._stop(token, late)
                case Recorded():
                    self._loop.call_soon_threadsafe(self._recorded, order)
        if self._run is not None:
            # The worker is dead, and others will run the job; nothing of this run may go on.
            os.killpg(os.getpgrp(), signal.SIGKILL)
        self._close_resources()
        os._exit(0)

    def _close_resources(self) -> None:
        """Close what is open here, if that takes no longer than the worker waits for our end."""
        closing = asyncio.run_coroutine_threadsafe(self._resources.close(), self._loop)
        with suppress(Exception):
            closing.result(_CLOSING)
        _flush()

    def _stop(self, token: int, late: str | None) -> None:
        run = self._run
        if run is None or run.job.token != token or run.why is not None:
            return
        error = None if late is None else TimeoutError(late)
        run.why = error or asyncio.CancelledError("this run shall end")
        if run.context is not None:
            run.context._cancel(error)
        if self._calling is run:
            signal.pthread_kill(threading.main_thread().ident or 0, _NUDGE)
        else:
            self._loop.call_soon_threadsafe(self._cancel, run)

    def _cancel(self, run: _Run) -> None:
        if run.task is not None:
            run.task.cancel()

    # -- one run, in order, in the event loop --------------------------------------------------

    def _turn(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
        finally:
            os._exit(BROKEN)  # Without its loop a child is deaf and dumb.

    def _begin(self, run: _Run, memory: int | None) -> None:
        self._box.clear()
        self._tether.send(Begun())
        _limit_memory(memory)
        run.task = self._loop.create_task(self._perform(run), name="windlass-run")
        run.task.add_done_callback(_must_not_fail)

    async def _perform(self, run: _Run) -> None:
        outcome: Outcome | None = None
        try:
            outcome = await self._attempt(run)
        except BaseException as error:  # noqa: BLE001 - SystemExit and the like are the job's own.
            if run.why is None:
                known = self._redaction if run.context is None else run.context.redaction
                outcome = outcome_of_error(error, known, run.context)
        self._tether.check()
        self._finish(run, outcome)

    async def _attempt(self, run: _Run) -> Outcome:
        trade = self._handlers.trade(run.job.kind)
        context = run.context = trade.enter(run.job, run.task)
        if run.why is not None:
            raise run.why
        return outcome_of(context, await trade.run(context), trade.target)

    def _finish(self, run: _Run, outcome: Outcome | None) -> None:
        word = self._word(run, outcome)
        _flush()
        self._run = None
        self._tether.send(word)

    def _word(self, run: _Run, outcome: Outcome | None) -> Word:
        if run.context is not None and run.context.is_over:
            return Over(parked=not run.context.settled)
        if outcome is None:
            return Heeded()
        course = None if run.context is None else run.context._course
        elapsed = timedelta(seconds=time.monotonic() - run.began)
        move = self._judge.end(run.job, course, outcome, elapsed)
        return Settled.of(move, trips=self._judge.trips(run.job, outcome))

    async def _record(self, job: Job, entries: tuple[str, ...], saga: Saga | None) -> None:
        """Let the worker record a step; it knows when the lease is gone."""
        self._noted += 1
        note = self._notes[self._noted] = self._loop.create_future()
        self._tether.send(Stepped(number=self._noted, steps=entries, saga=saga))
        answer = await note
        if answer.fenced:
            raise Fenced(job.id)
        if answer.problem:
            raise StoreError(answer.problem)

    def _recorded(self, word: Recorded) -> None:
        note = self._notes.pop(word.number, None)
        if note is not None and not note.done():
            note.set_result(word)

    def _report(self, job: Job, progress: Progress) -> None:
        run = self._run
        if run is not None and run.job.token == job.token:
            run.progress = progress
            if not run.is_reporting:
                run.is_reporting = True
                self._loop.call_soon_threadsafe(self._send_report, run)

    def _send_report(self, run: _Run) -> None:
        """Send the latest word, and look again a little later, since handlers say a lot."""
        run.is_reporting = False
        progress, run.progress = run.progress, None
        if progress is not None and self._run is run:
            run.is_reporting = True
            self._tether.send(Reported(progress=progress))
            self._loop.call_later(_REPORTS, self._send_report, run)

    # -- `def` handlers, in the main thread ----------------------------------------------------

    async def _in_main_thread(self, call: Callable[[], Any], _kind: Registration) -> Any:
        """Run a call there; it is the worker that ends a child whose handler takes too long."""
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
        self._tether.check()
        self._loop.call_soon_threadsafe(_deliver, answer, value, error)

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

    def _nudged(self, _number: int, _frame: object) -> None:
        """Interrupt the handler that the main thread runs, once, if it shall end."""
        run = self._calling
        if run is not None and run.why is not None and not run.is_nudged:
            run.is_nudged = True
            raise run.why


def _deliver(answer: asyncio.Future[Any], value: Any, error: BaseException | None) -> None:
    if answer.done():
        return
    if error is None:
        answer.set_result(value)
    elif isinstance(error, StopIteration | GeneratorExit):
        # They would end the coroutine that awaits this, not tell it that something was raised.
        answer.set_exception(RuntimeError(f"the handler raised {error!r}"))
    else:
        answer.set_exception(error)


def _flush() -> None:
    """Let all be out that a run has said, its log lines too, before its end is told."""
    for stream in (*logging.getLogger().handlers, sys.stdout, sys.stderr):
        with suppress(Exception):
            stream.flush()


def _must_not_fail(task: asyncio.Task[None]) -> None:
    """End a child in which we have failed: its worker waits for a word that will never come."""
    if task.cancelled() or task.exception() is not None:
        log.error("child.broken", exc_info=None if task.cancelled() else task.exception())
        os._exit(BROKEN)


def _limit_memory(limit: int | None) -> None:
    """Bound what this process may ask for, where nobody outside sees what it uses."""
    with suppress(OSError, ValueError):
        _, hard = resource.getrlimit(resource.RLIMIT_AS)
        soft = hard if limit is None else limit
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
