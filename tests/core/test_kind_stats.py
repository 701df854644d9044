"""The store's own record knows how long jobs of a kind took within the last hour, and no more."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from windlass.core.job import Json
from windlass.core.kind_stats import (
    KEPT,
    Window,
    is_forgotten,
    percentiles,
    read_stats,
    recorded,
)
from windlass.core.latency import bucket_of
from windlass.core.metrics import NAMES, OTHER

NOW = datetime(2030, 1, 1, 12, 1, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


def runs(*seconds: float) -> Window:
    buckets: dict[int, int] = {}
    for each in seconds:
        buckets[bucket_of(each)] = buckets.get(bucket_of(each), 0) + 1
    flat = [part for pair in sorted(buckets.items()) for part in pair]
    return Window(completed=len(seconds), durations=flat)


def test_what_workers_add_within_minutes_is_one_window() -> None:
    record = recorded(None, runs(1, 1), {"mail": 2}, NOW)
    record = recorded(record, runs(5), {"mail": 1, "default": 4}, NOW + MINUTE)
    stats = read_stats(record)
    assert len(stats.windows) == 1
    assert stats.lately(NOW + MINUTE).completed == 3
    assert stats.left == {"mail": 3, "default": 4}


def test_percentiles_are_of_the_last_hour() -> None:
    record = recorded(None, runs(*[100.0] * 50), {}, NOW)
    record = recorded(record, runs(*[1.0] * 99, 10.0), {}, NOW + 50 * MINUTE)
    soon = read_stats(record).lately(NOW + 55 * MINUTE)
    assert soon.runs == 150
    later = read_stats(record).lately(NOW + 66 * MINUTE)
    assert percentiles(later.durations) == {"p50": 1.0, "p95": 1.0, "p99": 1.0}


def test_a_record_does_not_grow_for_ever() -> None:
    record: Json | None = None
    for minute in range(0, 600, 3):
        record = recorded(record, runs(1), {}, NOW + minute * MINUTE)
    assert len(read_stats(record).windows) <= 14


def test_a_record_that_nobody_can_read_is_begun_anew() -> None:
    record = recorded({"windows": "none", "left": 7}, runs(1), {"mail": 1}, NOW)
    assert read_stats(record).lately(NOW).runs == 1


def test_a_clock_that_was_set_back_leaves_nothing_of_the_future() -> None:
    record = recorded(None, runs(9), {}, NOW + timedelta(days=2))
    assert read_stats(recorded(record, runs(1), {}, NOW)).lately(NOW).runs == 1


def test_a_kind_of_which_nothing_was_heard_for_a_day_is_forgotten() -> None:
    record = recorded(None, runs(1), {}, NOW)
    assert not is_forgotten(record, NOW + KEPT)
    assert is_forgotten(record, NOW + KEPT + MINUTE)


def test_no_runs_have_no_percentiles() -> None:
    assert percentiles([]) == {}


def test_queues_beyond_a_bound_are_counted_together_and_the_others_keep_their_names() -> None:
    record = recorded(None, runs(1), {"mail": 5}, NOW)
    for day in range(5):
        tenants = {f"tenant-{day}-{number}": 1 for number in range(100)}
        record = recorded(record, runs(1), tenants, NOW)
        record["left"] = dict(sorted(record["left"].items()))  # A store may keep another order.
    names = set(record["left"])
    record = recorded(record, runs(1), {"mail": 1, "new": 2}, NOW)
    left = read_stats(record).left
    assert len(left) == NAMES + 1
    assert set(left) == names
    assert left["mail"] == 6
    assert left[OTHER] == 500 - (NAMES - 1) + 2
    assert sum(left.values()) == 5 + 500 + 3
