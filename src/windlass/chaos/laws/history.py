"""Owns a history: what the ledger, the store and the thrown faults say, as facts to be judged."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from uuid import UUID

from msgspec import Struct

from windlass.chaos.ledger import Entry
from windlass.core.jobs.ids import flow_of

COMPLETED, DEAD, CANCELLED = "completed", "dead", "cancelled"
MAX_LOST_RUNS = 3
"""Runs that a job may lose with its process before it is dead; docs/architecture.md."""
FINISHED = (COMPLETED, DEAD, CANCELLED)


class Record(Struct, frozen=True, kw_only=True):
    """A job as the store has it in the end."""

    job: str
    kind: str
    state: str
    attempt: int = 0
    failures: int = 0
    crashes: int = 0
    reason: str = ""
    result_attempt: int | None = None
    """The attempt that the recorded result names; None: there is no such result."""
    result_mark: str = ""
    lost_runs: int = 0
    """Attempts that ended with their process or their lease."""
    schedule: str = ""
    tick: str = ""
    """The time of its tick, ISO 8601, if a schedule made it."""

    @property
    def is_finished(self) -> bool:
        """Whether it has an outcome."""
        return self.state in FINISHED

    @property
    def is_worn_out(self) -> bool:
        """Whether it is dead because it lost too many runs with their process or lease."""
        return self.state == DEAD and max(self.crashes, self.lost_runs) >= MAX_LOST_RUNS


class Strike(Struct, frozen=True, kw_only=True):
    """A fault that was thrown: when it began and was over, and which processes it touched."""

    number: int
    fault: str
    began: float
    ended: float
    pids: tuple[int, ...] = ()
    touches_all: bool = False
    """Whether every process may have lost its lease by it."""
    forgets: bool = False
    """Whether writes of the moments before it may be gone, unless a replica had confirmed them."""
    clock_step: float = 0.0
    """Seconds by which the store's clock was set forward, or back if negative."""
    note: str = ""


class Ticking(Struct, frozen=True, kw_only=True):
    """When the schedule ticked."""

    first: str
    """Its first tick by the store's clock, ISO 8601."""
    began: float
    ended: float
    """When the last tick that must have made a job was due, or later."""


class Share(Struct, frozen=True, kw_only=True):
    """A time, and the part of it in which no process under chaos waited for a CPU."""

    began: float
    ended: float
    part: float
    """From 0 to 1."""


class Run(Struct, frozen=True, kw_only=True):
    """A run of a handler, as the ledger has it."""

    job: str
    attempt: int
    name: str
    pid: int
    mark: str
    began: float
    ended: float | None = None
    """When it ended, in whatever way; None: it was killed."""
    is_whole: bool = False
    """Whether the handler came to its end."""
    is_cut: bool = False
    """Whether its worker cancelled it."""

    @property
    def is_failed(self) -> bool:
        """Whether the handler raised an exception of its own."""
        return self.ended is not None and not self.is_whole and not self.is_cut


class Change(Struct, frozen=True, kw_only=True):
    """An outcome that was seen in the store, and later another one of the same job."""

    job: str
    before: str
    after: str
    seen_at: float = 0.0
    """When the first of them was first seen."""


