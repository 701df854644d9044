"""Owns the description of a worker: how it was started, its pulse, and its record in the store."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Literal

from msgspec import Struct

from windlass.core.jobs.job import Lane
from windlass.core.stats.depths import Connections


class LimitInfo(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A limit as in the code of a worker; changes by operators are in a record."""

    rate: str | None = None
    burst: int | None = None
    concurrency: int | None = None
    keyed: bool = False
    ordered: bool = False


class WorkerInfo(Struct, frozen=True, kw_only=True):
    """The facts that a worker reports when it registers."""

    id: str
    name: str
    host: str
    pid: int
    release: str
    lease: timedelta
    slots: int
    least_slots: int | None = None
    """The fewest slots to which it may shrink; None: their number is fixed."""
    queues: tuple[str, ...] = ()
    """The queues that it serves; empty: all."""
    excluded: tuple[str, ...] = ()
    """The queues that it does not serve, whatever else it does."""
    queue_slots: dict[str, int] = {}
    """How many of its slots a queue may have, where that is fewer."""
    kinds: tuple[str, ...] = ()
    pools: dict[str, str] = {}
    """Kinds that do not run in its event loop, with `threads` or `isolated_processes`."""
    threads: int | None = None
    isolated_processes: int | None = None
    """How many it has, to run jobs in; None: its release does not report it."""
    limits: dict[str, LimitInfo] = {}
    """The limits of its kinds and queues, and those that kinds share, by their names."""
    uses: dict[str, dict[str, int]] = {}
    """How many tokens of which limits a job of each kind takes; those of queues aside."""
    retries: dict[str, int] = {}
    """How often a job of each kind is retried, unless the job says otherwise."""

    def serves(self, lane: Lane) -> bool:
        """Return whether it would run the jobs of a lane."""
        in_queue = not self.queues or lane.queue in self.queues
        return lane.kind in self.kinds and in_queue and lane.queue not in self.excluded


class WorkerPulse(Struct, frozen=True, kw_only=True):
    """The facts that a worker reports with every heartbeat."""

    state: Literal["running", "draining"] = "running"
    processed: int = 0
    running: int = 0
    slots: int | None = None
    """How many jobs it runs at once at present; None: not reported yet."""
    busy: float = 0.0
    """The share in use of the slots that it can have, or of its threads, whichever is scarcer."""
    in_threads: int = 0
    in_isolated_processes: int = 0
    """How many of the jobs that it runs are in threads, and in child processes."""
    waiting: bool = False
    """Whether jobs wait, as far as it knows, that it could run and has no capacity for."""
    cpu: float = 0.0
    """CPUs in use by its process, on the average since its last heartbeat."""
    fenced: int = 0
    """Writes rejected because the lease was lost."""
    loop_lag: timedelta = timedelta(0)
    listening: bool = True
    """Whether the store's notifications arrive; if not, new jobs are found by polling."""
    metrics: str = ""
    """Where its metrics are served, host and port; empty: nowhere."""
    clock_ahead: timedelta = timedelta(0)
    """By how much, at least, its host's clock is ahead of the store's; below 0: behind."""
    memory: int | None = None
    """Bytes that its process holds; None: not reported, or unknown."""
    pool: Connections | None = None
    """The connections of its store's pool; None: there is none, or not reported."""


class WorkerRecord(Struct, frozen=True, kw_only=True):
    """A worker as the store holds it; alive while its lease has neither run out nor been ended.

    A worker whose lease has run out may renew it, and continue; one whose lease was `ended` never
    does.
    """

    info: WorkerInfo
    pulse: WorkerPulse
    started_at: datetime
    last_seen: datetime
    lease_until: datetime
    alive: bool
    ended: bool = False
