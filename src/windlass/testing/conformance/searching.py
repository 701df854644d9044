"""Owns the laws of searches: every store finds what the core says, within a budget."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import UUID

from windlass.core.jobs.ids import flow_id, member_id
from windlass.core.jobs.job import TAGS, ErrorInfo, Job
from windlass.core.jobs.queries import JobFilter, Page, filter_of
from windlass.core.jobs.states import State
from windlass.core.search.matching import matches
from windlass.core.search.scan import Budget
from windlass.testing.conformance.bench import HOUR, MANY, MINUTE, SECOND, Bench, ids
from windlass.testing.conformance.law import law

TIMED_OUT = ErrorInfo(
    type="TimeoutError", message="100% TIMED_OUT at _web%", traceback="net.py", fingerprint="778e59"
)
REFUSED = ErrorInfo(type="Refused", message="", fingerprint="dead00beef")
DOCUMENTS = (
    b'{"order": {"id": 42, "tags": ["new", "big"]}, "to": "ada@example.org"}',
    b'{"order": {"id": "42", "paid": true, "note": null}, "to": ""}',
    b'{"order": {"id": 42.0}, "n": 12345678901234567890, "a.b": {"": "empty"}, "q\\"": "quote"}',
    b'{"order": {"id": 420, "card": {"$secret": "v1:abc"}}, "0": "zero", "x y": "a, b*"}',
    b'{"order": [{"id": 42}, {"id": "\\u00e9"}], "to": "\xc3\xa9t\xc3\xa9", "n": 1e2}',
    b'{"order": "42", "n": -0.5, "few": ["one"], "many": ["first", "last"], "far": [[[1]], [[2]]]}',
    b"{}",
)
TAGGED = ("vip", "vip,eu", "vipers", "", "a b,eu", None)
SEARCHES = (
    "",
    "kind:report",
    "kind:report,mail -queue:bulk",
    "-kind:report",
    "kind:re* queue:b*",
    "kind:rep%",
    "-kind:*",
    "key:acme",
    "key:*",
    "-key:*",
    'key:"a, b"',
    "state:dead",
    "state:dead,retrying",
    "state:retrying",
    "-state:retrying",
    "-state:dead,completed",
    "state:scheduled -state:retrying",
    "tag:vip",
    "tag:vip tag:eu",
    "tag:vip,eu",
    "tag:vi*",
    'tag:"a b"',
    'tag:"vip,eu"',
    'tag:",e"*',
    "tag:*",
    "-tag:*",
    "-tag:vip",
    "header.trace:abc",
    "header.trace:a*",
    "header.trace:*",
    "-header.trace:*",
    'header."a.b":1',
    "payload.order.id:42",
    "payload.order.id:42*",
    "payload.order.id:42.0",
    "payload.order.id:*",
    "-payload.order.id:42",
    "payload.order.paid:true",
    "payload.order.note:*",
    "payload.order.note:null",
    "payload.order:*",
    "payload.order.tags.0:new",
    "payload.order.tags.-1:big",
    "payload.order.tags.2:*",
    "payload.many.-1:last",
    "payload.many.-2:first",
    "payload.many.-3:*",
    "payload.far.-1.-1.-1:2",
    "-payload.many.-1:last",
    "payload.order.0.id:42",
    "payload.order.card:*",
    'payload."a.b"."":empty',
    r'payload."q\"":quote',
    'payload."x y":"a, b*"',
    "payload.0:zero",
    'payload.to:""',
    "payload.to:été",
    "payload.n:12345678901234567890",
    "payload.n:1e2,-0.5",
    "error:*",
    "-error:*",
    "error:778e",
    "error:778",
    "error:778F",
    "error:DEAD",
    "error:timeouterror",
    "error:_web%",
    '"timed_out AT"',
    '-"timed_out AT"',
    '"100% timed"',
    "1_0",
    "net.py",
    '"refused: "',
    "operator",
    "778e59",
    "worker:web1",
    "worker:web1:42",
    "worker:web",
    "worker:we*",
    "-worker:*",
    "flow:*",
    "-flow:*",
    "since:1h",
    "until:1h",
    "since:2h until:30m",
    "since:2030-01-01 until:2030-01-01",
    "state:dead since:1h error:timed payload.order.id:*",
)


async def _filled(bench: Bench) -> list[Job]:
    """Enqueue jobs that differ in all that can be searched for, in every state."""
    flow = flow_id(int(bench.now().timestamp() * 1_000), 7)
    jobs: list[UUID] = []
    for number, document in enumerate(DOCUMENTS * 2):
        tags = TAGGED[number % len(TAGGED)]
        fields: dict[str, Any] = {
            "payload": document,
            "kind": ("report", "mail", "re%")[number % 3],
            "queue": ("bulk", "default")[number % 2],
            "key": ("", "acme", "a, b", "acm")[number % 4],
            "headers": ({} if tags is None else {TAGS: tags})
            | ({"trace": ("abc", "ab")[number // 3 % 2], "a.b": "1"} if number % 3 else {}),
        }
        if number % 6 == 1:
            fields["due"] = 10 * HOUR
        if number % 5 == 4:
            fields["id"] = member_id(flow, number)
        jobs.append(await bench.enqueue(**fields))
        await bench.advance(timedelta(minutes=13))
    for number, job in enumerate(jobs[::2]):
        await _end(bench, job, number)
    return [await bench.job(job) for job in jobs]


async def _end(bench: Bench, job: UUID, number: int) -> None:
    worker = await bench.worker(name=("web1:42:ab", "web12:7:cd")[number % 2] + str(number))
    lane = (await bench.job(job)).lane
    while job not in ids(claimed := await bench.claim(worker, lane, most=1)):
        assert claimed, "the job was not claimed"
    (running,) = [each for each in claimed if each.id == job]
    state = (State.DEAD, State.SCHEDULED, State.COMPLETED, State.RUNNING)[number % 4]
    if state is State.RUNNING:
        return
    error = None if state is State.COMPLETED else (TIMED_OUT, REFUSED)[number // 4 % 2]
    reason = "stopped by an Operator" if number % 3 == 0 else None
    assert await bench.leave(running, state, error=error, due=HOUR, failures=1, reason=reason)


@law
async def a_store_finds_the_jobs_that_match_a_search(bench: Bench) -> None:
    """Every term means the same in every store: what `core.search.matching` says."""
    await _filled(bench)
    every = (await bench.store.find(JobFilter(), limit=MANY)).jobs
    assert len(every) == 2 * len(DOCUMENTS)
    for text in SEARCHES:
        which = filter_of({"search": text}, bench.now())
        meant = [job.id for job in every if matches(which, job, bench.now())]
        for brief in (False, True):
            page = await bench.store.find(which, limit=MANY, brief=brief)
            assert ids(page.jobs) == meant, text
            assert page.searched_to is None
        page = await bench.store.find(which, limit=MANY, budget=Budget(rows=MANY, seconds=60))
        assert (ids(page.jobs), page.after) == (meant, None), text
        oldest = await bench.store.find(which, limit=MANY, oldest_first=True, budget=Budget())
        assert ids(oldest.jobs) == meant[::-1], text


@law
async def jobs_are_found_by_ids_in_a_search(bench: Bench) -> None:
    """An id, its beginning or its end, and the flow of a job select what they name."""
    flow = flow_id(int(bench.now().timestamp() * 1_000), 99)
    members = [await bench.enqueue(id=member_id(flow, number)) for number in range(3)]
    await bench.advance(MINUTE)
    other = await bench.enqueue()
    dead = (await bench.job_in(State.DEAD)).id
    for text, meant in {
        f"id:{other}": [other],
        f"id:{other},{dead}": [dead, other],
        f"-id:{other}": [dead, *members[::-1]],
        f"flow:{members[2]}": members[::-1],
        f"flow:{str(flow)[:13]}": members[::-1],
        f"-flow:{flow}": [dead, other],
        f"flow:{other}": [],
        str(dead): [dead],
        dead.hex[-8:]: [dead],
        f"-{dead.hex[-8:]}": [other, *members[::-1]],
    }.items():
        which = filter_of({"search": text}, bench.now())
        assert ids((await bench.store.find(which, limit=MANY)).jobs) == meant, text


@law
async def a_search_joins_conditions(bench: Bench) -> None:
    """A search narrows the other conditions; where both name a field, both must hold."""
    mail = await bench.enqueue(kind="mail", queue="a")
    await bench.enqueue(kind="mail", queue="b")
    dead = (await bench.job_in(State.DEAD)).id
    for where, meant in (
        ({"kind": "mail", "search": "queue:a"}, [mail]),
        ({"kind": "mail", "search": "kind:mail queue:a"}, [mail]),
        ({"kind": "mail", "search": "kind:report"}, []),
        ({"states": ["dead"], "search": "state:pending"}, []),
        ({"states": ["dead", "running"], "search": "-state:running"}, [dead]),
    ):
        which = filter_of(where, bench.now())  # type: ignore[arg-type]
        assert ids((await bench.store.find(which, limit=MANY)).jobs) == meant, where


async def _pages(bench: Bench, which: JobFilter, budget: Budget, *, oldest: bool) -> list[Page]:
    pages = []
    after = None
    while True:
        page = await bench.store.find(
            which, limit=2, after=after, budget=budget, oldest_first=oldest
        )
        pages.append(page)
        after = page.after
        if after is None:
            return pages
        assert len(pages) < MANY, "a search that is continued comes to an end"


@law
async def a_budget_ends_a_search_that_says_how_far_it_came(bench: Bench) -> None:
    """No more jobs are looked at than the budget allows; continued, the search misses none."""
    jobs = []
    for number in range(30):
        jobs.append(await bench.enqueue(kind="rare" if number in (3, 25, 26, 28) else "work"))
        await bench.advance(SECOND)
    which, budget = JobFilter(kind="rare"), Budget(rows=10, seconds=60)
    for oldest in (False, True):
        order = jobs if oldest else jobs[::-1]
        rare = [jobs[3], jobs[25], jobs[26], jobs[28]]
        pages = await _pages(bench, which, budget, oldest=oldest)
        found = [job for page in pages for job in ids(page.jobs)]
        assert found == (rare if oldest else rare[::-1])
        first = pages[0]
        if oldest:
            assert (ids(first.jobs), first.searched_to) == ([jobs[3]], order[9])
        else:
            assert (first.after, first.searched_to) == (jobs[26], None), "it was full before"
        assert all(page.searched_to in (None, page.after) for page in pages)
    for rows in (1, 7, 29, 30, 31):
        none = await _pages(bench, JobFilter(kind="none"), Budget(rows=rows), oldest=False)
        assert [page.searched_to for page in none if page.after] == jobs[::-1][rows - 1 :: rows][
            : len(none) - 1
        ]
        assert all(page.jobs == () for page in none)


@law
async def a_budget_covers_the_jobs_of_every_state(bench: Bench) -> None:
    """Wherever a store keeps jobs of different states, a search goes through them as one row."""
    jobs = []
    for _ in range(4):
        for state in State:
            jobs.append((await bench.job_in(state)).id)
            await bench.advance(SECOND)
    for rows in (1, 5, 9):
        pages = await _pages(bench, JobFilter(), Budget(rows=rows, seconds=60), oldest=False)
        assert [job for page in pages for job in ids(page.jobs)] == jobs[::-1]
        odd = JobFilter(states=(State.DEAD, State.PENDING))
        pages = await _pages(bench, odd, Budget(rows=rows, seconds=60), oldest=True)
        meant = [job for number, job in enumerate(jobs) if number % 6 in (1, 4)]
        assert [job for page in pages for job in ids(page.jobs)] == meant
