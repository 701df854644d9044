"""Owns how the audit log is read: newest first, in bounded pages. `audit_writer` writes it."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from windlass.app.control.part import ControlPart
from windlass.app.loop_thread import blocking
from windlass.core.audit import RECORD, AuditEntry, AuditPage, name_at, read_entry
from windlass.core.records import RecordPage
from windlass.core.values.durations import Duration, when

_READ = 500
"""Number of records that are read at once."""
_MAX_READ = 10_000
"""Number of records that a page may read: the rest of the log is for the next page."""


class AuditControl(ControlPart):
    """The methods of `app.control` for the audit log."""

    async def aaudit(
        self,
        *,
        since: Duration | datetime | None = None,
        by: str | None = None,
        action: str | None = None,
        subject: str | None = None,
        job: UUID | None = None,
        limit: int = 100,
        after: str | None = None,
    ) -> AuditPage:
        """Return what operators did, newest first; `after` continues a page.

        `by` is a name, with or without what follows its @. `subject` is whole, like `queue:mail`,
        or a type, like `queue`. `job` finds the actions that named it; those that selected jobs by
        conditions have no ids. A page reads a bounded number of entries: if few of them match, it
        may be short, and says how far back it has read.

        Raises:
            ValueError: `since` is not a duration, or has no time zone.
        """
        first = RECORD if since is None else name_at(await self._moment(since))
        entries: list[AuditEntry] = []
        read, last, entry = 0, after, None
        while len(entries) < limit and read < _MAX_READ:
            page = await self._app.store.records(RECORD, RecordPage(_READ, before=last))
            for last, record in page.items():
                entry = read_entry(record)
                if last < first:
                    return AuditPage(entries=tuple(entries), after=None)
                if entry is not None and _matches(entry, by, action, subject, job):
                    entries.append(entry)
                    if len(entries) == limit:
                        break
            read += len(page)
            if len(page) < _READ and len(entries) < limit:
                return AuditPage(entries=tuple(entries), after=None)
        searched_to = None if len(entries) == limit or entry is None else entry.at
        return AuditPage(entries=tuple(entries), after=last, searched_to=searched_to)

    audit = blocking(aaudit)

    async def _moment(self, since: Duration | datetime) -> datetime:
        moment = when(since, "since")
        if isinstance(moment, datetime):
            return moment
        return (await self._app.store.ringing(1)).now - moment


def _matches(
    entry: AuditEntry, by: str | None, action: str | None, subject: str | None, job: UUID | None
) -> bool:
    return (
        (by is None or by in (entry.by, entry.by.partition("@")[0]))
        and action in (None, entry.action)
        and (subject is None or subject in (entry.subject, entry.subject.partition(":")[0]))
        and (job is None or entry.concerns(job))
    )