@dataclass(frozen=True, kw_only=True)
class History:
    """Everything that the laws judge."""

    entries: Sequence[Entry]
    records: Sequence[Record]
    strikes: Sequence[Strike] = ()
    lease: float
    store: str = "sqlite"
    effects: dict[str, list[int]] | None = None
    watched: int = 0
    """How many outcomes were seen during the storm, and again in the end."""
    changes: Sequence[Change] = ()
    living_workers: Sequence[str] = ()
    """Workers that hold a lease although all were ended."""
    start_seconds: float = 0.0
    """How long the workers took to start, without the time in which they waited for a CPU."""
    shares: Sequence[Share] = ()
    """In which part of the time the processes had a CPU, one time after the other."""
    ticking: Ticking | None = None
    """When the schedule ticked; None: there was none."""
    unended: Sequence[str] = ()
    """Processes that did not end when they were asked to."""

    @cached_property
    def by_job(self) -> dict[str, Record]:
        """The records by their jobs."""
        return {record.job: record for record in self.records}

    @cached_property
    def runs(self) -> list[Run]:
        """All runs, in the order of their beginnings."""
        begun: dict[tuple[str, str], Run] = {}
        for entry in self.entries:
            key = (entry.job, entry.mark)
            if entry.what == "begin":
                begun[key] = Run(
                    job=entry.job,
                    attempt=entry.attempt,
                    name=entry.name,
                    pid=entry.pid,
                    mark=entry.mark,
                    began=entry.at,
                )
            elif entry.what in ("end", "failed", "cut") and key in begun:
                run = begun[key]
                begun[key] = Run(
                    job=run.job,
                    attempt=run.attempt,
                    name=run.name,
                    pid=run.pid,
                    mark=run.mark,
                    began=run.began,
                    ended=entry.at,
                    is_whole=entry.what == "end",
                    is_cut=entry.what == "cut",
                )
        return sorted(begun.values(), key=lambda run: run.began)

    @cached_property
    def runs_of(self) -> dict[str, list[Run]]:
        """The runs by their jobs."""
        found: dict[str, list[Run]] = {}
        for run in self.runs:
            found.setdefault(run.job, []).append(run)
        return found

    @cached_property
    def accepted(self) -> dict[str, Entry]:
        """The jobs whose enqueue was acknowledged."""
        return {entry.job: entry for entry in self.entries if entry.what == "accepted"}

    def accepted_of(self, kind: str) -> list[Entry]:
        """Return the acknowledged jobs of a kind, in the order of their acknowledgements."""
        return [entry for entry in self.accepted.values() if entry.name == kind]

    def recorded_run(self, job: str) -> Run | None:
        """Return the run whose result the store has recorded for a job."""
        record = self.by_job.get(job)
        if record is None or not record.result_mark:
            return None
        return next((r for r in self.runs_of.get(job, ()) if r.mark == record.result_mark), None)

    @cached_property
    def worn_flows(self) -> set[UUID]:
        """The flows of which a job is dead because faults killed its process too often."""
        dead = [record for record in self.records if record.kind == "member" and record.is_worn_out]
        return {flow for record in dead if (flow := flow_of(UUID(record.job))) is not None}

    def cpu_seconds(self, since: float, until: float) -> float:
        """Return the length of a time, without the time in which processes waited for a CPU."""
        return cpu_seconds(self.shares, since, until)

    # -- excuses -------------------------------------------------------------------------------

    def touching(self, pid: int) -> list[Strike]:
        """Return the strikes by which a process may have lost its lease."""
        return [each for each in self.strikes if each.touches_all or pid in each.pids]

    def is_excused(self, run: Run) -> bool:
        """Return whether a run began when its process may have had no lease."""
        return any(
            strike.began <= run.began <= strike.ended + self.lease
            for strike in self.touching(run.pid)
        )

    def may_be_forgotten(self, at: float) -> bool:
        """Return whether a write of this time, if no replica confirmed it, may have been lost.

        Outcomes and enqueues are acknowledged only when a replica has them. Claims, checkpoints and
        outcomes that another process saw too soon are not.
        """
        return any(
            strike.began - self.lease <= at <= strike.ended + self.lease
            for strike in self.strikes
            if strike.forgets
        )

    def held_until(self, run: Run) -> float:
        """Return until when a run certainly ran under its lease.

        That is until its end, a strike, or the beginning of a later attempt, whichever is first.
        """
        ends = [run.began if run.ended is None else run.ended]
        struck = [each.began for each in self.touching(run.pid) if each.began > run.began]
        if run.ended is None and struck:
            ends = [min(struck)]
        later = [other.began for other in self.runs_of[run.job] if other.attempt > run.attempt]
        return min([*ends, *struck, *later])


def cpu_seconds(shares: Sequence[Share], since: float, until: float) -> float:
    """Return the length of a time by its shares; where there is none, all of it counts."""
    lost = sum(
        (1 - share.part) * max(min(share.ended, until) - max(share.began, since), 0.0)
        for share in shares
    )
    return until - since - lost
