"""Owns how jobs are searched for and selected: filters, pages, groups of errors and retention."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, TypedDict, overload
from uuid import UUID

from msgspec import Struct
from msgspec.structs import replace

from windlass.core.jobs.ids import first_id, uuid_of
from windlass.core.jobs.job import ErrorInfo, Job
from windlass.core.jobs.moves import FROM, Verb
from windlass.core.jobs.states import State
from windlass.core.search.lowering import narrowed, states_of
from windlass.core.search.parser import parse
from windlass.core.search.search import Search
from windlass.core.search.terms import Field, Term, Value
from windlass.core.values.durations import Duration, duration, human


class JobFilter(Struct, frozen=True, kw_only=True):
    """Which jobs to return; an empty field matches all."""

    states: tuple[State, ...] = ()
    kind: str | None = None
    queue: str | None = None
    worker: str | None = None
    fingerprint: str | None = None
    """The fingerprint of the job's last error."""
    key: str | None = None
    error: str | None = None
    """Text in the type or the message of the job's last error; case matters."""
    older_than: timedelta | None = None
    newer_than: timedelta | None = None
    """How long ago, by the store's clock, a job was created: longer, or not as long."""
    first: UUID | None = None
    last: UUID | None = None
    """The least and the greatest id, both inclusive."""
    ending: str | None = None
    """Hexadecimal digits with which ids end. No index covers them: give a range, too."""
    created_since: datetime | None = None
    created_before: datetime | None = None
    """When a job was created, by the store's clock; by its id, too, so that a store need not look
    at all the others.
    """
    terms: tuple[Term, ...] = ()
    """Further terms of a search, all of which must hold; see `core.search.matching`."""


def id_range(
    which: JobFilter,
    after: UUID | None,
    *,
    oldest_first: bool = False,
    ids_tell_time: bool = True,
) -> tuple[UUID, UUID]:
    """Return the least and the greatest id that a page may show, of all that a filter allows.

    With `ids_tell_time`, no id was made by a clock that differs more from the store's than clocks
    may.
    """
    first = _LEAST if which.first is None else which.first
    last = _GREATEST if which.last is None else which.last
    if ids_tell_time:
        if which.created_since is not None:
            first = max(first, _id_at(which.created_since, -CLOCKS_DIFFER))
        if which.created_before is not None:
            last = min(last, _id_at(which.created_before, CLOCKS_DIFFER))
    if after is not None and oldest_first:
        first = max(first, uuid_of(min(after.int + 1, _GREATEST.int)))
    elif after is not None:
        last = min(last, uuid_of(max(after.int - 1, 0)))
    return first, last


def _id_at(moment: datetime, slack: timedelta) -> UUID:
    try:
        return first_id(min(max(moment, _FIRST_MOMENT - slack), _LAST_MOMENT - slack) + slack)
    except OverflowError:
        return _LEAST if slack < timedelta(0) else _GREATEST


def briefly(job: Job) -> Job:
    """Return a job without its large fields: payload, result, headers, history and steps."""
    return replace(job, payload=b"{}", result=None, headers={}, history=(), steps=())


class ErrorGroup(Struct, frozen=True, kw_only=True):
    """Dead jobs of one kind that died of the same error, by its fingerprint."""

    fingerprint: str
    kind: str
    count: int
    first_seen: datetime
    last_seen: datetime
    newest: UUID
    """A job that died of it last."""
    error: ErrorInfo | None
    """The error of that job; None if it is dead without an error, for its `reason`."""
    reason: str | None


@dataclass(frozen=True, kw_only=True)
class ErrorGroups(Sequence[ErrorGroup]):
    """The errors that jobs died of, as far back as was looked; a sequence of them."""

    groups: tuple[ErrorGroup, ...] = ()
    searched_to: datetime | None = None
    """Jobs that died then or before were not looked at: counts are at least what they say, and
    errors may have been seen earlier, too. None: all dead jobs were looked at.
    """

    @overload
    def __getitem__(self, place: int) -> ErrorGroup: ...
    @overload
    def __getitem__(self, place: slice) -> tuple[ErrorGroup, ...]: ...
    def __getitem__(self, place: int | slice) -> ErrorGroup | tuple[ErrorGroup, ...]:
        return self.groups[place]

    def __len__(self) -> int:
        return len(self.groups)


class Page(Struct, frozen=True, kw_only=True):
    """A bounded piece of a listing, newest first; `after` continues it."""

    jobs: tuple[Job, ...]
    after: UUID | None
    """Where it continues; None: there are no more."""
    searched_to: UUID | None = None
    """The last id that was looked at, if the budget was spent before the page was full."""


class Finding(Struct, frozen=True, kw_only=True):
    """A problem, and its remedy."""

    problem: str
    remedy: str
    name: str = ""
    """One word for a problem of a store, the same in every release, for metrics and alerts; empty
    for a problem that another metric shows, or that concerns one process.
    """


class Retention(Struct, frozen=True, kw_only=True):
    """How long finished jobs are kept; None keeps them until they are purged."""

    finished: timedelta | None = timedelta(days=7)
    dead: timedelta | None = None
    streams: timedelta = timedelta(hours=1)
    """How long the stream of a job is kept after its end."""


