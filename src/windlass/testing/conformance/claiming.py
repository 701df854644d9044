"""Owns the laws of claiming: which jobs a worker gets, in what order, and how many at most."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from itertools import product
from random import Random
from uuid import UUID

from windlass.core.claims.lanes import Ask, Claim
from windlass.core.claims.room import MOST_BUDGETS
from windlass.core.jobs.job import Lane, Progress
from windlass.core.jobs.states import State
from windlass.testing.conformance.bench import HOUR, LEASE, MANY, MINUTE, SECOND, Bench, ids
from windlass.testing.conformance.law import law


@law
async def a_claim_starts_a_job(bench: Bench) -> None:
    """A claimed job is running, with its holder, its token and its start by the store's clock."""
    job, worker = await bench.enqueue(), await bench.worker()
    await bench.advance(SECOND)
    (claimed,) = await bench.claim(worker, token=77)
    assert claimed == await bench.job(job)
    assert claimed.state is State.RUNNING
    assert (claimed.worker, claimed.token, claimed.attempt) == (worker, 77, 1)
    assert claimed.started_at == bench.now()
    assert claimed.due_at == claimed.created_at == bench.now() - SECOND


@law
async def a_token_may_be_any_of_63_bits(bench: Bench) -> None:
    """Large tokens are kept exactly."""
    largest = 2**63 - 1
    job, worker = await bench.enqueue(), await bench.worker()
    (claimed,) = await bench.claim(worker, token=largest)
    assert claimed.token == (await bench.job(job)).token == largest
    assert not await bench.leave(claimed, token=largest - 1)
    assert await bench.leave(claimed)


@law
async def attempt_counts_claims(bench: Bench) -> None:
    """Every claim adds one, however the attempt before ended."""
    job = await bench.enqueue()
    for number, state in enumerate((State.PENDING, State.SCHEDULED, State.PENDING), start=1):
        claimed = await bench.start_again(job)
        assert claimed.attempt == number
        assert await bench.leave(claimed, state)
        assert (await bench.job(job)).attempt == number


@law
async def a_claimed_job_starts_without_progress(bench: Bench) -> None:
    """The progress of an earlier attempt is gone when the next one starts."""
    job = await bench.start()
    assert job.token is not None
    assert await bench.store.progress(job.id, job.token, Progress(fraction=0.5, message="half"))
    assert await bench.leave(job, State.PENDING)
    assert (await bench.start_again(job.id)).progress is None


@law
async def a_job_is_claimed_once(bench: Bench) -> None:
    """A job goes to one claim only."""
    jobs = [await bench.enqueue() for _ in range(3)]
    one, two = await bench.worker(), await bench.worker()
    assert ids(await bench.claim(one, most=2)) == jobs[:2]
    assert ids(await bench.claim(two)) == jobs[2:]
    assert await bench.claim(one) == []


@law
async def claims_at_the_same_time_share_no_job(bench: Bench) -> None:
    """However many workers claim at once, each job goes to one of them, and none is left."""
    jobs = {await bench.enqueue() for _ in range(60)}
    workers = [await bench.worker() for _ in range(4)]
    claims = await asyncio.gather(*(bench.claim(worker, most=5) for worker in workers * 3))
    claimed = [job.id for batch in claims for job in batch]
    assert len(claimed) == len(set(claimed)), "a job was claimed twice"
    assert set(claimed) == jobs


@law
async def a_lane_is_first_come_first_served(bench: Bench) -> None:
    """Inside a lane jobs start in the order of their due times."""
    jobs = []
    for _ in range(10):
        jobs.append(await bench.enqueue())
        await bench.advance(SECOND)
    assert ids(await bench.claim(await bench.worker())) == jobs


@law
async def jobs_that_came_at_once_start_in_the_order_of_their_enqueue(bench: Bench) -> None:
    """The order of insertion decides between equal due times, whatever the ids are."""
    batch = [bench.new() for _ in range(10)][::-1]
    await bench.store.enqueue(batch[:5])
    await bench.store.enqueue(batch[5:])
    worker = await bench.worker()
    assert ids(await bench.claim(worker, most=3)) == [job.id for job in batch[:3]]
    assert ids(await bench.claim(worker)) == [job.id for job in batch[3:]]


@law
async def a_scheduled_job_queues_by_its_due_time(bench: Bench) -> None:
    """A job that became due earlier goes first, though it was enqueued or promoted later."""
    await bench.advance(SECOND)
    early = await bench.enqueue(due=MINUTE)
    earlier = await bench.enqueue(due=MINUTE - SECOND)
    await bench.advance(HOUR)
    late = await bench.enqueue()
    await bench.store.promote(MANY)
    assert ids(await bench.claim(await bench.worker())) == [earlier, early, late]


@law
async def a_job_is_not_claimed_before_it_is_due(bench: Bench) -> None:
    """A claim takes pending jobs only."""
    await bench.enqueue(due=MINUTE)
    worker = await bench.worker(lease=HOUR)
    assert await bench.claim(worker) == []
    await bench.advance(MINUTE - SECOND)
    await bench.store.promote(MANY)
    assert await bench.claim(worker) == []


@law
async def a_claim_takes_only_from_the_lanes_it_asks(bench: Bench) -> None:
    """Queue, kind, priority and key each make a lane of their own."""
    lanes = [Lane(*parts) for parts in product(("a", "b"), ("x", "y"), (0, 1), ("", "k"))]
    jobs = {lane: await bench.enqueue(**lane._asdict()) for lane in lanes}
    worker = await bench.worker()
    assert await bench.claim(worker, Lane("a", "x", 2)) == []
    for lane in lanes:
        assert ids(await bench.claim(worker, lane)) == [jobs[lane]], lane


