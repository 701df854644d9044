"""Owns the laws of queries: get, find, counts, and a store's own lifecycle."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from msgspec.structs import replace

from windlass.core.jobs.job import ErrorInfo
from windlass.core.jobs.moves import Verb
from windlass.core.jobs.queries import Finding, JobFilter, briefly
from windlass.core.jobs.states import State
from windlass.core.stats.depths import QueueCount, Standing
from windlass.testing.conformance.bench import HOUR, MANY, MINUTE, SECOND, Bench, ids
from windlass.testing.conformance.law import law


async def _pages(
    bench: Bench, which: JobFilter, limit: int, *, oldest_first: bool = False
) -> list[list[UUID]]:
    pages: list[list[UUID]] = []
    after: UUID | None = None
    for _ in range(MANY):
        page = await bench.store.find(which, limit=limit, after=after, oldest_first=oldest_first)
        pages.append(ids(page.jobs))
        if page.after is None:
            return pages
        after = page.after
    raise AssertionError("a listing has no end")


@law
async def an_unknown_job_is_none(bench: Bench) -> None:
    """A query for a job that does not exist is no error."""
    assert await bench.store.get(bench.new().id) is None


@law
async def a_job_is_found_in_every_state(bench: Bench) -> None:
    """In every state of a job, get and find return the same."""
    for state in State:
        job = await bench.job_in(state)
        assert job.state is state
        found = await bench.store.find(JobFilter(states=(state,)), limit=MANY)
        assert found.jobs == (job,)


@law
async def a_listing_shows_the_newest_first(bench: Bench) -> None:
    """Pages are no longer than their limit, and together they are the whole listing once."""
    jobs = []
    for number in range(7):
        jobs.append(await bench.enqueue(due=MINUTE if number % 2 else None))
        await bench.advance(SECOND)
    newest = jobs[::-1]
    assert await _pages(bench, JobFilter(), 3) == [newest[:3], newest[3:6], newest[6:]]
    assert await _pages(bench, JobFilter(), 7) == [newest], "a full last page has no next one"
    assert await _pages(bench, JobFilter(), MANY) == [newest]


@law
async def a_listing_shows_the_oldest_first_on_request(bench: Bench) -> None:
    """With oldest_first, a page has the dead jobs that have waited for longest."""
    dead = []
    for _ in range(7):
        dead.append((await bench.job_in(State.DEAD)).id)
        await bench.advance(SECOND)
    which = JobFilter(states=(State.DEAD,))
    pages = await _pages(bench, which, 3, oldest_first=True)
    assert pages == [dead[:3], dead[3:6], dead[6:]]
    (oldest,) = (await bench.store.find(which, limit=1, oldest_first=True)).jobs
    assert oldest.id == dead[0]


async def _die(bench: Bench, error: ErrorInfo | None, **options: Any) -> UUID:
    job = await bench.start(**options)
    assert await bench.leave(job, State.DEAD, error=error, reason="gave up")
    await bench.advance(SECOND)
    return job.id


@law
async def dead_jobs_are_grouped_by_their_error(bench: Bench) -> None:
    """Each kind's errors, the commonest first, each with when it was seen and its newest job."""
    refused = ErrorInfo(type="Refused", message="by the bank", fingerprint="f1")
    broken = ErrorInfo(type="Broken", message="in two", fingerprint="f2")
    began = bench.now()
    one = await _die(bench, broken, kind="a")
    await _die(bench, refused, kind="a")
    last = await _die(bench, replace(refused, message="by another bank"), kind="a")
    other = await _die(bench, refused, kind="b")
    silent = await _die(bench, None, kind="b")
    groups = await bench.store.error_groups(limit=MANY)
    shown = [(group.fingerprint, group.kind, group.count, group.newest) for group in groups]
    assert shown == [
        ("f1", "a", 2, last),
        ("f2", "a", 1, one),
        ("", "b", 1, silent),
        ("f1", "b", 1, other),
    ]
    assert (groups[0].first_seen, groups[0].last_seen) == (began + SECOND, began + 2 * SECOND)
    assert groups[0].error == replace(refused, message="by another bank")
    assert (groups[2].error, groups[2].reason) == (None, "gave up")
    of_b = await bench.store.error_groups(kind="b", limit=MANY)
    assert [group.fingerprint for group in of_b] == ["", "f1"]
    assert (await bench.store.error_groups(limit=2)).groups == groups[:2]
    assert groups.searched_to is None


