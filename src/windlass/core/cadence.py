"""Owns the times at which a schedule ticks: a fixed interval, or a cron line in a time zone.

What a day is that has 23 or 25 hours is decided by cron's own rule, as Debian's cron has it. Where
a line names both its minutes and its hours, each intended local time ticks once: one that a clock
skips ticks right after the gap, one that it shows twice ticks the first time. Where the minutes or
the hours begin with a star, it ticks whenever the clock shows such a time.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from itertools import islice, pairwise, takewhile
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError
from msgspec import Struct

from windlass.core.durations import Duration, duration, human
from windlass.core.errors import ConfigError

SHORTEST = timedelta(seconds=1)
COUNTED = 1_000
"""How many missed ticks are counted at a time: after a year there would be too many."""
_LONGEST_REPEAT = timedelta(hours=3)
"""No clock that is set back shows more time twice than this."""
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
        return tick + self.every if self.every is not None else _following(self, tick)

    @property
    def gap(self) -> timedelta:
        """The shortest time between two ticks, as far as twenty of them show it."""
        return self.every if self.every is not None else _gap(self)

    def resumed(self, tick: datetime, now: datetime) -> datetime | None:
        """Return the first tick after now of a schedule that was to tick at some time."""
        if self.every is None or tick > now:
            return self.following(now) if self.every is None else tick
        return tick + ((now - tick) // self.every + 1) * self.every

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
            # In the hour that a clock shows twice, a fixed time may lie behind us already.
            if (instant := tick.astimezone(UTC)) > moment:
                yield instant

    def _ticks_until(self, moment: datetime) -> Iterator[datetime]:
        """Yield the ticks up to a moment, the latest first."""
        # From later on: in the second of two equal hours, the first of them seems to come yet.
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
    """A walk over the times of a line that steps over nothing where a clock is changed.

    CronSim takes steps of whole hours from full ones, which are too long where a clock is set by
    half an hour, and begins days at midnight, even one that no clock shows.
    """

    def tick(self, seconds: int = 1) -> None:
        """Go on by some seconds, or just past a change of the clock that comes before."""
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
        """Make a midnight that a clock skips, or shows twice, the one next to where we are."""
        if self.dt.tzinfo is not None:
            self.dt = self.dt.replace(fold=fold).astimezone(UTC).astimezone(self.dt.tzinfo)
        return True


# Many schedules have the same times, and are looked at together.
@lru_cache(maxsize=1_000)
def _following(cadence: Cadence, tick: datetime) -> datetime | None:
    return next(cadence.ticks_after(tick), None)


@lru_cache(maxsize=1_000)
def _gap(cadence: Cadence) -> timedelta:
    ticks = list(islice(cadence.ticks_after(_SOMETIME), 20))
    return min((later - tick for tick, later in pairwise(ticks)), default=timedelta.max)


def cadence(*, every: Duration | None, cron: str | None, tz: str | None) -> Cadence:
    """Check what somebody wrote, and return when that ticks.

    Raises:
        ConfigError: it is both or neither, or it is no interval, line or zone; it names the remedy.
    """
    if (every is None) == (cron is None):
        raise ConfigError('a schedule has an interval or a cron line: every="30s", or cron="..."')
    if cron is not None:
        return _checked_cron(cron, tz or "UTC")
    if tz is not None:
        raise ConfigError(f"an interval is the same everywhere: tz={tz!r} goes with a cron line")
    try:
        span = duration(every or 0)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"every={every!r} is no interval: {error}") from None
    if span < SHORTEST:
        raise ConfigError(f"every={every!r} is too short: a schedule ticks once a second at most")
    return Cadence(every=span)


def _checked_cron(line: str, tz: str) -> Cadence:
    if len(str(line).split()) != 5:
        raise ConfigError(
            f"{line!r} is not a cron line: it has five fields, minute hour day-of-month month "
            'day-of-week, like "0 7 * * MON-FRI"; what ticks within a minute has every="10s"'
        )
    made = Cadence(cron=" ".join(line.split()), tz=tz)
    try:
        never = made.following(_SOMETIME) is None
    except (CronSimError, AssertionError, ValueError) as error:
        why = str(error).lower() or "a field is wrong"
        raise ConfigError(
            f"{line!r} is not a cron line: {why}; write minute hour day-of-month month "
            'day-of-week, like "0 7 * * MON-FRI"'
        ) from None
    if never:
        raise ConfigError(f"{line!r} never ticks: no such day is in any calendar")
    return made


def _zone(tz: str) -> ZoneInfo:
    try:
        return ZoneInfo(tz)
    except (OSError, ValueError, TypeError, KeyError):
        raise ConfigError(
            f"{tz!r} is not a time zone that is known here; write one like Europe/Berlin, or UTC "
            "(a system without a database of zones needs: pip install tzdata)"
        ) from None
