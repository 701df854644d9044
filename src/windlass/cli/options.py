"""Owns the options that several commands have, so that they are the same everywhere."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Annotated
from uuid import UUID

import typer

from windlass.core.durations import Duration

App = Annotated[
    str | None,
    typer.Option(
        "--app", metavar="MODULE:ATTR", help="The app; it brings its own URL. [env: WINDLASS_APP]"
    ),
]
Url = Annotated[
    str | None,
    typer.Option("--url", metavar="URL", help="Where the jobs are. [env: WINDLASS_URL]"),
]
AsJson = Annotated[bool, typer.Option("--json", help="Write one JSON document to stdout.")]
Ids = Annotated[list[UUID], typer.Argument(metavar="ID", show_default=False)]
Id = Annotated[UUID, typer.Argument(metavar="ID", show_default=False)]
OfKind = Annotated[str | None, typer.Option("--kind", help="Only jobs of this kind.")]
OfQueue = Annotated[str | None, typer.Option("--queue", help="Only jobs of this queue.")]
Limit = Annotated[int, typer.Option("--limit", min=1, max=10_000, help="At most so many.")]
After = Annotated[UUID | None, typer.Option("--after", metavar="ID", help="Go on after this job.")]


def example(*lines: str) -> str:
    """Return the end of a command's help: lines that can be typed, and are not wrapped."""
    return "\n  ".join(["\b\nExample:", *lines])


@contextmanager
def usage() -> Iterator[None]:
    """Turn a wrong value into a wrong usage: exit code 2, and the reason."""
    try:
        yield
    except (TypeError, ValueError) as error:
        raise typer.BadParameter(str(error)) from error


def span(text: str | None) -> Duration | None:
    """Read a duration: `90`, `30s`, `1h30m`. The app checks it."""
    if text is None:
        return None
    try:
        return float(text)
    except ValueError:
        return text


def instant(text: str | None) -> datetime | None:
    """Read an instant like `2026-03-01T09:00:00+01:00`.

    Raises:
        ValueError: it is none, or has no time zone.
    """
    if text is None:
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(
            f"{text!r} is not a time; write it like 2026-03-01T09:00:00+01:00"
        ) from None
    if moment.tzinfo is None:
        raise ValueError(f"{text!r} has no time zone; add one: {text}Z, or {text}+01:00")
    return moment


def span_or_instant(text: str | None) -> Duration | datetime | None:
    """Read what may be either: a time has a date in it, a duration has not."""
    return instant(text) if text is not None and "-" in text[1:] else span(text)
