"""Owns the contract between Windlass and its stores; `windlass.testing.conformance` tests it.

All times are the store's own: callers pass durations, or instants that their users chose, and the
store compares them with its clock. Methods are coroutines, except those that must work without an
event loop: `enqueue_blocking` and `enqueue_in` in a producer's thread, and `heartbeat` in the
worker's own.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from types import TracebackType
from typing import Any, Protocol, TypeVar
from uuid import UUID

from msgspec import Struct

from windlass.core.changes import Applied, Decide, Hear
from windlass.core.claims.lanes import Claim, Queues, StandingAsk
from windlass.core.jobs.job import Checkpoint, Enqueued, Job, NewJob, Progress
from windlass.core.jobs.queries import Retention
from windlass.core.jobs.settle import Transition
from windlass.core.jobs.streams import Appended, ChunkGroup
from windlass.core.records import News, Ringing
from windlass.core.stats.depths import Connections
from windlass.core.workers import WorkerInfo, WorkerPulse
from windlass.store.queries import StoreQueries
from windlass.store.sql_files import Migration

T = TypeVar("T")
WORKERS_KEPT = timedelta(days=1)
"""How long a worker is kept after its lease was ended."""


class Capabilities(Struct, frozen=True, kw_only=True):
    """The differences between stores; everything else they have in common."""

    shared: bool
    """Other processes see its jobs."""
    durable: bool
    """Its jobs survive the process."""
    bounded: bool
    """An enqueue waits, or fails, when too many jobs wait already."""
    transactional: bool
    """Users enqueue in a transaction of their own, and complete a job together with their work."""
    makes_itself: bool = True
    """The first use creates or migrates the store; if False, only `migrate` does."""
    wakes: bool = True
    """The store notifies waiting workers of new jobs, or should; if False, they poll by choice."""
    stands_still: bool = False
    """Its time passes, and its jobs run, only when a test says so."""
    claim_size: int | None = None
    """Most jobs of one claim; None: as many as the worker likes.

    The jobs of a claim begin when all of them have come. Where they come in pieces, the first ones
    of a small claim begin earlier.
    """
    claims_under_way: int = 2
    """Number of claims that a worker may have under way."""


class Schema(Struct, frozen=True, kw_only=True):
    """The schema number that a store has, None if it has none yet, and the wanted number.

    A newer schema than wanted may still serve this release, if it says so.
    """

    found: int | None
    wanted: int
    oldest: int = 0
    """The oldest schema whose releases may work on this one; 0: only its own."""

    @property
    def serves(self) -> bool:
        """Return whether this release may work on the schema."""
        if self.found is None:
            return False
        newer = self.oldest > 0 and self.found > self.wanted >= self.oldest
        return self.found == self.wanted or newer

    @property
    def is_outgrowing(self) -> bool:
        """Return whether the schema was made for newer releases, and not for this one."""
        return self.found is not None and self.found > self.wanted and not self.serves


class Transaction(Protocol):
    """Gives a connection in a transaction: `with` in a thread, `async with` in a coroutine.

    The block ends with a commit, or, if it raises, with a rollback. Leaving it raises `LeaseLost`,
    and nothing is committed, if the lease on the job is gone.
    """

    def __enter__(self) -> Any:
        """Begin, and return a blocking connection."""

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Commit or roll back."""

    async def __aenter__(self) -> Any:
        """Begin, and return an asynchronous connection."""

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Commit or roll back."""


class Store(StoreQueries, Protocol):
    """Keeps jobs, leases and records; its clock is the only one that counts."""

    @property
    def capabilities(self) -> Capabilities:
        """Return the abilities that other stores may lack."""

    @property
    def location(self) -> str:
        """Return where the jobs are, for people; without secrets."""

    @property
    def listening(self) -> bool:
        """Return whether this process is notified of new jobs; if not, it polls."""

    @property
    def connections(self) -> Connections | None:
        """Return the use of the pool that producers, queries and handlers share; None: no pool."""

    async def open(self) -> None:
        """Make ready for use; idempotent. Every other method connects by itself when needed.

        Raises:
            StoreUnavailable: the store cannot be reached.
            SchemaMismatch: it was made by a release that this one does not understand.
        """

    async def schema(self) -> Schema:
        """Return the schema of the store, without making or changing anything.

        Raises: StoreError: the store cannot be reached, or is something else.
        """

    async def migrate(self) -> list[str]:
        """Create the store, or bring its schema up to date; return the names of the steps taken.

        Raises:
            SchemaMismatch: it was made by a release that this one does not understand.
        """

    async def migrations(self) -> list[Migration]:
        """Return the steps that `migrate` would take, each as a script that can be read and run."""

    async def close(self) -> None:
        """Release connections and threads; idempotent. The store may be opened again."""

    # -- the hot path --------------------------------------------------------------------------

    async def enqueue(
        self, jobs: Sequence[NewJob], timeout: timedelta | None = None
    ) -> list[Enqueued]:
        """Add jobs, all or none, and return the result for each; waits while the store is full.

        A job whose unique key is held is not added; its result then names the holder, which is
        changed as the key's `on_duplicate` says (`core.jobs.unique.amended`). A job whose id exists
        already is not added again, so an enqueue with an unknown result can be repeated.

        Raises:
            QueueFull: more jobs than a bounded store could ever hold, or full until the timeout.
            WriteUncertain: the store did not answer; repeating the call with the same jobs is safe.
            StoreUnavailable: nothing was added.
        """

    def enqueue_blocking(self, jobs: Sequence[NewJob], timeout: timedelta) -> list[Enqueued]:
        """Do the same from a thread without an event loop, within a timeout.

        Raises:
            QueueFull: a bounded store stayed full.
            WriteUncertain: the store did not answer; repeating the call with the same jobs is safe.
            StoreUnavailable: nothing was added.
        """

    def enqueue_in(self, transaction: object, jobs: Sequence[NewJob]) -> list[Enqueued]:
        """Add jobs through a user's own blocking connection; they appear when the user commits.

        Raises:
            ConfigError: the store is not transactional, or does not know this type of connection.
        """

    async def aenqueue_in(self, transaction: object, jobs: Sequence[NewJob]) -> list[Enqueued]:
        """Do the same through an asynchronous connection."""

    async def wait(
        self, mark: int, timeout: timedelta, ask: StandingAsk | None = None, queues: Queues = None
    ) -> None:
        """Return when something may have changed after the sweep with this mark, or at timeout.

        `queues` are those of the sweep. A store may meet the `ask`, also after this call was
        cancelled, until `busy` or `retire` withdraws it or another `wait` replaces it. A job so
        claimed whose hand-over is lost is held by the worker like any other whose claim was never
        answered.
        """

    async def busy(self) -> None:
        """Record that this process can take no more jobs for now, so that others are
        woken instead.
        """

    async def claim(self, claim: Claim, *, worker: str, token: int) -> list[Job]:
        """Start pending jobs under the lease of a worker: running, attempt + 1, holder, token.

        Takes the asks in their order and the oldest jobs of each lane, never more than asked for or
        than the budgets hold. A worker without a live lease gets nothing.
        """

    async def settle(self, transitions: Sequence[Transition]) -> list[bool]:
        """Move jobs out of running, each under its fence; return for each whether it was moved."""

    async def progress(self, job: UUID, token: int, progress: Progress) -> bool:
        """Record the progress of a running job under its fence; return whether it was recorded."""

    async def checkpoint(self, checkpoints: Sequence[Checkpoint]) -> list[bool]:
        """Add to the step logs of running jobs, each under its fence; return which were added."""

    async def stream_append(self, groups: Sequence[ChunkGroup]) -> list[Appended | None]:
        """Add to the streams of running jobs, each under its fence; None for those without it.

        The first group of an attempt removes the chunks that earlier attempts added when they were
        as far along the steps as this one when it began, or farther. A group that is there is not
        added again.
        """

    async def promote(self, limit: int) -> int:
        """Make scheduled jobs that are due pending, earliest first; return how many.

        Parked jobs stay, except those that wait for an event: they wait until they are due.
        """

    async def recall(self, by: timedelta, ago: timedelta) -> int:
        """Move jobs that a clock set back has left behind later ones; return how many.

        Pending jobs keep their order, and come before those enqueued since the clock was set, at
        most `ago`. Jobs that wait for a span (`SPANS`) come sooner by the length of the step, `by`;
        that must not be done twice. Due times that a user has given stay.
        """

    async def rescue(self, *, worker: str, token: int, limit: int) -> list[Job]:
        """End leases that ran out, then take over running jobs whose worker has no live lease.

        The rescuer settles the jobs under the new token; each is as its lost holder left it
        (attempt, worker, started_at). Only a worker that has itself renewed without a gap for one
        whole lease may rescue; others get nothing, so that after an outage of the store no worker
        takes the jobs of another that is alive.
        """

    async def prune(self, retention: Retention, limit: int) -> int:
        """Delete finished jobs, ended streams, spent keys and workers; return how many."""

    # -- leases --------------------------------------------------------------------------------

    async def register(self, worker: WorkerInfo) -> None:
        """Begin a worker's lease."""

    def heartbeat(self, worker: str, pulse: WorkerPulse, timeout: timedelta) -> bool:
        """Renew a worker's lease from a thread; return False if it was ended, which is final.

        Raises:
            StoreUnavailable: the store did not answer in time.
        """

    async def retire(self, worker: str) -> None:
        """End a worker's lease; the jobs that it still holds may be rescued."""

    async def cancel_requests(self, worker: str) -> list[UUID]:
        """Return the running jobs of a worker for which cancellation was requested."""

    # -- records and whole changes -------------------------------------------------------------

    async def apply(self, names: Sequence[str], decide: Decide[T]) -> Applied[T]:
        """Let a pure reducer decide under the lock of the named records; apply all its changes.

        Raises:
            LeaseLost: a settle among the changes lost its fence; nothing was changed.
        """

    async def ringing(self, limit: int) -> Ringing:
        """Return records whose alarm is due, the earliest first."""

    async def topics(self, limit: int) -> list[str]:
        """Return topics with unheard news."""

    async def hear(self, topics: Sequence[str], decide: Hear[T]) -> Applied[T]:
        """Do what `apply` does under the lock of the topics' records, with their news.

        Every piece of news is heard by exactly one reducer whose changes were applied. If there
        are many, the rest is left for the next call.

        Raises:
            LeaseLost: a settle among the changes lost its fence; nothing was changed or heard.
        """

    async def send(self, news: Sequence[News]) -> None:
        """Add news, all or none; news that is there already is not added again.

        Raises:
            StoreUnavailable: it is unknown whether they were added; repeating the call is safe.
        """

    def send_blocking(self, news: Sequence[News], timeout: timedelta) -> None:
        """Do the same from a thread without an event loop, within a timeout."""

    def send_in(self, transaction: object, news: Sequence[News]) -> None:
        """Send through a user's own blocking connection; news appear when the user commits.

        Raises:
            ConfigError: the store is not transactional, or does not know this type of connection.
        """

    async def asend_in(self, transaction: object, news: Sequence[News]) -> None:
        """Do the same through an asynchronous connection."""

    def transaction(self, settling: Transition) -> Transaction:
        """Return a transaction for a user's work that also carries out this transition.

        Raises:
            ConfigError: the store is not transactional.
        """