CLOCKS_DIFFER = timedelta(hours=2)
"""By how much the clock of a producer, which is in its ids, may differ from the store's."""
_FIRST_MOMENT = datetime(1970, 1, 1, tzinfo=UTC)
_LAST_MOMENT = datetime(9999, 1, 1, tzinfo=UTC)
MAX_GROUPED = 10_000
"""How many dead jobs are looked at for their errors, the newest first."""
_LEAST = UUID(int=0)


_GREATEST = UUID(int=(1 << 128) - 1)


_TEXTS = ("queue", "kind", "key", "worker", "error", "fingerprint")
_AGES = ("older_than", "newer_than")


class Where(TypedDict, total=False):
    """Conditions for jobs, all of which must hold."""

    states: Sequence[State | str]
    queue: str
    kind: str
    key: str
    worker: str
    """The id of the worker that runs it, or ran it last."""
    error: str
    """Text in the type or the message of the last error; case matters."""
    fingerprint: str
    """The fingerprint of the last error, as in `app.control.error_groups`."""
    older_than: Duration
    newer_than: Duration
    """How long ago the job was enqueued."""
    search: str
    """What people write: `state:dead since:2h payload.order.id:42`."""


def filter_of(where: Where, now: datetime | None = None) -> JobFilter:
    """Check conditions, and return them as a filter.

    `now` is the store's time; a search that says since or until when needs it.

    Raises:
        TypeError: a field is none, or its value has the wrong type.
        ValueError: there is no such state, a duration is none, or a search cannot be read.
    """
    return _searched(_conditions(where), _search(where), now)


def filter_for(verb: Verb, where: Where, now: datetime | None = None) -> JobFilter:
    """Return a filter for a verb: it excludes jobs in states in which the verb has no effect.

    Raises:
        TypeError: a field is none, or its value has the wrong type.
        ValueError: nothing is said, a state is named from which the verb does nothing, or a search
            cannot be read.
    """
    which, search = _conditions(where), _search(where)
    if which == JobFilter() and not search.terms:
        raise ValueError(
            f"{verb} must be given a condition, got none; to select every job, write "
            f"states={_listed(FROM[verb])}"
        )
    named = [states_of(term) for term in search.terms if term.field is Field.STATE]
    for states in (which.states, *(states for states in named if states.isdisjoint(FROM[verb]))):
        if wrong := _listed(set(states) - FROM[verb]):
            raise ValueError(
                f"states must be among {_listed(FROM[verb])} for {verb}, got {wrong[0]!r}"
            )
    return _searched(replace(which, states=which.states or _ordered(verb)), search, now)


def needs_clock(where: Where) -> bool:
    """Return whether conditions depend on the time at which they are read."""
    return _search(where).needs_clock


def _conditions(where: Where) -> JobFilter:
    said: dict[str, Any] = {name: value for name, value in where.items() if value is not None}
    known = ("states", *_TEXTS, *_AGES, "search")
    if unknown := [name for name in said if name not in known]:
        raise TypeError(f"jobs are selected by {', '.join(known)}, got {unknown[0]!r}")
    for name in _TEXTS:
        if not isinstance(said.get(name, ""), str):
            raise TypeError(f"{name} must be a string, got {said[name]!r}")
    said.pop("search", None)
    ages = {name: duration(said[name]) for name in _AGES if name in said}
    return JobFilter(**said | ages | {"states": _states(said.get("states", ()))})


def _search(where: Where) -> Search:
    search = where.get("search")
    return Search() if search is None else parse(search)


def described(which: JobFilter) -> str:
    """Write the conditions of a filter for people: `states=dead kind=send_email older_than=1h`."""
    empty = JobFilter()
    given = {name: value for name, value in _fields(which).items() if value != getattr(empty, name)}
    if terms := given.pop("terms", ()):
        given["search"] = " ".join(map(str, terms))
    return " ".join(f"{name}={_written(value)}" for name, value in given.items())


def _written(value: object) -> str:
    if isinstance(value, timedelta):
        return human(value)
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, tuple | list | frozenset):
        return ",".join(map(_written, value))
    text = str(value)
    return repr(text) if not text or any(each.isspace() for each in text) else text


def term_of_queues(queues: Collection[str]) -> Term:
    """Return the term that jobs of these queues meet; no job does if there are none."""
    return Term(field=Field.QUEUE, values=tuple(map(Value, queues)))


def _fields(which: JobFilter) -> dict[str, Any]:
    return {name: getattr(which, name) for name in which.__struct_fields__}


def _searched(which: JobFilter, search: Search, now: datetime | None) -> JobFilter:
    if search.needs_clock and now is None:
        raise TypeError(f"now must be given for a search with a time, got none for {search}")
    return narrowed(which, search, now or _FIRST_MOMENT)


def _ordered(verb: Verb) -> tuple[State, ...]:
    return tuple(state for state in State if state in FROM[verb])


def _listed(states: Collection[State]) -> list[str]:
    return [state.value for state in State if state in states]


def _states(states: Sequence[State | str]) -> tuple[State, ...]:
    if isinstance(states, str):
        raise TypeError(f"states must be a list of states, got {states!r}; write [{states!r}]")
    try:
        return tuple(dict.fromkeys(State(state) for state in states))
    except (TypeError, ValueError):
        raise ValueError(
            f"states must be among {[state.value for state in State]}, got {states!r}"
        ) from None
