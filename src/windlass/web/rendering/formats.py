"""Owns how values look on a page: times, spans, counts, states, JSON; and that text is inert."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from markupsafe import Markup, escape

from windlass.core.jobs.job import Job
from windlass.core.jobs.states import State
from windlass.core.values import figures
from windlass.core.values.durations import ago, brief, human
from windlass.core.values.text import inert, inert_lines, plural

UNKNOWN = "\N{EN DASH}"
_MAX_TEXT = 20_000
_MAX_LINE = 300
_MINUTE = 60


def shown(value: Any) -> Any:
    """Return what a template prints for a value: text from outside cannot do harm, None is empty.

    Control characters, marks of direction and lone surrogates are escaped.
    """
    if isinstance(value, Markup):
        return value
    if value is None:
        return ""
    return inert_lines(value) if isinstance(value, str) else value


def line(value: object, most: int = _MAX_LINE) -> str:
    """Return text as one line of bounded length."""
    text = inert(str(value)[: most + 1]) if value is not None else ""
    return text if len(text) <= most else f"{text[: most - 1]}…"


def block(value: object) -> str:
    """Return text of many lines, without the middle of one that is very long."""
    text = inert_lines(str(value))
    if len(text) <= _MAX_TEXT:
        return text
    half = _MAX_TEXT // 2
    left_out = f"\n… {len(text) - 2 * half:,} characters left out …\n"
    return text[:half] + left_out + text[-half:]


def moment(value: datetime | None, now: datetime) -> Markup | str:
    """Return how long ago an instant was, with the exact one in the markup."""
    if value is None:
        return UNKNOWN
    seconds = abs((now - value).total_seconds())
    if seconds < 1:
        return _time(value, "just now")
    if seconds < _MINUTE:
        return _time(value, f"{seconds:.0f}s ago" if value <= now else f"in {seconds:.0f}s")
    return _time(value, ago(value, now))


def instant(value: datetime | None) -> Markup | str:
    """Return an instant in UTC, to the second."""
    if value is None:
        return UNKNOWN
    return _time(value, f"{value.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC")


def _time(value: datetime, text: str) -> Markup:
    exact = value.astimezone(UTC).isoformat(" ", "milliseconds").replace("+00:00", " UTC")
    iso = value.astimezone(UTC).isoformat()
    return Markup('<time datetime="{}" title="{}">{}</time>').format(iso, exact, text)


def span(value: float | timedelta | None) -> str:
    """Return a duration by its two greatest units."""
    if value is None:
        return UNKNOWN
    if isinstance(value, timedelta):
        return brief(value)
    return figures.span(value)


def rate(value: float | None) -> str:
    return UNKNOWN if value is None else figures.rate(value)


def share(value: float | None) -> str:
    return UNKNOWN if value is None else figures.share(value)


def size(value: float | None) -> str:
    return UNKNOWN if value is None else figures.size(value)


def count(value: float | None, *, capped: bool = False) -> str:
    return UNKNOWN if value is None else figures.count(value, capped=capped)


def short_id(value: UUID | str) -> str:
    """Return the end of an id, as log lines show it: the part that differs."""
    return str(value)[-8:]


def state_word(job: Job) -> str:
    """Return the state of a job as people say it: scheduled jobs that failed are retrying."""
    if job.state is State.SCHEDULED and job.waiting_for is not None:
        return "waiting"
    if job.state is State.SCHEDULED and job.failures:
        return "retrying"
    return job.state.value


def pretty(value: Any) -> str:
    """Return a value as indented JSON of bounded length, with exact numbers."""
    return block(json.dumps(value, indent=2, ensure_ascii=False, default=str))


def chunk(value: Any) -> str:
    """Return a chunk of a stream: text as it is, since it goes on; other values a line each."""
    if isinstance(value, str):
        return block(value)
    return block(json.dumps(value, ensure_ascii=False, separators=(",", ":"))) + "\n"


def badge(word: str) -> Markup:
    """Return a state as a word with its colour beside it."""
    tone = word.replace(" ", "-").lower()
    return Markup('<span class="badge badge-{}">{}</span>').format(_safe_class(tone), shown(word))


def _safe_class(word: str) -> str:
    return "".join(each for each in word if each.isascii() and (each.isalnum() or each == "-"))


FILTERS = {
    "line": line,
    "block": block,
    "instant": instant,
    "span": span,
    "rate": rate,
    "share": share,
    "size": size,
    "count": count,
    "short_id": short_id,
    "state_word": state_word,
    "pretty": pretty,
    "badge": badge,
    "chunk": chunk,
    "plural": plural,
    "human": human,
}
__all__ = ["FILTERS", "UNKNOWN", "badge", "escape", "moment", "shown"]
