"""Owns rows that cannot be read, since something else than Windlass wrote them.

They are made readable, with as much of them as can be kept, and dead, with the reason: so they stop
nobody else, and a person sees them.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterable, Sequence
from typing import Any
from uuid import UUID, uuid4

from windlass.core.job import Job, Saga
from windlass.store.columns import ERROR, HEADERS, HISTORY, PROGRESS
from windlass.store.sqlite.rows import STEPS, job_of

_UNREADABLE = "it cannot be read, so it was not written by Windlass: "
_TO_UNDO = (Saga.READY.value, Saga.UNDOING.value)
_NOT_UNDONE = "; what its steps did is not undone"
_JSON: dict[str, tuple[Callable[[str], object], str | None]] = {
    "headers": (HEADERS.decode, None),
    "progress": (PROGRESS.decode, None),
    "result": (json.loads, None),
    "error": (ERROR.decode, None),
    "history": (HISTORY.decode, "[]"),
    "steps": (STEPS.decode, "[]"),
}
"""How each is read, and what is written where it cannot be."""


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
    """Mend and bury every job of a state that cannot be read; return how many there were."""
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
    mended = {name: _mended(name, value) for name, value in raw.items()}
    wrong = [name for name in names if mended[name] != _text(raw[name])]
    told = _UNREADABLE + (", ".join(wrong) or "its values do not fit together")
    if mended["saga"] in _TO_UNDO:
        told += _NOT_UNDONE
    mended |= {"state": "dead", "token": None, "finished_at": now, "reason": told}
    assignments = ", ".join(f"{name} = :{name}" for name in names if name != "seq")
    db.execute(f"UPDATE jobs SET {assignments} WHERE seq = :seq", mended)  # noqa: S608 - our names.


def _mended(name: str, value: Any) -> Any:
    text = _text(value)
    if name == "id":
        return text if _is_uuid(text) else str(uuid4())
    if name in _JSON:
        decode, instead = _JSON[name]
        return text if text is None or _can(decode, text) else instead
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
