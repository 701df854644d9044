"""Owns the state of a schedule, as people and scripts see it."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from msgspec import Struct

from windlass.core.schedules.schedule import ScheduleRecord


class ScheduleStatus(Struct, frozen=True, kw_only=True):
    """The state of a schedule."""

    name: str
    record: ScheduleRecord
    now: datetime
    """The store's time of this state."""
    served: bool = True
    """Whether a live worker ticks it."""

    @property
    def kind(self) -> str:
        """The kind of its jobs."""
        return self.record.schedule.job.kind

    @property
    def paused(self) -> bool:
        """Whether it is paused."""
        return self.record.paused_at is not None

    @property
    def state(self) -> Literal["active", "paused", "unserved"]:
        """Its state; an unserved one is due, or will be, and no worker serves it."""
        if self.paused:
            return "paused"
        return "active" if self.served else "unserved"

    @property
    def next(self) -> datetime | None:
        """When it ticks next; None if it is paused, or never will."""
        return None if self.paused else self.record.next


def upcoming(status: ScheduleStatus, count: int) -> list[datetime]:
    """Return when a schedule will tick, paused or not; jitter may delay each of these."""
    times: list[datetime] = []
    tick, cadence = status.record.next, status.record.schedule.cadence
    if tick is not None and status.paused:
        tick = cadence.resumed(tick, status.now)
    while tick is not None and len(times) < count:
        times.append(tick)
        tick = cadence.following(tick)
    return times
