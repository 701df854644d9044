"""Figures are made of what workers recorded; what cannot be known is None, and it is said why."""

from __future__ import annotations

from typing import Any

import pytest

from tests.core.stats.recorded import (
    NOW,
    both_queues,
    mail,
    queue,
    record,
    runs,
    stats,
    worker,
    young,
)
from windlass.core.policies.pauses import Pauses
from windlass.core.stats.cluster_sample import QueueSample, Sample
from windlass.core.stats.depths import Connections
from windlass.core.stats.kind_history import RECORD
from windlass.core.stats.live_counts import Trend
from windlass.core.workers import WorkerPulse


def test_figures_among_some_queues_have_nothing_of_the_others() -> None:
    kinds = {
        RECORD + "send": record(runs(100, 2.0)),
        RECORD + "sync": record(runs(5, 1.0), left={"files": 5}),
    }
    found = stats(queue(), queue(jobs={"pending": 7}), kinds=kinds, among=["mail"])
    assert [each.name for each in found.queues] == ["mail"]
    assert [each.name for each in found.kinds] == ["send"]
    assert found.arrival_rate == 2.0
    assert stats(queue(), queue(), kinds=kinds, among=["mail"], queue="files").queues == ()
    assert stats(queue(), kinds=kinds, among=[]).workers == ()


# -- capacity ----------------------------------------------------------------------------------


def test_a_backlog_is_drained_by_what_leaves_beyond_what_comes() -> None:
    assert mail(queue()).seconds_to_empty == pytest.approx(100 / (6 - 2))


def test_as_many_slots_are_needed_as_keep_up_with_a_fifth_to_spare() -> None:
    found = mail(queue())
    assert found.slots_needed == pytest.approx(2.0 * 2.0 / 0.8, rel=0.07), "to a bucket's width"
    assert found.slots == 10
    assert found.unknown == {}


def test_the_runs_that_fail_first_need_slots_too() -> None:
    """A job that is tried twice takes twice as long until it is done with."""
    failing = record(runs(200, 2.0, completed=100, failed=100, retried=100), left={"mail": 100})
    found = mail(queue(), kinds={RECORD + "send": failing})
    assert found.slots_needed == pytest.approx(2.0 * 4.0 / 0.8, rel=0.07)


def test_full_slots_count_for_as_long_as_they_are_taken_not_only_while_a_job_runs() -> None:
    """Else a queue of short jobs grows without end, with a tenth of a slot that it needs."""
    kinds = {RECORD + "send": record(runs(1_000, 0.0002))}
    behind = {"pending": 900, "running": 1}
    grows = queue(jobs=behind, arrival_rate=300.0, service_rate=143.0)
    one = (worker(slots=1),)
    assert mail(grows, kinds=kinds, workers=one).slots_needed == pytest.approx(300 / 143 / 0.8)
    keeps_up = queue(jobs=behind, oldest=0.1, arrival_rate=140.0, service_rate=143.0)
    found = mail(keeps_up, kinds=kinds, workers=one).slots_needed
    assert found is not None
    assert found < 0.1, "slots are not known to be full where nothing waits for long"


def test_no_slots_are_made_up_of_jobs_that_are_tried_again_and_again() -> None:
    """The one that ended did not take the time of all: 42,750 slots would be needed."""
    failing = record(runs(36_000, 1.0, completed=0, failed=36_000, dead=1), left={"mail": 1})
    found = mail(queue(arrival_rate=1.0), kinds={RECORD + "send": failing})
    assert found.slots_needed is None
    assert "retried" in found.unknown["slots_needed"]


@pytest.mark.parametrize("arrival", [6.0, 5.95, 50.0])
def test_a_queue_whose_jobs_arrive_as_fast_as_they_finish_never_becomes_empty(
    arrival: float,
) -> None:
    found = mail(queue(arrival_rate=arrival))
    assert found.seconds_to_empty is None
    assert "it never becomes empty" in found.unknown["seconds_to_empty"]


