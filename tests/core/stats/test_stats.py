"""Figures are made of what workers recorded; what cannot be known is None, and it is said why."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import msgspec
import pytest

from windlass.core.jobs.job import ErrorInfo
from windlass.core.jobs.queries import ErrorGroup
from windlass.core.metrics.histogram import bucket_of
from windlass.core.payloads.redaction import Redaction
from windlass.core.policies.pauses import Pauses
from windlass.core.records import Json
from windlass.core.stats.cluster_sample import QueueSample, Sample
from windlass.core.stats.depths import Connections
from windlass.core.stats.kind_history import RECORD, NewError, Window, recorded
from windlass.core.stats.live_counts import Trend
from windlass.core.stats.sample_history import History, Line, read_history
from windlass.core.stats.stats import QueueFigures, Stats, StatsFacts, stats_of
from windlass.core.workers import WorkerInfo, WorkerPulse, WorkerRecord

NOW = datetime(2030, 1, 1, 12, 4, tzinfo=UTC)
SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)


def worker(name: str = "w", *, slots: int = 10, alive: bool = True, **told: Any) -> WorkerRecord:
    pulse = told.pop("pulse", WorkerPulse())
    info = WorkerInfo(
        id=name,
        name=name,
        host="h",
        pid=1,
        release="1",
        lease=SECOND,
        slots=slots,
        **{"kinds": ("send",)} | told,
    )
    return WorkerRecord(
        info=info,
        pulse=pulse,
        started_at=NOW - timedelta(days=1),
        last_seen=NOW,
        lease_until=NOW,
        alive=alive,
    )


def young() -> WorkerRecord:
    return msgspec.structs.replace(worker(), started_at=NOW - 30 * SECOND)


def runs(count: int, seconds: float, **told: Any) -> Window:
    buckets = [bucket_of(seconds), count]
    usual: dict[str, Any] = {"completed": count, "durations": buckets, "waits": buckets}
    return Window(**usual | told)


def record(window: Window, *, ago: timedelta = timedelta(0), **told: Any) -> Json:
    return recorded(None, window, told.pop("left", {"mail": window.completed}), NOW - ago, **told)


def queue(**told: Any) -> QueueSample:
    usual: dict[str, Any] = {
        "jobs": {"pending": 100},
        "oldest": 60.0,
        "arrival_rate": 2.0,
        "service_rate": 6.0,
    }
    return QueueSample(**usual | told)


def stats(*queues: QueueSample, **told: Any) -> Stats:
    """Make figures of queues that are called mail, files and so on, and of what else is told."""
    names = dict(zip(("mail", "files", "pictures"), queues, strict=False))
    narrowed = {name: told.pop(name) for name in ("queue", "kind", "among") if name in told}
    usual: dict[str, Any] = {
        "now": NOW,
        "sample": Sample(at=NOW.timestamp(), by="w", queues=names),
        "sampled_at": NOW,
        "history": History(),
        "kinds": {RECORD + "send": record(runs(100, 2.0))},
        "groups": (),
        "workers": (worker(),),
        "pauses": Pauses(),
        "redaction": Redaction(),
    }
    return stats_of(StatsFacts(**usual | told), **narrowed)


def mail(*queues: QueueSample, **told: Any) -> QueueFigures:
    (found,) = stats(*queues, **told).queues
    return found


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


# -- rates -------------------------------------------------------------------------------------


def history(*rates: float | None, step: float = 15.0, ago: float = 0.0) -> History:
    """Make one of arrivals, the last of them so many seconds ago."""
    last = NOW.timestamp() - ago
    at = [last - step * back for back in reversed(range(len(rates)))]
    line = Line(depths=[0] * len(at), arrivals=list(rates), services=[1.0] * len(at))
    return History(at=at, total=line, queues={"mail": line})


def test_rates_are_the_mean_of_two_minutes() -> None:
    """A worker records each 15 seconds and another samples then, so that single rates jump."""
    found = mail(queue(arrival_rate=99.0), history=history(*[70.0] * 9, 0.0, -10.0, *[10.0] * 6))
    assert found.arrival_rate == pytest.approx((0 - 10 + 6 * 10) / 8)
    assert found.service_rate == 1.0


def test_a_rate_over_a_gap_counts_for_no_more_than_two_minutes() -> None:
    gap = history(0.0, 9.0, 1.0, 1.0, 1.0, 1.0)
    gap.at[0] -= 7200.0
    found = mail(queue(), history=gap)
    assert found.arrival_rate == pytest.approx((60 * 9 + 60 * 1) / 120)


def test_the_rate_of_all_is_that_of_two_minutes_too() -> None:
    """A queue that has less than nothing for being counted late takes from the others."""
    past = history(0.0, 4.0, 4.0)
    past.queues["files"] = Line(depths=[0] * 3, arrivals=[0.0, -2.0, -2.0], services=[1.0] * 3)
    past.total = Line(depths=[0] * 3, arrivals=[0.0, 2.0, 2.0], services=[3.0] * 3)
    found = stats(queue(), queue(), history=past, kinds=_both_queues())
    assert [each.arrival_rate for each in found.queues] == [0.0, 4.0]
    assert (found.arrival_rate, found.service_rate) == (2.0, 3.0)


def test_a_mean_below_zero_is_zero() -> None:
    assert mail(queue(), history=history(0.0, -5.0, -5.0)).arrival_rate == 0.0


def test_jobs_that_are_purged_do_not_hide_what_comes() -> None:
    """They left, and no worker told: less than nothing came, and no slot would be needed."""
    purged = history(2.0, 2.0, -1000.0, 2.0, 2.0, 2.0, 2.0)
    found = mail(queue(), history=purged)
    assert found.arrival_rate is found.slots_needed is found.seconds_to_empty is None
    for figure in ("arrival_rate", "slots_needed", "seconds_to_empty"):
        assert "purged" in found.unknown[figure]
    assert found.service_rate == 1.0
    late = history(2.0, 2.0, -1000.0, 1004.0, 2.0, 2.0, 2.0)
    assert mail(queue(), history=late).arrival_rate == pytest.approx(2.0), "somebody told later"


def test_a_curve_begins_where_something_is_known() -> None:
    found = mail(queue(), history=history(None, None, 3.0, None, -1.0, 2.0))
    assert found.arrivals == (3.0, 0.0, 0.0, 2.0)


def test_a_curve_ends_with_the_last_sample() -> None:
    old = history(7.0, 7.0, ago=3600.0)
    assert mail(queue(), history=old).arrivals == ()
    assert stats(queue(), history=old).arrivals == ()
    recent = history(7.0, 7.0)
    assert stats(queue(), history=recent).arrivals == (7.0, 7.0)
    unsampled = stats(queue(), history=recent, sampled_at=None)
    assert unsampled.arrivals == unsampled.queues[0].arrivals == ()


@pytest.mark.parametrize("past", [history(9.0, 9.0, ago=3600.0), history(9.0, 9.0, ago=-3600.0)])
def test_samples_that_are_old_or_precede_a_clock_step_give_no_rate(past: History) -> None:
    assert mail(queue(arrival_rate=2.0), history=past).arrival_rate == 2.0


def test_an_old_sample_has_no_rates() -> None:
    found = stats(queue(), sampled_at=None, history=history(9.0, 9.0))
    assert found.sample_age is None
    assert found.arrival_rate is found.service_rate is found.slots_needed is None
    assert found.queues[0].jobs == {"pending": 100}
    assert "no worker has sampled lately" in found.unknown["arrival_rate"]
    alone = stats(queue(), sampled_at=None, workers=())
    assert alone.unknown["arrival_rate"] == "known about 30 s after a worker has started"


# -- all of it ---------------------------------------------------------------------------------


def test_the_whole_is_the_sum_and_drains_with_its_slowest_queue() -> None:
    found = stats(queue(), queue(jobs={"pending": 4000}), kinds=_both_queues())
    assert found.arrival_rate == 4.0
    assert found.service_rate == 12.0
    assert found.seconds_to_empty == 1000.0
    assert found.slots_needed == pytest.approx(sum(q.slots_needed or 0 for q in found.queues))


def test_a_queue_that_never_drains_is_named_and_a_paused_one_is_left_out() -> None:
    stuck = queue(arrival_rate=9.0)
    found = stats(queue(), stuck, kinds=_both_queues())
    assert found.seconds_to_empty is None
    assert found.unknown["seconds_to_empty"].startswith("files: ")
    paused = Pauses(queues=frozenset({"files"}))
    assert stats(queue(), stuck, kinds=_both_queues(), pauses=paused).seconds_to_empty == 25.0


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
    found = stats(idle, queue(), kinds=_both_queues(), pauses=paused)
    assert found.seconds_to_empty is None, "0 would say that nothing waits"
    assert found.unknown["seconds_to_empty"] == "all waiting jobs are paused"
    assert stats(idle, idle, kinds=_both_queues(), pauses=paused).seconds_to_empty == 0.0


def test_an_unknown_figure_of_one_queue_is_left_out_of_the_sums_and_named() -> None:
    """Else a queue of which no job has ended yet hides what all the others need."""
    found = stats(queue(), queue(arrival_rate=None), kinds=_both_queues())
    assert found.arrival_rate == 2.0
    assert found.slots_needed == pytest.approx(5.0, rel=0.07)
    assert found.unknown["arrival_rate"] == "at least this much, without files"
    assert found.unknown["slots_needed"] == "at least this much, without files"
    assert "service_rate" not in found.unknown


def test_of_all_reasons_that_something_never_drains_is_the_first() -> None:
    stuck, capped = queue(arrival_rate=9.0), queue(capped=["pending"])
    for queues in ((stuck, capped), (capped, stuck)):
        found = stats(*queues, kinds=_both_queues())
        assert "it never becomes empty" in found.unknown["seconds_to_empty"]


def _both_queues() -> dict[str, Json]:
    return {RECORD + "send": record(runs(100, 2.0), left={"mail": 50, "files": 50})}


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


# -- kinds -------------------------------------------------------------------------------------


def test_kinds_tell_ends_percentiles_rates_and_the_slots_that_they_fill() -> None:
    window = runs(90, 2.0, failed=10, retried=6, dead=4, cancelled=1)
    (kind,) = stats(kinds={RECORD + "send": record(window)}).kinds
    assert (kind.runs, kind.completed, kind.failed) == (90, 90, 10)
    assert (kind.retried, kind.dead, kind.cancelled) == (6, 4, 1)
    assert kind.error_rate == pytest.approx(10 / 90)
    assert kind.durations == {"p50": 2.0, "p95": 2.0, "p99": 2.0}
    assert kind.rate == pytest.approx(90 / (9 * 60)), "this window has run for 4 minutes, and one"
    assert kind.busy == pytest.approx(kind.rate * 2.0, rel=0.07)
    assert kind.history == (*[0] * 11, 90)
    assert kind.failures == (*[0] * 11, 10)


def test_the_rate_of_a_kind_is_not_spread_over_a_time_before_there_was_a_worker() -> None:
    team = (young(),)
    (kind,) = stats(kinds={RECORD + "send": record(runs(60, 1.0))}, workers=team).kinds
    assert kind.rate == 2.0


def test_a_kind_has_a_rate_over_the_time_that_is_recorded() -> None:
    """What ran after the last record is not in it: 13.3 would be told of 20 a second."""
    kinds = {RECORD + "send": record(runs(400, 1.0), ago=10 * SECOND)}
    (kind,) = stats(kinds=kinds, workers=(young(),)).kinds
    assert kind.rate == pytest.approx(20.0)
    assert kind.as_of == NOW - 10 * SECOND


def test_a_kind_of_which_every_worker_is_forgotten_has_a_rate_of_minutes() -> None:
    (kind,) = stats(kinds={RECORD + "send": record(runs(540, 1.0))}, workers=()).kinds
    assert kind.rate == pytest.approx(1.0), "this window has run for 4 minutes, and one"


def test_a_kind_without_runs_has_no_error_rate_and_no_percentiles() -> None:
    (kind,) = stats(kinds={RECORD + "send": record(Window())}).kinds
    assert kind.error_rate is None
    assert kind.durations == kind.waits == {}
    assert kind.rate == kind.busy == 0.0


def test_failures_without_a_run_are_no_more_than_all() -> None:
    (kind,) = stats(kinds={RECORD + "send": record(Window(failed=3))}).kinds
    assert kind.error_rate == 1.0


@pytest.mark.parametrize("ago", [-2 * timedelta(days=1), timedelta(hours=2)])
def test_windows_of_the_future_and_of_long_ago_do_not_count(ago: timedelta) -> None:
    """The clock may have been set back; and a kind may not have run for long."""
    (kind,) = stats(kinds={RECORD + "send": record(runs(9, 1.0), ago=ago)}).kinds
    assert kind.runs == 0


@pytest.mark.parametrize(
    "garbage",
    [{"windows": "none"}, {"windows": [{"at": None}]}, {"left": 7}, {"errors": [1]}, {"new": 1}],
)
def test_a_record_that_cannot_be_read_says_nothing(garbage: Json) -> None:
    (kind,) = stats(queue(), kinds={RECORD + "send": garbage}).kinds
    assert kind.runs == 0


@pytest.mark.parametrize(
    "garbage",
    [{"at": "noon"}, {"at": [1.0]}, {"total": None}, {"at": [1.0], "queues": {"q": {}}}, None],
)
def test_a_history_that_cannot_be_read_is_none(garbage: Json | None) -> None:
    assert read_history(garbage).at == []


# -- errors ------------------------------------------------------------------------------------


def group(fingerprint: str, *, kind: str = "send", count: int = 1, **told: Any) -> ErrorGroup:
    usual: dict[str, Any] = {
        "first_seen": NOW - 3 * MINUTE,
        "last_seen": NOW - 2 * MINUTE,
        "newest": uuid4(),
        "error": ErrorInfo(type="ValueError", message="card_number=4711 is\nwrong"),
        "reason": None,
    }
    return ErrorGroup(fingerprint=fingerprint, kind=kind, count=count, **usual | told)


def test_errors_are_what_failed_lately_and_what_is_dead() -> None:
    failing = record(
        Window(failed=5, errors={"ab": 3, "cd": 2}), errors={"ab": NewError(line="Error: x")}
    )
    found = stats(kinds={RECORD + "send": failing}, groups=[group("ab", count=7), group("ef")])
    told = [(each.group, each.count, each.dead, each.error) for each in found.errors]
    assert told == [
        ("ab", 3, 7, "Error: x"),
        ("other", 2, 0, "other errors (too many to list)"),
        ("ef", 0, 1, "ValueError: card_number=*** is wrong"),
    ]
    assert found.errors[0].history == (*[0] * 11, 3)
    assert found.errors[0].first_seen == NOW - 3 * MINUTE
    assert found.errors[0].last_seen == NOW
    assert found.errors[2].history == (0,) * 12


def test_errors_of_which_only_the_number_is_known_are_shown_as_one() -> None:
    """Only so many are kept with their words; a row that says nothing helps nobody."""
    made: Json | None = None
    for ago in reversed(range(6)):
        errors = {f"e{ago}{number}": 1 for number in range(9)} | {"other": 1}
        lines = {name: NewError(line=f"Error: {name}") for name in errors if name != "other"}
        now = NOW - ago * 5 * MINUTE
        made = recorded(made, Window(failed=10, errors=errors), {}, now, lines)
    found = stats(kinds={RECORD + "send": made}).errors
    assert all(each.error for each in found)
    assert sum(each.count for each in found) == 60
    assert found[0].group == "other"
    assert found[0].count == sum(found[0].history) == 6 + 6 * 9 - 30


def test_every_reader_masks_an_error_line() -> None:
    failing = record(
        Window(errors={"ab": 1}), errors={"ab": NewError(line="Error: flavour='mint'")}
    )
    found = stats(kinds={RECORD + "send": failing}, redaction=Redaction(["flavour"]))
    assert found.errors[0].error == "Error: flavour='***'"


def test_jobs_that_died_without_an_error_are_grouped_by_their_reason() -> None:
    (found,) = stats(groups=[group("", error=None, reason="expired")]).errors
    assert (found.group, found.error) == ("", "expired")


# -- narrowed ----------------------------------------------------------------------------------


def test_a_queue_alone_goes_with_its_kinds_errors_and_workers() -> None:
    kinds = {
        RECORD + "send": record(runs(100, 2.0), left={"mail": 100}),
        RECORD + "scan": record(runs(50, 10.0), left={"files": 50}),
    }
    team = (worker("a", queues=("mail",)), worker("b", queues=("files",)))
    groups = [group("ab"), group("cd", kind="scan")]
    found = stats(queue(), queue(), kinds=kinds, workers=team, groups=groups, queue="mail")
    assert [each.name for each in found.queues] == ["mail"]
    assert [each.name for each in found.kinds] == ["send"]
    assert [each.group for each in found.errors] == ["ab"]
    assert [each.id for each in found.workers] == ["a"]
    assert (found.arrival_rate, found.slots) == (2.0, 10)


def test_a_kind_alone_goes_with_the_queues_that_its_jobs_left() -> None:
    kinds = {
        RECORD + "send": record(runs(100, 2.0), left={"mail": 100}),
        RECORD + "scan": record(runs(50, 10.0), left={"files": 50}),
    }
    team = (worker("a", kinds=("scan",)), worker("b"))
    groups = [group("ab"), group("cd", kind="scan")]
    found = stats(queue(), queue(), kinds=kinds, workers=team, groups=groups, kind="scan")
    assert [each.name for each in found.queues] == ["files"]
    assert [each.name for each in found.kinds] == ["scan"]
    assert [each.group for each in found.errors] == ["cd"]
    assert [each.id for each in found.workers] == ["a"]
    assert found.queues[0].slots == 20, "a queue is told of as a whole, with all who serve it"


def test_a_store_that_was_sampled_once_has_no_rate_not_even_none() -> None:
    found = stats()
    assert found.arrival_rate is found.service_rate is None
    assert "30 s after a worker has started" in found.unknown["arrival_rate"]
    assert stats(history=history(None, 0.0)).arrival_rate == 0.0


def test_unknown_figures_are_empty() -> None:
    found = stats(queue(), queue="unknown")
    assert (found.queues, found.kinds, found.errors) == ((), (), ())
    assert found.seconds_to_empty == 0.0
