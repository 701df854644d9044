"""Owns records, the small named JSON values of a store, and the news that are kept beside them."""

from __future__ import annotations

from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from msgspec import Struct

Json = dict[str, Any]
"""The value of a record: a small JSON object."""


class RecordPage(NamedTuple):
    """The last records by name, in descending order; `before` is the last name of a page before."""

    limit: int
    before: str | None = None

    def end(self, prefix: str) -> str:
        """Return the name before which the records with a prefix are listed."""
        return past(prefix) if self.before is None else self.before


def past(prefix: str) -> str:
    """Return a name that comes after all those that begin with a prefix."""
    return prefix + "\U0010ffff"


class News(Struct, frozen=True, kw_only=True):
    """An event kept until a worker has read it: a job's end, or a user's event.

    `topic` is the name of the record under whose lock it is read.
    """

    topic: str
    id: UUID
    """The id of the job that ended, or of the event: within a topic, each is kept once."""
    body: bytes = b"{}"
    at: datetime | None = None
    """When the store accepted it."""


class Ringing(Struct, frozen=True, kw_only=True):
    """The records whose alarm has gone off, earliest first, and when the next one will."""

    records: dict[str, Json]
    next: datetime | None
    now: datetime
