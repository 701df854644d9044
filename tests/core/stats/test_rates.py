"""Rates are means of two minutes, and none is made up where samples are missing."""

from __future__ import annotations

import pytest

from tests.core.stats.recorded import NOW, both_queues, mail, queue, stats
from windlass.core.stats.sample_history import History, Line

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
    found = stats(queue(), queue(), history=past, kinds=both_queues())
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


def test_a_store_that_was_sampled_once_has_no_rate_not_even_none() -> None:
    found = stats()
    assert found.arrival_rate is found.service_rate is None
    assert "30 s after a worker has started" in found.unknown["arrival_rate"]
    assert stats(history=history(None, 0.0)).arrival_rate == 0.0
