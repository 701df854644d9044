"""Owns what a worker counts about its jobs, on the hot path: plain numbers in slots, no locks.

Only the event loop's thread counts, but for the heart's, which has fields of its own. Others read:
a list that is copied while somebody counts is at most one count behind.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate

from windlass.core import latency
from windlass.core.families import EVENTS, FAMILIES
from windlass.core.job import ErrorInfo, Job
from windlass.core.kind_stats import error_line
from windlass.core.metrics import NAMES, OTHER
from windlass.core.settle import Transition
from windlass.core.states import State
from windlass.core.suspicion import CRASHED, LOST, LOST_WITH_HOST, SUSPECTED
from windlass.observe.figures import Counts, Figures, Histograms

PAIRS = 1_000
"""How many pairs of a queue and a kind are told apart."""
_ERRORS = 50
"""How many errors of a queue and a kind are told apart until they are recorded."""
_BOUNDS = latency.BOUNDS
_CALLS = FAMILIES["windlass_store_call_seconds"].bounds
_SIZES = FAMILIES["windlass_batch_jobs"].bounds
_CLAIMED, _COMPLETED, _FAILED, _FENCED = map(
    EVENTS.index, ("claimed", "completed", "failed", "fenced")
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
        """Those that runs ended with, by fingerprint, until somebody has recorded them."""


class Errors:
    """How often runs ended with an error, and what it said last."""

    __slots__ = ("count", "line")

    def __init__(self, count: int = 0, line: str = "") -> None:
        self.count = count
        self.line = line


class Calls:
    """How long one of the store's calls took, how many jobs went with it, how often it failed."""

    __slots__ = ("errors", "jobs", "seconds", "sizes", "times")

    def __init__(self) -> None:
        self.times = [0] * (len(_CALLS) + 1)
        self.seconds = 0.0
        self.sizes = [0] * (len(_SIZES) + 1)
        self.jobs = 0
        self.errors = 0


class Meters:
    """What a worker counts. It is told of everything below; a subclass may tell others, too.

    Give the subclass to the app, `Windlass(meters=Mine)`; every worker makes one of its own. All
    methods are called on the event loop, often thousands of times a second, and must be quick.
    """

    def __init__(self) -> None:
        self._tallies: dict[tuple[str, str], Tallies] = {}
        self._queues: set[str] = set()
        self._kinds: set[str] = set()
        self._calls: dict[str, Calls] = {}

    # -- what it is told -----------------------------------------------------------------------

    def claimed(self, jobs: Sequence[Job], seconds: float) -> None:
        """Count jobs that one call has claimed, and how long they had waited."""
        tallies = self._tallies
        for job in jobs:
            known = tallies.get((job.queue, job.kind)) or self._new(job)
            known.events[_CLAIMED] += 1
            if job.started_at is not None:
                waited = (job.started_at - job.due_at).total_seconds()
                if waited > 0.0:
                    known.waited += waited
                    known.waits[bisect_left(_BOUNDS, waited)] += 1
                else:
                    known.waits[0] += 1
        self.called("claim", seconds, len(jobs))

    def ran(self, job: Job, seconds: float) -> None:
        """Count a run that has ended, however it did."""
        known = self._tallies.get((job.queue, job.kind)) or self._new(job)
        known.seconds += seconds
        known.durations[bisect_left(_BOUNDS, seconds)] += 1

    def settled(self, job: Job, move: Transition) -> None:
        """Count what became of a job, once that is in the store."""
        known = self._tallies.get((job.queue, job.kind)) or self._new(job)
        if move.state is _DONE:
            known.events[_COMPLETED] += 1
            return
        known.events[_event(move)] += 1
        if move.failures:
            known.events[_FAILED] += 1
        error = move.error or (move.attempt and move.attempt.error)
        if error:
            _note(known.errors, error)

    def fenced(self, job: Job) -> None:
        """Count a word that came too late."""
        (self._tallies.get((job.queue, job.kind)) or self._new(job)).events[_FENCED] += 1

    def called(self, call: str, seconds: float, jobs: int | None = None) -> None:
        """Count a call that the store has answered, with the number of jobs that went with it."""
        calls = self._of_call(call)
        calls.seconds += seconds
        calls.times[bisect_left(_CALLS, seconds)] += 1
        if jobs is not None:
            calls.jobs += jobs
            calls.sizes[bisect_left(_SIZES, jobs)] += 1

    def call_failed(self, call: str) -> None:
        """Count a call that the store has failed."""
        self._of_call(call).errors += 1

    # -- what it tells -------------------------------------------------------------------------

    @property
    def tallies(self) -> list[Tallies]:
        """The counts by queue and kind."""
        return list(self._tallies.values())

    def figures(self) -> Figures:
        """Return all that was counted."""
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
        counts["windlass_store_errors_total"] = [
            ((name,), calls.errors) for name, calls in list(self._calls.items())
        ]
        return counts

    def histograms(self) -> Histograms:
        """Return the histograms by family, as Prometheus is shown them."""
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
        """Return where jobs of a queue and a kind are counted, which nobody has asked for yet.

        Names beyond the bound are called `other`; what is looked up by its own name next time is
        found there. That, too, is bounded, since a name is cheap to invent.
        """
        queue, kind = self._named(self._queues, job.queue), self._named(self._kinds, job.kind)
        if len(self._tallies) >= PAIRS and (queue, kind) not in self._tallies:
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
    """Count an error; when there are too many to tell them apart, as `other`."""
    known = errors.get(error.fingerprint)
    if known is None:
        name = error.fingerprint if len(errors) < _ERRORS else OTHER
        known = errors.setdefault(name, Errors())
    known.count += 1
    known.line = error_line(str(error))


def _event(move: Transition) -> int:
    """Return what became of a job that was not completed."""
    match move.state:
        case State.SCHEDULED:
            return _RETRIED if move.failures else _SNOOZED
        case State.PENDING:
            outcome = "" if move.attempt is None else move.attempt.outcome
            # One whose key keeps its order waits in its place, and is not scheduled.
            return _RETRIED if move.failures else _WAYS_BACK.get(outcome, _RELEASED)
        case State.DEAD:
            return _DEAD
        case _:
            return _CANCELLED


def _cumulated(counts: Sequence[int]) -> list[int]:
    return list(accumulate(list(counts)))
