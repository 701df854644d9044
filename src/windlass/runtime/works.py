"""Owns a job's way through a worker: claimed, run, settled, counted; and how that comes to rest."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from uuid import UUID

from windlass.context import Site
from windlass.core.error_classes import ErrorClass
from windlass.core.flow import topic_of
from windlass.core.job import SCHEDULE, Job, flow_of
from windlass.core.outcomes import Cancelled, Outcome, Released, Succeeded
from windlass.core.plan import Policies, Room
from windlass.core.settle import Transition, completed, give_up
from windlass.core.states import FINISHED, State
from windlass.observe.logs import get_logger
from windlass.observe.meters import Meters
from windlass.observe.running import fields_of
from windlass.registry import Middleware, Registry
from windlass.resources import Resources
from windlass.runtime.children import Children
from windlass.runtime.chores import Reporter
from windlass.runtime.claimer import Claimer
from windlass.runtime.cleaner import Cleaner
from windlass.runtime.clocks import clock_of
from windlass.runtime.completer import Completer, Settlement
from windlass.runtime.demand import Demand
from windlass.runtime.executor import HEED, Executor, Run
from windlass.runtime.gates import Gates
from windlass.runtime.judge import Judge
from windlass.runtime.lines import RESCUED, event_of, log_settled
from windlass.runtime.options import WorkerOptions
from windlass.runtime.policies import gates_for
from windlass.runtime.recorder import Recorder
from windlass.runtime.results import Results
from windlass.runtime.shares import Shares
from windlass.runtime.targets import Watch
from windlass.runtime.threads import Threads
from windlass.runtime.waits import first
from windlass.store import DoneBefore, Store

log = get_logger("windlass.worker")
_COMPLETED = State.COMPLETED
"""By a name of ours, since an enum takes its time to tell its members."""
_PUT_OFF = 3.0
"""Seconds within which a suspect that was put off is claimed again."""


@dataclass(kw_only=True)
class Tally:
    """What a worker has done so far: runs that have ended, and words that came too late."""

    processed: int = 0
    fenced: int = 0


class Works:
    """The parts through which jobs go, from the claim to the settle, and what goes between them."""

    def __init__(
        self,
        store: Store,
        *,
        registry: Registry,
        middleware: Sequence[Middleware],
        options: WorkerOptions,
        judge: Judge,
        tally: Tally,
        meters: Meters,
        asked: Callable[[], None],
        threads: Threads,
        children: Children,
        resources: Resources,
        worker_id: Callable[[], str],
        policies: Callable[[], Policies],
        slots: Callable[[], int],
        tell: Callable[[str], None],
    ) -> None:
        self._tell = tell
        self._options = options
        self._judge = judge
        self._tally = tally
        self._meters = meters
        self._worker_id = worker_id
        self._slots = slots
        self._is_scaled = not options.slots.fixed
        loop = asyncio.get_running_loop()
        self._now = clock_of(loop)
        self._idle = asyncio.Event()
        self.draining = False
        """Whether nothing more is started: what a claim still brings is given back."""
        self.ended: Callable[[Job], None] = lambda _: None
        """Who is told of a schedule's job that is finished."""
        self.shares = Shares(options.queue_slots)
        self.cleaner = Cleaner()
        self.reporter = Reporter(store, fenced=self._cancel_lost)
        self.completer = Completer(
            store, settled=self._log_settled, fenced=self._log_fenced, meters=meters
        )
        self.recorder = Recorder(store, fenced=self._cancel_lost)
        self.executor = Executor(
            registry=registry,
            middleware=middleware,
            pools=policies().kinds,
            threads=threads,
            children=children,
            timeout=options.timeout,
            finish=self._finish,
            record=self.recorder.record,
            site=Site(
                report=self.reporter.report,
                transact=store.transaction,
                done=DoneBefore(lambda: store, loop),
                results=Results(lambda: store, registry, loop),
                resources=resources,
                redaction=options.redaction,
            ),
            slots=slots,
        )
        self.demand = Demand(lambda: len(self.executor.runs))
        self.each_gate = gates_for(
            registry,
            store,
            judge=judge,
            worker_id=worker_id,
            rouse=lambda: self.claimer.freed(),
            pools=policies().kinds,
            slots=slots,
            has_begun=self.executor.has_begun,
            lease=options.lease,
        )
        self.gates = Gates(self.each_gate)
        self.watch = Watch(store, policies().targets, now=self._now)
        # Asked for every job, and the same for all of them.
        self._is_shared, self._is_gated = bool(self.shares), bool(self.gates)
        self._is_watched = bool(self.watch)
        self.claimer = Claimer(
            store,
            worker_id=worker_id,
            policies=policies,
            room=self._room,
            bite=lambda: self.executor.bite,
            start=self._start_job,
            gates=self.gates,
            demand=self.demand,
            meters=meters,
            asked=asked,
            batch_size=options.batch_size,
            poll_interval=options.poll_interval,
        )

    @property
    def is_busy(self) -> bool:
        """Whether anything of ours runs, is on its way, or was put off for a moment."""
        put_off = self._now() - self.executor.put_off_at < _PUT_OFF
        on_its_way = self.claimer.is_claiming or not self.completer.is_idle
        return bool(self.executor.runs) or on_its_way or put_off

    @property
    def serves(self) -> bool:
        """Whether jobs are claimed: there is a lease, and nobody drains."""
        return self._worker_id() != "" and not self.draining

    def is_known(self, job: Job) -> bool:
        """Say whether this very claim of a job is in hand here."""
        run = self.executor.run_of(job.id)
        return (run is not None and run.job.token == job.token) or self.completer.has(job)

    def cancel(self, job_id: UUID) -> None:
        """Stop the run of a job that somebody has cancelled."""
        self.executor.stop(job_id, Cancelled(reason="cancelled while it ran"))

    def give_up(self, reason: str) -> None:
        """Stop every run; none of them is charged."""
        for run in list(self.executor.runs):
            self.executor.stop(run.job.id, Released(reason=reason))

    async def drain(self, hurry: asyncio.Event) -> None:
        """Let runs end by themselves, then make them, then do without them."""
        patience = self._options.shutdown_timeout.total_seconds()
        if self.executor.runs:
            self._idle.clear()
            await first(self._idle.wait(), hurry.wait(), patience=patience)
        self.give_up("shutdown")
        if self.executor.runs:
            await first(self._idle.wait(), patience=HEED.total_seconds())
        self.executor.abandon()

    # -- one job's way through -----------------------------------------------------------------

    def _room(self) -> Room:
        options, executor = self._options, self.executor
        return Room(
            slots=self._slots() - len(executor.runs),
            threads=options.threads - executor.in_threads,
            children=options.children - executor.in_children,
            queues=self.shares.free,
        )

    def _start_job(self, job: Job) -> None:
        if self.draining:
            given_back = self._judge.settle(job, Released(reason="shutdown"), timedelta(0))
            self.completer.add(job, given_back)
        else:
            if self._is_shared:
                self.shares.take(job.queue)
            if self._is_gated:
                self.gates.began(job)
            if self._is_watched:
                self.watch.began(job)
            self.executor.start(job)

    def _finish(self, run: Run, outcome: Outcome | Transition) -> None:
        job, seconds = run.job, self._now() - run.began
        # One that its handler completed in a transaction, or parked, is over, whatever came then.
        is_over = False
        if type(outcome) is Succeeded and run.is_plain:
            # As most end, and for those there is neither time nor chance to consider; what was
            # claimed has a token, so that this cannot fail.
            self.completer.add(job, completed(job, outcome.result), job)
        elif not (is_over := run.is_over):
            job_now = run.job_now
            self.completer.add(job, self._outcome_of(run, outcome, job_now, seconds), job_now)
        self.reporter.forget(job)
        if self._is_shared:
            self.shares.give(job.queue)
        if self._is_gated:
            self.gates.ended(job, outcome)
        if self._is_scaled:
            self.demand.served += seconds
        self.claimer.freed()
        if self.draining and not self.executor.runs:
            self._idle.set()
        if run.task is not None:  # What never began was not processed.
            self._tally.processed += 1
            self._meters.ran(job, seconds)
        if is_over:
            self._tell_over(run)

    def _tell_over(self, run: Run) -> None:
        """Say what is in the store already, by the run itself."""
        self.gates.settled(run.job, None)
        self._tell_flow(run.job)
        if run.is_completed:
            self._meters.settled(run.job, completed(run.job))
        else:
            self._meters.parked(run.job)

    def _outcome_of(
        self, run: Run, outcome: Outcome | Transition, job_now: Job, seconds: float
    ) -> Transition:
        """Decide what becomes of a job; whatever goes wrong there, its run has ended."""
        if isinstance(outcome, Transition):
            return outcome  # Settled where the exception was, which cannot travel.
        course = None if run.context is None else run.context._course
        job = job_now if course is None else run.job
        try:
            move = self._judge.end(job, course, outcome, timedelta(seconds=seconds))
        except Exception as error:
            log.exception("settle.failed", **fields_of(run.job))
            return give_up(run.job_now, error)
        if move.error is not None and move.error.error_class is ErrorClass.RESOURCE:
            self.cleaner.ask()
        return move

    def _log_settled(self, settled: Settlement) -> None:
        """Log what is now in the store; a success, and a rescue, were logged before."""
        job, move = settled.job, settled.transition
        if job.headers and SCHEDULE in job.headers and move.state in FINISHED:
            self.ended(job)
        if self._is_gated:
            self.gates.settled(job, move)
        if move.state in FINISHED:
            self._tell_flow(job)
        if move.state is not _COMPLETED and event_of(move) != RESCUED:
            log_settled(job, move)
        self._meters.settled(job, move)

    def _tell_flow(self, job: Job) -> None:
        """Say that a job has ended, if others may wait for that."""
        if (flow := flow_of(job.id)) is not None:
            self._tell(topic_of(flow))

    # -- words that come too late --------------------------------------------------------------

    def _cancel_lost(self, job: Job) -> None:
        """Stop the run whose word came too late, but not the next one of the same job."""
        run = self.executor.run_of(job.id)
        if run is not None and run.job.token == job.token:
            self._tally.fenced += 1
            self.executor.stop(job.id, Released(reason="lease lost"))
            self._meters.fenced(job)

    def _log_fenced(self, refused: Settlement) -> None:
        self._tally.fenced += 1
        if self._is_gated:
            self.gates.settled(refused.job, None)
        log.warning(
            "job.fenced",
            **fields_of(refused.job),
            outcome=refused.transition.state.value,
            why="another worker has the job, or it was settled before; nothing was changed",
        )
        self._meters.fenced(refused.job)
