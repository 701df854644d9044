"""Owns a job's way through a worker: claimed, run, settled, written; and the drain of all runs."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Collection, Iterator, Mapping
from datetime import timedelta
from uuid import UUID

from windlass.core.claims.room import Pool, Room
from windlass.core.failures.crash_suspects import is_suspect
from windlass.core.failures.error_classes import ErrorClass
from windlass.core.jobs.ids import flow_of
from windlass.core.jobs.job import SCHEDULE, ErrorInfo, Job
from windlass.core.jobs.outcomes import Cancelled, Crashed, Outcome, Released, Snoozed
from windlass.core.jobs.settle import Transition, completed
from windlass.core.jobs.states import FINISHED, State
from windlass.core.workflows.flow_graph import topic_of
from windlass.handlers.registry import Registry
from windlass.observability.log_context import fields_of
from windlass.observability.logs import get_logger
from windlass.observability.meters import Meters
from windlass.observability.settled_log import RESCUED, event_of, log_settled
from windlass.process.clocks import clock_of
from windlass.process.tasks import GuardedTask
from windlass.process.waits import first
from windlass.worker.engine.claimer import Claimer
from windlass.worker.engine.executor import CANCEL_GRACE, Executor
from windlass.worker.engine.runs import Run
from windlass.worker.engine.settler import Settler
from windlass.worker.engine.shared_tasks import SharedTasks
from windlass.worker.engine.start_pace import QuickKinds
from windlass.worker.engine.writing.checkpointer import Checkpointer
from windlass.worker.engine.writing.completer import Completer, Settlement
from windlass.worker.engine.writing.streamer import Streamer
from windlass.worker.options import WorkerOptions
from windlass.worker.policies.gate import Gates
from windlass.worker.policies.slo_counter import SloCounter
from windlass.worker.policies.slot_scaler import Demand
from windlass.worker.services.housekeeping import Cleaner
from windlass.worker.services.outbox_relay import OutboxRelay
from windlass.worker.services.progress_reporter import ProgressReporter
from windlass.worker.services.schedules.schedule_ticker import ScheduleTicker
from windlass.worker.state import WorkerState

log = get_logger("windlass.worker")
# Module-level names, since a lookup on an enum is slow.
_COMPLETED = State.COMPLETED
_LOOP, _ISOLATED = Pool.LOOP, Pool.ISOLATED
_NO_CHILD_DELAY = timedelta(seconds=1)
_POSTPONED_SECONDS = 3.0
"""Seconds within which a postponed suspect is claimed again."""
_SPARED_SHARE = 4
"""The part of the slots, one in this many, that is left to quick kinds."""
_SIGNALLED = "its process was ended by a signal that its supervisor did not send"


class Engine:
    """Takes claimed jobs from their start to the store; `assembly` attaches the parts below."""

    claimer: Claimer
    executor: Executor
    completer: Completer
    checkpointer: Checkpointer
    streamer: Streamer
    reporter: ProgressReporter

    def __init__(
        self,
        state: WorkerState,
        *,
        options: WorkerOptions,
        registry: Registry,
        settler: Settler,
        gates: Gates,
        slo: SloCounter,
        relay: OutboxRelay,
        ticker: ScheduleTicker,
        meters: Meters,
    ) -> None:
        self._state = state
        self.runs = state.runs
        self._options = options
        self._settler = settler
        self.gates = gates
        self.slo = slo
        self._relay = relay
        self._ticker = ticker
        self._meters = meters
        self._pools = state.policies.kinds
        self._graces = {kind: registry[kind].grace_or(CANCEL_GRACE) for kind in registry}
        self._loop = asyncio.get_running_loop()
        self._now = clock_of(self._loop)
        self._idle = asyncio.Event()
        self.demand = Demand(self.runs)
        self.begun_jobs = state.begun_jobs
        self.tasks = SharedTasks(self, QuickKinds(self._may_be_quick()))
        self.queue_slots = QueueSlots(options.queue_slots)
        self.cleaner = Cleaner()
        self._put_off_at = -math.inf
        self.has_put_off = False
        """Whether a crash suspect was postponed since waiting suspects were last released."""
        # Tested for every job, and the same for all of them.
        self._has_gates, self._is_scaled = bool(gates), not options.concurrency.fixed
        self._has_policies = self._has_gates or bool(slo) or bool(self.queue_slots)

    # -- one job's way through -----------------------------------------------------------------

    def start(self, job: Job) -> None:
        """Begin a job that was claimed, or give it back."""
        if self._state.draining:
            self.give_back(job, "shutdown")
            return
        if self._has_policies:
            self.queue_slots.take(job.queue)
            self.gates.began(job)
            self.slo.began(job)
        run = Run(job, self._now())
        if not self.runs.add(run):
            # The job was claimed again after a lost lease, and its previous run has not ended yet.
            self._finish(run, Snoozed(due=CANCEL_GRACE, begun=False))
            return
        pool = self._pools.get(job.kind)
        if (pool is not _LOOP or job.history) and not self._assign_pool(run, pool):
            self._put_off_at = self._now()
            self.has_put_off = True
            self.finish(run, Snoozed(due=_NO_CHILD_DELAY, begun=False, in_place=True))
            return
        self.tasks.start(run)

    def give_back(self, job: Job, reason: str) -> None:
        """Release a claimed job that was not begun."""
        released = Released(reason=reason, begun=False)
        self.completer.add(job, self._settler.settle_job(job, released, timedelta(0)))

    async def process(self, run: Run, task: GuardedTask) -> None:
        """Take one job from its handler to the store, in a task that later runs share."""
        outcome = await self.executor.run(run, task)
        if self.runs.end(run):
            seconds = self._now() - run.began
            transition = self._settler.settle(run, outcome, seconds)
            self.completer.add(run.job, transition, run.job_now)
            self._release(run, outcome, transition, seconds)

    def finish(self, run: Run, outcome: Outcome | Transition) -> None:
        """End a run whose handler has not: it never began, or it was abandoned."""
        if self.runs.end(run):
            self._finish(run, outcome)

    def _finish(self, run: Run, outcome: Outcome | Transition) -> None:
        seconds = self._now() - run.began
        transition = self._settler.settle(run, outcome, seconds)
        self.completer.add(run.job, transition, run.job_now)
        self._release(run, outcome, transition, seconds)

    def _release(
        self,
        run: Run,
        outcome: Outcome | Transition,
        transition: Transition | None,
        seconds: float,
    ) -> None:
        """Free the resources of a run, and count it."""
        job, state = run.job, self._state
        if self.reporter.latest:
            self.reporter.forget(job)
        if self._has_policies:
            self.queue_slots.give(job.queue)
            self.gates.ended(job, outcome)
        if self._is_scaled:
            self.demand.served += seconds
        state.claim_again.set()
        if self.tasks.is_held and self.has_free_slot(self.tasks.waiting):
            self.tasks.slot_freed()
        if state.draining and not self.runs:
            self._idle.set()
        if run.task is not None:  # A run that never began was not processed.
            state.processed += 1
            self._meters.ran(job, seconds)
        if transition is None:
            self._record_written(run)
        elif transition.error is not None and not isinstance(outcome, Transition):
            self._clean_up_after(transition.error)

    def _record_written(self, run: Run) -> None:
        """Do for a job that was settled by its own run what `settled` does for other jobs."""
        self.gates.settled(run.job, None)
        self._announce_end(run.job)
        if run.is_completed:
            self._meters.settled(run.job, completed(run.job))
        else:
            self._meters.parked(run.job)

    def _clean_up_after(self, error: ErrorInfo) -> None:
        if error.error_class is ErrorClass.RESOURCE:
            self.cleaner.ask()

    # -- where a job runs ----------------------------------------------------------------------

    @property
    def has_free_child(self) -> bool:
        """Whether a child process can run another job."""
        return self.runs.in_isolated_processes < self._options.isolated_processes

    def _assign_pool(self, run: Run, pool: Pool | None) -> bool:
        """Choose where a job runs; return False for a suspect if no child process is free."""
        if pool is not _ISOLATED and is_suspect(run.job):
            if not self.has_free_child:
                return False
            pool = _ISOLATED
        self.runs.occupy(run, pool or _LOOP)
        return True

    def has_free_slot(self, waiting: int) -> bool:
        """Return whether a handler can begin, of which `waiting` have not begun yet."""
        return len(self.runs) - waiting < self._state.slots

    def room(self) -> Room:
        """Return how many more jobs may be claimed, in all and where they run."""
        options, runs, completer = self._options, self.runs, self.completer
        free = self._state.slots - len(runs) - completer.delayed
        slots, quick = free, self._quick_kinds()
        if quick:
            slots, free = self._room_ahead(free)
            quick = quick if slots > free else ()
        return Room(
            # Jobs that run while no outcome can be written might all run again.
            slots=0 if completer.is_failing else slots,
            threads=options.threads - runs.in_threads,
            isolated_processes=options.isolated_processes - runs.in_isolated_processes,
            queues=self.queue_slots.free,
            quick=quick,
            free=free,
        )

    def _room_ahead(self, free: int) -> tuple[int, int]:
        """Return how many jobs can begin soon, and how many of those may keep their slots.

        Some slots are left to quick kinds: without any, their jobs could not begin.
        """
        spared = max(1, self._state.slots // _SPARED_SHARE)
        others = free + self.tasks.ahead - spared
        if others <= 0:
            return free, free
        return others + self.tasks.most - self.tasks.ahead, others

    def _may_be_quick(self) -> Iterator[str]:
        """Yield kinds that may be claimed ahead: nothing else than the loop bounds their starts."""
        policies, options = self._state.policies, self._options
        in_turn = () if policies.rotation is None else policies.rotation.kinds
        for kind, pool in policies.kinds.items():
            is_bounded = kind in policies.ordered or kind in in_turn or pool is not _LOOP
            if not is_bounded and options.concurrency.fixed:
                yield kind

    def _quick_kinds(self) -> Collection[str]:
        known = self.tasks.quick.known
        if not known or not self._has_gates:
            return frozenset(known)  # As it is now: the claim that is planned by it takes a while.
        return [kind for kind in known if not self.gates.may_bar(kind)]

    # -- runs that are stopped -----------------------------------------------------------------

    def cancel(self, job_id: UUID) -> None:
        """Stop the run of a job that an operator has cancelled."""
        if (run := self.runs.get(job_id)) is not None:
            self.stop_run(run, Cancelled(reason="cancelled while it ran"))

    def stop_run(self, run: Run, outcome: Outcome) -> None:
        """Ask a run to end; after its grace it ends without its handler's consent."""
        if run.stopped is not None:
            return
        run.stopped = outcome
        self.executor.interrupt(run, outcome)
        grace = self._graces.get(run.job.kind, CANCEL_GRACE)
        run.timer = self._loop.call_later(grace.total_seconds(), self._abandon, run)

    def release_all(self, reason: str) -> None:
        """Stop every run; none of them is charged."""
        for run in list(self.runs):
            self.stop_run(run, Released(reason=reason))

    def _suspect_all(self) -> None:
        """Stop every run that has begun: its job may have sent the signal that ends the process."""
        for run in list(self.runs):
            if run.task is not None:
                self.stop_run(run, Crashed(cause="process", reason=_SIGNALLED))

    async def drain(self, hurry: asyncio.Event) -> None:
        """Wait for the runs to end, then stop them, then abandon the rest."""
        if self.runs:
            self._idle.clear()
            patience = self._options.shutdown_timeout.total_seconds()
            await first(self._idle.wait(), hurry.wait(), patience=patience)
        if (channel := self._state.channel) is not None and channel.is_signalled_by_others:
            # Released, a job that signals its own process would end one worker after the other.
            self._suspect_all()
        self.release_all("shutdown")
        if self.runs:
            await first(self._idle.wait(), patience=CANCEL_GRACE.total_seconds())
        for run in list(self.runs):
            self._abandon(run)
        await self.executor.finish_reporting()

    def _abandon(self, run: Run) -> None:
        """End a run whose handler does not return; the handler cannot change the job any more."""
        if not run.ended:
            self.runs.abandoned += 1
            self.finish(run, self.executor.abandon(run))

    # -- what is known here --------------------------------------------------------------------

    @property
    def is_busy(self) -> bool:
        """Whether a job runs, is on its way to or from the store, or was postponed a moment ago."""
        is_moving = self.claimer.is_claiming or not self.completer.is_idle
        was_put_off = self.has_put_off or self._now() - self._put_off_at < _POSTPONED_SECONDS
        return bool(self.runs) or is_moving or was_put_off

    def is_known(self, job: Job) -> bool:
        """Return whether this very claim of a job runs here, or waits to be written."""
        run = self.runs.get(job.id)
        return (run is not None and run.job.token == job.token) or self.completer.has(job)

    # -- the store's answers -------------------------------------------------------------------

    def settled(self, settlement: Settlement) -> None:
        """Record that a transition is stored; successes and rescues were logged before."""
        job, transition = settlement.job, settlement.transition
        is_completed = transition.state is _COMPLETED
        if self._has_gates:
            self.gates.settled(job, transition)
        if is_completed or transition.state in FINISHED:
            if job.headers and SCHEDULE in job.headers:
                self._ticker.ended(job)
            self._announce_end(job)
        if not is_completed and event_of(transition) != RESCUED:
            log_settled(job, transition)
        self._meters.settled(job, transition)

    def fenced(self, settlement: Settlement) -> None:
        """Record that the store has rejected a transition, because the lease was lost."""
        job = settlement.job
        self._state.fenced += 1
        if self._has_gates:
            self.gates.settled(job, None)
        log.warning(
            "job.fenced",
            **fields_of(job),
            outcome=settlement.transition.state.value,
            why="another worker has the job, or it was already settled; nothing was changed",
        )
        self._meters.fenced(job)

    def stop_fenced(self, job: Job) -> None:
        """Stop the run whose write was rejected, but not the next run of the same job."""
        run = self.runs.get(job.id)
        if run is not None and run.job.token == job.token:
            self._state.fenced += 1
            self.stop_run(run, Released(reason="lease lost"))
            self._meters.fenced(job)

    def _announce_end(self, job: Job) -> None:
        if (flow := flow_of(job.id)) is not None:
            self._relay.tell(topic_of(flow))


class QueueSlots:
    """The slots that some queues reserve, and how many of them are free."""

    def __init__(self, slots: Mapping[str, int]) -> None:
        self._free = dict(slots)

    def __bool__(self) -> bool:
        return bool(self._free)

    def take(self, queue: str) -> None:
        """Occupy a slot of a queue."""
        if queue in self._free:
            self._free[queue] -= 1

    def give(self, queue: str) -> None:
        """Free a slot of a queue."""
        if queue in self._free:
            self._free[queue] += 1

    @property
    def free(self) -> Mapping[str, int]:
        """Free slots by queue; the mapping changes with every run."""
        return self._free