def trend(before: int, now: int) -> Trend:
    """Make one of two counts of the queue mail, ten seconds apart."""
    made = Trend()
    old, new = (
        Sample(at=at, queues={"mail": QueueSample(jobs={"pending": count})})
        for at, count in ((NOW.timestamp() - 10, before), (NOW.timestamp(), now))
    )
    made.note(new, old)
    return made


@pytest.mark.parametrize(
    "rates",
    [
        {"arrival_rate": 9.0},
        {"arrival_rate": 0.0, "service_rate": 0.0},
        {"arrival_rate": None},
        {"service_rate": None},
    ],
)
def test_a_queue_that_shrinks_drains_whatever_older_rates_say(rates: Any) -> None:
    """Prevents `never` from being shown over a number that becomes less at each look."""
    found = mail(queue(**rates), trend=trend(140, 100))
    assert found.seconds_to_empty == pytest.approx(100 / 4)
    assert "seconds_to_empty" not in found.unknown
    grows = mail(queue(**rates), trend=trend(60, 100))
    assert grows.seconds_to_empty is None
    assert "seconds_to_empty" in grows.unknown


def test_a_queue_that_shrinks_without_a_worker_or_while_it_is_paused_does_not_drain() -> None:
    shrinks = trend(140, 100)
    assert mail(queue(), workers=(), trend=shrinks).seconds_to_empty is None
    paused = Pauses(queues=frozenset({"mail"}))
    assert mail(queue(), pauses=paused, trend=shrinks).seconds_to_empty is None


def test_jobs_of_minutes_drain_though_none_has_ended_lately() -> None:
    """Else whoever has jobs of ten minutes is told most of the time that nothing drains."""
    long = {RECORD + "send": record(runs(10, 600.0))}
    full = worker(pulse=WorkerPulse(running=10))
    waits = queue(jobs={"pending": 20, "running": 10}, arrival_rate=0.0, service_rate=0.0)
    found = mail(waits, kinds=long, workers=(full,))
    assert found.seconds_to_empty == pytest.approx(20 / (10 / 600), rel=0.07)
    unknown = mail(waits, kinds={}, workers=(full,))
    assert unknown.unknown["seconds_to_empty"] == "known once some of its jobs have finished"


def test_a_queue_without_arrivals_does_not_grow() -> None:
    found = mail(queue(arrival_rate=0.0, service_rate=0.0))
    assert found.seconds_to_empty is None
    assert "windlass why" in found.unknown["seconds_to_empty"]
    assert "never becomes empty" not in found.unknown["seconds_to_empty"]


def test_nothing_that_waits_has_drained() -> None:
    found = mail(queue(jobs={}, oldest=None, arrival_rate=0.0, service_rate=0.0))
    assert found.seconds_to_empty == 0.0
    assert found.slots_needed == 0.0


def test_time_to_empty_of_new_jobs_uses_the_free_slots() -> None:
    few = queue(jobs={"pending": 8}, oldest=0.1, arrival_rate=1.0, service_rate=1.0)
    assert mail(few).seconds_to_empty == pytest.approx(8 / (10 / 2 - 1), rel=0.1)
    many = queue(jobs={"pending": 40}, oldest=0.1, arrival_rate=1.0, service_rate=1.0)
    free = worker(pulse=WorkerPulse(running=6))
    assert mail(many, workers=(free,)).seconds_to_empty == pytest.approx(40 / (4 / 2), rel=0.1)
    full = worker(pulse=WorkerPulse(running=10))
    assert mail(many, workers=(full,)).seconds_to_empty is None, "it shares its slots with others"


