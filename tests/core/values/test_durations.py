"""The laws of written time: what reads as a duration, what does not, and how one is shown."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta, tzinfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass.core.values.durations import (
    Duration,
    backoff_seconds,
    brief,
    duration,
    human,
    resolve,
    when,
)

NOW = datetime(2026, 1, 1, tzinfo=UTC)
HUNDRED_YEARS = timedelta(days=36525)
spans = st.timedeltas(min_value=timedelta(0), max_value=HUNDRED_YEARS)


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("30s", timedelta(seconds=30)),
        ("5m", timedelta(minutes=5)),
        ("1h30m", timedelta(hours=1, minutes=30)),
        ("1h 30m", timedelta(hours=1, minutes=30)),
        (" 5 m ", timedelta(minutes=5)),
        ("1.5h", timedelta(minutes=90)),
        ("250ms", timedelta(milliseconds=250)),
        ("100us", timedelta(microseconds=100)),
        ("2d", timedelta(days=2)),
        ("1w", timedelta(weeks=1)),
        ("0s", timedelta(0)),
        (0, timedelta(0)),
        (90, timedelta(seconds=90)),
        (0.5, timedelta(milliseconds=500)),
        (timedelta(hours=1), timedelta(hours=1)),
        ("36525d", HUNDRED_YEARS),
    ],
)
def test_a_duration_reads_as_people_write_it(written: Duration, meant: timedelta) -> None:
    assert duration(written) == meant


@pytest.mark.parametrize(
    "written",
    [
        "",
        " ",
        "5",
        "s",
        ".5s",
        "-5s",
        "1e3s",
        "1m30",
        "5 parsecs",
        "nan",
        "\u0661s",  # an Arabic digit: \d without re.ASCII would take it
        "1h\x00",
        "5M",
        "36526d",
        "9" * 50 + "w",
        "9" * 400 + "d",
        -1,
        -0.001,
        math.nan,
        math.inf,
        -math.inf,
        1e300,
        10**400,
        timedelta(microseconds=-1),
        timedelta.max,
        timedelta.min,
    ],
    ids=lambda written: repr(written)[:20],
)
def test_an_invalid_duration_is_a_value_error(written: Duration) -> None:
    with pytest.raises(ValueError):
        duration(written)


def test_a_long_hostile_text_is_refused_in_linear_time() -> None:
    with pytest.raises(ValueError):
        duration("1s " * 100_000 + "x")


@given(st.text())
def test_any_text_is_a_duration_or_a_value_error(text: str) -> None:
    try:
        span = duration(text)
    except ValueError:
        return
    assert timedelta(0) <= span <= HUNDRED_YEARS


@given(st.integers() | st.floats())
def test_any_number_is_a_duration_or_a_value_error(number: float) -> None:
    try:
        span = duration(number)
    except ValueError:
        return
    assert span == timedelta(seconds=number)


@given(spans)
def test_a_formatted_duration_parses_back_to_the_millisecond(span: timedelta) -> None:
    assert abs(duration(human(span)) - span) <= timedelta(milliseconds=0.5)


@pytest.mark.parametrize(
    ("span", "shown"),
    [
        (timedelta(0), "0s"),
        (timedelta(microseconds=1), "0.001ms"),
        (timedelta(milliseconds=40), "40ms"),
        (timedelta(seconds=2.5), "2.5s"),
        (timedelta(seconds=60), "1m"),
        (timedelta(hours=1, minutes=30), "1h30m"),
        (timedelta(days=14, hours=6, minutes=56, seconds=7.891), "14d6h56m7.891s"),
    ],
)
def test_a_duration_is_shown_as_people_write_it(span: timedelta, shown: str) -> None:
    assert human(span) == shown


def test_the_longest_span_there_is_can_be_shown() -> None:
    """Prevents: a job from elsewhere, with a timeout without end, that nobody can look at."""
    assert human(timedelta.max) == "999999999d"


def test_a_time_without_a_zone_is_refused() -> None:
    with pytest.raises(ValueError, match="time zone"):
        when(datetime(2026, 1, 1))  # noqa: DTZ001 - that is the point


class Nowhere(tzinfo):
    """A zone that does not know its offset, so that a time in it is naive after all."""

    def utcoffset(self, moment: datetime | None, /) -> timedelta | None:
        return None

    dst = utcoffset

    def tzname(self, moment: datetime | None, /) -> str | None:
        return None


def test_a_time_whose_zone_has_no_offset_is_refused() -> None:
    """Such a time cannot be compared with the store's, so it would break every later look at it."""
    with pytest.raises(ValueError, match="time zone"):
        when(datetime(2026, 1, 1, tzinfo=Nowhere()))


@given(spans)
def test_a_relative_time_counts_from_the_clock_that_is_given(span: timedelta) -> None:
    assert when(span) == span
    assert resolve(when(span), NOW) == NOW + span


@given(st.datetimes(timezones=st.just(UTC)))
def test_an_absolute_time_ignores_the_clock(moment: datetime) -> None:
    assert when(moment) == moment
    assert resolve(when(moment), NOW) == moment


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0ms"),
        (-5, "0ms"),
        (0.35, "350ms"),
        (1, "1s"),
        (12.54, "12.5s"),
        (192, "3m12s"),
        (3600, "1h00m"),
        (7502, "2h05m"),
        (187_200, "2d4h"),
    ],
)
def test_a_duration_is_written_in_its_two_greatest_units(seconds: float, text: str) -> None:
    assert brief(timedelta(seconds=seconds)) == text


@given(failures=st.integers(1, 10_000), jitter=st.floats(0, 1, exclude_max=True))
def test_a_backoff_doubles_up_to_its_longest_and_jitter_picks_from_the_upper_half(
    failures: int, jitter: float
) -> None:
    wait = min(0.2 * 2 ** min(failures - 1, 50), 30.0)
    assert wait / 2 <= backoff_seconds(failures, jitter, first=0.2, longest=30.0) <= wait
