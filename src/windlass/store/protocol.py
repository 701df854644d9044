"""Owns the contract between Windlass and whatever keeps its jobs. `windlass.testing.conformance`
holds the laws that every store obeys.

All times are the store's own: callers pass durations, or instants that their users chose, and the
store compares them with its clock. Methods are coroutines, except those that must work where no
event loop does: `enqueue_blocking` and `enqueue_in` in a producer's thread, and `heartbeat` in the
worker's own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from types import TracebackType
from typing import Any, Protocol, TypeVar
from uuid import UUID

from windlass.core.changes import Applied, Decide, Hear
from windlass.core.errors import ConfigError
from windlass.core.job import (
    Checkpoint,
    Claim,
    Connections,
    Depths,
    Enqueued,
    ErrorGroup,
    Finding,
    Job,
    JobFilter,
    Json,
    NewJob,
    News,
    Page,
    Progress,
    Pulse,
    QueueCount,
    Retention,
    Ringing,
    Standing,
    Sweep,
    WorkerInfo,
    WorkerRecord,
)
from windlass.core.settle import Transition
from windlass.store.sql import Migration

T = TypeVar("T")
WORKERS_KEPT = timedelta(days=1)
"""How long a worker is remembered after its lease was ended."""


@dataclass(frozen=True, kw_only=True)
class Capabilities:
    """In what stores differ; everything else they have in common."""

    shared: bool
    """Other processes see its jobs."""
    durable: bool
    """Its jobs survive the process."""
    bounded: bool
    """An enqueue waits, or fails, when too many jobs wait already."""
    transactional: bool
    """Users enqueue in a transaction of their own, and complete a job together with their work."""
    makes_itself: bool = True
    """It is made, and brought up to date, by whoever first uses it; if not, by `migrate` only."""
    wakes: bool = True
    """It tells waiting workers of new jobs, or should; if not, polling is what was decided."""


@dataclass(frozen=True, kw_only=True)
class Schema:
    """The number of the schema that a store has, None if it is not there yet, and of the wanted.

    A newer one than wanted may still serve this release, if it says so.
    """

    found: int | None
    wanted: int
    oldest: int = 0
    """The oldest schema whose releases may work on this one; 0: the same only."""

    @property
    def serves(self) -> bool:
        """Whether this release may work on it."""
        if self.found is None:
            return False
        newer = self.oldest > 0 and self.found > self.wanted >= self.oldest
        return self.found == self.wanted or newer

    @property
    def is_outgrowing(self) -> bool:
        """Whether it was made for newer releases, and not for this one."""
        return self.found is not None and self.found > self.wanted and not self.serves


class Transaction(Protocol):
    """`with` in a thread, `async with` in a coroutine: gives a connection in a transaction.

    It ends with a commit, or, if the block raises, with a rollback. Leaving it raises `Fenced`,
    and nothing is committed, if the lease on the job is gone.
    """

    def __enter__(self) -> Any:
        """Begin, and return a connection that blocks."""

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End."""

    async def __aenter__(self) -> Any:
        """Begin, and return a connection that is awaited."""

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End."""


class Store(Protocol):
    """Keeps jobs, leases and records, and is the only one who knows the time."""

    @property
    def capabilities(self) -> Capabilities:
        """What this store can do that others may not."""

    @property
    def location(self) -> str:
        """Where the jobs are, for people; without secrets."""

    @property
    def listening(self) -> bool:
        """Whether this process is told of new jobs; if not, it finds them by polling."""

    @property
    def connections(self) -> Connections | None:
        """The connections that producers, lookers and handlers share here; None: it has none."""

    async def open(self) -> None:
        """Make ready for use; idempotent. Every other method connects by itself when needed.

        Raises:
            StoreUnavailable: it cannot be reached.
            SchemaMismatch: it was made by a release that this one does not understand.
        """

    async def schema(self) -> Schema:
        """Look which schema the store has, without making or changing anything.

        Raises:
            StoreError: it cannot be reached, or is something else.
        """

    async def migrate(self) -> list[str]:
        """Make the store, or bring its schema up to date; return the names of the steps taken.

        Raises:
            SchemaMismatch: it was made by a release that this one does not understand.
        """

    async def migrations(self) -> list[Migration]:
        """Return the steps that `migrate` would take, each as a script that can be read and run."""

    async def close(self) -> None:
        """Let go of connections and threads; idempotent. The store may be opened again."""

    # -- the hot path --------------------------------------------------------------------------

    async def enqueue(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        """Add jobs, all or none, and say what became of each. Waits while a bounded store is full.

        A job whose unique key is held is not added; the answer then names the holder, which is
        changed as the key's `on_duplicate` says (`core.unique.amended`). A job whose id exists
        already is not added again, so that an enqueue of unknown fate can be repeated.

        Raises:
            QueueFull: there are more jobs than a bounded store could ever hold.
            StoreUnavailable: nothing is known to have been added; repeating the call is safe.
        """

    def enqueue_blocking(self, jobs: Sequence[NewJob], timeout: timedelta) -> list[Enqueued]:
        """Do the same from a thread without an event loop, and give up after a time.

        Raises:
            QueueFull: a bounded store stayed full.
            StoreUnavailable: the store did not answer in time; repeating the call is safe.
        """

    def enqueue_in(self, transaction: object, jobs: Sequence[NewJob]) -> list[Enqueued]:
        """Add jobs by a user's own blocking connection: they are there once the user commits.

        Raises:
            ConfigError: the store is not transactional, or this is no connection that it knows.
        """

    async def aenqueue_in(self, transaction: object, jobs: Sequence[NewJob]) -> list[Enqueued]:
        """Do the same by a connection that is awaited."""

    async def sweep(self, *, fresh: bool = True) -> Sweep:
        """Look, without writing, at the head of every lane that has pending jobs.

        Unless it is to be fresh, a store may answer with what it believes, for as long as looking
        would cost more than it is worth. What it does not know of then, it finds soon.
        """

    async def wait(self, mark: int, timeout: timedelta) -> None:
        """Return once something may have changed after the sweep with this mark, or time is up."""

    async def busy(self) -> None:
        """Say that this process can take nothing more for now, so that others are woken instead."""

    async def claim(self, claim: Claim, *, worker: str, token: int) -> list[Job]:
        """Start pending jobs under the lease of a worker: running, attempt + 1, holder, token.

        Takes the asks in their order and the oldest jobs of each lane, never more than asked for or
        than the budgets hold. A worker without a live lease gets nothing.
        """

    async def settle(self, transitions: Sequence[Transition]) -> list[bool]:
        """Move jobs out of running, each under its fence; say for each whether it was moved."""

    async def progress(self, job: UUID, token: int, progress: Progress) -> bool:
        """Record how far a running job is, under its fence; say whether it was recorded."""

    async def checkpoint(self, checkpoints: Sequence[Checkpoint]) -> list[bool]:
        """Add to the logs of running jobs' steps, each under its fence; say which were added."""

    async def promote(self, limit: int) -> int:
        """Make scheduled jobs that are due pending, earliest first; return how many.

        Parked jobs stay, except those that wait for an event: they wait until they are due.
        """

    async def rescue(self, *, worker: str, token: int, limit: int) -> list[Job]:
        """End leases that ran out, then take over running jobs whose worker has no live lease.

        The jobs are the rescuer's to settle, under the new token; each is as its lost holder left
        it (attempt, worker, started_at). Only a worker that has itself renewed without a gap for
        one whole lease may rescue; others get nothing, so that an outage of the store makes nobody
        rob the living.
        """

    async def prune(self, retention: Retention, limit: int) -> int:
        """Delete finished jobs, spent keys and ended workers; return how many."""

    # -- leases --------------------------------------------------------------------------------

    async def register(self, worker: WorkerInfo) -> None:
        """Begin a worker's lease."""

    def heartbeat(self, worker: str, pulse: Pulse, timeout: timedelta) -> bool:
        """Renew a worker's lease from a thread; False says that it was ended, and stays so.

        Raises:
            StoreUnavailable: the store did not answer in time.
        """

    async def retire(self, worker: str) -> None:
        """End a worker's lease; what it still holds is free to be rescued."""

    async def held(self, worker: str) -> list[Job]:
        """Return the running jobs that this worker holds."""

    async def cancel_requests(self, worker: str) -> list[UUID]:
        """Return the running jobs of this worker that somebody asked to cancel."""

    # -- records and whole changes -------------------------------------------------------------

    async def records(self, prefix: str) -> Mapping[str, Json]:
        """Return the records whose names begin with a prefix."""

    async def apply(self, names: Sequence[str], decide: Decide[T]) -> Applied[T]:
        """Let a pure reducer decide under the lock of the named records, and carry that out whole.

        Raises:
            Fenced: a settle among the changes lost its fence; nothing was changed.
        """

    async def ringing(self, limit: int) -> Ringing:
        """Return records whose alarm has gone off, the earliest first."""

    async def topics(self, limit: int) -> list[str]:
        """Return topics of which there are news that nobody has heard."""

    async def hear(self, topics: Sequence[str], decide: Hear[T]) -> Applied[T]:
        """Do what `apply` does under the lock of the topics' records, with their news.

        Every piece of news is heard by one reducer whose changes happened, and never again. If
        there are many, the rest is left for the next call.

        Raises:
            Fenced: a settle among the changes lost its fence; nothing was changed or heard.
        """

    async def send(self, news: Sequence[News]) -> None:
        """Take news, all or none, to be heard later; those that are there already, once.

        Raises:
            StoreUnavailable: nothing is known to have been taken; repeating the call is safe.
        """

    def send_blocking(self, news: Sequence[News], timeout: timedelta) -> None:
        """Do the same from a thread without an event loop, and give up after a time."""

    def send_in(self, transaction: object, news: Sequence[News]) -> None:
        """Send by a user's own blocking connection: they are there once the user commits.

        Raises:
            ConfigError: the store is not transactional, or this is no connection that it knows.
        """

    async def asend_in(self, transaction: object, news: Sequence[News]) -> None:
        """Do the same by a connection that is awaited."""

    def transaction(self, settling: Transition) -> Transaction:
        """Return a transaction for a user's work, which also carries out this transition.

        Raises:
            ConfigError: the store is not transactional.
        """

    # -- looking -------------------------------------------------------------------------------

    async def get(self, job: UUID) -> Job | None:
        """Return a job, in whatever state it is."""

    async def get_many(self, jobs: Sequence[UUID]) -> dict[UUID, Job]:
        """Return those of some jobs that exist, by their ids."""

    async def done(self, kind: str, key: str) -> Job | None:
        """Return the first job of a kind that was completed with an idempotency key.

        The key is the job's header `idempotency-key`, and is noted together with its completion. It
        is known for as long as finished jobs are kept, and the job is.
        """

    async def find(self, which: JobFilter, *, limit: int, after: UUID | None = None) -> Page:
        """Return the newest jobs that fit, or those that come after a page's last."""

    async def error_groups(self, *, kind: str | None = None, limit: int) -> list[ErrorGroup]:
        """Return the errors of which jobs are dead, those that most died of first."""

    async def counts(self) -> list[QueueCount]:
        """Count the jobs of every queue by state."""

    async def standing(self, job: UUID, *, limit: int) -> Standing:
        """Count the pending jobs of its queue that go before a job, up to a limit.

        Those are the ones that were due before it; a step of priority is worth a minute of that.
        """

    async def depths(self, most: int) -> Depths:
        """Count the jobs that are not finished, and the dead, within a bounded time.

        Of each state about so many jobs are looked at, at most; the pending jobs of the queues
        have equal shares in that. A number that may be too low says so. No more than 1,000 queues
        are told of.
        """

    async def arrivals(
        self, since: datetime, until: datetime, most: int
    ) -> Mapping[str, int] | None:
        """Count the jobs by queue that were made between two moments, whatever became of them.

        By their ids, which tell the time of their producer. None: there are more than `most`.
        """

    async def workers(self) -> list[WorkerRecord]:
        """Return the workers that are known, newest first."""

    async def findings(self) -> list[Finding]:
        """Return what is wrong with the store itself, and how to mend it."""


