"""Owns which values the search box suggests: those that the shared figures of the page have."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice

from windlass.app.snapshot import Snapshot
from windlass.core.jobs.states import State
from windlass.core.search.suggest import Suggestion, suggest
from windlass.core.search.terms import WITH_PATH, Field, Term, Value
from windlass.web.access.roles import Access
from windlass.web.live.limited_reads import LimitedReads
from windlass.web.live.reads import Reads

_MAX_VALUES = 500
_MAX_TERMS = 40
_PATHS = tuple(f"{field}." for field in WITH_PATH)


async def suggestions(reads: Reads | LimitedReads, access: Access, before: str) -> list[Suggestion]:
    """Return how a search may go on after the text before the caret, for this person."""
    found = suggest(before, len(before), await known_values(reads))
    if access.payloads:
        return found
    return [each for each in found if not each.text.startswith(_PATHS)]


async def known_terms(reads: Reads | LimitedReads) -> list[str]:
    """Return whole terms, for browsers without scripts: states, queues and kinds."""
    known = await known_values(reads)
    return list(islice(_terms({**known, "state": [state.value for state in State]}), _MAX_TERMS))


def _terms(known: Mapping[str, list[str]]) -> Iterator[str]:
    for field in (Field.STATE, Field.QUEUE, Field.KIND):
        yield from (str(Term(field=field, values=(Value(each),))) for each in known[field.value])


async def known_values(reads: Reads | LimitedReads) -> dict[str, list[str]]:
    """Return the values of fields that the page has read anyway; see `suggest`."""
    snapshot = await reads.snapshot()
    kinds = {name for name in reads.registered_kinds() if not name.startswith("windlass.")}
    return {
        **_named(snapshot),
        "kind": _bounded(kinds | {each.name for each in snapshot.stats.kinds}),
    }


def _named(snapshot: Snapshot) -> dict[str, list[str]]:
    stats = snapshot.stats
    return {
        "queue": _bounded({each.name for each in stats.queues}),
        "worker": _bounded({each.id for each in stats.workers}),
        "error": _bounded({each.group for each in stats.errors if each.group}),
        "key": _bounded(set(snapshot.pauses.keys)),
    }


def _bounded(names: set[str]) -> list[str]:
    return sorted(names)[:_MAX_VALUES]