@pytest.mark.parametrize(
    ("told", "others", "why"),
    [
        ({"capped": ["pending"]}, {}, "more jobs are waiting than are counted"),
        ({}, {"workers": ()}, "no worker serves it"),
        ({}, {"workers": (worker(alive=False),)}, "no worker serves it"),
        ({}, {"workers": (worker(excluded=("mail",)),)}, "no worker serves it"),
        ({}, {"pauses": Pauses(queues=frozenset({"mail"}))}, "it is paused"),
        ({"arrival_rate": None}, {}, "30 s after a worker has started"),
        ({"service_rate": None}, {}, "30 s after a worker has started"),
        ({}, {"sampled_at": None, "workers": (young(),)}, "30 s after a worker has started"),
        ({}, {"sampled_at": None}, "no worker has sampled lately"),
        ({"arrival_rate": None, "capped": ["running"]}, {}, "more jobs arrive than can be counted"),
    ],
)
def test_no_time_to_drain_is_made_up(told: Any, others: Any, why: str) -> None:
    found = mail(queue(**told), **others)
    assert found.seconds_to_empty is None
    assert why in found.unknown["seconds_to_empty"]


def test_without_a_run_nobody_knows_how_many_slots_are_needed() -> None:
    found = mail(queue(), kinds={})
    assert found.slots_needed is None
    assert found.unknown["slots_needed"] == "known once some of its jobs have finished"


def test_runs_that_take_no_time_need_next_to_nothing() -> None:
    found = mail(queue(), kinds={RECORD + "send": record(runs(100, 0.0))})
    assert found.slots_needed is not None
    assert 0 < found.slots_needed < 0.001
    assert found.seconds_to_empty == pytest.approx(25)


def test_a_kind_in_two_queues_counts_in_each_by_its_share() -> None:
    kinds = {
        RECORD + "send": record(runs(100, 2.0), left={"mail": 50, "files": 50}),
        RECORD + "scan": record(runs(50, 10.0), left={"files": 50}),
    }
    found = {each.name: each for each in stats(queue(), queue(), kinds=kinds).queues}
    assert found["mail"].slots_needed == pytest.approx(2 * 2 / 0.8, rel=0.07)
    assert found["files"].slots_needed == pytest.approx(2 * 6 / 0.8, rel=0.07)


def test_nothing_is_the_oldest_where_nothing_waits() -> None:
    """A store may believe for a while that something waits in a lane that is empty."""
    assert mail(queue(jobs={"running": 3})).oldest is None
    assert mail(queue()).oldest == 60.0


# -- all of it ---------------------------------------------------------------------------------


def test_the_whole_is_the_sum_and_drains_with_its_slowest_queue() -> None:
    found = stats(queue(), queue(jobs={"pending": 4000}), kinds=both_queues())
    assert found.arrival_rate == 4.0
    assert found.service_rate == 12.0
    assert found.seconds_to_empty == 1000.0
    assert found.slots_needed == pytest.approx(sum(q.slots_needed or 0 for q in found.queues))


def test_a_queue_that_never_drains_is_named_and_a_paused_one_is_left_out() -> None:
    stuck = queue(arrival_rate=9.0)
    found = stats(queue(), stuck, kinds=both_queues())
    assert found.seconds_to_empty is None
    assert found.unknown["seconds_to_empty"].startswith("files: ")
    paused = Pauses(queues=frozenset({"files"}))
    assert stats(queue(), stuck, kinds=both_queues(), pauses=paused).seconds_to_empty == 25.0


def test_unserved_lanes_and_open_breakers_are_reported() -> None:
    sample = Sample(
        at=NOW.timestamp(),
        queues={"mail": queue(unserved=2)},
        breakers={"bank": 2, "post": 1, "disk": 0, "api": 2},
    )
    found = stats(sample=sample)
    assert found.queues[0].unserved == 2
    assert (found.breakers, found.half_open) == (("api", "bank"), ("post",))


def test_jobs_of_a_paused_kind_get_no_time_to_empty() -> None:
    """They have waited for long, though not as the queue's oldest: free slots do not help them."""
    stuck = {"arrival_rate": 0.0, "service_rate": 0.0, "jobs": {"pending": 3}}
    found = mail(queue(oldest=None, held=600.0, **stuck))
    assert (found.oldest, found.seconds_to_empty) == (600.0, None)
    assert "no jobs arrive or finish" in found.unknown["seconds_to_empty"]
    assert mail(queue(oldest=700.0, held=600.0, **stuck)).oldest == 700.0


