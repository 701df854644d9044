"""Owns how a search becomes a filter: what filters have fields for, and the rest as terms."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from windlass.core.jobs.states import State
from windlass.core.search.matching import ids_of
from windlass.core.search.search import Search
from windlass.core.search.terms import RETRYING, Field, Term
from windlass.core.search.times import read_moment, since, until

if TYPE_CHECKING:
    from windlass.core.jobs.queries import JobFilter


def narrowed(which: JobFilter, search: Search, now: datetime) -> JobFilter:
    """Return a filter for the jobs that match both a filter and a search.

    Times of the day, and days, are in the time zone of `now`.
    """
    for term in search.terms:
        fields, is_whole = _fields(which, term, now)
        terms = which.terms if is_whole else (*which.terms, term)
        which = replace(which, **fields, terms=terms)
    return which


def _fields(which: JobFilter, term: Term, now: datetime) -> tuple[dict[str, Any], bool]:
    """Return the fields of a filter that a term narrows, and whether they say all of it."""
    match term.field:
        case Field.SINCE:
            moment = since(read_moment(term.values[0].text), now)
            return {"created_since": max(moment, which.created_since or moment)}, True
        case Field.UNTIL:
            moment = until(read_moment(term.values[0].text), now)
            return {"created_before": min(moment, which.created_before or moment)}, True
        case Field.STATE:
            return _states(which, term)
        case Field.ID | Field.FLOW:
            return _ids(which, term)
        case Field.KIND | Field.QUEUE | Field.KEY:
            return _name(which, term)
    return {}, False


def states_of(term: Term) -> frozenset[State]:
    """Return the states in which jobs may meet a term about states."""
    named = {value.text for value in term.values}
    meant = frozenset(State(name) for name in named - {RETRYING})
    if term.negated:
        return frozenset(State) - meant
    return meant | {State.SCHEDULED} if RETRYING in named else meant


def _states(which: JobFilter, term: Term) -> tuple[dict[str, Any], bool]:
    meant = states_of(term)
    both = tuple(state for state in State if state in meant and state in (which.states or State))
    # No states would be all of them: then the term itself says that no job matches.
    is_whole = RETRYING not in {value.text for value in term.values}
    return ({"states": both}, is_whole) if both else ({}, False)


def _ids(which: JobFilter, term: Term) -> tuple[dict[str, Any], bool]:
    if term.negated:
        return {}, False
    ranges = [ids_of(term, value) for value in term.values]
    first, last = min(low for low, _ in ranges), max(high for _, high in ranges)
    fields = {
        "first": first if which.first is None else max(first, which.first),
        "last": last if which.last is None else min(last, which.last),
    }
    return fields, term.field is Field.ID and len(ranges) == 1


def _name(which: JobFilter, term: Term) -> tuple[dict[str, Any], bool]:
    value = term.values[0]
    given = getattr(which, term.field.value)
    if term.negated or len(term.values) > 1 or value.is_prefix or given not in (None, value.text):
        return {}, False
    return {term.field.value: value.text}, True
