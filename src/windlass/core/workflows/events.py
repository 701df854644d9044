"""Owns events: which of them are kept, and which one a waiting job gets.

An event is sent as news, and read under the lock of its record, `event:<name>`, which holds the
latest ones. A job that waits for it is parked under the same lock: so no event is missed between a
look and the wait.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import msgspec
from msgspec import Struct

from windlass.core.changes import Changes
from windlass.core.jobs.job import EVENT
from windlass.core.payloads.codec import DEEPEST, encode_json
from windlass.core.payloads.json_checks import depth_of
from windlass.core.records import Json, News
from windlass.core.values.names import check_name

EVENTS_KEPT = 100
"""How many events of one name are remembered, the latest."""
RETENTION = timedelta(days=7)
"""How long an event is remembered after the last one of its name."""
FOREVER = timedelta(days=36_500)
"""How long a job waits for an event by default."""


class Event(Struct, frozen=True, kw_only=True):
    """A payload that was sent to the jobs that wait for its name."""

    id: UUID
    at: datetime
    """When it was sent, by the store's clock."""
    payload: Any = None


class Heard(Struct, frozen=True, kw_only=True):
    """The result of reading news: how many there were, and how many of them were unreadable."""

    count: int
    dropped: int = 0


class _Log(Struct, frozen=True, kw_only=True):
    events: tuple[Event, ...] = ()


def news_of(name: str, payload: object, *, event_id: UUID, limit: int) -> News:
    """Return an event as the news by which it is sent.

    Raises:
        ValueError: the name is empty, too long, or has characters that cannot be printed.
        PayloadError: what it brings along is no JSON, or too much.
    """
    body = encode_json(f"event {check_name('event', name)!r}", payload, limit=limit)
    return News(topic=topic_of(name), id=event_id, body=body)


def topic_of(name: str) -> str:
    return EVENT + name


def events_of(record: Json | None) -> tuple[Event, ...]:
    """Return the events in a record, the oldest first."""
    return () if record is None else msgspec.convert(record, _Log).events


def hear_events(records: Mapping[str, Json], news: Sequence[News], now: datetime) -> Changes[Heard]:
    """Add events to their records, and unpark every job that waits for one; answer how many came.

    An unreadable one, which something else than Windlass sent, is dropped: kept, it would hold up
    all others of its name.
    """
    logs: dict[str, Json | None] = {}
    dropped = 0
    for topic in dict.fromkeys(each.topic for each in news):
        known = events_of(records.get(topic))
        ids = {event.id for event in known}
        mine = [each for each in news if each.topic == topic and each.id not in ids]
        new = [event for each in mine if (event := _event(each, now)) is not None]
        dropped += len(mine) - len(new)
        if new or topic in records:
            logs[topic] = msgspec.to_builtins(_Log(events=(*known, *new)[-EVENTS_KEPT:]))
    return Changes(
        answer=Heard(count=len(news), dropped=dropped),
        records=logs,
        alarms=dict.fromkeys(logs, now + RETENTION),
        unpark=tuple(logs),
    )


def forget_events(records: Mapping[str, Json], now: datetime) -> Changes[int]:
    """Forget the events of names whose retention is over; answer how many names those are."""
    last = {name: events_of(record)[-1:] for name, record in records.items()}
    old = [name for name, events in last.items() if not events or now - events[0].at >= RETENTION]
    later = {name: events[0].at + RETENTION for name, events in last.items() if name not in old}
    return Changes(answer=len(old), records=dict.fromkeys(old), alarms=later)


def next_event(record: Json | None, *, since: datetime, had: Collection[UUID]) -> Event | None:
    """Return the first event that a job has not received, of those sent since it was enqueued."""
    for event in events_of(record):
        if event.at >= since and event.id not in had:
            return event
    return None


def _event(news: News, now: datetime) -> Event | None:
    if depth_of(news.body, DEEPEST) > DEEPEST:
        return None  # Readable here, but not by the handler that waits for it.
    try:
        payload = msgspec.json.decode(news.body)
    except (ValueError, RecursionError):
        return None
    return Event(id=news.id, at=news.at or now, payload=payload)
