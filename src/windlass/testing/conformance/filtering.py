"""Owns the laws of filters: the fields by which jobs are found, in every state."""

from __future__ import annotations

from uuid import UUID

from windlass.core.jobs.ids import job_id
from windlass.core.jobs.job import ErrorInfo
from windlass.core.jobs.queries import JobFilter
from windlass.core.jobs.states import State
from windlass.testing.conformance.bench import HOUR, MANY, MINUTE, SECOND, Bench, ids
from windlass.testing.conformance.law import law


async def _found(bench: Bench, which: JobFilter) -> list[UUID]:
    return ids((await bench.store.find(which, limit=MANY)).jobs)


@law
async def jobs_are_found_by_a_range_of_ids(bench: Bench) -> None:
    """A range includes both ends, in every state; pages stay within it."""
    jobs = []
    for state in State:
        jobs.append((await bench.job_in(state)).id)
        await bench.advance(SECOND)
    newest = jobs[::-1]
    assert await _found(bench, JobFilter(first=jobs[1], last=jobs[-2])) == newest[1:-1]
    for job in jobs:
        assert await _found(bench, JobFilter(first=job, last=job)) == [job]
    assert await _found(bench, JobFilter(first=jobs[-1])) == newest[:1]
    assert await _found(bench, JobFilter(last=jobs[0])) == newest[-1:]
    assert await _found(bench, JobFilter(first=jobs[1], last=jobs[0])) == []
    which = JobFilter(first=jobs[1], last=jobs[-2])
    oldest = await bench.store.find(which, limit=2, oldest_first=True)
    later = await bench.store.find(which, limit=MANY, after=oldest.after, oldest_first=True)
    assert ids(oldest.jobs) + ids(later.jobs) == jobs[1:-1]
    page = await bench.store.find(which, limit=2)
    rest = await bench.store.find(which, limit=MANY, after=page.after)
    assert ids(page.jobs) + ids(rest.jobs) == newest[1:-1]


@law
async def jobs_are_found_by_the_end_of_their_ids(bench: Bench) -> None:
    """An ending may reach over a dash, and is searched in every state."""
    jobs = [(await bench.job_in(state)).id for state in State]
    for job in jobs:
        for digits in (8, 13, 31):
            assert await _found(bench, JobFilter(ending=job.hex[-digits:])) == [job]
    assert await _found(bench, JobFilter(ending=jobs[0].hex[:8])) == []
    assert await _found(bench, JobFilter(ending="0000", first=jobs[1])) == []


@law
async def every_id_is_within_the_widest_range(bench: Bench) -> None:
    """The least and the greatest id are found by a filter without a range."""
    least, greatest = UUID(int=1), UUID(int=(1 << 128) - 1)
    await bench.enqueue(id=least)
    await bench.enqueue(id=greatest)
    assert await _found(bench, JobFilter()) == [greatest, least]
    assert await _found(bench, JobFilter(first=greatest)) == [greatest]
    page = await bench.store.find(JobFilter(), limit=MANY, after=least)
    assert page.jobs == ()
    page = await bench.store.find(JobFilter(), limit=1, oldest_first=True)
    assert ids(page.jobs) == [least]
    page = await bench.store.find(JobFilter(), limit=1, after=page.after, oldest_first=True)
    assert (ids(page.jobs), page.after) == ([greatest], None)


@law
async def jobs_are_found_by_their_key(bench: Bench) -> None:
    """Jobs with another key, or none, are left out; the empty key selects jobs without a key."""
    own = await bench.enqueue(key="acme")
    other = await bench.enqueue(key="acm")
    none = await bench.enqueue()
    assert await _found(bench, JobFilter(key="acme")) == [own]
    assert await _found(bench, JobFilter(key="")) == [none]
    assert await _found(bench, JobFilter()) == [none, other, own]


@law
async def jobs_are_found_by_their_age(bench: Bench) -> None:
    """The store's clock decides, whatever the clock of the producer that made the id said."""
    ahead = job_id(int((bench.now() + HOUR).timestamp() * 1_000), 1)
    old = await bench.enqueue(id=ahead)
    dead = (await bench.job_in(State.DEAD)).id
    await bench.advance(MINUTE)
    new = await bench.enqueue()
    ended = (await bench.job_in(State.COMPLETED)).id
    await bench.advance(SECOND)
    assert await _found(bench, JobFilter(older_than=MINUTE)) == [old, dead]
    assert await _found(bench, JobFilter(newer_than=MINUTE)) == [ended, new]
    assert await _found(bench, JobFilter(older_than=SECOND)) == [old, dead]
    assert await _found(bench, JobFilter(older_than=HOUR)) == []
    assert await _found(bench, JobFilter(older_than=SECOND, newer_than=MINUTE)) == []


@law
async def jobs_are_found_by_the_text_of_their_error(bench: Bench) -> None:
    """The text is searched literally, in the type and the message; no character is a wild card."""
    refused = ErrorInfo(type="Refused", message="100% by _the_ Bank", traceback="bank.py")
    found: list[UUID] = []
    for state in (State.DEAD, State.SCHEDULED):
        job = await bench.start()
        assert await bench.leave(job, state, error=refused, due=HOUR, failures=1)
        found.insert(0, job.id)
    await bench.enqueue()
    await bench.job_in(State.DEAD)
    for text in ("Refused", "100% by _the_", "Refused: 100", ""):
        assert await _found(bench, JobFilter(error=text)) == found, text
    for text in ("refused", "1_0", "R%d", "bank.py", ": \n"):
        assert await _found(bench, JobFilter(error=text)) == [], text
    assert await _found(bench, JobFilter(error="Refused", states=(State.DEAD,))) == found[1:]
