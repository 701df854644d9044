"""Owns small histories for the laws: what a ledger and a store would say about a few jobs."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from windlass.chaos.laws.history import History, Record, Strike
from windlass.chaos.ledger import Entry

LEASE = 2.0
WORKER, OTHER = 101, 102
"""Two processes."""


def job(number: int) -> str:
    """Return the id of a job that belongs to no flow."""
    return str(UUID(int=number << 80 | 7 << 76 | 8 << 60 | number))


def flow_member(number: int) -> str:
    """Return the id of a job of the flow number 1; number 0 is the flow's own."""
    return str(UUID(int=1 << 80 | 8 << 76 | 8 << 60 | number))


def accepted(which: str, kind: str = "plain", mark: str = "", at: float = 0.0) -> list[Entry]:
    """Return the lines of an enqueue that was acknowledged."""
    return [Entry("offered", at, 1, which, 0, kind), Entry("accepted", at, 1, which, 0, kind, mark)]


def run(
    which: str,
    began: float,
    ended: float | None = None,
    *,
    kind: str = "plain",
    attempt: int = 1,
    pid: int = WORKER,
    how: str = "end",
) -> list[Entry]:
    """Return the lines of a run; without an end it was killed."""
    mark = mark_of(which, attempt)
    begin = Entry("begin", began, pid, which, attempt, kind, mark)
    if ended is None:
        return [begin]
    return [begin, Entry(how, ended, pid, which, attempt, kind, mark)]


def step(what: str, which: str, at: float, name: str, attempt: int = 1) -> Entry:
    """Return the line of a step or an undo."""
    return Entry(what, at, WORKER, which, attempt, name)


def mark_of(which: str, attempt: int) -> str:
    return f"{which}/{attempt}"


def completed(which: str, kind: str = "plain", attempt: int = 1, **others: Any) -> Record:
    """Return the record of a job that was completed by its last attempt."""
    fields = {"result_attempt": attempt, "result_mark": mark_of(which, attempt), **others}
    return Record(job=which, kind=kind, state="completed", attempt=attempt, **fields)


def strike(began: float, ended: float | None = None, *pids: int, **others: Any) -> Strike:
    """Return a fault that touched some processes."""
    over = began if ended is None else ended
    return Strike(number=1, fault="kill-worker", began=began, ended=over, pids=pids, **others)


def history(*parts: Any, **others: Any) -> History:
    """Put lines, records and strikes together."""
    entries: list[Entry] = []
    records: list[Record] = []
    strikes: list[Strike] = []
    for part in parts:
        for each in part if isinstance(part, list) else [part]:
            if isinstance(each, Entry):
                entries.append(each)
            elif isinstance(each, Record):
                records.append(each)
            else:
                strikes.append(each)
    entries.sort(key=lambda entry: entry.at)
    return History(entries=entries, records=records, strikes=strikes, lease=LEASE, **others)
