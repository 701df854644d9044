"""Owns the list of jobs: one search box, states as tabs, and pages that continue by id."""

from __future__ import annotations

from typing import Any, NamedTuple
from uuid import UUID

from starlette.requests import Request
from starlette.responses import Response

from windlass.core.errors import AmbiguousId, UnknownJob
from windlass.core.jobs.ids import made_at
from windlass.core.jobs.moves import FROM, Verb
from windlass.core.jobs.queries import Page
from windlass.core.jobs.states import State
from windlass.core.search.errors import SearchError
from windlass.core.search.search import Search
from windlass.web.access.own_jobs import find_job
from windlass.web.access.roles import Role
from windlass.web.search import search_of, states_in, term, where_of, with_state
from windlass.web.site import access_of, reads_of, render, see_other, site_of
from windlass.web.suggestions import known_terms

_LIMIT = 50


class Mistake(NamedTuple):
    """A place in a search that cannot be read."""

    position: int
    before: str
    word: str
    """Empty at the end of the search."""
    after: str


_SHORTCUTS = ("kind", "queue", "key", "worker", "state", "error", "flow", "tag")
"""Parameters of links, which become part of the search."""


async def jobs(request: Request) -> Response:
    """List jobs, the newest first; a search that is an id leads to the job."""
    site, text = site_of(request), _text(request)
    try:
        search = search_of(request, text)
        if search.job_id is not None:
            found = await find_job(site.app, access_of(request), search.job_id)
            return see_other(request, f"/jobs/{found.id}")
    except (SearchError, UnknownJob, AmbiguousId) as error:
        return await _listed(request, text, Search(), error)
    return await _listed(request, text, search)


def _text(request: Request) -> str:
    parts = [request.query_params.get("q", "")]
    given = ((name, request.query_params.get(name, "")) for name in _SHORTCUTS)
    parts += [term(name, value) for name, value in given if value]
    return " ".join(parts).strip()


async def _listed(
    request: Request, text: str, search: Search, error: Exception | None = None
) -> Response:
    reads, access = reads_of(request), access_of(request)
    after = id_in(request.query_params.get("after", ""))
    snapshot = await reads.snapshot()
    page = Page(jobs=(), after=None)
    if error is None:
        page = await reads.jobs(where_of(search, access), limit=_LIMIT, after=after)
    states = states_in(search)
    context = {
        "text": text,
        "problem": "" if error is None else str(error),
        "mistake": mistake_in(text, error.position) if isinstance(error, SearchError) else None,
        "terms": await known_terms(reads),
        "page": page,
        "after": after,
        "searched_to": None if page.searched_to is None else made_at(page.searched_to),
        "tabs": _tabs(search, snapshot.stats.queues),
        "chosen": states[0].value if len(states) == 1 else "",
        "bulk": _bulk(states) if page.jobs else [],
    }
    status = 200 if error is None else 422
    return render(request, "jobs.html", context, now=snapshot.stats.at, status=status)


def mistake_in(text: str, position: int) -> Mistake:
    """Return where a search is wrong: the word there, and the text before and after it."""
    rest = text[position:]
    word = (rest.split(maxsplit=1) or [""])[0] if rest[:1].strip() else rest[:1]
    return Mistake(position, text[:position], word, rest[len(word) :])


def _tabs(search: Search, queues: Any) -> list[tuple[str, str, int | None, bool]]:
    rest = with_state(search, None)
    tabs: list[tuple[str, str, int | None, bool]] = [("", rest, None, False)]
    for state in State:
        counted = [each.jobs.get(state.value) for each in queues if state.value in each.jobs]
        number = sum(each or 0 for each in counted) if counted and not rest else None
        capped = any(state.value in each.capped for each in queues)
        tabs.append((state.value, with_state(search, state), number, capped))
    return tabs


def _bulk(states: list[State]) -> list[tuple[str, str, Role]]:
    found = []
    for verb, role in (
        (Verb.REDRIVE, Role.OPERATOR),
        (Verb.CANCEL, Role.OPERATOR),
        (Verb.PURGE, Role.ADMIN),
    ):
        if states and all(each in FROM[verb] for each in states):
            found.append((verb.value.capitalize(), f"/actions/{verb.value}-jobs", role))
    return found


def id_in(text: str) -> UUID | None:
    """Return the id with which a page continues; None: it is the first.

    Raises:
        ValueError: it is no id.
    """
    try:
        return UUID(text) if text else None
    except ValueError:
        raise ValueError(f"after must be the id of a job, got {text!r}") from None
