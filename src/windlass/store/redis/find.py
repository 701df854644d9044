"""Owns the search for jobs: by ids from one end, or, if few can match, from their own lists."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from msgspec import Struct
from msgspec.structs import replace

from windlass.core.jobs.ids import uuid_of
from windlass.core.jobs.job import Job
from windlass.core.jobs.queries import JobFilter, Page, briefly, id_range
from windlass.core.jobs.states import FINISHED, State
from windlass.core.search.matching import matches
from windlass.core.search.scan import Budget, Scan
from windlass.core.search.terms import Field
from windlass.store.redis import queries
from windlass.store.redis.connections.script import Command
from windlass.store.redis.scripting.calls import Names, Talk, jobs_in
from windlass.store.redis.scripting.rows import (
    MICROSECOND,
    NUMBERS,
    encode,
    instant,
    lane_bytes,
    micros,
)

_LOOKED_AT = 250
_INSIDE = frozenset({Field.PAYLOAD, Field.HEADER, Field.TAG})
"""Terms for which a job is needed with its payload and headers."""
_COMMANDS_AT_ONCE = 200
FEW = 10_000
"""Up to this number of jobs in the wanted states, their own lists are read instead of all jobs."""


def find(
    names: Names,
    which: JobFilter,
    *,
    limit: int,
    after: UUID | None,
    oldest_first: bool,
    brief: bool,
    budget: Budget | None,
) -> Talk[Page]:
    """Return a page of the jobs that match a filter."""
    (now,) = yield [names.call("now")]
    ids = yield from _few(names, which)
    search = _Search(
        names, which, now, oldest_first, is_brief=brief and _INSIDE.isdisjoint(_fields(which))
    )
    scan = Scan(
        id_range(which, after, oldest_first=oldest_first),
        limit=limit,
        budget=budget,
        oldest_first=oldest_first,
        now=time.monotonic(),
    )
    yield from search.scan(scan) if ids is None else search.among(ids, scan)
    page = scan.page()
    return replace(page, jobs=tuple(map(briefly, page.jobs))) if brief else page


def _fields(which: JobFilter) -> set[Field]:
    return {term.field for term in which.terms}


class _Search(Struct, frozen=True):
    """The jobs that match a filter, in the order of their ids."""

    names: Names
    which: JobFilter
    now: int
    oldest_first: bool
    is_brief: bool

    def scan(self, scan: Scan) -> Talk[None]:
        """Look at all jobs from one end."""
        packed = encode(_filter(self.which, self.now))
        while not scan.is_over:
            rows = min(_LOOKED_AT, scan.rows or _LOOKED_AT)
            ends = (b"[" + scan.first.bytes, b"[" + scan.last.bytes, int(self.oldest_first))
            wanted = min(scan.wanted, _LOOKED_AT)
            (reply,) = yield [
                self.names.call("find", *ends, wanted, rows, int(self.is_brief), packed)
            ]
            page = yield from jobs_in(self.names, reply, brief=self.is_brief)
            edge = uuid_of(int.from_bytes(reply[3])) if reply[3] else None
            self._add(scan, page, edge, reply[4])

    def among(self, ids: Sequence[UUID], scan: Scan) -> Talk[None]:
        """Look at these jobs."""
        within = sorted(
            (job for job in ids if scan.first <= job <= scan.last), reverse=not self.oldest_first
        )
        start = 0
        while not scan.is_over:
            piece = within[start : start + min(_LOOKED_AT, scan.rows or _LOOKED_AT)]
            start += len(piece)
            page = yield from queries.get_many(self.names, piece, brief=self.is_brief)
            edge = piece[-1] if start < len(within) else None
            self._add(scan, page, edge, len(piece))

    def _add(self, scan: Scan, page: Sequence[Job], edge: UUID | None, looked_at: int) -> None:
        now = instant(self.now)
        jobs = [job for job in page if matches(self.which, job, now)]
        scan.add(jobs, edge, looked_at=looked_at, now=time.monotonic())


def _filter(which: JobFilter, now: int) -> list[Any]:
    """Return what the script compares: what is cheap to compare there."""

    def given(value: str | None) -> str | bool:
        return False if value is None else value

    def bounds(span: timedelta | None, moment: datetime | None) -> list[int]:
        ago = [] if span is None else [now - span // MICROSECOND]
        return ago if moment is None else [*ago, micros(moment)]

    states = "".join(str(NUMBERS[state]) for state in which.states)
    names = (which.kind, which.queue, which.worker, which.fingerprint, which.key)
    before = bounds(which.older_than, which.created_before)
    since = bounds(which.newer_than, which.created_since)
    return [states, *map(given, names), min(before, default=False), max(since, default=False)]


# -- from their own lists --------------------------------------------------------------------------


def _few(names: Names, which: JobFilter) -> Talk[list[UUID] | None]:
    """Return the ids of all jobs in the wanted states and queue; None if that may be many."""
    if not which.states:
        return None
    wanted = set(which.states)
    if wanted & (FINISHED - {State.DEAD}):
        wanted |= FINISHED - {State.DEAD}  # These states share a list.
    counted = yield from queries.state_counts(names)
    chosen = [
        (queue, state, count)
        for queue, state, count in counted
        if state in wanted and which.queue in (None, queue)
    ]
    if sum(count for _, _, count in chosen) > FEW:
        return None
    commands = list(dict.fromkeys(_lists(names, chosen)))
    if State.PENDING in wanted:
        heads = (yield from queries.sweep(names)).heads
        lanes = [head.lane for head in heads if which.queue in (None, head.lane.queue)]
        commands += [("ZRANGE", names.key("L:") + lane_bytes(lane), 0, -1) for lane in lanes]
    if State.RUNNING in wanted:
        (holders,) = yield [("SMEMBERS", names.key("holders"))]
        commands += [("SMEMBERS", names.key("run:") + holder) for holder in holders]
    ids: list[UUID] = []
    for start in range(0, len(commands), _COMMANDS_AT_ONCE):
        for members in (yield commands[start : start + _COMMANDS_AT_ONCE]):
            # In the lists of waiting jobs, the arrival precedes the id.
            ids += [uuid_of(int.from_bytes(member[-16:])) for member in members]
    return ids


def _lists(names: Names, chosen: Sequence[tuple[str, State, int]]) -> Iterator[Command]:
    for queue, state, _ in chosen:
        if state is State.SCHEDULED:
            yield ("ZRANGE", names.key(f"S:{queue}"), 0, -1)
            yield ("ZRANGE", names.key(f"K:{queue}"), 0, -1)
        elif state in FINISHED:
            kind = "D" if state is State.DEAD else "F"
            yield ("ZRANGE", names.key(f"{kind}:{queue}"), 0, -1)
