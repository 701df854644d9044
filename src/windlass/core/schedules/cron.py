"""Owns the times at which a schedule ticks: a fixed interval, or a cron line in a time zone.

Days of 23 or 25 hours follow cron's own rule, as in Debian's cron. Where a line names both its
minutes and its hours, each intended local time ticks once: one that a clock skips ticks right after
the gap, one that it shows twice ticks the first time. Where the minutes or the hours begin with a
star, it ticks whenever the clock shows such a time.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from itertools import islice, pairwise, takewhile
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError
from msgspec import Struct

from windlass.core.errors import ConfigError
from windlass.core.values.durations import Duration, duration, human

SHORTEST = timedelta(seconds=1)
COUNTED = 1_000
"""How many missed ticks are counted at a time: after a year there would be too many."""
_LONGEST_REPEAT = timedelta(hours=3)
"""No clock that is set back repeats more time than this."""
_SOMETIME = datetime(2024, 1, 1, tzinfo=UTC)


class Cadence(Struct, frozen=True, kw_only=True):
    """An interval (`every`), or else a `cron` line with its time zone."""

    every: timedelta | None = None
    cron: str = ""
    tz: str = "UTC"

    def __str__(self) -> str:
        return self.cron if self.every is None else f"every {human(self.every)}"

    def first(self, now: datetime) -> datetime | None:
        """Return the first tick of a schedule that begins now; None if there is none."""
        if self.every is None:
            return self.following(now)
        return now.replace(microsecond=0) + self.every

    def following(self, tick: datetime) -> datetime | None:
        """Return the tick after one; for a cron line, after any moment."""
        return _following(self, tick) if self.every is None else _later(tick, self.every)

    @property
    def gap(self) -> timedelta:
        """The shortest time between two ticks, among the next twenty."""
        return self.every if self.every is not None else _gap(self)

    def resumed(self, tick: datetime, now: datetime) -> datetime | None:
        """Return the first tick after now of a schedule that was to tick at some time."""
        if self.every is None or tick > now:
            return self.following(now) if self.every is None else tick
        return _later(tick, ((now - tick) // self.every + 1) * self.every)

    def recalled(self, tick: datetime, now: datetime) -> datetime | None:
        """Return the first tick from now on of a schedule whose next one is much later."""
        if self.every is None:
            return self.following(now)
        return tick - (tick - now) // self.every * self.every

    def due(self, tick: datetime, now: datetime, most: int) -> tuple[list[datetime], int]:
        """Return the latest ticks from one until now, oldest first, and how many came before them.

        Those are counted up to a bound only.
        """
        if tick > now:
            return [], 0
        if self.every is not None:
            count = (now - tick) // self.every + 1
            kept = range(max(count - most, 0), count)
            return [tick + number * self.every for number in kept], count - len(kept)
        if (later := self.following(tick)) is None or later > now:
            return [tick], 0
        missed = takewhile(lambda each: each > tick, self._ticks_until(now))
        latest = list(islice(missed, most))[::-1]
        if len(latest) == most:
            return latest, 1 + self._count(tick, latest[0])
        return [tick, *latest], 0

    def _count(self, after: datetime, before: datetime) -> int:
        counted = 0
        for each in islice(self.ticks_after(after), COUNTED):
            if each >= before:
                break
            counted += 1
        return counted

    def ticks_after(self, moment: datetime) -> Iterator[datetime]:
        """Yield the ticks of a cron line after a moment."""
        for tick in _Clock(self.cron, moment.astimezone(_zone(self.tz))):
            # In an hour that a clock shows twice, a fixed time may be past already.
            if (instant := tick.astimezone(UTC)) > moment:
                yield instant

    def _ticks_until(self, moment: datetime) -> Iterator[datetime]:
        # From later on: in the second of two equal hours, the first one seems to be in the future.
        begin = moment + _LONGEST_REPEAT if self._is_fixed else moment + timedelta(seconds=1)
        zone = _zone(self.tz)
        for tick in _Clock(self.cron, begin.astimezone(zone), reverse=True):
            if (instant := tick.astimezone(UTC)) <= moment:
                yield instant

    @property
    def _is_fixed(self) -> bool:
        minutes, hours, *_ = self.cron.split()
        return not minutes.startswith("*") and not hours.startswith("*")


class _Clock(CronSim):
    """A walk over the times of a cron line that skips no time where a clock is changed.

    CronSim steps by whole hours from full ones, which is too long where a clock is set by half an
    hour, and begins days at midnight, even at one that the clock skips.
    """

    def tick(self, seconds: int = 1) -> None:
        """Advance by some seconds, or only just past a change of the clock that comes before."""
        begin = self.dt
        super().tick(seconds)
        if self.dt.utcoffset() == begin.utcoffset():
            return
        before, after = 0, seconds
        while after - before > 1:
            between = (before + after) // 2
            self.dt = begin
            super().tick(between)
            is_before = self.dt.utcoffset() == begin.utcoffset()
            before, after = (between, after) if is_before else (before, between)
        self.dt = begin
        super().tick(after)

    def advance_hour(self) -> bool:
        if self.dt.hour in self.hours:
            return False
        self.tick(3600 - self.dt.minute * 60 - self.dt.second)
        return True

    def reverse_hour(self) -> bool:
        if self.dt.hour in self.hours:
            return False
        self.tick(self.dt.minute * 60 + self.dt.second + 1)
        return True

    def advance_day(self) -> bool:
        return super().advance_day() and self._is_shown(fold=0)

    def reverse_day(self) -> bool:
        return super().reverse_day() and self._is_shown(fold=1)

    def _is_shown(self, *, fold: int) -> bool:
        # A midnight that a clock skips or shows twice becomes the one next to the current time.
        if self.dt.tzinfo is not None:
            self.dt = self.dt.replace(fold=fold).astimezone(UTC).astimezone(self.dt.tzinfo)
        return True


def _later(tick: datetime, span: timedelta) -> datetime | None:
    """Return a time so long after a tick; None behind the end of the calendar."""
    try:
        return tick + span
    except OverflowError:
        return None


# Many schedules have the same times, and are considered together.
@lru_cache(maxsize=1_000)
def _following(cadence: Cadence, tick: datetime) -> datetime | None:
    return next(cadence.ticks_after(tick), None)


@lru_cache(maxsize=1_000)
def _gap(cadence: Cadence) -> timedelta:
    ticks = list(islice(cadence.ticks_after(_SOMETIME), 20))
    return min((later - tick for tick, later in pairwise(ticks)), default=timedelta.max)


def cadence(*, every: Duration | None, cron: str | None, tz: str | None) -> Cadence:
    """Check the times of a schedule as a user gave them.

    Raises:
        ConfigError: it is both or neither, or it is no interval, line or zone; it names the remedy.
    """
    if (every is None) == (cron is None):
        raise ConfigError(
            'a schedule needs either every= or cron=; write every="30s" or cron="0 7 * * *"'
        )
    if cron is not None:
        return _checked_cron(cron, tz or "UTC")
    if tz is not None:
        raise ConfigError(f"tz={tz!r} needs cron=; an interval has no time zone")
    try:
        span = duration(every or 0)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"every must be an interval, got {every!r}: {error}") from None
    if span < SHORTEST:
        raise ConfigError(f"every must be at least 1s, got {every!r}")
    return Cadence(every=span)


_NICKNAMES = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}


def _checked_cron(line: str, tz: str) -> Cadence:
    if (nickname := str(line).strip().lower()).startswith("@"):
        if nickname not in _NICKNAMES:
            raise ConfigError(
                f"cron must be five fields or one of {', '.join(_NICKNAMES)}, got {line!r}; "
                'an interval is every="10m"'
            )
        line = _NICKNAMES[nickname]
    if len(str(line).split()) != 5:
        raise ConfigError(
            "cron must have five fields, minute hour day-of-month month day-of-week, "
            f'got {line!r}; write it like "0 7 * * MON-FRI", or every="10s"'
        )
    made = Cadence(cron=" ".join(line.split()), tz=tz)
    try:
        never = made.following(_SOMETIME) is None
    except (CronSimError, AssertionError, ValueError) as error:
        why = str(error).lower() or "a field is invalid"
        raise ConfigError(
            f"{line!r} is not a valid cron line: {why}; write minute hour day-of-month month "
            'day-of-week, like "0 7 * * MON-FRI"'
        ) from None
    if never:
        raise ConfigError(f"{line!r} never ticks: no calendar has such a day")
    return made


def _zone(tz: str) -> ZoneInfo:
    try:
        return ZoneInfo(tz)
    except (OSError, ValueError, TypeError, KeyError):
        raise ConfigError(
            f"{tz!r} is not a known time zone; write one like Europe/Berlin or UTC (without a "
            "system time zone database: pip install tzdata)"
        ) from None
