"""Owns a run of chaos, from the first process to the judgement: storm, drain, collection."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from msgspec import Struct

from windlass.app import Windlass
from windlass.chaos import terms
from windlass.chaos.faults import Thrower
from windlass.chaos.grounds.ground import Ground
from windlass.chaos.laws.checker import check
from windlass.chaos.laws.history import History, cpu_seconds
from windlass.chaos.ledger import Ledger
from windlass.chaos.observation.cpu_share import CpuShare
from windlass.chaos.observation.memory import MemoryWatch
from windlass.chaos.observation.observer import Observer
from windlass.chaos.options import Options, ground_of, kinds_for
from windlass.chaos.plan import FaultKind, plan_faults
from windlass.chaos.processes import Fleet, ProducerProcess, environment
from windlass.chaos.report import evidence
from windlass.chaos.report.report import Report, report_of
from windlass.chaos.ticked_schedule import TickedSchedule
from windlass.core.errors import StoreError, WindlassError
from windlass.core.jobs.states import FINISHED, State

_WORKERS_PER_FLEET = 2
_START_SECONDS = 120.0
_END_SECONDS = 60.0
_LOOK_SECONDS = 0.25
_RECOVERY_SECONDS = 30.0
"""Seconds for which a fault waits for the recovery from the one before."""
_FEEL_SECONDS = 0.1
_WEIGH_SECONDS = 1.0
_RESTART_SECONDS = 0.5
"""Seconds after which a supervisor that ended is started again, as a service manager does."""


class ChaosFailed(WindlassError):
    """The run itself could not be carried out."""


class View(Struct, frozen=True, kw_only=True):
    """What a person sees while it runs."""

    phase: str
    seconds: float
    """Seconds since the phase began."""
    workers: int
    """Workers that serve."""
    faults: int
    planned: int
    current: str
    counts: dict[State, int]


Show = Callable[[View], None]


async def run_chaos(
    options: Options, directory: Path, show: Show, *, reports_early: bool = False
) -> Report:
    """Carry out a run, and return its report; SIGTERM and Ctrl-C end it, and clean up.

    With `reports_early`, the first Ctrl-C during the storm only ends that, and the report follows.
    """
    chaos = Chaos(options, directory, show)
    if (task := asyncio.current_task()) is not None:
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, task.cancel)
        if reports_early:
            loop.add_signal_handler(signal.SIGINT, lambda: chaos.end_storm() or task.cancel())
    return await chaos.run()


class Chaos:
    """One run, in a directory of its own."""

    def __init__(self, options: Options, directory: Path, show: Show) -> None:
        self._options = options
        self._directory = directory
        self._show = show
        self._ledger = Ledger(directory / evidence.LEDGER)
        self._ground: Ground = ground_of(options, directory)
        self._fleets: list[Fleet] = []
        self._producers: list[ProducerProcess] = []
        self._began = time.monotonic()
        self._give_up_at = self._began + _START_SECONDS
        self._workers = (options.fleets + options.spared) * _WORKERS_PER_FLEET
        self._memory = MemoryWatch()
        self._cpu = CpuShare(self._began)
        self._kinds: list[FaultKind] = []
        self._phase, self._phase_began = "start", self._began
        self._planned = 0
        self._counts: Counter[State] = Counter()
        self._serving: set[int] = set()
        self._done_before = 0
        self._start_seconds = 0.0
        self._unended: list[str] = []
        self._is_ended = asyncio.Event()
        """Set when the storm was ended before its time."""

    def end_storm(self) -> bool:
        """End the storm before its time; return False if there is none to end."""
        if self._phase != "storm" or self._is_ended.is_set():
            return False
        self._is_ended.set()
        return True

    async def run(self) -> Report:
        """Carry everything out, and return the report; leave no process or mount behind."""
        ground, app = self._ground, Windlass("memory://")
        try:
            await ground.prepare()
            self._kinds = kinds_for(self._options, ground)
            app.configure(url=ground.url, schema=ground.settings.get("schema"))
            await app.store.migrate()
            await ground.create_effects()
            return await self._run_on(app)
        finally:
            await _to_its_end(self._clean_up(app))

    async def _clean_up(self, app: Windlass) -> None:
        """End everything that was started; a step that fails does not keep the next from it."""
        async with AsyncExitStack() as steps:
            steps.push_async_callback(self._ground.close)
            steps.push_async_callback(app.aclose)
            for fleet in self._fleets:
                steps.callback(fleet.kill)
            for producer in self._producers:
                steps.callback(producer.kill)

    async def _run_on(self, app: Windlass) -> Report:
        observer = Observer(app)
        ledger = self._directory / evidence.LEDGER
        env = environment(self._ground.workers_url, ledger, **self._ground.settings)
        self._start_fleets(env)
        thrower = Thrower(self._ground, self._fleets, self._producers, self._ledger)
        schedule = TickedSchedule(app)
        beside = [
            asyncio.ensure_future(self._watch(observer, thrower)),
            asyncio.ensure_future(self._feel(thrower)),
            asyncio.ensure_future(self._weigh()),
        ]
        try:
            await self._started(observer)
            await schedule.begin()
            started_at = datetime.now(UTC)
            beside.append(asyncio.ensure_future(self._keep_processes()))
            await self._storm(thrower, env)
            schedule.end()
            await self._drain(schedule, observer)
        finally:
            for task in beside:
                task.cancel()
            await asyncio.gather(*beside, return_exceptions=True)
        await self._end_fleets()
        history = await self._collect(observer, thrower, schedule)
        report = report_of(
            history,
            check(history),
            options=self._options,
            impossible=self._ground.impossible,
            began=self._began,
            started_at=started_at,
            memory=self._memory.figures(),
            is_cut_short=self._is_ended.is_set(),
        )
        await asyncio.to_thread(evidence.keep, self._directory, history, report)
        return report

    def _start_fleets(self, env: dict[str, str]) -> None:
        hit, lease = self._options.fleets, self._options.lease
        for number in range(1, hit + self._options.spared + 1):
            fleet = Fleet(number, self._directory, env, lease, is_spared=number > hit)
            fleet.start()
            self._fleets.append(fleet)

    # -- the storm -----------------------------------------------------------------------------

    def _enter(self, phase: str) -> float:
        self._phase, self._phase_began = phase, time.monotonic()
        return self._phase_began

    async def _started(self, observer: Observer) -> None:
        """Wait until every worker serves."""
        began = time.monotonic()
        while len(await observer.living_workers()) < self._workers:
            has_ended = not all(each.is_running for each in self._fleets)
            if has_ended or time.monotonic() > self._give_up_at:
                raise ChaosFailed(f"the workers did not start: {self._last_lines()}")
            await asyncio.sleep(_LOOK_SECONDS)
        self._start_seconds = cpu_seconds(self._cpu.shares, began, time.monotonic())

    async def _produce(self) -> None:
        """Wait until every producer begins."""
        while not all(self._ledger.has(each.pid) for each in self._producers):
            if time.monotonic() > self._give_up_at:
                raise ChaosFailed(f"the producers did not start: {self._last_lines()}")
            await asyncio.sleep(_LOOK_SECONDS)

    async def _storm(self, thrower: Thrower, env: dict[str, str]) -> None:
        options = self._options
        faults = plan_faults(
            options.seed,
            count=options.faults,
            seconds=options.seconds,
            kinds=self._kinds,
            lease=options.lease,
        )
        for number in range(1, terms.PRODUCERS + 1):
            order = terms.Order(
                number=number,
                seed=options.seed,
                jobs=max(options.jobs // terms.PRODUCERS, 1),
                seconds=options.seconds,
                transfers=self._ground.has_transactions,
            )
            producer = ProducerProcess(order, self._directory, env)
            producer.start()
            self._producers.append(producer)
        await self._produce()
        self._planned = len(faults)
        self._began = self._enter("storm")
        for fault in faults:
            await self._until(self._began + fault.at)
            await self._at_work()
            if self._is_ended.is_set():
                return
            await thrower.throw(fault)
            # Not what was seen before the fault: the next look counts again.
            self._done_before, self._serving = self._done, set()
        await self._until(self._began + options.seconds)

    async def _until(self, moment: float) -> None:
        """Wait for a moment of the storm, at most until that is ended."""
        with suppress(TimeoutError):
            async with asyncio.timeout(max(moment - time.monotonic(), 0)):
                await self._is_ended.wait()

    async def _at_work(self) -> None:
        """Wait until most workers serve again, and a job has ended since the last fault.

        On a slow machine the next fault would otherwise hit workers that are still starting.
        """
        deadline = time.monotonic() + _RECOVERY_SECONDS
        while time.monotonic() < deadline and not self._is_ended.is_set():
            if len(self._serving) >= self._workers - 1 and self._done > self._done_before:
                return
            await asyncio.sleep(_LOOK_SECONDS)

    @property
    def _done(self) -> int:
        return sum(self._counts[state] for state in FINISHED)

    async def _keep_processes(self) -> None:
        """Start supervisors again that have ended, and producers while the storm lasts."""
        while True:
            for fleet in self._fleets:
                if not fleet.is_running:
                    await asyncio.sleep(_RESTART_SECONDS)
                    self._ledger.write("restart", name=f"fleet-{fleet.number}")
                    fleet.start()
            for producer in self._producers:
                if self._phase == "storm" and not producer.is_running:
                    self._ledger.write("restart", name=f"producer-{producer.number}")
                    producer.start(time.monotonic() - self._began)
            await asyncio.sleep(_LOOK_SECONDS)

    async def _watch(self, observer: Observer, thrower: Thrower) -> None:
        """Look at the store again and again, and show what is seen."""
        while True:
            with suppress(StoreError, OSError):
                self._counts = await observer.counts()
                self._serving = await observer.serving()
                await observer.watch()
            self._show(
                View(
                    phase=self._phase,
                    seconds=time.monotonic() - self._phase_began,
                    workers=len(self._serving),
                    faults=thrower.thrown,
                    planned=self._planned,
                    current=thrower.current,
                    counts=dict(self._counts),
                )
            )
            await asyncio.sleep(_LOOK_SECONDS)

    async def _feel(self, thrower: Thrower) -> None:
        """Notice when this machine is too busy to renew leases: that excuses every process."""
        while True:
            began = time.monotonic()
            await asyncio.sleep(_FEEL_SECONDS)
            is_starved = time.monotonic() - began - _FEEL_SECONDS > self._options.lease / 6
            if is_starved and self._phase != "start":
                thrower.was_starved(began)

    async def _weigh(self) -> None:
        """Look at the memory of the workers, and at the CPU time of all processes."""
        while True:
            await asyncio.to_thread(self._look_at_processes)
            await asyncio.sleep(_WEIGH_SECONDS)

    def _look_at_processes(self) -> None:
        workers = {pid for fleet in self._fleets for pid in fleet.workers()}
        # One that does not serve yet still imports, which is no growth.
        self._memory.look(workers & self._serving, time.monotonic())
        above = [os.getpid(), *(fleet.pid for fleet in self._fleets)]
        self._cpu.look([*above, *workers], time.monotonic())

    # -- afterwards ----------------------------------------------------------------------------

    async def _drain(self, schedule: TickedSchedule, observer: Observer) -> None:
        """Let everything come to rest, as long as there is progress."""
        self._enter("drain")
        for producer in self._producers:
            if not await asyncio.to_thread(producer.end, _END_SECONDS):
                self._unended.append(f"producer {producer.number}")
        await schedule.catch_up(self._options.patience)
        latest, since = 0, time.monotonic()
        while time.monotonic() - since < self._options.patience:
            with suppress(StoreError, OSError):
                counts = await observer.counts()
                if not sum(counts[state] for state in State if state not in FINISHED):
                    return
                # Not every change is progress: a job may be claimed and given back for ever.
                done = sum(counts[state] for state in FINISHED)
                if done > latest:
                    latest, since = done, time.monotonic()
            await asyncio.sleep(_LOOK_SECONDS)

    async def _end_fleets(self) -> None:
        self._enter("end")
        for fleet in self._fleets:
            fleet.terminate()
        deadline = time.monotonic() + _END_SECONDS
        while time.monotonic() < deadline:
            if not any(fleet.is_running for fleet in self._fleets):
                break
            await asyncio.sleep(_LOOK_SECONDS)
        self._unended += [f"fleet {each.number}" for each in self._fleets if each.is_running]

    async def _collect(
        self, observer: Observer, thrower: Thrower, schedule: TickedSchedule
    ) -> History:
        records = await observer.records()
        return History(
            entries=self._ledger.entries(),
            records=records,
            strikes=thrower.strikes,
            lease=self._options.lease,
            store=self._ground.name,
            effects=await self._ground.effects(),
            changes=observer.changes,
            watched=observer.watched,
            living_workers=await observer.living_workers(),
            start_seconds=self._start_seconds,
            shares=self._cpu.shares,
            ticking=schedule.ticking,
            unended=self._unended,
        )

    def _last_lines(self) -> str:
        path = self._directory / "fleet-1.log"
        text = path.read_text(errors="replace") if path.exists() else ""
        return " ".join(text.splitlines()[-3:])


async def _to_its_end(work: Coroutine[Any, Any, None]) -> None:
    """Wait for work that has to be done, even if this task is cancelled meanwhile."""
    task, is_cancelled = asyncio.ensure_future(work), False
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError:
            is_cancelled = True
    task.result()
    if is_cancelled:
        raise asyncio.CancelledError
