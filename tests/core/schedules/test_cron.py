"""When schedules tick: by intervals and cron lines, where clocks are set forward and back."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import cache
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from windlass import ConfigError
from windlass.core.schedules.cron import COUNTED, Cadence, cadence

MINUTE, HOUR, DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)
NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)
BERLIN, NEW_YORK, LORD_HOWE, KATHMANDU = (
    "Europe/Berlin",
    "America/New_York",
    "Australia/Lord_Howe",
    "Asia/Kathmandu",
)


def cron(line: str, tz: str = "UTC") -> Cadence:
    return cadence(every=None, cron=line, tz=tz)


def between(line: str, tz: str, begin: str, end: str) -> list[datetime]:
    """Return the ticks between two local times, each found from the one before."""
    moment, last = (
        datetime.fromisoformat(each).replace(tzinfo=ZoneInfo(tz)).astimezone(UTC)
        for each in (begin, end)
    )
    made, found = cron(line, tz), []
    while (tick := made.following(moment)) is not None and tick < last:
        found.append(tick)
        moment = tick
    return found


def ticks(line: str, tz: str, begin: str, end: str) -> list[str]:
    """Return the ticks between two local times, as the clock on the wall shows them."""
    found = between(line, tz, begin, end)
    return [tick.astimezone(ZoneInfo(tz)).strftime("%d %H:%M%z") for tick in found]


# -- where clocks change ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "tz", "begin", "end", "shown"),
    [
        # The 29th of March has no 02:00-03:00 in Berlin: a fixed time ticks right after the gap.
        ("30 2 * * *", BERLIN, "2026-03-28T12", "2026-03-31", ["29 03:00+0200", "30 02:30+0200"]),
        ("0,30 2 * * *", BERLIN, "2026-03-29", "2026-03-30", ["29 03:00+0200"]),
        ("30 3 * * *", BERLIN, "2026-03-29", "2026-03-30", ["29 03:30+0200"]),
        # The 25th of October has 02:00-03:00 twice: a fixed time ticks the first time.
        ("30 2 * * *", BERLIN, "2026-10-25", "2026-10-27", ["25 02:30+0200", "26 02:30+0100"]),
        ("0 3 * * *", BERLIN, "2026-10-25", "2026-10-26", ["25 03:00+0100"]),
        # New York: the 8th of March, the 1st of November.
        ("15 2 * * *", NEW_YORK, "2026-03-07T12", "2026-03-10", ["08 03:00-0400", "09 02:15-0400"]),
        ("15 1 * * *", NEW_YORK, "2026-11-01", "2026-11-03", ["01 01:15-0400", "02 01:15-0500"]),
        # Lord Howe moves by half an hour: the 4th of October, the 5th of April.
        ("15 2 * * *", LORD_HOWE, "2026-10-04", "2026-10-06", ["04 02:30+1100", "05 02:15+1100"]),
        ("45 2 * * *", LORD_HOWE, "2026-10-04", "2026-10-05", ["04 02:45+1100"]),
        ("45 1 * * *", LORD_HOWE, "2026-04-05", "2026-04-07", ["05 01:45+1100", "06 01:45+1030"]),
        ("0,15,45 1,2 * * *", LORD_HOWE, "2026-10-04", "2026-10-05",
         ["04 01:00+1030", "04 01:15+1030", "04 01:45+1030", "04 02:30+1100", "04 02:45+1100"]),
        ("0,45 1,2 * * *", LORD_HOWE, "2026-04-05", "2026-04-06",
         ["05 01:00+1100", "05 01:45+1100", "05 02:00+1030", "05 02:45+1030"]),
        # Kathmandu is never changed, and is not at a whole hour from UTC.
        ("0 7 * * *", KATHMANDU, "2026-03-29", "2026-03-31", ["29 07:00+0545", "30 07:00+0545"]),
    ],
)  # fmt: skip
def test_a_fixed_local_time_ticks_once_a_day(
    line: str, tz: str, begin: str, end: str, shown: list[str]
) -> None:
    assert ticks(line, tz, begin, end) == shown
    found = between(line, tz, begin, end)
    assert cron(line, tz).due(found[0], found[-1], 100) == (found, 0)


@pytest.mark.parametrize(
    ("line", "tz", "begin", "end", "shown"),
    [
        ("0 * * * *", BERLIN, "2026-03-29T00:30", "2026-03-29T04:30",
         ["29 01:00+0100", "29 03:00+0200", "29 04:00+0200"]),
        ("0 * * * *", BERLIN, "2026-10-25T00:30", "2026-10-25T03:30",
         ["25 01:00+0200", "25 02:00+0200", "25 02:00+0100", "25 03:00+0100"]),
        ("*/30 1 * * *", NEW_YORK, "2026-11-01", "2026-11-02",
         ["01 01:00-0400", "01 01:30-0400", "01 01:00-0500", "01 01:30-0500"]),
        ("*/30 2 * * *", NEW_YORK, "2026-03-08", "2026-03-09", []),
        ("*/20 * * * *", LORD_HOWE, "2026-04-05T01:10", "2026-04-05T02:10",
         ["05 01:20+1100", "05 01:40+1100", "05 01:40+1030", "05 02:00+1030"]),
        ("*/20 * * * *", LORD_HOWE, "2026-10-04T01:30", "2026-10-04T02:50",
         ["04 01:40+1030", "04 02:40+1100"]),
    ],
)  # fmt: skip
def test_a_cron_line_with_a_star_ticks_whenever_the_clock_matches(
    line: str, tz: str, begin: str, end: str, shown: list[str]
) -> None:
    assert ticks(line, tz, begin, end) == shown


@pytest.mark.parametrize("line", [
    "10 */2 * * *", "*/30 2 * * *", "* 2 * * *", "* 1 * * *", "35 * * * *", "0 * * * *",
    "*/7 0-3 * * *", "50 */1 * * SUN", "* * 5 4 *", "*/10 23 * * SAT", "*/20 0 * * SUN",
])  # fmt: skip
@pytest.mark.parametrize(("tz", "day"), [
    (LORD_HOWE, "2026-04-05"), (LORD_HOWE, "2026-10-04"), (BERLIN, "2026-03-29"),
    (BERLIN, "2026-10-25"), ("America/Havana", "2026-03-08"), ("America/Santiago", "2026-04-05"),
    ("America/Santiago", "2026-09-06"),
])  # fmt: skip
def test_a_line_with_a_star_ticks_at_every_such_minute_there_and_back(
    line: str, tz: str, day: str
) -> None:
    """Prevents steps of an hour from passing over ticks where a clock is set by half of one."""
    made, noon = cron(line, tz), datetime.fromisoformat(day + "T12:00").replace(tzinfo=UTC)
    begin = noon - 48 * HOUR
    shown = [each for each, wall in _walls(tz, begin) if _shows(wall, line)]
    forward, moment = [], begin
    while (tick := made.following(moment)) is not None and tick < begin + 72 * HOUR:
        forward.append(moment := tick)
    assert forward == shown
    if shown:
        assert made.due(shown[0], begin + 72 * HOUR - MINUTE, 5_000) == (shown, 0)
    for moment in (begin + number * 17 * MINUTE for number in range(200)):
        later = next((each for each in shown if each > moment), None)
        assert later is None or made.following(moment) == later


@cache
def _walls(tz: str, begin: datetime) -> list[tuple[datetime, datetime]]:
    """Return every minute of three days, and what a clock on the wall shows then."""
    minutes = [begin + number * MINUTE for number in range(1, 72 * 60)]
    return [(each, each.astimezone(ZoneInfo(tz))) for each in minutes]


def _shows(wall: datetime, line: str) -> bool:
    """Say whether a clock on the wall shows a time of a line, read in the simplest way."""
    minute, hour, day, month, weekday = line.split()
    numbers = ((minute, wall.minute), (hour, wall.hour), (day, wall.day), (month, wall.month))
    is_day = weekday == "*" or weekday == wall.strftime("%a").upper()
    return is_day and all(_is_in(number, field) for field, number in numbers)


def _is_in(number: int, field: str) -> bool:
    span, _, step = field.partition("/")
    low, _, high = span.partition("-")
    return (span == "*" and number % int(step or 1) == 0) or (
        span != "*" and int(low) <= number <= int(high or low)
    )


@pytest.mark.parametrize("tz", [BERLIN, NEW_YORK, LORD_HOWE, KATHMANDU])
def test_a_daily_schedule_has_as_many_ticks_as_a_year_has_days(tz: str) -> None:
    """Whatever the clocks do, and whenever it is that they do it."""
    for minutes in (0, 75, 105, 120, 135, 150, 165, 180):
        hour, minute = divmod(minutes, 60)
        found = between(f"{minute} {hour} * * *", tz, "2026-01-01", "2027-01-01")
        # Midnight itself belongs to the beginning, after which the count starts.
        assert len(found) == (365 if minutes else 364), (hour, minute)


def test_an_interval_does_not_mind_clocks() -> None:
    made = cadence(every="1h", cron=None, tz=None)
    tick = datetime(2026, 3, 29, 0, 30, tzinfo=UTC)
    assert made.following(tick) == tick + HOUR


LINES = ["30 2 * * *", "0,30 1,2,3 * * *", "*/20 * * * *", "5 * * * *", "0 7 * * MON-FRI",
         "0 0 1 * *", "45 1 * * *", "*/15 2 * * *"]  # fmt: skip


@settings(max_examples=150, deadline=None)
@given(
    line=st.sampled_from(LINES),
    tz=st.sampled_from([BERLIN, NEW_YORK, LORD_HOWE, KATHMANDU, "UTC"]),
    begin=st.integers(0, 360 * 24 * 60),
    hours=st.integers(0, 60),
    most=st.integers(1, 5),
)
def test_due_ticks_are_those_that_a_running_worker_would_have_made(
    line: str, tz: str, begin: int, hours: int, most: int
) -> None:
    """Looking back from now finds the same ticks as going forward one by one."""
    made, start = cron(line, tz), datetime(2026, 1, 1, tzinfo=UTC) + begin * MINUTE
    now = start + hours * HOUR
    tick = made.following(start)
    assert tick is not None
    forward = []
    each: datetime | None = tick
    while each is not None and each <= now:
        forward.append(each)
        each = made.following(each)
    latest, older = made.due(tick, now, most)
    assert latest == forward[-most:]
    assert older == max(len(forward) - most, 0)


@pytest.mark.parametrize(
    ("tz", "line", "before", "now", "tick"),
    [
        (BERLIN, "30 2 * * *", "2026-10-24T00:30", "2026-10-25T01:15", "2026-10-25T00:30"),
        (NEW_YORK, "30 1 * * *", "2026-10-31T05:30", "2026-11-01T06:15", "2026-11-01T05:30"),
        (LORD_HOWE, "45 1 * * *", "2026-04-03T14:45", "2026-04-04T15:05", "2026-04-04T14:45"),
    ],
)
def test_a_tick_in_the_first_of_two_equal_hours_is_found_from_the_second(
    tz: str, line: str, before: str, now: str, tick: str
) -> None:
    """Prevents a tick from being lost, since the clock seems to show that it comes yet."""
    first, moment, latest = (
        datetime.fromisoformat(each).replace(tzinfo=UTC) for each in (before, now, tick)
    )
    assert cron(line, tz).due(first, moment, 1) == ([latest], 1)
    assert cron(line, tz).due(first, moment, 5) == ([first, latest], 0)


@settings(max_examples=100, deadline=None)
@given(
    line=st.sampled_from(LINES),
    tz=st.sampled_from([BERLIN, NEW_YORK, LORD_HOWE]),
    around=st.sampled_from(["2026-03-29T01", "2026-10-25T01", "2026-03-08T07", "2026-11-01T06",
                            "2026-04-04T15", "2026-10-03T15:30"]),
    minutes=st.integers(-180, 180),
)  # fmt: skip
def test_the_next_tick_is_after_now_where_a_clock_is_changed(
    line: str, tz: str, around: str, minutes: int
) -> None:
    """Prevents a schedule that is put in a repeated hour from ticking in the past, or for ever."""
    now = datetime.fromisoformat(around).replace(tzinfo=UTC) + minutes * MINUTE
    tick = cron(line, tz).following(now)
    assert tick is not None
    assert tick > now


# -- intervals -------------------------------------------------------------------------------------


def test_an_interval_ends_with_the_calendar() -> None:
    """Prevents: `windlass schedules next` shows a traceback."""
    century = Cadence(every=timedelta(days=36_500))
    ticks = [datetime(9_700, 1, 1, tzinfo=UTC)]
    while (tick := century.following(ticks[-1])) is not None:
        ticks.append(tick)
    assert [tick.year for tick in ticks] == [9_700, 9_799, 9_899, 9_999]
    assert century.resumed(ticks[-1], datetime(9_999, 12, 30, tzinfo=UTC)) is None


def test_an_interval_begins_one_interval_from_now_and_keeps_its_pace() -> None:
    made = cadence(every="90s", cron=None, tz=None)
    first = made.first(NOON.replace(microsecond=7))
    assert first == NOON + timedelta(seconds=90)
    assert first is not None
    assert made.due(first, first + timedelta(seconds=200), 10) == (
        [first, first + timedelta(seconds=90), first + timedelta(seconds=180)],
        0,
    )
    assert made.due(first, first - MINUTE, 10) == ([], 0)
    assert made.resumed(first, first + timedelta(seconds=200)) == first + timedelta(seconds=270)
    assert made.resumed(first, NOON) == first


def test_a_year_of_missed_ticks_is_counted_up_to_a_bound() -> None:
    """Prevents minutes of counting under a lock, after a schedule lay still for long."""
    minutely = cron("* * * * *", BERLIN)
    latest, older = minutely.due(NOON, NOON + 365 * DAY, 3)
    assert latest[-1] == NOON + 365 * DAY
    assert (len(latest), older) == (3, COUNTED + 1)
    exact = cadence(every="1s", cron=None, tz=None).due(NOON, NOON + 365 * DAY, 1)
    assert exact == ([NOON + 365 * DAY], 365 * 86_400)


# -- what is refused -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "remedy"),
    [
        ({"cron": "every day"}, "five fields"),
        ({"cron": "0 0 7 * * *"}, 'every="10s"'),
        ({"cron": "61 * * * *"}, "bad minute"),
        ({"cron": "0 25 * * *"}, "bad hour"),
        ({"cron": "0 0 31 2 *"}, "bad day-of-month"),
        ({"cron": "0 7 * * FUNDAY"}, 'like "0 7 * * MON-FRI"'),
        ({"cron": "0 7 MON#1/2 * *"}, "bad day-of-month"),
        ({"cron": "0 7 * * *", "tz": "Europe/Bielefeld"}, "write one like Europe/Berlin"),
        ({"cron": "0 7 * * *", "tz": "../../etc/passwd"}, "is not a known time zone"),
        ({"cron": "0 7 * * *", "tz": "Europe"}, "pip install tzdata"),
        ({"every": "soon"}, "write it like '30s'"),
        ({"every": "10ms"}, "at least 1s"),
        ({"every": 0}, "at least 1s"),
        ({"every": "-1s"}, "must be an interval"),
        ({"every": "1m", "tz": BERLIN}, "needs cron=; an interval has no time zone"),
        ({"every": "1m", "cron": "* * * * *"}, "needs either every= or cron="),
        ({}, "needs either every= or cron="),
    ],
)
def test_rubbish_is_refused_with_the_remedy(given: dict[str, str], remedy: str) -> None:
    with pytest.raises(ConfigError) as refused:
        cadence(**{"every": None, "cron": None, "tz": None} | given)
    assert remedy in str(refused.value)


def test_a_line_is_shown_as_it_was_meant() -> None:
    assert str(cron("0  7 * *   1")) == "0 7 * * 1"
    assert str(cadence(every=5400, cron=None, tz=None)) == "every 1h30m"


@pytest.mark.parametrize(
    ("nickname", "line"),
    [("@daily", "0 0 * * *"), ("@Hourly ", "0 * * * *"), ("@weekly", "0 0 * * 0"),
     ("@monthly", "0 0 1 * *"), ("@yearly", "0 0 1 1 *"), ("@midnight", "0 0 * * *")],
)  # fmt: skip
def test_a_nickname_is_the_line_that_it_stands_for(nickname: str, line: str) -> None:
    assert cadence(every=None, cron=nickname, tz=None) == cadence(every=None, cron=line, tz=None)


def test_a_nickname_that_is_unknown_is_refused() -> None:
    with pytest.raises(ConfigError, match="cron must be five fields or one of @yearly"):
        cadence(every=None, cron="@reboot", tz=None)