class Plain:
    """What stores have in common that are not transactional, and are told of all that changes."""

    listening = True
    connections: Connections | None = None

    @property
    def location(self) -> str:
        """Where the jobs are."""
        raise NotImplementedError

    async def busy(self) -> None:
        """Do nothing: whoever waits here is woken by every change."""

    def enqueue_in(self, transaction: object, jobs: Sequence[NewJob]) -> list[Enqueued]:
        """Refuse."""
        del transaction, jobs
        raise ConfigError(self._no_transactions("using(tx=...)"))

    async def aenqueue_in(self, transaction: object, jobs: Sequence[NewJob]) -> list[Enqueued]:
        """Refuse."""
        del transaction, jobs
        raise ConfigError(self._no_transactions("using(tx=...)"))

    def send_in(self, transaction: object, news: Sequence[News]) -> None:
        """Refuse."""
        del transaction, news
        raise ConfigError(self._no_transactions("send_event(tx=...)"))

    async def asend_in(self, transaction: object, news: Sequence[News]) -> None:
        """Refuse."""
        del transaction, news
        raise ConfigError(self._no_transactions("send_event(tx=...)"))

    def transaction(self, settling: Transition) -> Transaction:
        """Refuse."""
        del settling
        raise ConfigError(self._no_transactions("ctx.transaction()"))

    def _no_transactions(self, called: str) -> str:
        return (
            f"{called} needs jobs that are in the same database as your data, and these are in "
            f"{self.location}: use a postgresql:// URL"
        )
