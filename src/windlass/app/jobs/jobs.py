"""Owns `app.jobs`: finding and counting jobs from code, with the search language of people.

It only looks; `app.control` changes jobs, by the same conditions.
"""

from __future__ import annotations

from collections.abc import Collection, Coroutine, Iterable
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, Unpack
from uuid import UUID

from windlass.app.jobs.searching import BOUNDED, CHUNK, find_page, search, store_now, with_id
from windlass.app.loop_thread import blocking
from windlass.core.errors import AmbiguousId, UnknownJob
from windlass.core.jobs.ids import read_id
from windlass.core.jobs.queries import JobFilter, Page, Where, filter_of, term_of_queues
from windlass.core.search.scan import Budget

if TYPE_CHECKING:
    from windlass.app.app import Windlass

T = TypeVar("T")


class Jobs:
    """The jobs of a store: `app.jobs.find(search="state:dead since:2h")`, or `await
    app.jobs.afind(...)`.
    """

    _written: ClassVar[str] = "app.jobs"

    def __init__(self, app: Windlass) -> None:
        self._app = app

    async def afind(
        self,
        *,
        limit: int = 100,
        after: UUID | None = None,
        budget: Budget | None = BOUNDED,
        **where: Unpack[Where],
    ) -> Page:
        """Return the newest jobs that meet all conditions; `after` continues a page.

        It looks at no more jobs than its budget allows, by default 100,000 and for a second. If
        that ended it before the page was full, `searched_to` of the page says how far it came.

        Raises:
            TypeError: a condition is none, or has the wrong type.
            ValueError: there is no such state, or a duration is none.
            SearchError: the search cannot be read; its `position` is the place of the mistake.
        """
        return await find_page(self._app.store, where, limit=limit, after=after, budget=budget)

    find = blocking(afind)

    async def acount(self, *, limit: int | None = None, **where: Unpack[Where]) -> int:
        """Count such jobs, up to a limit. It reads each of them."""
        store = self._app.store
        return len(await search(store, filter_of(where, await store_now(store, where)), limit))

    count = blocking(acount)

    async def ajob_id(
        self, text: str, *, kind: str | None = None, queues: Collection[str] | None = None
    ) -> UUID:
        """Return the id of the only job with this prefix, of a kind or of queues if they are given.

        Without one, it is the only one of the last day whose id ends like this, as log lines at a
        terminal show it: eight digits or more. A whole id is returned as it is, whether there is
        such a job or not.

        Raises:
            ValueError: it cannot be the beginning of an id, or is too short.
            UnknownJob: no job has such an id.
            AmbiguousId: several have.
        """
        first, last = read_id(str(text))
        if first == last:
            return first
        which = JobFilter(kind=kind, terms=() if queues is None else (term_of_queues(queues),))
        page = await with_id(self._app.store, which, str(text), limit=AmbiguousId.LISTED + 1)
        jobs = page.jobs
        if not jobs:
            raise UnknownJob(text)
        if len(jobs) > 1:
            raise AmbiguousId(text, tuple(f"{job.id} ({job.kind}, {job.state})" for job in jobs))
        return jobs[0].id

    job_id = blocking(ajob_id)

    async def amissing(self, job_ids: Iterable[UUID]) -> list[UUID]:
        """Return which of these ids the store does not know: lost, purged, or past their retention.

        After a restore or a failover, compare the ids in your own data with the store by this.
        """
        ids = list(dict.fromkeys(job_ids))
        missing: list[UUID] = []
        for start in range(0, len(ids), CHUNK):
            chunk = ids[start : start + CHUNK]
            known = await self._app.store.get_many(chunk)
            missing += [job_id for job_id in chunk if job_id not in known]
        return missing

    missing = blocking(amissing)

    def _block_on(self, work: Coroutine[Any, Any, T]) -> T:
        return self._app.portal.call(work)
