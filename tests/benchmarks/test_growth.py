"""Laws of the measure of growth: what it fills a store with, and which bars are met."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import LiteralString

import psycopg

from benchmarks.growth.fill import Sizes, fill
from benchmarks.growth.report import Pair, Report
from benchmarks.growth.retention import Window
from benchmarks.growth.stage import Clock, Sample, Starts
from tests.support.postgres.cluster import Cluster
from windlass import Windlass
from windlass.core.jobs.states import State

MISPLACED: LiteralString = """
SELECT count(*) FROM windlass.finished_jobs WHERE slot <> windlass.slot_of(finished_at)
"""
SIZES = Sizes(finished=700, dead=50, scheduled=40, pending=60, queues=20)
QUIET, PRUNED = Window(enqueue=0.02, start=0.03), Window(enqueue=0.05, start=0.09, emptied=7)


def samples(*seconds: float, cpu: float = 1.0) -> Sequence[Sample]:
    return [Sample(seconds=each, cpu=cpu, server=cpu / 2) for each in seconds]


def report(*pairs: Pair, others: float = 0.0, pruned: Window = PRUNED) -> Report:
    return Report(
        place="here",
        sizes={},
        others=others,
        pairs=pairs,
        windows=[(QUIET, pruned)],
        figures=[],
    )


FLAT = Pair(name="flat", small=samples(1, 9, 2), grown=samples(2, 2.5, 9))


def test_a_filled_store_has_the_jobs_of_its_sizes_one_lane_for_each_queue(
    postgres_server: Cluster,
) -> None:
    url = postgres_server.create_database("growth")

    async def look() -> None:
        app = Windlass(url)
        await app.store.migrate()
        await asyncio.to_thread(fill, url, SIZES, lambda _: None)
        counts = await app.store.counts()
        found = {state: sum(it.count for it in counts if it.state is state) for state in State}
        assert found[State.COMPLETED] == 700
        assert (found[State.DEAD], found[State.SCHEDULED], found[State.PENDING]) == (50, 40, 60)
        assert len((await app.store.sweep()).heads) == 20
        assert await app.store.promote(100) == 0, "scheduled ones are not due yet"
        await app.aclose()

    asyncio.run(look())
    with psycopg.connect(url) as db:
        assert db.execute(MISPLACED).fetchone() == (0,)
    postgres_server.drop_database("growth")


def test_a_ratio_is_the_median_of_the_small_store_divided_by_that_of_the_grown_one() -> None:
    assert FLAT.ratio("seconds") == 2 / 2.5
    assert FLAT.is_met(busy=False)
    assert not replace(FLAT, grown=samples(2.6)).is_met(busy=False)


def test_on_a_busy_machine_cpu_time_decides() -> None:
    slow = replace(FLAT, grown=samples(9, 9, 9))
    assert not report(slow).is_met
    assert report(slow, others=1.0).is_met
    assert not report(replace(slow, grown=samples(2, cpu=1.3)), others=1.0).is_met


def test_a_look_has_to_be_quick_by_itself() -> None:
    look = Pair(name="look", small=samples(1.1), grown=samples(1.1), is_look=True)
    assert not look.is_met(busy=False)
    assert replace(look, grown=samples(0.9)).is_met(busy=False)


def test_the_stall_is_the_longest_wait_while_a_day_is_emptied() -> None:
    assert report().stall == 0.09
    assert report().is_met
    assert not report(pruned=replace(PRUNED, start=0.11)).is_met


def test_on_a_busy_machine_the_stall_is_what_was_waited_beyond_a_quiet_window() -> None:
    assert report(others=1.0).stall == 0.09 - 0.03
    assert report(others=1.0, pruned=QUIET).stall == 0.0


def test_a_sample_is_what_was_spent_between_two_clocks() -> None:
    first = Clock(seconds=1, own=2, server=3)
    assert first.until(Clock(seconds=2, own=4, server=6)) == Sample(seconds=1, cpu=5, server=3)


def test_starts_are_reached_with_the_last_that_is_waited_for() -> None:
    starts = Starts()
    starts.expect(2)
    starts.note()
    assert not starts.reached.is_set()
    starts.note()
    assert starts.reached.is_set()
