"""Schedules that five processes tick, that nobody ticked for long, and that are ten thousand."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, cast

import pytest
from msgspec.structs import replace

from tests.support.postgres_workers import PostgresYard
from tests.support.worker_processes import NOISE, Yard, until
from windlass import Job
from windlass.core.changes import Changes
from windlass.core.jobs.job import SCHEDULE, TICK
from windlass.core.jobs.queries import JobFilter
from windlass.core.schedules.schedule import BATCH, RECORD, read_record, record_of
from windlass.store.postgres import PostgresStore
from windlass.worker.services.schedules.schedule_ticker import ScheduleTicker

SECOND, MINUTE = timedelta(seconds=1), timedelta(minutes=1)
EACH: dict[str, Any] = {"catch_up": "all", "overlap": "allow"}


def ticked(yard: Yard) -> dict[str, list[Job]]:
    """Return the jobs of each schedule, by their ticks."""
    found: dict[str, list[Job]] = defaultdict(list)
    for job in yard.call(yard.app.store.find(JobFilter(), limit=10_000)).jobs:
        if SCHEDULE in job.headers:
            found[job.headers[SCHEDULE]].append(job)
    return {name: sorted(jobs, key=tick_of) for name, jobs in found.items()}


def tick_of(job: Job) -> datetime:
    return datetime.fromisoformat(job.headers[TICK])


# -- case 35 -----------------------------------------------------------------------------------


@pytest.mark.long
def test_five_processes_make_one_job_of_each_tick_though_some_are_killed(yard: Yard) -> None:
    """Case 35. Prevents a tick that two make, and one that nobody makes since its maker died."""
    names = [f"s{number}" for number in range(20)]
    drafts = {name: yard.producer("quick").draft({}) for name in names}
    yard.call(yard.app.schedules.aput_many(drafts, every="1s", **EACH))
    workers = [yard.worker() for _ in range(5)]
    for worker in workers:
        worker.started()
    for worker in workers[:3]:
        await_more(yard, len(names))
        worker.kill()
    await_more(yard, 2 * len(names))

    made = ticked(yard)
    assert made.keys() == set(names)
    for jobs in made.values():
        times = [tick_of(job) for job in jobs]
        assert times == [times[0] + number * SECOND for number in range(len(times))]


def await_more(yard: Yard, count: int) -> None:
    """Wait for so many jobs more than there are."""
    enough = sum(map(len, ticked(yard).values())) + count
    until(lambda: sum(map(len, ticked(yard).values())) > enough, "more ticks")


# -- case 36 -----------------------------------------------------------------------------------


@pytest.mark.long
def test_missed_ticks_are_caught_up_when_the_cluster_is_back(yard: Yard) -> None:
    """Case 36. Prevents a flood of old jobs, or none at all, where it was said what is wanted."""
    manners: dict[str, dict[str, Any]] = {
        "skip": {"catch_up": "skip"},
        "latest": {"catch_up": "latest"},
        "all": {"catch_up": "all", "overlap": "allow"},
        "in-turn": {"catch_up": "all"},
        "some": {"catch_up": "all", "overlap": "allow", "catch_up_limit": 2},
    }
    for name, manner in manners.items():
        draft = yard.producer("quick").draft({})
        yard.call(yard.app.schedules.aput(name, draft, every="10m", **manner))
    yard.call(set_back(yard, [*manners], 53 * MINUTE))
    yard.worker().started()
    until(lambda: len(ticked(yard).get("in-turn", ())) == 5, "the last of those that take turns")
    assert {name: len(jobs) for name, jobs in ticked(yard).items()} == {
        "latest": 1,
        "all": 5,
        "in-turn": 5,
        "some": 2,
    }
    statuses = {each.name: each.record for each in yard.call(yard.app.schedules.alist())}
    skipped = {name: each.skipped for name, each in statuses.items()}
    assert skipped == {"skip": 5, "latest": 4, "all": 0, "in-turn": 0, "some": 3}


async def set_back(yard: Yard, names: list[str], span: timedelta) -> None:
    """Make schedules believe that nobody has looked at them for so long."""

    def decide(known: Mapping[str, Any], now: datetime) -> Changes[None]:
        before = {name: read_record(record) for name, record in known.items()}
        after = {
            name: replace(each, next=each.next - span, alarm=each.next - span)
            for name, each in before.items()
            if each is not None and each.next is not None
        }
        return Changes(
            answer=None,
            records={name: record_of(each) for name, each in after.items()},
            alarms=dict.fromkeys(after, now),
        )

    await yard.app.store.apply([RECORD + name for name in names], decide)


# -- case 32 -----------------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.parametrize("hours", [1, -1])
def test_a_worker_whose_clock_is_an_hour_off_ticks_in_time(
    postgres_yard: PostgresYard, hours: int
) -> None:
    """Case 32. Prevents ticks an hour early, an hour late, or sixty of them at once."""
    yard = postgres_yard
    yard.worker(clock=3_600.0 * hours).started()
    draft = yard.producer("quick").draft({})
    yard.call(yard.app.schedules.aput("second", draft, every="1s", **EACH))
    yard.call(yard.app.schedules.aput("hour", draft, every="1h", **EACH))
    until(lambda: len(ticked(yard).get("second", ())) >= 4, "four ticks")
    made = ticked(yard)
    assert made.keys() == {"second"}
    for job in made["second"]:
        assert timedelta(0) <= job.created_at - tick_of(job) < timedelta(seconds=NOISE)


# -- case 47 -----------------------------------------------------------------------------------


SCHEDULES = 10_000


class Counting:
    """A store that counts the questions it is asked."""

    def __init__(self, inner: PostgresStore) -> None:
        self._inner = inner
        self.asked: Counter[str] = Counter()

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if callable(found):  # A property asks the server nothing.
            self.asked[name] += 1
        return found


@pytest.mark.long
def test_ten_thousand_schedules_are_put_listed_and_ticked_in_few_questions(
    postgres_yard: PostgresYard,
) -> None:
    """Case 47. Prevents a tenant's schedule from costing more the more tenants there are."""
    yard = postgres_yard
    store = Counting(PostgresStore(yard.plain_url, listen_url="off"))
    yard.app.store = cast("Any", store)
    producer = yard.producer("quick")
    drafts = {f"tenant-{number:05}": producer.draft({}) for number in range(SCHEDULES)}

    async def main() -> None:
        await yard.app.schedules.aput_many(drafts, every="1h", jitter="1h")
        assert store.asked == {"apply": SCHEDULES / BATCH}
        assert len(await yard.app.schedules.alist()) == SCHEDULES
        assert len(await yard.app.schedules.alist("tenant-0777")) == 10
        store.asked.clear()
        crew = [
            ScheduleTicker(
                yard.app.store, kinds={"quick": None}, declared={}, ids=yard.app.ids.next
            )
            for _ in range(2)
        ]
        for _ in range(3):
            assert await crew[0].tick() > 0
        # It sets right, once, what a step of the clock left behind.
        assert store.asked == {"ringing": 3, "recall": 1}, "what is not due costs nothing"
        await asyncio.to_thread(make_due, yard)
        while not all([await each.tick() for each in crew]):
            pass
        assert store.asked["apply"] <= 1.5 * SCHEDULES / BATCH + 5

    yard.call(main())
    assert yard.value("SELECT count(*) FROM jobs") == SCHEDULES
    assert yard.value("SELECT count(DISTINCT headers ->> 'windlass-schedule') FROM jobs") == (
        SCHEDULES
    )


def make_due(yard: PostgresYard) -> None:
    """Let an hour pass for all schedules."""
    with yard.raw() as db:
        db.execute(
            """UPDATE records SET alarm = clock() - interval '1 second', value = jsonb_set(
            value::jsonb, '{next}', to_jsonb(clock() - interval '2 hours'))::json"""
        )
