"""Owns how people write time: "30s", "1h30m", 90, a timedelta, or an aware datetime."""

from __future__ import annotations

import re
from datetime import datetime, timedelta

Duration = timedelta | str | int | float
When = timedelta | datetime
"""A time by the store's clock: so long from now, or at that instant."""

_UNITS = {
    "us": timedelta(microseconds=1),
    "ms": timedelta(milliseconds=1),
    "s": timedelta(seconds=1),
    "m": timedelta(minutes=1),
    "h": timedelta(hours=1),
    "d": timedelta(days=1),
    "w": timedelta(weeks=1),
}
_PART = re.compile(r"(\d+(?:\.\d+)?)\s*(us|ms|s|m|h|d|w)", re.ASCII)
_WHOLE = re.compile(rf"\s*(?:{_PART.pattern}\s*)+", re.ASCII)
_LONGEST = timedelta(days=36525)


def duration(value: Duration) -> timedelta:
    """Read a duration; a bare number is in seconds.

    Raises:
        ValueError: it is negative, above a hundred years, or not a duration.
    """
    span = _read(value)
    if not timedelta(0) <= span <= _LONGEST:
        raise ValueError(f"a duration is between 0 and 100 years, and {value!r} is not")
    return span


def when(value: Duration | datetime) -> When:
    """Read a time that is either relative (a duration) or absolute (an aware datetime).

    Raises:
        ValueError: it is a naive datetime, or not a duration.
    """
    if not isinstance(value, datetime):
        return duration(value)
    if value.utcoffset() is None:
        raise ValueError(f"{value!r} has no time zone; write datetime(..., tzinfo=UTC)")
    return value


def resolve(moment: When, now: datetime) -> datetime:
    """Turn a relative or absolute time into an absolute one by the given clock."""
    return now + moment if isinstance(moment, timedelta) else moment


def human(span: timedelta) -> str:
    """Write a duration as people do: `1h30m`, `2.5s`, `40ms`."""
    if span < timedelta(seconds=1):
        return f"{span / timedelta(milliseconds=1):g}ms" if span else "0s"
    span = timedelta(milliseconds=round(span / timedelta(milliseconds=1)))
    parts = []
    for unit in ("d", "h", "m"):
        count, span = divmod(span, _UNITS[unit])
        if count:
            parts.append(f"{count}{unit}")
    if span:
        parts.append(f"{span.total_seconds():g}s")
    return "".join(parts)


def _read(value: Duration) -> timedelta:
    if isinstance(value, timedelta):
        return value
    if isinstance(value, str):
        if not _WHOLE.fullmatch(value):
            raise ValueError(f"{value!r} is not a duration; write it like '30s', '5m' or '1h30m'")
        parts = _PART.findall(value)
    else:
        parts = [(value, "s")]
    try:
        return sum((float(count) * _UNITS[unit] for count, unit in parts), timedelta(0))
    except OverflowError:
        raise ValueError(f"a duration is between 0 and 100 years, and {value!r} is not") from None