@law
async def errors_are_grouped_as_far_back_as_the_bound_allows(bench: Bench) -> None:
    """The jobs that died last are looked at, and the answer says where that ended."""
    errors = [ErrorInfo(type="E", message="", fingerprint=f"f{number}") for number in range(3)]
    began = bench.now()
    for number in (0, 0, 1, 2, 1):
        await _die(bench, errors[number], kind=f"kind-{number}", queue=f"queue-{number}")
    groups = await bench.store.error_groups(limit=MANY, most=3)
    assert [(group.fingerprint, group.count) for group in groups] == [("f1", 2), ("f2", 1)]
    assert groups.searched_to == began + SECOND, "the last of those that were not looked at"
    assert groups[0].first_seen == began + 2 * SECOND
    old = await bench.store.error_groups(kind="kind-0", limit=MANY, most=3)
    assert (old.groups, old.searched_to) == ((), groups.searched_to), "older ones are not denied"
    whole = await bench.store.error_groups(limit=MANY, most=5)
    assert whole.searched_to is None
    assert sum(group.count for group in whole) == 5


@law
async def a_listing_goes_by_fingerprint(bench: Bench) -> None:
    """The jobs of a group can be found; a job that is not dead is in none."""
    error = ErrorInfo(type="Refused", message="", fingerprint="f1")
    dead = await _die(bench, error)
    silent = await _die(bench, None)
    for fingerprint, job in (("f1", dead), ("", silent)):
        which = JobFilter(states=(State.DEAD,), fingerprint=fingerprint)
        assert ids((await bench.store.find(which, limit=MANY)).jobs) == [job]
    await bench.move(Verb.REDRIVE, dead)
    assert [group.newest for group in await bench.store.error_groups(limit=MANY)] == [silent]


@law
async def an_empty_listing_is_one_empty_page(bench: Bench) -> None:
    """A listing without a match has no next page."""
    await bench.enqueue()
    page = await bench.store.find(JobFilter(kind="none"), limit=5)
    assert (page.jobs, page.after) == ((), None)


@law
async def a_filter_asks_for_all_of_its_fields(bench: Bench) -> None:
    """States, kind, queue and worker narrow a listing together."""
    worker, other = await bench.worker(), await bench.worker()
    running = await bench.start(worker, kind="a", queue="mail")
    await bench.start(other, kind="a", queue="mail")
    pending = await bench.enqueue(kind="a", queue="mail")
    plain = await bench.enqueue(kind="a")
    cases = {
        JobFilter(worker=worker): [running.id],
        JobFilter(queue="mail", states=(State.PENDING,)): [pending],
        JobFilter(kind="a", states=(State.PENDING, State.DEAD)): [plain, pending],
        JobFilter(kind="a", queue="default"): [plain],
        JobFilter(kind="b"): [],
        JobFilter(kind="a%"): [],
    }
    for which, expected in cases.items():
        found = await bench.store.find(which, limit=MANY)
        assert ids(found.jobs) == expected, which


@law
async def a_listing_goes_on_where_it_stopped(bench: Bench) -> None:
    """New jobs do not shift the pages, nor does the end of a page's last job."""
    dead = [(await bench.job_in(State.DEAD)).id for _ in range(6)][::-1]
    which = JobFilter(states=(State.DEAD,))
    first = await bench.store.find(which, limit=2)
    assert ids(first.jobs) == dead[:2]
    await bench.job_in(State.DEAD)
    await bench.move(Verb.PURGE, dead[1])
    await bench.move(Verb.REDRIVE, dead[3])
    second = await bench.store.find(which, limit=2, after=first.after)
    assert ids(second.jobs) == [dead[2], dead[4]]


@law
async def a_brief_listing_leaves_out_large_fields(bench: Bench) -> None:
    """Payload, result, headers, history and steps are left out, and nothing else."""
    for state in State:
        await bench.job_in(state, payload=b'{"x":1}', headers={"request": "42"}, priority=3)
    done = await bench.start(payload=b"[1]", headers={"a": "b"})
    await bench.leave(done, result=b"2")
    whole = await bench.store.find(JobFilter(), limit=MANY)
    brief = await bench.store.find(JobFilter(), limit=MANY, brief=True)
    assert brief.jobs == tuple(map(briefly, whole.jobs))
    assert brief != whole


