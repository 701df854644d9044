"""Owns how a search says when: so long ago, a time of the day, a day, or an instant."""

from __future__ import annotations

import re
from datetime import date, datetime, time, timedelta

from windlass.core.values.durations import duration

Moment = timedelta | time | date | datetime
_CLOCK = re.compile(r"\d{1,2}:\d{2}(:\d{2})?", re.ASCII)
_DAY = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)
_INSTANT = re.compile(r"\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}(:\d{2}(\.\d{1,6})?)?(Z|[+-]\d{2}:\d{2})?")
_DAY_LONG = timedelta(days=1)


def read_moment(text: str) -> Moment:
    """Read a moment.

    Raises:
        ValueError: it is none.
    """
    if _CLOCK.fullmatch(text):
        return time.fromisoformat(text.zfill(len("00:00:00" if text.count(":") > 1 else "00:00")))
    if _DAY.fullmatch(text):
        return date.fromisoformat(text)
    if _INSTANT.fullmatch(text):
        return datetime.fromisoformat(text)
    return duration(text)


def since(moment: Moment, now: datetime) -> datetime:
    """Return the first instant; a time of the day is the last one that has passed.

    What has no time zone is in that of `now`.
    """
    return _instant(moment, now, whole_day=False)


def until(moment: Moment, now: datetime) -> datetime:
    """Return the instant before which it was; a day is included."""
    return _instant(moment, now, whole_day=True)


def _instant(moment: Moment, now: datetime, *, whole_day: bool) -> datetime:
    earliest, latest = datetime.min.replace(tzinfo=now.tzinfo), _latest(now)
    try:
        if isinstance(moment, timedelta):
            return now - moment
        if isinstance(moment, datetime):
            return moment if moment.tzinfo is not None else moment.replace(tzinfo=now.tzinfo)
        if isinstance(moment, date):
            day = datetime.combine(moment, time(), tzinfo=now.tzinfo)
            return day + _DAY_LONG if whole_day else day
        at = datetime.combine(now.date(), moment, tzinfo=now.tzinfo)
        return at if at <= now else at - _DAY_LONG
    except OverflowError:
        return latest if isinstance(moment, date) else earliest


def _latest(now: datetime) -> datetime:
    return datetime.max.replace(tzinfo=now.tzinfo)
