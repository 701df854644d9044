"""Owns deploy marks: names of releases and when each was deployed; one record has the newest."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import msgspec
from msgspec import Struct

from windlass.core.errors import ConfigError
from windlass.core.records import Json
from windlass.core.values.text import listed, storable

RECORD = "deploys"
MAX_MARKS = 50
"""The number of marks that are kept; an older one makes room for a new one."""
_MAX_TEXT = 500


class DeployMark(Struct, frozen=True, kw_only=True):
    """A release, the time of its deploy by the store's clock, and the operator who marked it."""

    name: str
    at: datetime
    by: str = ""


class _Marks(Struct, frozen=True):
    """The record: the marks, oldest first."""

    marks: tuple[DeployMark, ...] = ()


def read_marks(record: Json | None) -> list[DeployMark]:
    """Return the marks in a record, the newest first; an unreadable one has none."""
    try:
        found = msgspec.convert(record or {}, _Marks).marks
    except msgspec.ValidationError:
        return []
    return list(reversed(found))


def with_mark(record: Json | None, mark: DeployMark) -> Json:
    """Return the record with one more mark, and without those beyond the bound."""
    kept = [*reversed(read_marks(record)), _storable(mark)][-MAX_MARKS:]
    changed: Json = msgspec.to_builtins(_Marks(tuple(kept)))
    return changed


def find_mark(marks: Sequence[DeployMark], name: str) -> DeployMark:
    """Return the latest mark of a name; `marks` are the newest first.

    Raises:
        ConfigError: there is none.
    """
    for mark in marks:
        if mark.name == name:
            return mark
    known = listed((each.name for each in marks), 5) or "none"
    raise ConfigError(
        f"there is no deploy {name!r}; the latest are: {known}. Mark one by: windlass deploys mark "
        "NAME"
    )


def is_new_since(first_seen: datetime | None, mark: DeployMark | None) -> bool:
    """Return whether an error was first seen after a deploy; without one, every error is."""
    return mark is None or (first_seen is not None and first_seen >= mark.at)


def mark_facts(mark: DeployMark) -> dict[str, Any]:
    """Return a mark for scripts."""
    return {"name": mark.name, "at": mark.at.isoformat(), "by": mark.by}


def _storable(mark: DeployMark) -> DeployMark:
    return msgspec.structs.replace(
        mark, name=storable(mark.name, _MAX_TEXT), by=storable(mark.by, _MAX_TEXT)
    )
