"""Owns the counters of a worker's jobs: plain numbers without locks, for the hot path.

Only the event loop's thread counts, except for the heartbeat's, which has fields of its own. Other
threads read: a list copied meanwhile is at most one count behind.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any

from windlass.core.failures.crash_suspects import CRASHED, LOST, LOST_WITH_HOST, SUSPECTED
from windlass.core.jobs.job import ErrorInfo, Job, Saga
from windlass.core.jobs.settle import Transition
from windlass.core.jobs.states import State
from windlass.core.metrics import histogram as latency
from windlass.core.metrics.exposition import NAMES, OTHER
from windlass.core.metrics.families import EVENTS, FAMILIES
from windlass.core.stats.kind_history import error_line
from windlass.observability.logs import get_logger
from windlass.observability.process_stats import Counts, Figures, Histograms

MAX_PAIRS = 1_000
"""Number of pairs of a queue and a kind that have counters of their own."""
_MAX_ERRORS = 50
"""Number of errors of a queue and a kind that have counters until they are recorded."""
_BOUNDS = latency.BOUNDS
_CALLS = FAMILIES["windlass_store_call_seconds"].bounds
_SIZES = FAMILIES["windlass_batch_jobs"].bounds
_CLAIMED, _COMPLETED, _FAILED, _PARKED, _FENCED = map(
    EVENTS.index, ("claimed", "completed", "failed", "parked", "fenced")
)
_WAYS_BACK = {
    CRASHED: EVENTS.index("crashed"),
    SUSPECTED: EVENTS.index("suspected"),
    LOST: EVENTS.index("rescued"),
    LOST_WITH_HOST: EVENTS.index("rescued"),
}
_RETRIED, _SNOOZED, _RELEASED, _DEAD, _CANCELLED = map(
    EVENTS.index, ("retried", "snoozed", "released", "dead", "cancelled")
)
_DONE = State.COMPLETED


class Tallies:
    """The counts of one queue's jobs of one kind."""

    __slots__ = ("durations", "errors", "events", "kind", "queue", "seconds", "waited", "waits")

    def __init__(self, queue: str, kind: str) -> None:
        self.queue = queue
        self.kind = kind
        self.events = [0] * len(EVENTS)
        self.durations = latency.empty()
        self.seconds = 0.0
        self.waits = latency.empty()
        self.waited = 0.0
        self.errors: dict[str, Errors] = {}
        """The errors of runs by fingerprint, until they are recorded."""


class Errors:
    """How often runs ended with an error, its last message, and when, by the monotonic clock."""

    __slots__ = ("count", "first", "last", "line")

    def __init__(self) -> None:
        self.count = 0
        self.line = ""
        self.first = self.last = time.monotonic()


class Calls:
    """Durations, batch sizes and failures of one of the store's calls."""

    __slots__ = ("errors", "jobs", "seconds", "sizes", "times")

    def __init__(self) -> None:
        self.times = [0] * (len(_CALLS) + 1)
        self.seconds = 0.0
        self.sizes = [0] * (len(_SIZES) + 1)
        self.jobs = 0
        self.errors = 0


