"""Owns the records, alarms and news of the memory store."""

from __future__ import annotations

import heapq
import json
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from msgspec import DecodeError
from msgspec.json import decode, encode
from msgspec.structs import replace

from windlass.core.changes import Changes
from windlass.core.records import Json, News, RecordPage, Ringing


class Records:
    """Records by name, kept as JSON like in other stores: no caller can change them in place."""

    def __init__(self) -> None:
        self._records: dict[str, bytes] = {}
        self._alarms: dict[str, datetime] = {}

    def starting_with(self, prefix: str, page: RecordPage | None = None) -> dict[str, Json]:
        """Return the records whose names begin with a prefix, or a page of them."""
        names = [name for name in self._records if name.startswith(prefix)]
        if page is not None:
            end = page.end(prefix)
            names = heapq.nlargest(page.limit, (name for name in names if name < end))
        return self.named(names)

    def named(self, names: Iterable[str]) -> dict[str, Json]:
        """Return the named records that exist."""
        return {name: _decoded(self._records[name]) for name in names if name in self._records}

    def write(self, changes: Changes[Any]) -> None:
        """Write the records and alarms of a change."""
        for name, record in changes.records.items():
            if record is None:
                self._records.pop(name, None)
                self._alarms.pop(name, None)
            else:
                self._records[name] = _encoded(record)
        for name, alarm in changes.alarms.items():
            self._alarms.pop(name, None)
            if alarm is not None and name in self._records:
                self._alarms[name] = alarm

    def ringing(self, limit: int, now: datetime) -> Ringing:
        alarms = sorted(self._alarms.items(), key=lambda alarm: (alarm[1], alarm[0]))
        due = [name for name, at in alarms if at <= now][: max(limit, 1)]
        later = [at for _, at in alarms[len(due) :]]
        return Ringing(records=self.named(due), next=later[0] if later else None, now=now)


class UnheardNews:
    """News by topic that no reducer has heard."""

    def __init__(self) -> None:
        self._news: dict[str, dict[UUID, News]] = {}

    def add(self, news: News, now: datetime) -> None:
        """Add a piece of news unless it is there already."""
        self._news.setdefault(news.topic, {}).setdefault(news.id, replace(news, at=now))

    def topics(self, limit: int) -> list[str]:
        return list(self._news)[: max(limit, 1)]

    def of(self, topics: Sequence[str], now: datetime) -> list[News]:
        """Return the news of some topics, oldest first."""
        news = [item for topic in topics for item in self._news.get(topic, {}).values()]
        return sorted(news, key=lambda item: item.at or now)

    def forget(self, topics: Sequence[str]) -> None:
        """Delete the news of some topics."""
        for topic in topics:
            self._news.pop(topic, None)


def _encoded(record: Json) -> bytes:
    try:
        return encode(record)
    except UnicodeEncodeError:  # Surrogates, which no other store can hold.
        return json.dumps(record).encode()


def _decoded(record: bytes) -> Json:
    try:
        value: Json = decode(record)
    except DecodeError:
        value = json.loads(record)
    return value