@law
async def asks_are_met_in_their_order(bench: Bench) -> None:
    """The jobs come ask by ask, the oldest of each lane first."""
    old, young = Lane("default", "old"), Lane("default", "young")
    first = [await bench.enqueue(kind="old") for _ in range(2)]
    await bench.advance(SECOND)
    second = [await bench.enqueue(kind="young") for _ in range(2)]
    asks = (Ask(lane=young, count=5), Ask(lane=old, count=5))
    claimed = await bench.claim_all(await bench.worker(), Claim(asks=asks))
    assert ids(claimed) == second + first


@law
async def a_claim_takes_as_many_as_asked_and_no_more(bench: Bench) -> None:
    """A count is a limit, also of none, and an ask of an empty lane takes nothing from others."""
    jobs = [await bench.enqueue() for _ in range(6)]
    lane, empty = Lane("default", "work"), Lane("default", "none")
    worker = await bench.worker()
    assert await bench.claim_all(worker, Claim(asks=())) == []
    assert await bench.claim(worker, lane, most=0) == []
    asks = (Ask(lane=empty, count=9), Ask(lane=lane, count=2), Ask(lane=lane, count=1))
    assert ids(await bench.claim_all(worker, Claim(asks=asks))) == jobs[:3]


@law
async def a_budget_is_shared_by_the_asks_that_draw_on_it(bench: Bench) -> None:
    """Asks draw budgets down in their order; what a lane does not use is left for the next."""
    one = [await bench.enqueue(kind="one") for _ in range(2)]
    two = [await bench.enqueue(kind="two") for _ in range(5)]
    free = [await bench.enqueue(kind="free") for _ in range(2)]
    asks = (
        Ask(lane=Lane("default", "one"), count=3, draws=("slots",)),
        Ask(lane=Lane("default", "two"), count=3, draws=("slots", "threads")),
        Ask(lane=Lane("default", "free"), count=9),
    )
    claim = Claim(asks=asks, budgets={"slots": 4, "threads": 9})
    claimed = await bench.claim_all(await bench.worker(), claim)
    assert ids(claimed) == one + two[:2] + free


@law
async def a_spent_budget_gives_nothing(bench: Bench) -> None:
    """The smallest of its budgets bounds an ask."""
    await bench.enqueue()
    ask = Ask(lane=Lane("default", "work"), count=5, draws=("slots", "threads"))
    claim = Claim(asks=(ask,), budgets={"slots": 5, "threads": 0})
    assert await bench.claim_all(await bench.worker(), claim) == []


@law
async def a_claim_keeps_as_many_budgets_as_a_plan_may_name(bench: Bench) -> None:
    """The last of the most budgets that there may be bounds an ask like the first."""
    names = [f"budget-{number}" for number in range(MOST_BUDGETS)]
    asks = []
    for name in names:
        for _ in range(2):
            await bench.enqueue(kind=name)
        asks.append(Ask(lane=Lane("default", name), count=2, draws=(names[0], name)))
    budgets = dict.fromkeys(names, 1) | {names[0]: MOST_BUDGETS}
    asks[0] = Ask(lane=Lane("default", names[0]), count=1, draws=(names[0],))
    claimed = await bench.claim_all(await bench.worker(), Claim(asks=tuple(asks), budgets=budgets))
    assert [job.kind for job in claimed] == names


@law
async def a_claim_takes_exactly_what_its_asks_and_budgets_allow(bench: Bench) -> None:
    """For any asks and budgets a claim takes exactly what taking them one by one would give."""
    random = Random(20300101)  # noqa: S311 - reproducible on purpose.
    lanes = [Lane("default", f"lane-{number}") for number in range(5)]
    waiting: dict[Lane, list[UUID]] = {lane: [] for lane in lanes}
    worker = await bench.worker()
    for _ in range(30):
        for lane in random.choices(lanes, k=random.randrange(12)):
            waiting[lane].append(await bench.enqueue(**lane._asdict()))
        claim = _random_claim(random, lanes)
        assert ids(await bench.claim_all(worker, claim)) == list(_expected(claim, waiting)), claim


def _random_claim(random: Random, lanes: list[Lane]) -> Claim:
    names = ("slots", "threads", "limit")
    asks = tuple(
        Ask(
            lane=random.choice(lanes),
            count=random.randrange(6),
            draws=tuple(random.sample(names, random.randrange(len(names) + 1))),
        )
        for _ in range(random.randrange(7))
    )
    return Claim(asks=asks, budgets={name: random.randrange(8) for name in names})


def _expected(claim: Claim, waiting: dict[Lane, list[UUID]]) -> Iterable[UUID]:
    budgets = dict(claim.budgets)
    for ask in claim.asks:
        count = min([ask.count, *(budgets[name] for name in ask.draws)])
        taken, waiting[ask.lane] = waiting[ask.lane][:count], waiting[ask.lane][count:]
        for name in ask.draws:
            budgets[name] -= len(taken)
        yield from taken


@law
async def a_worker_without_a_live_lease_claims_nothing(bench: Bench) -> None:
    """Unknown, retired and silent workers claim nothing."""
    await bench.enqueue()
    silent, retired = await bench.worker(), await bench.worker(lease=HOUR)
    await bench.store.retire(retired)
    await bench.advance(LEASE + SECOND)
    for worker in ("nobody", retired, silent):
        assert await bench.claim(worker) == [], worker


@law
async def a_worker_that_renews_its_lease_claims_again(bench: Bench) -> None:
    """A lease that ran out, but was not ended, can be renewed."""
    job, worker = await bench.enqueue(), await bench.worker()
    await bench.advance(LEASE + SECOND)
    assert await bench.heartbeat(worker)
    assert ids(await bench.claim(worker)) == [job]