def test_time_to_empty_is_unknown_if_only_paused_jobs_wait() -> None:
    idle, paused = queue(jobs={}, oldest=None), Pauses(queues=frozenset({"files"}))
    found = stats(idle, queue(), kinds=both_queues(), pauses=paused)
    assert found.seconds_to_empty is None, "0 would say that nothing waits"
    assert found.unknown["seconds_to_empty"] == "all waiting jobs are paused"
    assert stats(idle, idle, kinds=both_queues(), pauses=paused).seconds_to_empty == 0.0


def test_an_unknown_figure_of_one_queue_is_left_out_of_the_sums_and_named() -> None:
    """Else a queue of which no job has ended yet hides what all the others need."""
    found = stats(queue(), queue(arrival_rate=None), kinds=both_queues())
    assert found.arrival_rate == 2.0
    assert found.slots_needed == pytest.approx(5.0, rel=0.07)
    assert found.unknown["arrival_rate"] == "at least this much, without files"
    assert found.unknown["slots_needed"] == "at least this much, without files"
    assert "service_rate" not in found.unknown


def test_of_all_reasons_that_something_never_drains_is_the_first() -> None:
    stuck, capped = queue(arrival_rate=9.0), queue(capped=["pending"])
    for queues in ((stuck, capped), (capped, stuck)):
        found = stats(*queues, kinds=both_queues())
        assert "it never becomes empty" in found.unknown["seconds_to_empty"]


def test_slots_are_those_of_workers_that_are_alive() -> None:
    team = (
        worker("a", pulse=WorkerPulse(running=3, slots=6)),
        worker("b", slots=10, queue_slots={"mail": 4}),
        worker("c", alive=False),
    )
    found = stats(queue(), workers=team)
    assert (found.slots, found.busy, found.utilisation) == (16, 3, 3 / 16)
    assert found.queues[0].slots == 6 + 4
    assert [each.id for each in found.workers] == ["a", "b"]


def test_workers_that_drain_are_shown_and_serve_nothing() -> None:
    """Else a roll-out seems to have twice the slots, half of which take nothing."""
    drains = worker("a", pulse=WorkerPulse(running=3, state="draining"))
    found = stats(queue(), workers=(drains, worker("b", pulse=WorkerPulse(running=1))))
    assert (found.slots, found.busy, found.utilisation) == (10, 1, 0.1)
    assert (found.queues[0].slots, found.queues[0].workers) == (10, 1)
    assert [each.id for each in found.workers] == ["a", "b"]
    alone = stats(queue(), workers=(drains,), queue="mail")
    assert [each.id for each in alone.workers] == ["a"]
    assert "no worker serves it" in alone.unknown["seconds_to_empty"]
    assert "all workers are draining" in alone.unknown["utilisation"]


def test_without_a_worker_nothing_is_in_use_of_nothing() -> None:
    found = stats(queue(), workers=())
    assert found.utilisation is None
    assert "start one" in found.unknown["utilisation"]


def test_a_worker_tells_what_it_uses_and_an_older_release_does_not() -> None:
    pool = Connections(open=3, in_use=1, limit=10)
    told = worker("new", pulse=WorkerPulse(cpu=0.5, memory=1_000_000, pool=pool, processed=7))
    new, old = stats(workers=(told, worker("old"))).workers
    assert (new.cpu, new.memory, new.pool, new.processed) == (0.5, 1_000_000, pool, 7)
    assert (old.memory, old.pool) == (None, None)


def test_unknown_figures_are_empty() -> None:
    found = stats(queue(), queue="unknown")
    assert (found.queues, found.kinds, found.errors) == ((), (), ())
    assert found.seconds_to_empty == 0.0