@law
async def jobs_are_counted_by_queue_and_state(bench: Bench) -> None:
    """Each queue and state with jobs is counted, with the due time of its oldest pending job."""
    start = bench.now()
    assert await bench.store.counts() == []
    await bench.enqueue(queue="mail")
    await bench.enqueue(queue="mail", due=HOUR)
    await bench.advance(SECOND)
    await bench.enqueue(queue="mail")
    await bench.enqueue(queue="mail", due=MINUTE)
    await bench.start(queue="files")
    await bench.job_in(State.DEAD, queue="files")
    counts = await bench.store.counts()
    expected = [
        QueueCount(queue="files", state=State.DEAD, count=1),
        QueueCount(queue="files", state=State.RUNNING, count=1),
        QueueCount(queue="mail", state=State.PENDING, count=2, oldest=start),
        QueueCount(queue="mail", state=State.SCHEDULED, count=2, oldest=start + SECOND + MINUTE),
    ]
    assert sorted(counts, key=lambda count: (count.queue, count.state)) == expected


@law
async def a_count_that_may_be_too_low_is_marked(bench: Bench) -> None:
    """A bounded count is exact, or marked and at least its share; nothing is counted twice."""
    jobs = {State.COMPLETED: 5, State.CANCELLED: 1, State.DEAD: 4, State.PENDING: 3}
    for state, number in jobs.items():
        for _ in range(number):
            await bench.job_in(state, queue="mail")
    await bench.enqueue(queue="later", due=HOUR)
    for most in (1, 2, 4, MANY):
        counted = {(each.queue, each.state): each for each in await bench.store.counts(most=most)}
        assert counted["later", State.SCHEDULED].count == 1
        for state, number in jobs.items():
            each = counted.get(("mail", state))
            if each is None:
                assert state is State.CANCELLED
                assert counted["mail", State.COMPLETED].capped, "it was not looked at"
            elif each.capped:
                assert 1 <= each.count <= number, (state, most)
            else:
                assert each.count == number, (state, most)


@law
async def the_jobs_ahead_of_a_job_in_its_queue_are_counted(bench: Bench) -> None:
    """Jobs that were due or arrived before it are ahead; a step of priority is worth a minute."""
    await bench.enqueue(queue="mail", kind="a")
    await bench.enqueue(queue="mail", kind="b", key="k")
    await bench.advance(2 * MINUTE)
    await bench.enqueue(queue="files")
    await bench.enqueue(queue="mail", due=HOUR)
    job = await bench.enqueue(queue="mail", kind="b")
    assert (await bench.store.standing(job, limit=MANY)).ahead == 2
    await bench.enqueue(queue="mail")
    assert (await bench.store.standing(job, limit=MANY)).ahead == 2
    urgent = await bench.enqueue(queue="mail", priority=3)
    assert (await bench.store.standing(urgent, limit=MANY)).ahead == 0
    assert (await bench.store.standing(job, limit=MANY)).ahead == 3
    assert (await bench.store.standing(job, limit=1)).ahead == 1
    assert await bench.store.standing(bench.new().id, limit=MANY) == Standing()


@law
async def recent_ends_in_the_queue_of_a_job_are_counted(bench: Bench) -> None:
    """The count of ended jobs allows an estimate of the wait."""
    job = await bench.enqueue(queue="mail", kind="waits")
    await bench.job_in(State.COMPLETED, queue="mail")
    await bench.advance(2 * MINUTE)
    for state in (State.COMPLETED, State.DEAD, State.CANCELLED):
        await bench.job_in(state, queue="mail")
    await bench.job_in(State.COMPLETED, queue="files")
    await bench.advance(SECOND)
    standing = await bench.store.standing(job, limit=MANY)
    assert (standing.ended, standing.span) == (3, SECOND), "counted since the first began"
    late = await bench.enqueue(queue="mail", kind="waits")
    await bench.advance(SECOND)
    await bench.job_in(State.COMPLETED, queue="mail")
    await bench.advance(SECOND)
    standing = await bench.store.standing(late, limit=MANY)
    assert (standing.ended, standing.span) == (1, SECOND), "what ended before it was due is not"
    none = await bench.enqueue(queue="idle")
    await bench.advance(2 * SECOND)
    standing = await bench.store.standing(none, limit=MANY)
    assert (standing.ended, standing.span) == (0, 2 * SECOND)
    await bench.advance(HOUR)
    assert (await bench.store.standing(none, limit=MANY)).span == MINUTE