class Meters:
    """The counters of a worker; a subclass may pass the calls on to another system.

    Give the subclass to the app, `Windlass(meters=Mine)`; every worker makes one of its own. All
    methods are called on the event loop, often thousands of times a second, and must be quick.
    """

    def __init__(self) -> None:
        self._tallies: dict[tuple[str, str], Tallies] = {}
        self._queues: set[str] = set()
        self._kinds: set[str] = set()
        self._calls: dict[str, Calls] = {}
        self._starts: dict[str, list[int]] = {}
        """By kind with a target: how many jobs have started, and how many of them late."""

    # -- counting ------------------------------------------------------------------------------

    def claimed(self, jobs: Sequence[Job], seconds: float) -> None:
        """Count the jobs that one call has claimed, and their waits."""
        tallies = self._tallies
        queue = kind = due = started = None
        for job in jobs:
            # Jobs that were claimed, or enqueued, together share these objects.
            if job.kind is not kind or job.queue is not queue:
                queue, kind = job.queue, job.kind
                known = tallies.get((queue, kind)) or self._new(job)
            known.events[_CLAIMED] += 1
            if (job_due := job.due_at) is not due or job.started_at is not started:
                due, started = job_due, job.started_at
                waited, bound = 0.0, 0
                if started is not None and started > due:
                    waited = (started - due).total_seconds()
                    bound = bisect_left(_BOUNDS, waited)
            if started is not None:
                known.waited += waited
                known.waits[bound] += 1
        self.called("claim", seconds, len(jobs))

    def ran(self, job: Job, seconds: float) -> None:
        """Count a run that has ended, whatever its outcome."""
        known = self._tallies.get((job.queue, job.kind)) or self._new(job)
        known.seconds += seconds
        known.durations[bisect_left(_BOUNDS, seconds)] += 1

    def settled(self, job: Job, move: Transition) -> None:
        """Count a transition of a job that is in the store."""
        known = self._tallies.get((job.queue, job.kind)) or self._new(job)
        if move.state is _DONE:
            known.events[_COMPLETED] += 1
            return
        if not _is_to_be_undone(move):
            known.events[_event(move)] += 1
        if move.failures:
            known.events[_FAILED] += 1
        error = move.error or (move.attempt and move.attempt.error)
        # A job that was undone died of an error of an earlier run, which was counted then.
        if error and move.saga is not Saga.OVER:
            _note(known.errors, error)

    def started(self, kind: str, *, late: bool) -> None:
        """Count the first start of a job whose kind has a target, and whether that was missed."""
        known = self._starts.get(kind)
        if known is None:
            known = self._starts.setdefault(self._named(self._kinds, kind), [0, 0])
        known[0] += 1
        known[1] += late

    def parked(self, job: Job) -> None:
        """Count a job that waits for an event in the store."""
        (self._tallies.get((job.queue, job.kind)) or self._new(job)).events[_PARKED] += 1

    def fenced(self, job: Job) -> None:
        """Count a write that was rejected because the lease was lost."""
        (self._tallies.get((job.queue, job.kind)) or self._new(job)).events[_FENCED] += 1

    def called(self, call: str, seconds: float, jobs: int | None = None) -> None:
        """Count a call that the store has answered, with its number of jobs."""
        calls = self._of_call(call)
        calls.seconds += seconds
        calls.times[bisect_left(_CALLS, seconds)] += 1
        if jobs is not None:
            calls.jobs += jobs
            calls.sizes[bisect_left(_SIZES, jobs)] += 1

    def call_failed(self, call: str) -> None:
        """Count a call that failed."""
        self._of_call(call).errors += 1

    # -- reading -------------------------------------------------------------------------------

    @property
    def tallies(self) -> list[Tallies]:
        """The counts by queue and kind."""
        return list(self._tallies.values())

    def figures(self) -> Figures:
        """Return all counters and histograms."""
        return Figures(counts=self.counts(), histograms=self.histograms())

    def counts(self) -> Counts:
        """Return the counters by family."""
        tallies = self.tallies
        counts: Counts = {
            f"windlass_jobs_{event}_total": [
                ((each.queue, each.kind), each.events[number]) for each in tallies
            ]
            for number, event in enumerate(EVENTS)
        }
        starts = list(self._starts.items())
        for number, name in enumerate(("starts", "late_starts")):
            counts[f"windlass_kind_{name}_total"] = [
                ((kind,), each[number]) for kind, each in starts
            ]
        counts["windlass_store_errors_total"] = [
            ((name,), calls.errors) for name, calls in list(self._calls.items())
        ]
        return counts

    def histograms(self) -> Histograms:
        """Return the histograms by family, with the bounds that Prometheus gets."""
        tallies, calls = self.tallies, list(self._calls.items())
        return {
            "windlass_job_duration_seconds": [
                ((each.queue, each.kind), latency.shown(each.durations), each.seconds)
                for each in tallies
            ],
            "windlass_job_wait_seconds": [
                ((each.queue, each.kind), latency.shown(each.waits), each.waited)
                for each in tallies
            ],
            "windlass_store_call_seconds": [
                ((name,), _cumulated(each.times), each.seconds) for name, each in calls
            ],
            "windlass_batch_jobs": [
                ((name,), _cumulated(each.sizes), float(each.jobs))
                for name, each in calls
                if any(each.sizes)
            ],
        }

    # -- names ---------------------------------------------------------------------------------

    def _new(self, job: Job) -> Tallies:
        # Names beyond the bound are counted as `other`: clients can invent any number of them.
        queue, kind = self._named(self._queues, job.queue), self._named(self._kinds, job.kind)
        if len(self._tallies) >= MAX_PAIRS and (queue, kind) not in self._tallies:
            queue = kind = OTHER
        known = self._tallies.get((queue, kind))
        if known is None:
            known = self._tallies[queue, kind] = Tallies(queue, kind)
        return known

    def _named(self, known: set[str], name: str) -> str:
        if name in known or len(known) < NAMES:
            known.add(name)
            return name
        return OTHER

    def _of_call(self, call: str) -> Calls:
        calls = self._calls.get(call)
        if calls is None:
            calls = self._calls[call] = Calls()
        return calls


