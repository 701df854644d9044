"""Owns how people write time: "30s", "1h30m", 90, a timedelta, or an aware datetime."""

from __future__ import annotations

import math
import re
from datetime import datetime, timedelta
from typing import Any

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
_SECONDS = re.compile(r"\s*\d{1,12}(\.\d{1,9})?\s*", re.ASCII)
_DATE = re.compile(r"\s*\d{4}-\d", re.ASCII)
_LONGEST = timedelta(days=36525)


def duration(value: Duration, called: str = "a duration") -> timedelta:
    """Read a duration; a bare number is in seconds. Errors name it as it is `called`.

    Raises:
        TypeError: it is neither text, nor a number, nor a timedelta.
        ValueError: it is negative, above a hundred years, or not a duration.
    """
    span = _read(value, called)
    if span < timedelta(0):
        raise ValueError(f"{called} must not be negative, got {value!r}")
    if span > _LONGEST:
        raise ValueError(f"{called} must be at most 100 years, got {value!r}")
    return span


def when(value: Duration | datetime, called: str = "") -> When:
    """Read a time that is either relative (a duration) or absolute (an aware datetime).

    Raises:
        TypeError: it is neither.
        ValueError: it is a naive datetime, or not a duration.
    """
    if isinstance(value, datetime):
        return instant(value, called or "a time")
    if isinstance(value, str) and _DATE.match(value):
        raise ValueError(
            f"{called or 'a time'} must be a duration or a datetime, got the text {value!r}; "
            f"write datetime.fromisoformat({value!r}), with a time zone"
        )
    return duration(value, called or "a duration")


def instant(value: datetime, called: str = "a time") -> datetime:
    """Check a time that is absolute.

    Raises:
        TypeError: it is no datetime.
        ValueError: it has no time zone.
    """
    if not isinstance(value, datetime):
        raise TypeError(
            f"{called} must be a datetime with a time zone, got {value!r}; write datetime(2030, 1, "
            "31, 9, tzinfo=UTC), or delay= for a duration"
        )
    if value.utcoffset() is None:
        raise ValueError(
            f"{called} must have a time zone, got {value!r}; write datetime(..., tzinfo=UTC)"
        )
    return value


def retry_after(value: Duration | datetime) -> When:
    """Read when to try again, also as HTTP's `Retry-After` says it: "120", or a date.

    Raises:
        ValueError: it is neither a time nor a duration.
    """
    if not isinstance(value, str):
        return when(value)
    try:
        if _SECONDS.fullmatch(value):
            return duration(float(value))
        if "," not in value:
            return when(value)
        # Imported here: it is slow to load, and rarely needed.
        from email.utils import parsedate_to_datetime

        return when(parsedate_to_datetime(value))
    except (TypeError, ValueError):
        raise ValueError(
            "RetryAfter must be given a duration, a number of seconds or an HTTP date, got "
            f"{value!r}; write it like '30s', '120' or 'Wed, 21 Oct 2026 07:28:00 GMT'"
        ) from None


def resolve(moment: When, now: datetime) -> datetime:
    """Turn a relative or absolute time into an absolute one by the given clock."""
    return now + moment if isinstance(moment, timedelta) else moment


def backoff_seconds(failures: int, jitter: float, *, first: float, longest: float) -> float:
    """Return the wait after the n-th failure in a row, twice as long each time.

    `jitter` in [0, 1) picks from its upper half.
    """
    wait: float = min(first * 2 ** min(failures - 1, 30), longest)
    return wait * (0.5 + jitter / 2)


def human(span: timedelta) -> str:
    """Write a duration as people do: `1h30m`, `2.5s`, `40ms`."""
    if span < timedelta(seconds=1):
        return f"{span / timedelta(milliseconds=1):g}ms" if span else "0s"
    # Bounded: other writers may store the longest timedelta, and rounding up would overflow.
    span = min(span, timedelta(days=999_999_999))
    span = timedelta(milliseconds=round(span / timedelta(milliseconds=1)))
    parts = []
    for unit in ("d", "h", "m"):
        count, span = divmod(span, _UNITS[unit])
        if count:
            parts.append(f"{count}{unit}")
    if span:
        parts.append(f"{span.total_seconds():g}s")
    return "".join(parts)


def brief(span: timedelta) -> str:
    """Write a duration by its two greatest units: `0.4ms`, `350ms`, `12.5s`, `3m12s`, `2d4h`."""
    seconds = max(span.total_seconds(), 0)
    if seconds < 1:
        places = 1 if seconds < 0.01 else 0
        return f"{seconds * 1000:.{places}f}".removesuffix(".0") + "ms"
    if seconds < 60:
        return f"{seconds:.1f}".removesuffix(".0") + "s"
    minutes, hours, days = int(seconds // 60), int(seconds // 3600), int(seconds // 86400)
    if hours == 0:
        return f"{minutes}m{int(seconds) % 60:02}s"
    return f"{hours}h{minutes % 60:02}m" if days == 0 else f"{days}d{hours % 24}h"


def ago(moment: datetime | None, now: datetime) -> str:
    """Write how long ago, or in how long, an instant is."""
    if moment is None:
        return ""
    return f"{brief(now - moment)} ago" if moment <= now else f"in {brief(moment - now)}"


def _read(value: Any, called: str) -> timedelta:
    if isinstance(value, timedelta):
        return value
    if isinstance(value, str):
        if not _WHOLE.fullmatch(value):
            if value.startswith("-") and _WHOLE.fullmatch(value[1:]):
                raise ValueError(f"{called} must not be negative, got {value!r}")
            raise ValueError(
                f"{called} must be a number and a unit, got {value!r}; write it like '30s', "
                "'5m' or '1h30m'"
            )
        parts = _PART.findall(value)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        parts = [(value, "s")]
    else:
        raise TypeError(
            f"{called} must be text like '30s', a number of seconds or a timedelta, got {value!r}"
        )
    if isinstance(value, float) and math.isnan(value):
        raise ValueError(f"{called} must be a number of seconds, got nan")
    try:
        return sum((float(count) * _UNITS[unit] for count, unit in parts), timedelta(0))
    except OverflowError:
        is_negative = isinstance(value, int | float) and value < 0
        condition = "not be negative" if is_negative else "be at most 100 years"
        raise ValueError(f"{called} must {condition}, got {value!r}") from None