@law
async def the_head_of_a_lane_is_known_to_those_behind_it(bench: Bench) -> None:
    """The head of the lane is the job that may not be overtaken."""
    await bench.enqueue(kind="book", key="ada")
    later = await bench.enqueue(kind="book", key="bob", due=HOUR)
    await bench.advance(HOUR + MINUTE)
    await bench.store.promote(MANY)
    second = await bench.enqueue(kind="book", key="bob")
    assert (await bench.store.standing(second, limit=MANY)).head == later
    assert (await bench.store.standing(later, limit=MANY)).head == later


@law
async def depths_are_counted_by_queue_and_state(bench: Bench) -> None:
    """Unfinished and dead jobs are counted; completed and cancelled ones are not."""
    assert (await bench.store.depths(MANY)).counts == ()
    for state in State:
        await bench.job_in(state, queue="files")
    await bench.enqueue(queue="mail")
    await bench.enqueue(queue="mail")
    await bench.enqueue(queue="mail", due=HOUR)
    await bench.enqueue(queue="mail", waiting_for="flow:x")
    counts = (await bench.store.depths(MANY)).counts
    shown = sorted((depth.queue, depth.state, depth.count, depth.capped) for depth in counts)
    assert shown == [
        ("files", State.DEAD, 1, False),
        ("files", State.PENDING, 1, False),
        ("files", State.RUNNING, 1, False),
        ("files", State.SCHEDULED, 1, False),
        ("mail", State.PENDING, 2, False),
        ("mail", State.SCHEDULED, 2, False),
    ]


@law
async def depths_are_bounded_and_marked_as_capped(bench: Bench) -> None:
    """Queues share the bound on counted pending jobs, however many they have."""
    for _ in range(5):
        await bench.enqueue(queue="long")
        await bench.enqueue(queue="later", due=HOUR)
    for _ in range(2):
        await bench.enqueue(queue="short")
    counts = (await bench.store.depths(4)).counts
    shown = {(depth.queue, depth.state): (depth.count, depth.capped) for depth in counts}
    assert shown == {
        ("later", State.SCHEDULED): (4, True),
        ("long", State.PENDING): (2, True),
        ("short", State.PENDING): (2, False),
    }


@law
async def arrivals_are_counted_by_queue_in_every_state(bench: Bench) -> None:
    """Jobs made between two instants are counted; more than the bound give None."""
    await bench.enqueue(queue="before")
    await bench.advance(SECOND)
    since = bench.now()
    for state in State:
        await bench.job_in(state, queue="files")
    await bench.enqueue(queue="mail")
    await bench.advance(MINUTE)
    until = bench.now()
    await bench.enqueue(queue="after")
    counted = await bench.store.arrivals(since, until, MANY)
    assert counted is not None
    assert dict(counted) == {"files": len(State), "mail": 1}
    assert await bench.store.arrivals(since, until, len(State) + 1) is not None
    assert await bench.store.arrivals(since, until, len(State)) is None


@law
async def a_healthy_store_finds_nothing_wrong_with_itself(bench: Bench) -> None:
    """Findings are about trouble; each says what to do about it."""
    findings: list[Finding] = await bench.store.findings()
    assert all(finding.problem and finding.remedy for finding in findings)


@law
async def a_lineage_stays_as_long_as_the_server_does(bench: Bench) -> None:
    """Another one is reported as a failover or a restore."""
    lineage = await bench.store.lineage()
    await bench.enqueue()
    await bench.store.close()
    assert await bench.store.lineage() == lineage != ""


@law
async def a_location_can_be_shown_to_people(bench: Bench) -> None:
    """A store says where its jobs are."""
    assert bench.store.location.strip()


@law
async def a_store_can_be_opened_and_closed_repeatedly(bench: Bench) -> None:
    """Open and close are idempotent, and every method opens the store by itself."""
    for _ in range(2):
        await bench.store.open()
    await bench.enqueue()
    for _ in range(2):
        await bench.store.close()
    assert await bench.state(await bench.enqueue()) is State.PENDING
    await bench.store.open()
    assert await bench.heartbeat(await bench.worker())