def _note(errors: dict[str, Errors], error: ErrorInfo) -> None:
    known = errors.get(error.fingerprint)
    if known is None:
        name = error.fingerprint if len(errors) < _MAX_ERRORS else OTHER
        known = errors.setdefault(name, Errors())
    known.count += 1
    known.line = error_line(str(error))
    known.last = time.monotonic()


def _is_to_be_undone(move: Transition) -> bool:
    """Return whether a job has failed for good, and has steps to undo before it is dead."""
    begins = move.saga is Saga.UNDOING and move.state is State.PENDING and move.hold is None
    return begins and bool(move.failures)


def _event(move: Transition) -> int:
    match move.state:
        case State.SCHEDULED:
            return _RETRIED if move.failures else _SNOOZED
        case State.PENDING:
            outcome = "" if move.attempt is None else move.attempt.outcome
            # A retry whose key keeps its order stays pending in its place.
            return _RETRIED if move.failures else _WAYS_BACK.get(outcome, _RELEASED)
        case State.DEAD:
            return _DEAD
        case _:
            return _CANCELLED


def _cumulated(counts: Sequence[int]) -> list[int]:
    return list(accumulate(list(counts)))


log = get_logger("windlass.metrics")


def guarded(meters: Meters) -> Meters:
    """Return meters whose exceptions never reach the worker."""
    return meters if type(meters) is Meters else Guarded(meters)


class Guarded(Meters):
    """Passes calls to a user's meters; the first exception of each method is logged."""

    def __init__(self, meters: Meters) -> None:
        super().__init__()
        self._guarded = meters
        self._broken: set[str] = set()

    def claimed(self, jobs: Sequence[Job], seconds: float) -> None:
        self._pass("claimed", lambda: self._guarded.claimed(jobs, seconds))

    def ran(self, job: Job, seconds: float) -> None:
        self._pass("ran", lambda: self._guarded.ran(job, seconds))

    def settled(self, job: Job, move: Transition) -> None:
        self._pass("settled", lambda: self._guarded.settled(job, move))

    def started(self, kind: str, *, late: bool) -> None:
        self._pass("started", lambda: self._guarded.started(kind, late=late))

    def parked(self, job: Job) -> None:
        self._pass("parked", lambda: self._guarded.parked(job))

    def fenced(self, job: Job) -> None:
        self._pass("fenced", lambda: self._guarded.fenced(job))

    def called(self, call: str, seconds: float, jobs: int | None = None) -> None:
        self._pass("called", lambda: self._guarded.called(call, seconds, jobs))

    def call_failed(self, call: str) -> None:
        self._pass("call_failed", lambda: self._guarded.call_failed(call))

    @property
    def tallies(self) -> list[Tallies]:
        return self._pass("tallies", lambda: self._guarded.tallies) or []

    def figures(self) -> Figures:
        return self._pass("figures", self._guarded.figures) or Figures()

    def _pass(self, name: str, call: Callable[[], Any]) -> Any:
        try:
            return call()
        except Exception:
            if name not in self._broken:
                self._broken.add(name)
                remedy = "fix the method; further failures are not logged"
                meters = type(self._guarded).__qualname__
                log.exception("meters.failed", meters=meters, method=name, remedy=remedy)
            return None
