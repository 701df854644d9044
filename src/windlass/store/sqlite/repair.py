"""Owns the repair of rows that cannot be read because another program wrote them.

Such a job becomes readable, with as many of its values as possible, and dead, with the reason: it
blocks no other job, and a person sees it.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterable, Sequence
from typing import Any
from uuid import UUID, uuid4

from windlass.core.jobs.job import Job, Saga
from windlass.store.json_columns import ERROR, HEADERS, HISTORY, PROGRESS
from windlass.store.sqlite.rows import STEPS, job_of

_UNREADABLE = "its row cannot be read, so Windlass did not write it: "
_TO_UNDO = (Saga.READY.value, Saga.UNDOING.value)
_NOT_UNDONE = "; its completed steps are not undone"
_JSON: dict[str, tuple[Callable[[str], object], str | None]] = {
    "headers": (HEADERS.decode, None),
    "progress": (PROGRESS.decode, None),
    "result": (json.loads, None),
    "error": (ERROR.decode, None),
    "history": (HISTORY.decode, "[]"),
    "steps": (STEPS.decode, "[]"),
}
"""The decoder of each column, and the value that replaces an unreadable one."""


def readable(rows: Iterable[Sequence[Any]]) -> list[Job] | None:
    """Return the jobs in rows, or None if any of them cannot be read."""
    try:
        return [job_of(row) for row in rows]
    except (ValueError, TypeError, OverflowError):
        return None
    except sqlite3.OperationalError as error:
        if "decode" in str(error):
            return None
        raise


def bury_unreadable(db: sqlite3.Connection, now: int, state: str) -> int:
    """Repair and bury every unreadable job of a state; return how many."""
    seqs = [row[0] for row in db.execute("SELECT seq FROM jobs WHERE state = ?", (state,))]
    select = "SELECT * FROM jobs WHERE seq = ?"
    bad = [seq for seq in seqs if readable(db.execute(select, (seq,))) is None]
    for seq in bad:
        _bury(db, seq, now)
    return len(bad)


def _bury(db: sqlite3.Connection, seq: int, now: int) -> None:
    cursor = db.cursor()
    db.text_factory = bytes
    try:
        row = cursor.execute("SELECT * FROM jobs WHERE seq = ?", (seq,)).fetchone()
    finally:
        db.text_factory = str
    names = [column[0] for column in cursor.description]
    raw = dict(zip(names, row, strict=True))
    repaired = {name: _repaired(name, value) for name, value in raw.items()}
    wrong = [name for name in names if repaired[name] != _text(raw[name])]
    reason = _UNREADABLE + (", ".join(wrong) or "its values do not fit together")
    if repaired["saga"] in _TO_UNDO:
        reason += _NOT_UNDONE
    repaired |= {"state": "dead", "token": None, "finished_at": now, "reason": reason}
    assignments = ", ".join(f"{name} = :{name}" for name in names if name != "seq")
    db.execute(f"UPDATE jobs SET {assignments} WHERE seq = :seq", repaired)  # noqa: S608 - our names.


def _repaired(name: str, value: Any) -> Any:
    text = _text(value)
    if name == "id":
        return text if _is_uuid(text) else str(uuid4())
    if name in _JSON:
        decode, replacement = _JSON[name]
        return text if text is None or _can(decode, text) else replacement
    if isinstance(value, bytes) and text is None:
        shown = value.decode(errors="backslashreplace")
        return json.dumps(shown) if name == "payload" else shown
    return text


def _can(decode: Callable[[str], object], text: Any) -> bool:
    try:
        decode(text)
    except (ValueError, TypeError, RecursionError):
        return False
    return True


def _text(value: Any) -> Any:
    if not isinstance(value, bytes):
        return value
    try:
        return value.decode()
    except UnicodeDecodeError:
        return None


def _is_uuid(text: Any) -> bool:
    try:
        return bool(str(UUID(text)) == text)
    except (ValueError, TypeError, AttributeError):
        return False
