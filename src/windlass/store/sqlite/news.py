"""Owns what the SQLite store's threads say to the database about news and alarms."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from datetime import datetime
from typing import TypeVar
from uuid import UUID

import msgspec

from windlass.core.changes import Applied, Hear
from windlass.core.job import News, Ringing
from windlass.store.columns import as_json
from windlass.store.sqlite import work
from windlass.store.sqlite.rows import instant, micros

T = TypeVar("T")
_HEARD_AT_ONCE = 5_000


def send(db: sqlite3.Connection, news: Sequence[News], now: datetime) -> None:
    """Take news."""
    rows = [(each.topic, str(each.id), each.body.decode(), micros(now)) for each in news]
    db.executemany(work.sql["send_news"], rows)


def topics(db: sqlite3.Connection, limit: int) -> list[str]:
    """Return topics of which there are news."""
    return [row[0] for row in db.execute(work.sql["news_topics"], (max(limit, 1),))]


def hear(
    db: sqlite3.Connection, topics: Sequence[str], decide: Hear[T], now: datetime
) -> Applied[T]:
    """Let a reducer decide about news, which are gone with that."""
    values = (as_json(topics), _HEARD_AT_ONCE)
    rows = db.execute(work.sql["read_news"], values).fetchall()
    news = [
        News(topic=topic, id=UUID(id_), body=body.encode(), at=instant(at))
        for topic, id_, body, at in rows
    ]
    db.executemany(work.sql["forget_news"], [row[:2] for row in rows])
    return work.apply(db, topics, lambda records, now: decide(records, news, now), now)


def ringing(db: sqlite3.Connection, limit: int, now: datetime) -> Ringing:
    """Return records whose alarm has gone off, and when the next one will."""
    rows = db.execute(work.sql["ringing_records"], (micros(now), max(limit, 1))).fetchall()
    shown = [row[0] for row in rows]
    upcoming = db.execute(work.sql["next_alarm"], (as_json(shown),)).fetchone()
    return Ringing(
        records={name: msgspec.json.decode(value) for name, value in rows},
        next=None if upcoming is None else instant(upcoming[0]),
        now=now,
    )
