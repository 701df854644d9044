"""Laws of the simulation of a fleet: near what was measured, and as its page shows it."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.scaling_out import Costs, Fleet, advice, main, simulate

PAGE = Path(__file__).parents[2] / "docs/scaling-out.md"
EXAMPLE = re.compile(r"```text\n\$ python -m benchmarks\.scaling_out (.*?)\n(.*?)```", re.DOTALL)
RUN_ALONE = Costs(enqueue=0, bulk_enqueue=0, idle_process=0)
BUSY = Fleet(hosts=20, jobs_per_second=10_000)


@pytest.mark.parametrize(("options", "shown"), EXAMPLE.findall(PAGE.read_text("utf-8")))
def test_an_example_on_the_page_prints_what_the_page_shows(
    options: str, shown: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(options.split()) == 0
    assert capsys.readouterr().out == shown


def test_the_page_has_examples() -> None:
    assert len(EXAMPLE.findall(PAGE.read_text("utf-8"))) >= 2


@pytest.mark.parametrize(
    ("slots", "duration", "rate", "micros"),
    [
        (1, 0.0, 613, 670),
        (10, 0.0, 3_765, 112),
        (100, 0.0, 10_284, 44),
        (10, 0.01, 643, 182),
        (100, 0.01, 5_982, 68),
        (500, 0.01, 11_702, 37),
        (10, 0.1, 92, 296),
        (100, 0.1, 924, 154),
        (500, 0.1, 4_425, 77),
    ],
)
def test_one_process_with_a_backlog_is_near_the_tables_of_the_capacity_page(
    slots: int, duration: float, rate: float, micros: float
) -> None:
    fleet = Fleet(
        hosts=1,
        processes=1,
        slots=slots,
        duration=duration,
        spread=0.02,
        jobs_per_second=1.5 * rate,
        bulk=50,
        server_cpus=1,
        round_trip=0.0003,
    )
    outcome = simulate(fleet, RUN_ALONE)
    claimed = len(outcome.waits) / fleet.seconds
    assert claimed == pytest.approx(rate, rel=1 / 3)
    assert 0.5 <= outcome.server * 1e6 / claimed / micros <= 2.0


def test_jobs_in_bulk_and_larger_claims_cost_the_server_less() -> None:
    singly, in_bulk = simulate(BUSY), simulate(replace(BUSY, bulk=100))
    few = simulate(replace(BUSY, hosts=4, processes=1, slots=500))
    assert in_bulk.server < few.server < singly.server


def test_a_server_without_cpu_left_does_not_keep_up_and_two_of_them_do() -> None:
    fleet = replace(BUSY, jobs_per_second=14_000)
    assert not simulate(fleet).keeps_up
    assert simulate(replace(fleet, databases=2)).keeps_up


def test_too_few_slots_are_named_first() -> None:
    outcome = simulate(replace(BUSY, jobs_per_second=1_000, hosts=1, processes=1, duration=0.2))
    assert not outcome.keeps_up
    assert advice(outcome)[0].startswith("slots: 200 are in use on average, of 100;")


def test_nothing_is_advised_where_one_server_is_enough() -> None:
    small = Fleet(hosts=2, jobs_per_second=100)
    assert advice(simulate(small)) == ["nothing: one server carries this"]


def test_connections_are_those_of_processes_supervisors_producers_and_the_reserve() -> None:
    assert Fleet(hosts=2, processes=3, producers=10).connections == 2 * (3 * 5 + 1) + 10 + 3
