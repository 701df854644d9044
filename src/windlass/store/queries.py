"""Owns the reading half of the store contract: methods that never write."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Protocol
from uuid import UUID

from windlass.core.claims.lanes import Queues, Sweep
from windlass.core.jobs.job import Job
from windlass.core.jobs.queries import MAX_GROUPED, ErrorGroups, Finding, JobFilter, Page
from windlass.core.jobs.streams import Position, StreamPage
from windlass.core.records import Json, RecordPage
from windlass.core.search.scan import Budget
from windlass.core.stats.depths import MAX_COUNTED, Depths, Disk, QueueCount, Standing
from windlass.core.workers import WorkerRecord


class StoreQueries(Protocol):
    """The part of a store that statistics, dashboards and diagnostics need."""

    async def sweep(self, *, fresh: bool = True, queues: Queues = None) -> Sweep:
        """Return, without writing, the head of every lane that has pending jobs.

        With `queues`, lanes of other queues are left out; `next_due` is that of all queues. Unless
        `fresh`, a store may answer from a cache while reading would cost more than it is worth;
        jobs that the cache misses are found soon after.
        """

    async def get(self, job: UUID) -> Job | None:
        """Return a job, whatever its state."""

    async def get_many(self, jobs: Sequence[UUID]) -> dict[UUID, Job]:
        """Return the given jobs that exist, by id."""

    async def done(self, kind: str, key: str) -> Job | None:
        """Return the first job of a kind that was completed with an idempotency key.

        The key is the job's header `idempotency-key`, recorded together with its completion. The
        store knows the key as long as it keeps the finished job.
        """

    async def stream_read(self, job: UUID, after: Position, limit: int) -> StreamPage:
        """Return at most `limit` groups of chunks that a reader at a position has not seen.

        These are the chunks with greater numbers, and all that a later attempt has written. If the
        page says that the job has ended, there are no others.
        """

    async def find(
        self,
        which: JobFilter,
        *,
        limit: int,
        after: UUID | None = None,
        oldest_first: bool = False,
        brief: bool = False,
        budget: Budget | None = None,
    ) -> Page:
        """Return a page of matching jobs, newest first; `after` is that of the page before.

        A budget bounds how many jobs are looked at, and for about how long; a page that it ended
        says so, and how far it came. Without one, all jobs are looked at if need be.

        The id tells the age of a job. With `brief`, jobs come without the fields that may be large
        and that no list shows: payload (then `{}`), result, headers, history and steps.
        """

    async def error_groups(
        self, *, kind: str | None = None, limit: int, most: int = MAX_GROUPED
    ) -> ErrorGroups:
        """Return the dead jobs grouped by error, the largest group first.

        The store looks at the `most` jobs, of all kinds, that died last; the answer says how far
        back that was.
        """

    async def counts(self, *, most: int = MAX_COUNTED) -> list[QueueCount]:
        """Count the jobs of every queue by state.

        Unless it keeps the numbers, the store looks at about `most` jobs of each state, the newest
        of those that ended; the queues share that number equally for their pending jobs. A count
        that may be too low is marked as capped, and a queue of which no job was seen is missing.
        """

    async def standing(self, job: UUID, *, limit: int) -> Standing:
        """Count the pending jobs of the queue that are ahead of a job, up to a limit.

        Jobs that were due earlier are ahead; one step of priority is worth one minute. Ended jobs
        are counted since the job was due, over one minute at most.
        """

    async def depths(self, most: int) -> Depths:
        """Count unfinished and dead jobs in bounded time.

        The store looks at about `most` jobs of each state; the queues share that number equally
        for their pending jobs. A count that may be too low is marked as capped. At most 1,000
        queues are returned.
        """

    async def disk(self) -> Disk | None:
        """Return the disk space where the jobs are stored; None if it is not visible from here."""

    async def arrivals(
        self, since: datetime, until: datetime, most: int
    ) -> Mapping[str, int] | None:
        """Count by queue the jobs created between two instants, whatever their state is now.

        The ids decide, which carry the producer's clock. None: there are more than `most`.
        """

    async def workers(self) -> list[WorkerRecord]:
        """Return the known workers, newest first."""

    async def held(self, worker: str) -> list[Job]:
        """Return the running jobs that a worker holds."""

    async def records(self, prefix: str, page: RecordPage | None = None) -> Mapping[str, Json]:
        """Return the records whose names begin with a prefix: all of them, or a page.

        Names are ordered by code points.
        """

    async def findings(self) -> list[Finding]:
        """Return the problems of the store itself, each with its remedy."""

    async def lineage(self) -> str | None:
        """Return a name of the server's history; None: this store has none, or does not tell.

        Another name than before means that a standby was promoted, or that a backup was recovered
        or imported. The same name proves nothing.
        """
