"""Figures of kinds and of errors."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest

from tests.core.stats.recorded import NOW, SECOND, queue, record, runs, stats, worker, young
from windlass.core.jobs.job import ErrorInfo
from windlass.core.jobs.queries import ErrorGroup
from windlass.core.payloads.redaction import Redaction
from windlass.core.records import Json
from windlass.core.stats.kind_history import RECORD, NewError, Window, recorded
from windlass.core.stats.sample_history import read_history

MINUTE = timedelta(minutes=1)


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
