"""Owns how the search box and links select jobs, and which fields cannot be searched."""

from __future__ import annotations

from typing import cast

from starlette.exceptions import HTTPException
from starlette.requests import Request

from windlass.app.app import Windlass
from windlass.app.masking import redaction_of
from windlass.core.jobs.queries import Where
from windlass.core.jobs.states import State
from windlass.core.search.lowering import states_of
from windlass.core.search.parser import parse
from windlass.core.search.search import Search
from windlass.core.search.terms import WITH_PATH, Field, Term, Value
from windlass.web.access.queue_access import narrowed
from windlass.web.access.roles import Access
from windlass.web.site import access_of, site_of


def search_of(request: Request, text: str) -> Search:
    """Parse a search, and check that the person may search for the fields that it names.

    Raises:
        SearchError: it cannot be parsed.
        HTTPException: it searches payloads that the person may not see, or a masked field.
    """
    return checked(site_of(request).app, access_of(request), text)


def checked(app: Windlass, access: Access, text: str) -> Search:
    """Parse a search, and check that `access` may search for its fields: see `search_of`."""
    search = parse(text)
    if not access.payloads and any(term.field in WITH_PATH for term in search.terms):
        raise HTTPException(403, "your login does not show payloads, so it cannot search them")
    hidden = next(filter(redaction_of(app).hides, search.inner_names), None)
    if hidden is not None:
        raise HTTPException(403, f"{hidden} is masked, so it cannot be searched for")
    return search


def where_of(search: Search, access: Access) -> Where | None:
    """Return the conditions of a search of a person; None: it can find nothing that they see."""
    seen = narrowed(search, access)
    if seen is None:
        return None
    return cast("Where", {"search": str(seen)} if seen.terms else {})


def term(name: str, value: str) -> str:
    """Write a term, as links need it: `queue:mail`."""
    return str(Term(field=Field(name), values=(Value(value),)))


def states_in(search: Search) -> list[State]:
    """Return the states that a search asks for; none if it does not."""
    found = [each for each in search.terms if each.field is Field.STATE and not each.negated]
    return [state for state in State if found and state in states_of(found[0])]


def with_state(search: Search, state: State | None) -> str:
    """Write a search for another state, or for all of them."""
    rest = [str(each) for each in search.terms if each.field is not Field.STATE]
    return " ".join([*rest, *([] if state is None else [term("state", state.value)])])
