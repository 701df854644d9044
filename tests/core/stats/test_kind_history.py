"""The store's own record knows how long jobs of a kind took within the last hour, and no more."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

from windlass.core.metrics.exposition import NAMES, OTHER
from windlass.core.metrics.histogram import bucket_of
from windlass.core.records import Json
from windlass.core.stats.kind_history import (
    ERRORS,
    KEPT,
    NewError,
    Window,
    error_line,
    is_forgotten,
    percentiles,
    read_stats,
    recorded,
)

NOW = datetime(2030, 1, 1, 12, 1, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


def runs(*seconds: float) -> Window:
    buckets: dict[int, int] = {}
    for each in seconds:
        buckets[bucket_of(each)] = buckets.get(bucket_of(each), 0) + 1
    flat = [part for pair in sorted(buckets.items()) for part in pair]
    return Window(completed=len(seconds), durations=flat)


def test_counts_of_workers_within_minutes_form_one_window() -> None:
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


def test_an_unreadable_record_is_started_again() -> None:
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


def failed(**errors: int) -> Window:
    return Window(failed=sum(errors.values()), errors=errors)


def told(**lines: str) -> dict[str, NewError]:
    return {name: NewError(line=line) for name, line in lines.items()}


def test_an_error_was_seen_when_it_came_and_not_when_it_was_recorded() -> None:
    """Prevents: an error that came once, with a last time that is later than its first."""
    once = {"ab": NewError(line="Error: one", first_ago=12, last_ago=12)}
    seen = read_stats(record := recorded(None, failed(ab=1), {}, NOW, once)).errors["ab"]
    assert seen.first == seen.last == NOW.timestamp() - 12
    late = {"ab": NewError(line="Error: one", first_ago=30, last_ago=20)}
    seen = read_stats(recorded(record, failed(ab=2), {}, NOW, late)).errors["ab"]
    assert (seen.first, seen.last) == (NOW.timestamp() - 30, NOW.timestamp() - 12)


def test_errors_are_counted_in_the_window_in_which_they_came() -> None:
    record = recorded(None, failed(ab=2), {}, NOW, told(ab="Error: one"))
    record = recorded(record, failed(ab=1, cd=1), {}, NOW, told(ab="Error: two", cd="Error: 3"))
    record = recorded(record, failed(ab=5), {}, NOW + 10 * MINUTE, told(ab="Error: last"))
    stats = read_stats(record)
    assert [window.errors for window in stats.slots(NOW + 10 * MINUTE)[-3:]] == [
        {"ab": 3, "cd": 1},
        {},
        {"ab": 5},
    ]
    seen = stats.errors["ab"]
    assert seen.error == "Error: last"
    assert seen.last - seen.first == 600.0


def test_errors_beyond_a_bound_are_counted_together_also_those_of_one_worker() -> None:
    many = {f"{number:02}": 2 for number in range(50)}
    record = recorded(None, failed(**many), {}, NOW, told(**dict.fromkeys(many, "Error: x" * 100)))
    (window,) = read_stats(record).windows
    assert len(window.errors) == ERRORS + 1
    assert window.errors[OTHER] == 100 - 2 * ERRORS
    assert sum(window.errors.values()) == 100
    assert len(read_stats(record).errors) == ERRORS, "what is not told apart has no line"


def test_the_record_of_a_kind_stays_small_whatever_fails() -> None:
    record: Json | None = None
    for minute in range(0, 180, 5):
        names = {f"{minute}-{number}": 1 for number in range(40)}
        lines = told(**dict.fromkeys(names, "Error: " * 99))
        record = recorded(record, failed(**names), {}, NOW + minute * MINUTE, lines)
    assert len(json.dumps(record)) < 20_000
    assert all(len(each.error) <= 160 for each in read_stats(record).errors.values())


def test_an_error_that_is_in_no_window_any_more_is_forgotten() -> None:
    record = recorded(None, failed(ab=1), {}, NOW, told(ab="Error: one"))
    record = recorded(record, failed(cd=1), {}, NOW + 70 * MINUTE, told(cd="Error: two"))
    assert set(read_stats(record).errors) == {"cd"}


def test_a_record_of_a_release_that_counted_no_errors_is_gone_on_with() -> None:
    old = recorded(None, runs(1), {"mail": 1}, NOW)
    del old["errors"]
    for window in old["windows"]:
        del window["errors"]
    record = recorded(old, failed(ab=1), {}, NOW, told(ab="Error: one"))
    (window,) = read_stats(record).windows
    assert (window.runs, window.errors) == (1, {"ab": 1})


def test_an_error_is_a_line() -> None:
    assert error_line("ValueError: one\n  two\tthree ") == "ValueError: one two three"
