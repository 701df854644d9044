"""Owns the supervisor: a process that runs no user code and keeps workers alive.

The supervisor starts workers, renews their leases, replaces dead ones, passes signals on, and logs
why each process ended. Nothing that a handler does can reach it.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections import defaultdict
from collections.abc import Awaitable, Sequence
from contextlib import suppress
from datetime import timedelta
from functools import partial
from typing import Protocol

from windlass.core.errors import WindlassError
from windlass.core.values.ranges import Bounds
from windlass.observability.logs import configure_logging, get_logger
from windlass.process.exits.exit_reasons import OutOfMemory, describe_exit
from windlass.process.grace_periods import SUPERVISOR_GRACE
from windlass.process.outage import Outage
from windlass.process.service import Service
from windlass.process.supervisor_channel import Greeted, Hello, Leaving, Ready, Registered
from windlass.store import Store, store_at
from windlass.supervisor.crash_recovery import give_back_jobs
from windlass.supervisor.lease_renewer import keep_lease
from windlass.supervisor.metrics_server import MetricsServer
from windlass.supervisor.process_scaler import ProcessScaler
from windlass.supervisor.reloader import FileWatch, Reloader
from windlass.supervisor.rolling_restart import replace_all
from windlass.supervisor.spawn import Spawned
from windlass.supervisor.stall_watch import StallWatch
from windlass.supervisor.worker_process import WorkerProcess

log = get_logger("windlass.supervisor")
_CRASH_LOOP_DEATHS = 5
_QUICK_DEATH_SECONDS = 60.0
_MAX_BACKOFF_SECONDS = 30.0
_START_RETRY_SECONDS = 1.0


class Announcer(Protocol):
    """Prints for people at a terminal what the supervisor logs for programs."""

    def greeted(self, hello: Hello, metrics_address: str) -> None:
        """Announce the configuration of a starting worker, and where metrics are served."""

    def interrupted(self, running: int) -> None:
        """Announce that the first Ctrl-C drains; `running` jobs are still at work."""


class Supervisor:
    """Keeps a number of workers alive, each in a process of its own, until it is stopped.

    `run()` returns the exit code: 0, or that of a worker that could not start.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        processes: Bounds,
        announcer: Announcer,
        watch: FileWatch | None = None,
        first: Spawned | None = None,
    ) -> None:
        self._first = first
        self._announcer = announcer
        self._is_watching = watch is not None
        self._command = command
        self._bounds = processes
        self._processes = processes.least
        self._scaler: ProcessScaler | None = None
        self.workers: dict[int, WorkerProcess] = {}
        """The processes that have not ended, by pid, the oldest first."""
        self._stores: dict[str, Store] = {}
        self._outages: defaultdict[str, Outage] = defaultdict(partial(Outage, role="supervisor"))
        self.memory = OutOfMemory()
        self._quick_deaths = 0
        self._was_ready = False
        self._starting = 0
        self._giving_back = 0
        self._finished = False
        self.is_stopping = False
        self._rolling: asyncio.Task[None] | None = None
        self._roll_again = False
        self._services: list[Service] = [StallWatch(self)]
        if watch is not None:
            self._services.append(Reloader(watch, self))
        self._metrics = MetricsServer(self.workers)
        self._tasks: set[asyncio.Task[None]] = set()
        self._code = 0
        self._over = asyncio.Event()

    async def run(self) -> int:
        """Serve until stopped."""
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGCHLD, self._reap)
        loop.add_signal_handler(signal.SIGHUP, self.roll)
        loop.add_signal_handler(signal.SIGTERM, self.stop)
        loop.add_signal_handler(signal.SIGINT, self._interrupt)
        for _ in range(self._processes):
            self.start_one()
        self._reap()  # The first process was started before there was a handler for its end.
        for service in self._services:
            service.start()
        await self._over.wait()
        for service in self._services:
            await service.stop()
        self._metrics.close()
        for task in self._tasks:
            task.cancel()
        for store in self._stores.values():
            with suppress(WindlassError):
                await store.close()
        return self._code

    def stop(self) -> None:
        """Drain every worker; the second time, have them give back their jobs at once."""
        if not self.is_stopping:
            self.is_stopping = True
            self._go(self._end_in_time())
            if self.workers:
                log.info("supervisor.draining", processes=len(self.workers))
            for process in self.workers.values():
                process.drain("shutdown")
        else:
            for process in self.workers.values():
                process.hurry()
        self._end_if_alone()

    def _interrupt(self) -> None:
        is_first = not self.is_stopping
        self.stop()
        if is_first:
            self._announcer.interrupted(
                sum(process.pulse.running for process in self.workers.values())
            )

    def roll(self) -> None:
        """Replace every worker, each only when its successor serves."""
        if self.is_stopping:
            return
        if self._is_rolling:
            log.info(
                "supervisor.rolling_again",
                why="requested during a rolling restart; follows after it",
            )
            self._roll_again = True
            return
        self._rolling = self._go(self._roll())

    @property
    def _is_rolling(self) -> bool:
        return self._rolling is not None and not self._rolling.done()

    async def _roll(self) -> None:
        while True:
            self._roll_again = False
            await replace_all(self)
            if self.is_stopping or not self._roll_again:
                break
        self._scale(self._processes)

    # -- processes -----------------------------------------------------------------------------

    def start_one(self) -> WorkerProcess:
        """Start a worker."""
        spawned, self._first = self._first or Spawned(self._command), None
        try:
            process = WorkerProcess(spawned)
        except BaseException:
            spawned.abandon()
            raise
        process.metrics, process.meters = self._metrics.address, self._metrics.meters
        self.workers[process.pid] = process
        asyncio.get_running_loop().add_reader(process.channel, self._receive, process)
        return process

    async def _start_later(self, delay: float) -> None:
        await asyncio.sleep(delay)
        self._starting -= 1
        if not self.is_stopping and self._serving() < self._processes:
            self._try_to_start()
        self._end_if_alone()

    def _try_to_start(self) -> None:
        """Start a worker; if the system cannot make a process, try again a little later."""
        try:
            self.start_one()
        except OSError as error:
            log.error("process.not_started", error=str(error), next_in=_START_RETRY_SECONDS)  # noqa: TRY400
            self._starting += 1
            self._go(self._start_later(_START_RETRY_SECONDS))

    def _serving(self) -> int:
        return self._starting + sum(not process.leaving for process in self.workers.values())

    def _reap(self) -> None:
        """Handle processes that ended, stopped or resumed; as PID 1, orphans of others, too."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG | os.WUNTRACED | os.WCONTINUED)
            except ChildProcessError:
                return
            if pid == 0:
                return
            process = self.workers.get(pid)
            if process is None:
                continue
            if os.WIFSTOPPED(status) or os.WIFCONTINUED(status):
                process.is_stopped = os.WIFSTOPPED(status)
                log.warning(
                    "process.stopped" if process.is_stopped else "process.continued", pid=pid
                )
            else:
                asyncio.get_running_loop().remove_reader(process.channel)
                process.gone(os.waitstatus_to_exitcode(status))
                self._go(self._replace_ended(process))

    async def _replace_ended(self, process: WorkerProcess) -> None:
        """Log why a process ended, replace it, and give back the jobs that it held."""
        code = process.code or 0
        out_of_memory = self.memory.struck(code, time.monotonic())
        reason = describe_exit(code, out_of_memory=out_of_memory)
        expected = process.was_let_go and code in (0, -signal.SIGTERM)
        # A worker that could not start has printed the reason itself, as the one line that people
        # see.
        has_said_why = not self._was_ready and code >= 0
        report = log.info if expected else log.debug if has_said_why else log.error
        named = {"worker_id": process.known_as} if process.known_as else {}
        report("process.ended", pid=process.pid, **named, why=process.why, how=reason)
        self._metrics.add_ended(process, expected=expected)
        del self.workers[process.pid]
        self._finished = self._finished or process.finished
        self._giving_back += 1
        if not self.is_stopping and not process.finished:
            self._start_successor(process, code, expected=expected)
        # Only now: the store may be unreachable, and the successor must not wait for that.
        try:
            await give_back_jobs(process, reason)
        except Exception:
            log.exception("jobs.not_given_back", worker_id=process.worker)
        process.close()
        self._giving_back -= 1
        self._end_if_alone()

    def _start_successor(self, process: WorkerProcess, code: int, *, expected: bool) -> None:
        has_worked = self._was_ready or process.ready.is_set() or process.leaving
        if not has_worked and code >= 0:
            # The worker ended by itself and has never served, so trying again would not help.
            if not self._is_watching:
                self._code = code or 1
                self.stop()
            elif not self.workers:
                log.error("supervisor.waiting", why="no worker could start", until="a file changes")
            return
        lived = time.monotonic() - process.began
        self._quick_deaths = (
            0 if expected or lived > _QUICK_DEATH_SECONDS else self._quick_deaths + 1
        )
        self._metrics.crash_looping = self._quick_deaths >= _CRASH_LOOP_DEATHS
        if self._quick_deaths == _CRASH_LOOP_DEATHS:
            log.error(
                "supervisor.crash_loop",
                deaths=self._quick_deaths,
                remedy="workers die soon after their start; see process.ended and job.suspected",
            )
        if self._serving() < self._processes:
            exponent = min(self._quick_deaths - 1, 20)
            delay = 0.0 if exponent < 0 else min(0.1 * 2**exponent, _MAX_BACKOFF_SECONDS)
            self._starting += 1
            self._go(self._start_later(delay))

    def _end_if_alone(self) -> None:
        alone = not self.workers and not self._giving_back
        if alone and (self.is_stopping or (self._finished and not self._starting)):
            self._over.set()

    async def _end_in_time(self) -> None:
        settings = [
            process.settings for process in self.workers.values() if process.settings is not None
        ]
        longest = max((known.shutdown_timeout for known in settings), default=timedelta(0))
        await asyncio.sleep((longest + SUPERVISOR_GRACE).total_seconds())
        for process in self.workers.values():
            log.critical("process.stuck", pid=process.pid, why="it does not stop; killing it")
            process.kill()

    # -- messages -------------------------------------------------------------------------

    def _receive(self, process: WorkerProcess) -> None:
        messages = process.receive()
        if messages is None:
            if process.channel.is_garbled:
                log.error("channel.garbled", pid=process.pid, worker_id=process.worker)
            asyncio.get_running_loop().remove_reader(process.channel)
            return
        for message in messages:
            match message:
                case Hello():
                    self._meet(process, message)
                case Registered():
                    process.worker = message.worker
                    process.known_as = message.worker or process.known_as
                    if process.keeping is None:
                        process.keeping = self._go(
                            keep_lease(process, self._outages[process.location])
                        )
                case Ready():
                    self._was_ready = True
                    self._metrics.announce()
                    process.ready.set()
                case Leaving():
                    self._let_go(process, message)

    def _meet(self, process: WorkerProcess, hello: Hello) -> None:
        """Take over what only the app's own code knows: the store, the logging, the number of
        processes.

        New code may differ, so every worker has a store of its own here. A worker whose store does
        not follow from its settings, for example one that the app made, renews its lease itself.
        """
        settings = process.settings = hello.settings
        process.patience = hello.patience
        if hello.location not in self._stores:
            self._stores[hello.location] = store_at(settings)
        store = self._stores[hello.location]
        process.store = store if store.location == hello.location else None
        process.location = hello.location
        configure_logging(settings.log_level, settings.log_format, redact=settings.redact)
        self._metrics.open(settings)
        self._announcer.greeted(hello, self._metrics.address)
        process.channel.offer(Greeted())
        if settings.processes != self._bounds or (self._scaler is None and not self._bounds.fixed):
            self._bounds = settings.processes
            self._scaler = None
            if not self._bounds.fixed:
                self._scaler = ProcessScaler(
                    self._bounds, settings.concurrency, now=time.monotonic()
                )
            self._processes = self._bounds.clamp(self._processes)
            if not self._is_rolling:
                self._scale(self._processes)

    def _let_go(self, process: WorkerProcess, message: Leaving) -> None:
        if process.leaving:
            return
        log.info("process.leaving", pid=process.pid, worker_id=process.worker, why=message.why)
        process.leave(message.why)
        process.finished = not message.replace
        if message.replace and not self.is_stopping:
            self._try_to_start()

    # -- number of processes ---------------------------------------------------------------

    def follow_load(self) -> None:
        """Start or drain workers if the load asks for another number of them."""
        self._metrics.observe(self._processes)
        if self._scaler is None or self.is_stopping or self._finished or self._is_rolling:
            return
        serving = [process for process in self.workers.values() if not process.leaving]
        pulses = [process.pulse for process in serving if process.ready.is_set()]
        decision = self._scaler.consider(self._processes, pulses, now=time.monotonic())
        if decision is not None:
            self._scale(decision.target)

    def _scale(self, processes: int) -> None:
        if self.is_stopping:
            return
        self._processes = processes
        for _ in range(processes - self._serving()):
            self._try_to_start()
        serving = [process for process in self.workers.values() if not process.leaving]
        for process in serving[processes:]:
            process.drain("scaled down")

    def _go(self, work: Awaitable[None]) -> asyncio.Task[None]:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("supervisor.failed", error=f"{type(error).__qualname__}: {error}")
