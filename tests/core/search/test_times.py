"""A search says when: so long ago, a time of the day, a day, or an instant."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest

from windlass.core.jobs.ids import first_id
from windlass.core.jobs.queries import CLOCKS_DIFFER, JobFilter, filter_of, id_range

BERLIN = timezone(timedelta(hours=1))
NOW = datetime(2026, 3, 1, 12, 0, tzinfo=BERLIN)


@pytest.mark.parametrize(
    ("text", "since", "before"),
    [
        ("since:2h", NOW - timedelta(hours=2), None),
        ("until:30m", None, NOW - timedelta(minutes=30)),
        ("since:9:30", NOW.replace(hour=9, minute=30), None),
        ("since:12:00", NOW, None),
        ("since:12:00:01", NOW - timedelta(days=1) + timedelta(seconds=1), None),
        ("until:23:00", None, datetime(2026, 2, 28, 23, tzinfo=BERLIN)),
        ("since:2026-02-28", datetime(2026, 2, 28, tzinfo=BERLIN), None),
        ("until:2026-02-28", None, datetime(2026, 3, 1, tzinfo=BERLIN)),
        ("since:2026-02-28T09:00", datetime(2026, 2, 28, 9, tzinfo=BERLIN), None),
        ("since:2026-02-28T09:00Z", datetime(2026, 2, 28, 9, tzinfo=UTC), None),
        ('since:"2026-02-28 09:00"', datetime(2026, 2, 28, 9, tzinfo=BERLIN), None),
        ("since:100w until:1d", NOW - timedelta(weeks=100), NOW - timedelta(days=1)),
    ],
)
def test_a_moment_is_what_people_mean(
    text: str, since: datetime | None, before: datetime | None
) -> None:
    which = filter_of({"search": text}, NOW)
    assert which == JobFilter(created_since=since, created_before=before)


def test_a_search_with_a_time_needs_the_time_at_which_it_is_made() -> None:
    with pytest.raises(TypeError, match="now must be given"):
        filter_of({"search": "since:2h"})
    assert filter_of({"search": "kind:a"}) == JobFilter(kind="a")


def test_times_bound_the_ids_that_are_looked_at() -> None:
    which = filter_of({"search": "since:2h until:1h"}, NOW)
    first, last = id_range(which, None)
    assert first == first_id(NOW - timedelta(hours=2) - CLOCKS_DIFFER)
    assert last == first_id(NOW - timedelta(hours=1) + CLOCKS_DIFFER)
    assert id_range(which, None, ids_tell_time=False) == id_range(JobFilter(), None)


@pytest.mark.parametrize("day", ["0001-01-01", "9999-12-31"])
@pytest.mark.parametrize("field", ["since", "until"])
@pytest.mark.parametrize("hours", [-14, 0, 14])
def test_the_ends_of_the_calendar_are_days(field: str, day: str, hours: int) -> None:
    now = NOW.astimezone(timezone(timedelta(hours=hours)))
    for moment in (day, f"{day}T00:00+14:00", f"{day}T23:59:59-14:00"):
        first, last = id_range(filter_of({"search": f"{field}:{moment}"}, now), None)
        excluded = (field, day[0]) in (("since", "9"), ("until", "0"))
        assert (first.int > 2**127) is (excluded and field == "since")
        assert (last.int < 2**100) is (excluded and field == "until")
