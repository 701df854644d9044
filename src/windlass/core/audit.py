"""Owns the audit log: what operators did, who they are and why; one record for each action.

A record's name begins with the store's time, so names sort by age. An entry is written in the same
change as the action that it is about, or not at all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Literal, TypeVar, cast, get_args
from uuid import UUID

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

from windlass.core.changes import Changes, MoveCount
from windlass.core.records import Json
from windlass.core.values.text import storable

T = TypeVar("T")
U = TypeVar("U")
RECORD = "audit:"
MAX_JOBS = 20
"""Number of jobs that an entry names by their ids."""
_MAX_TEXT = 1_000
_MAX_REASON = 500
_TIME = "%Y-%m-%dT%H:%M:%S.%fZ"
Via = Literal["python", "cli", "web"]
"""How an operator acted."""


class Actor(Struct, frozen=True):
    """An operator: a name, how they act, and the reason for what they do unless they give one."""

    by: str
    via: Via = "python"
    reason: str = ""


class AuditEntry(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An operator's action: at what time, by whom, how, what, to what, and why."""

    at: datetime
    """By the store's clock."""
    by: str
    via: str
    action: str
    """The verb, as in the commands: cancel, redrive, pause, set, open."""
    subject: str
    """The type and the name: `job:0197f3a2-…`, `queue:mail`, `limit:kind:crawl`; `jobs`: many."""
    count: int = 0
    """Number of jobs that were moved."""
    reason: str = ""
    detail: str = ""
    """The conditions by which jobs were selected, or the new values."""
    jobs: tuple[UUID, ...] = ()
    """The jobs that were selected by their ids, the first of them."""

    def concerns(self, job: UUID) -> bool:
        """Return whether a job was named."""
        return job in self.jobs or self.subject == f"job:{job}"


class AuditPage(Struct, frozen=True, kw_only=True):
    """A bounded piece of the audit log, newest first; `after` continues it."""

    entries: tuple[AuditEntry, ...]
    after: str | None
    searched_to: datetime | None = None
    """How far back entries were read, where that ended the page before its limit."""


class Note(Struct, kw_only=True):
    """An action that is to be written; one in several changes has one entry, which they share.

    An action on several spaces has an entry in each.
    """

    actor: Actor | None
    """None: the action is not recorded."""
    action: str
    subject: str
    suffix: str
    """Random digits, which make the name of the entry unique."""
    detail: str = ""
    reason: str = ""
    jobs: Sequence[UUID] = ()
    names: dict[str, str] = field(default_factory=dict)
    """The names of the records of its entries, once they are written, by the space."""
    count: int = 0
    is_alone: bool = False
    """Whether the action was done before, so that its entry is written without other changes."""

    def name_at(self, now: datetime, space: str) -> str | None:
        """Return the name of the entry that a change at this time writes; None: none."""
        if self.actor is None:
            return None
        return self.names.get(space) or name_at(now, f"{self.suffix}{len(self.names):x}")

    def on(
        self, changes: Changes[T], known: Mapping[str, Json], now: datetime, space: str
    ) -> Changes[tuple[T, str | None]]:
        """Return changes together with their entry; its name is a part of the answer.

        Changes that leave all as it is have no entry, and none is written if no move happens.
        """
        name = self.name_at(now, space)
        is_due = self.is_alone or _is_effective(changes, known)
        if self.actor is None or name is None or not is_due:
            return _answering(changes, (changes.answer, None))
        entry = known.get(name) or self._entry(self.actor, now)
        records, counts = dict(changes.records), dict(changes.move_counts)
        if changes.moves:
            counts[name] = MoveCount(record=entry)
        else:
            records[name] = entry
        noted = replace(changes, records=records, move_counts=counts)
        return _answering(noted, (changes.answer, name))

    def _entry(self, actor: Actor, now: datetime) -> Json:
        entry = AuditEntry(
            at=now,
            by=storable(actor.by, _MAX_TEXT),
            via=actor.via,
            action=self.action,
            subject=storable(self.subject, _MAX_TEXT),
            reason=storable(self.reason or actor.reason, _MAX_REASON),
            detail=storable(self.detail, _MAX_TEXT),
            jobs=tuple(self.jobs[:MAX_JOBS]),
        )
        record: Json = msgspec.to_builtins(entry)
        return record


def name_at(moment: datetime, suffix: str = "") -> str:
    """Return the name of an entry; without a suffix, all earlier entries come before it."""
    return f"{RECORD}{moment.astimezone(UTC).strftime(_TIME)}:{suffix}"


def read_entry(record: Json) -> AuditEntry | None:
    """Read an entry; None if another release wrote it in a way that this one does not know."""
    try:
        return msgspec.convert(record, AuditEntry)
    except msgspec.ValidationError:
        return None


def entry_facts(entry: AuditEntry) -> dict[str, Any]:
    """Return an entry for scripts."""
    return {
        "at": entry.at.isoformat(),
        "by": entry.by,
        "via": entry.via,
        "action": entry.action,
        "subject": entry.subject,
        "count": entry.count,
        "reason": entry.reason,
        "detail": entry.detail,
        "jobs": [str(job) for job in entry.jobs],
    }


def audit_facts(page: AuditPage) -> dict[str, Any]:
    """Return a page of the audit log for scripts."""
    searched_to = page.searched_to
    return {
        "entries": [entry_facts(entry) for entry in page.entries],
        "after": page.after,
        "searched_to": None if searched_to is None else searched_to.isoformat(),
    }


def check_via(via: object) -> Via:
    """Return how an operator acts.

    Raises:
        ValueError: there is no such way.
    """
    for known in get_args(Via):
        if via == known:
            return known  # type: ignore[no-any-return]
    raise ValueError(f"via must be one of {', '.join(get_args(Via))}, got {via!r}")


def _answering(changes: Changes[T], answer: U) -> Changes[U]:
    return cast("Changes[U]", replace(cast("Changes[Any]", changes), answer=answer))


def _is_effective(changes: Changes[T], known: Mapping[str, Json]) -> bool:
    changed = any(known.get(name) != record for name, record in changes.records.items())
    return changed or bool(changes.moves or changes.enqueue or changes.settle or changes.unpark)
