"""Owns the figures of errors: which fail runs, how often, since when, and how many jobs died."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime

from msgspec import Struct

from windlass.core.jobs.queries import ErrorGroup
from windlass.core.metrics.exposition import OTHER
from windlass.core.payloads.redaction import Redaction
from windlass.core.stats.kind_history import SPAN, WINDOW, KindStats, Seen, error_line

MOST = 100
"""How many errors are listed, the most frequent first, unless rare ones are asked for."""
_OTHER = "other errors (too many to list)"


class ErrorFigures(Struct, frozen=True, kw_only=True):
    """An error of a kind: how many runs failed with it in the last hour, how many jobs died."""

    group: str
    """The argument of `windlass dead redrive --group`; empty for jobs that died without an error.

    `other` stands for all errors beyond the bound.
    """
    kind: str
    error: str
    """Its last message, in one line, masked."""
    count: int
    """Runs that failed with it within the last hour."""
    dead: int
    """Jobs that are dead of it, whenever they died; or at least that many if `capped`."""
    history: tuple[int, ...]
    """The failed runs in each five minutes of the last hour, oldest first."""
    first_seen: datetime | None
    last_seen: datetime | None
    capped: bool = False
    """Whether older dead jobs were not looked at, some of which may have died of it."""


def errors_of(
    records: Mapping[str, KindStats],
    groups: Iterable[ErrorGroup],
    now: datetime,
    redaction: Redaction,
    *,
    capped: bool = False,
    most: int = MOST,
) -> tuple[ErrorFigures, ...]:
    """Combine recent failures and dead jobs, the most frequent errors first.

    `capped`: there are dead jobs that the groups leave out. At most `most` errors are returned.
    """
    dead = {(group.kind, group.fingerprint): group for group in groups}
    failed: dict[tuple[str, str], tuple[int, ...]] = {}
    for kind, record in records.items():
        windows = record.slots(now)
        for name in {name for window in windows for name in window.errors}:
            # Only the number is left of forgotten errors, and of those beyond the bound.
            is_known = name in record.errors or (kind, name) in dead
            called = (kind, name if is_known else OTHER)
            counts = failed.get(called) or (0,) * len(windows)
            failed[called] = tuple(
                count + window.errors.get(name, 0)
                for count, window in zip(counts, windows, strict=True)
            )
    found = [
        _figures(
            key,
            failed.get(key, ()),
            dead.get(key),
            records[key[0]].errors.get(key[1]) if key[0] in records else None,
            redaction,
            capped,
        )
        for key in failed.keys() | dead.keys()
    ]
    found.sort(key=lambda each: (-each.count, -each.dead, each.kind, each.group))
    return tuple(found[:most])


def _figures(
    key: tuple[str, str],
    history: tuple[int, ...],
    dead: ErrorGroup | None,
    seen: Seen | None,
    redaction: Redaction,
    capped: bool,
) -> ErrorFigures:
    kind, name = key
    moments = [] if dead is None else [dead.first_seen, dead.last_seen]
    if seen is not None:
        moments += [datetime.fromtimestamp(each, UTC) for each in (seen.first, seen.last)]
    return ErrorFigures(
        group=name,
        kind=kind,
        error=error_line(redaction.text(_words(name, dead, seen))),
        count=sum(history),
        dead=0 if dead is None else dead.count,
        history=history or (0,) * int(SPAN / WINDOW),
        first_seen=min(moments, default=None),
        last_seen=max(moments, default=None),
        capped=capped,
    )


def _words(name: str, dead: ErrorGroup | None, seen: Seen | None) -> str:
    if seen is not None and seen.error:
        return seen.error
    if dead is not None:
        return str(dead.error or dead.reason or "")
    return _OTHER if name == OTHER else ""
