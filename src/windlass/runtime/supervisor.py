"""Owns the supervisor: a process that runs no user code and keeps workers alive.

It starts them, renews their leases, replaces the dead, passes signals on, and says of every process
why it ended. Nothing that a handler does can reach it.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from datetime import timedelta

from windlass.core.bounds import Bounds
from windlass.core.errors import WindlassError
from windlass.observe.logs import get_logger
from windlass.runtime import leash
from windlass.runtime.estate import see_to_jobs
from windlass.runtime.graces import SUPERVISOR_GRACE
from windlass.runtime.lookout import Lookout
from windlass.runtime.office import Office
from windlass.runtime.postmortem import OutOfMemory, how_it_ended
from windlass.runtime.reload import Reloader, Watch
from windlass.runtime.renewing import keep_lease
from windlass.runtime.rolling import replace_all
from windlass.runtime.scaler import ProcessScaler
from windlass.runtime.service import Service
from windlass.runtime.ward import Ward
from windlass.settings import Settings
from windlass.store import Store, store_at

log = get_logger("windlass.supervisor")
_CRASH_LOOP = 5
_SETTLED = 60.0
_LONGEST_BACKOFF = 30.0
_NO_ROOM = 1.0


class Supervisor:
    """Keeps a number of workers alive, each in a process of its own, until it is told to stop.

    `run()` returns the exit code: 0, or that of a worker that could not even start. `interrupted`
    is told how many jobs run when the first SIGINT comes.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        processes: Bounds,
        configure: Callable[[Settings], None],
        watch: Watch | None = None,
        interrupted: Callable[[int], None] = lambda _: None,
    ) -> None:
        self._tell_interrupted = interrupted
        self._is_watching = watch is not None
        self._command = command
        self._bounds = processes
        self._processes = processes.least
        self._scaler: ProcessScaler | None = None
        self._configure = configure
        self._wards: dict[int, Ward] = {}
        self._serial = 0
        self._stores: dict[str, Store] = {}
        self._memory = OutOfMemory()
        self._quick_deaths = 0
        self._was_ready = False
        self._starting = 0
        self._burying = 0
        self._finished = False
        self._stopping = False
        self._rolling: asyncio.Task[None] | None = None
        self._roll_again = False
        self._services: list[Service] = [
            Lookout(lambda: self._wards.values(), looked=self._follow_load, memory=self._memory)
        ]
        if watch is not None:
            self._services.append(Reloader(watch, self.roll))
        self._office = Office(lambda: self._wards.values())
        self._tasks: set[asyncio.Task[None]] = set()
        self._code = 0
        self._over = asyncio.Event()

    async def run(self) -> int:
        """Serve until told to stop."""
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGCHLD, self._reap)
        loop.add_signal_handler(signal.SIGHUP, self.roll)
        loop.add_signal_handler(signal.SIGTERM, self.stop)
        loop.add_signal_handler(signal.SIGINT, self._interrupt)
        for _ in range(self._processes):
            self._start_one()
        for service in self._services:
            service.start()
        await self._over.wait()
        for service in self._services:
            await service.stop()
        self._office.close()
        for task in self._tasks:
            task.cancel()
        for store in self._stores.values():
            with suppress(WindlassError):
                await store.close()
        return self._code

    def stop(self) -> None:
        """Let every worker drain; the second time, let it give back at once what it runs."""
        if not self._stopping:
            self._stopping = True
            self._go(self._end_in_time())
            if self._wards:
                log.info("supervisor.draining", processes=len(self._wards))
            for ward in self._wards.values():
                ward.drain("shutdown")
        else:
            for ward in self._wards.values():
                ward.hurry()
        self._end_if_alone()

    def _interrupt(self) -> None:
        is_first = not self._stopping
        self.stop()
        if is_first:
            self._tell_interrupted(sum(ward.pulse.running for ward in self._wards.values()))

    def roll(self) -> None:
        """Replace every worker, each only when its successor serves."""
        if self._stopping:
            return
        if self._is_rolling:
            log.info("supervisor.rolling_again", why="told to while rolling; after this round")
            self._roll_again = True
            return
        self._rolling = self._go(self._roll())

    @property
    def _is_rolling(self) -> bool:
        return self._rolling is not None and not self._rolling.done()

    async def _roll(self) -> None:
        while True:
            self._roll_again = False
            wards = list(self._wards.values())
            await replace_all(wards, start=self._start_one, is_stopping=lambda: self._stopping)
            if self._stopping or not self._roll_again:
                break
        self._scale(self._processes)

    # -- processes -----------------------------------------------------------------------------

    def _start_one(self) -> Ward:
        self._serial += 1
        ward = Ward(self._command, self._serial)
        ward.metrics, ward.meters = self._office.address, self._office.meters
        self._wards[ward.pid] = ward
        asyncio.get_running_loop().add_reader(ward.leash.fileno(), self._hear, ward)
        return ward

    async def _start_later(self, delay: float) -> None:
        await asyncio.sleep(delay)
        self._starting -= 1
        if not self._stopping and self._serving() < self._processes:
            self._try_to_start()
        self._end_if_alone()

    def _try_to_start(self) -> None:
        """Start a worker; if the system has no room for it, try again a little later."""
        try:
            self._start_one()
        except OSError as error:
            log.error("process.not_started", error=str(error), next_in=_NO_ROOM)  # noqa: TRY400
            self._starting += 1
            self._go(self._start_later(_NO_ROOM))

    def _serving(self) -> int:
        return self._starting + sum(not ward.leaving for ward in self._wards.values())

    def _reap(self) -> None:
        """Take note of what ended, stopped or went on; as PID 1, of everybody's orphans, too."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG | os.WUNTRACED | os.WCONTINUED)
            except ChildProcessError:
                return
            if pid == 0:
                return
            ward = self._wards.get(pid)
            if ward is None:
                continue
            if os.WIFSTOPPED(status) or os.WIFCONTINUED(status):
                ward.is_stopped = os.WIFSTOPPED(status)
                log.warning("process.stopped" if ward.is_stopped else "process.continued", pid=pid)
            else:
                asyncio.get_running_loop().remove_reader(ward.leash.fileno())
                ward.gone(os.waitstatus_to_exitcode(status))
                self._go(self._bury(ward))

    async def _bury(self, ward: Ward) -> None:
        """Say why a process ended, see to the jobs that it held, and replace it."""
        code = ward.code or 0
        out_of_memory = self._memory.struck(code, time.monotonic())
        reason = how_it_ended(code, out_of_memory=out_of_memory)
        expected = ward.was_let_go and code == 0
        # What could never start has said so itself, in the one line that people see then.
        tell = log.info if expected else log.error if self._was_ready else log.debug
        named = {"worker_id": ward.known_as} if ward.known_as else {}
        tell("process.ended", pid=ward.pid, **named, why=ward.why, how=reason)
        self._office.bury(ward, expected=expected)
        del self._wards[ward.pid]
        self._finished = self._finished or ward.finished
        self._burying += 1
        if not self._stopping and not ward.finished:
            self._succeed(ward, code, expected=expected)
        # Only now: the store may be away, and its successor shall not wait for that.
        try:
            await see_to_jobs(ward, reason)
        except Exception:
            log.exception("jobs.not_given_back", worker_id=ward.worker)
        ward.close()
        self._burying -= 1
        self._end_if_alone()

    def _succeed(self, ward: Ward, code: int, *, expected: bool) -> None:
        if not (self._was_ready or ward.ready.is_set() or ward.leaving):
            # It has never worked, so it will not by trying again.
            if not self._is_watching:
                self._code = code or 1
                self.stop()
            elif not self._wards:
                log.error(
                    "supervisor.waiting", why="no worker could start", until="a file is saved"
                )
            return
        lived = time.monotonic() - ward.began
        self._quick_deaths = 0 if expected or lived > _SETTLED else self._quick_deaths + 1
        self._office.crash_looping = self._quick_deaths >= _CRASH_LOOP
        if self._quick_deaths == _CRASH_LOOP:
            log.error(
                "supervisor.crash_loop",
                deaths=self._quick_deaths,
                remedy="workers die as soon as they work: see process.ended and job.suspected",
            )
        if self._serving() < self._processes:
            exponent = min(self._quick_deaths - 1, 20)
            delay = 0.0 if exponent < 0 else min(0.1 * 2**exponent, _LONGEST_BACKOFF)
            self._starting += 1
            self._go(self._start_later(delay))

    def _end_if_alone(self) -> None:
        alone = not self._wards and not self._burying
        if alone and (self._stopping or (self._finished and not self._starting)):
            self._over.set()

    async def _end_in_time(self) -> None:
        """Kill what has not ended when it had to: the shutdown ends in any case."""
        settings = [ward.settings for ward in self._wards.values() if ward.settings is not None]
        longest = max((each.shutdown_timeout for each in settings), default=timedelta(0))
        await asyncio.sleep((longest + SUPERVISOR_GRACE).total_seconds())
        for ward in self._wards.values():
            log.critical("process.stuck", pid=ward.pid, why="it does not end; killing it")
            ward.kill()

    # -- what they say -------------------------------------------------------------------------

    def _hear(self, ward: Ward) -> None:
        words = ward.hear()
        if words is None:
            asyncio.get_running_loop().remove_reader(ward.leash.fileno())
            return
        for word in words:
            match word:
                case leash.Hello():
                    self._meet(ward, word)
                case leash.Registered():
                    ward.worker = word.worker
                    ward.known_as = word.worker or ward.known_as
                    if ward.keeping is None:
                        ward.keeping = self._go(keep_lease(ward))
                case leash.Ready():
                    self._was_ready = True
                    self._office.tell()
                    ward.ready.set()
                case leash.Leaving():
                    self._let_go(ward, word)

    def _meet(self, ward: Ward, hello: leash.Hello) -> None:
        """Take over what only the app's own code says: where its jobs are, how it logs, how many.

        New code may say something else, so that every worker has a store of its own here. One that
        is not where its settings say, like a store that the app made itself, renews by itself.
        """
        settings = ward.settings = hello.settings
        ward.patience = hello.patience
        if hello.location not in self._stores:
            self._stores[hello.location] = store_at(settings)
        store = self._stores[hello.location]
        ward.store = store if store.location == hello.location else None
        self._configure(settings)
        self._office.open(settings)
        if settings.processes != self._bounds or (self._scaler is None and not self._bounds.fixed):
            self._bounds = settings.processes
            self._scaler = None
            if not self._bounds.fixed:
                self._scaler = ProcessScaler(self._bounds, settings.slots, now=time.monotonic())
            self._processes = self._bounds.clamp(self._processes)
            if not self._is_rolling:
                self._scale(self._processes)

    def _let_go(self, ward: Ward, word: leash.Leaving) -> None:
        if ward.leaving:
            return
        log.info("process.leaving", pid=ward.pid, worker_id=ward.worker, why=word.why)
        ward.leave(word.why)
        ward.finished = not word.replace
        if word.replace and not self._stopping:
            self._try_to_start()

    # -- their number --------------------------------------------------------------------------

    def _follow_load(self) -> None:
        self._office.look(self._processes)
        if self._scaler is None or self._stopping or self._finished or self._is_rolling:
            return
        serving = [ward for ward in self._wards.values() if not ward.leaving]
        pulses = [ward.pulse for ward in serving if ward.ready.is_set()]
        decision = self._scaler.consider(self._processes, pulses, now=time.monotonic())
        if decision is not None:
            self._scale(decision.target)

    def _scale(self, processes: int) -> None:
        """Have so many workers: start what is missing, or let the youngest go."""
        if self._stopping:
            return
        self._processes = processes
        for _ in range(processes - self._serving()):
            self._try_to_start()
        serving = [ward for ward in self._wards.values() if not ward.leaving]
        for ward in serving[processes:]:
            ward.drain("scaled down")

    def _go(self, work: Awaitable[None]) -> asyncio.Task[None]:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("supervisor.failed", error=f"{type(error).__qualname__}: {error}")
