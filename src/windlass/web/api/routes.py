"""Owns the routes of the API: what each reads, and the document that it answers with."""

from __future__ import annotations

import json
import math
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Annotated, Any
from uuid import UUID

from msgspec import UNSET, Meta, Struct, UnsetType, structs
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from windlass.app.control.why import why_facts
from windlass.app.workflows.flow_rows import flow_facts, flow_parts
from windlass.core.audit import audit_facts
from windlass.core.deploys import find_mark, is_new_since, mark_facts
from windlass.core.documents import (
    Facts,
    breaker_facts,
    figures_facts,
    groups_facts,
    limit_facts,
    page_facts,
    schedule_facts,
    worker_facts,
)
from windlass.core.jobs.bulk import bulk_facts
from windlass.core.search.parser import MAX_CHARACTERS
from windlass.core.workflows.flow_graph import FLOW_KIND
from windlass.web.access.visible import visible, visible_entry, visible_facts, visible_operation
from windlass.web.actions.bulk_operations import found_operation
from windlass.web.actions.registry import allowed_action, perform
from windlass.web.forms import document_of, query_of, read
from windlass.web.live.reads import MAX_COMPARED, MAX_GROUPS
from windlass.web.search import search_of, where_of
from windlass.web.site import access_of, reads_of, site_of
from windlass.web.suggestions import suggestions

PREFIX = "/api/v1"


class NoQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """No parameters."""


class JobsQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which jobs to list; `after` continues a page."""

    search: str = ""
    limit: Annotated[int, Meta(ge=1, le=500)] = 50
    after: UUID | UnsetType = UNSET


class SuggestionsQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A search that is being typed, up to where it goes on."""

    search: Annotated[str, Meta(max_length=MAX_CHARACTERS)] = ""


class ErrorsQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Of all kinds, or of one; all errors, or those that are new since a deploy."""

    kind: str = ""
    deploy: str = ""


class AuditQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Of all operators, or of one; `after` continues a page."""

    by: str = ""
    since: str = ""
    limit: Annotated[int, Meta(ge=1, le=500)] = 50
    after: str = ""


class StatsQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All figures, or those of a queue, or of a kind."""

    queue: str = ""
    kind: str = ""


Answer = Callable[[Request, Any], Awaitable[Facts]]


@dataclass(frozen=True, kw_only=True)
class Endpoint:
    """A document that can be read: its path, what selects it, and its keys."""

    path: str
    summary: str
    keys: tuple[str, ...]
    answer: Answer
    query: type[Struct] = NoQuery


async def _stats(request: Request, query: StatsQuery) -> Facts:
    reads = reads_of(request)
    return figures_facts(await reads.stats(queue=query.queue or None, kind=query.kind or None))


async def _jobs(request: Request, query: JobsQuery) -> Facts:
    where = where_of(search_of(request, query.search), access_of(request))
    page = await reads_of(request).jobs(where, limit=query.limit, after=query.after or None)
    return page_facts(page)


async def _suggestions(request: Request, query: SuggestionsQuery) -> Facts:
    found = await suggestions(reads_of(request), access_of(request), query.search)
    return {
        "suggestions": [
            {"text": each.text, "replaces": query.search[each.start : each.end], "help": each.help}
            for each in found
        ]
    }


async def _job(request: Request, _query: NoQuery) -> Facts:
    job = await reads_of(request).find_job(request.path_params["id"])
    return visible_facts(visible(site_of(request).app, job), access_of(request))


async def _why(request: Request, _query: NoQuery) -> Facts:
    reads = reads_of(request)
    job = await reads.find_job(request.path_params["id"])
    return why_facts(await reads.why(job.id))


async def _errors(request: Request, query: ErrorsQuery) -> Facts:
    reads = reads_of(request)
    mark = find_mark(await reads.deploys(), query.deploy) if query.deploy else None
    # Of more groups: those that are new may be few jobs, and come last.
    limit = MAX_GROUPS if mark is None else MAX_COMPARED
    groups = await reads.groups(query.kind or None, limit=limit)
    new = tuple(each for each in groups if is_new_since(each.first_seen, mark))
    return groups_facts(replace(groups, groups=new[:MAX_GROUPS]))


async def _deploys(request: Request, _query: NoQuery) -> Facts:
    return {"deploys": [mark_facts(each) for each in await reads_of(request).deploys()]}


async def _workers(request: Request, _query: NoQuery) -> Facts:
    return {"workers": [worker_facts(each) for each in await reads_of(request).workers()]}


async def _flow(request: Request, _query: NoQuery) -> Facts:
    app, reads = site_of(request).app, reads_of(request)
    job = await reads.find_job(request.path_params["id"], kind=FLOW_KIND)
    view = await reads.flow(job.id)
    facts = flow_facts(view) | {"reason": visible(app, view.job).reason}
    return facts | {"states": dict(view.own_counts), "parts": flow_parts(view)}


async def _schedules(request: Request, _query: NoQuery) -> Facts:
    found = await reads_of(request).schedules()
    return {"schedules": [schedule_facts(each) for each in found]}


async def _limits(request: Request, _query: NoQuery) -> Facts:
    return {"limits": [limit_facts(each) for each in await reads_of(request).limits()]}


async def _breakers(request: Request, _query: NoQuery) -> Facts:
    found = await reads_of(request).breakers()
    return {"breakers": [breaker_facts(each, history=False) for each in found]}


async def _audit(request: Request, query: AuditQuery) -> Facts:
    page = await reads_of(request).audit(
        since=query.since or None,
        by=query.by or None,
        limit=query.limit,
        after=query.after or None,
    )
    app, access = site_of(request).app, access_of(request)
    seen = tuple(visible_entry(app, each, access) for each in page.entries)
    return audit_facts(structs.replace(page, entries=seen))


async def _bulks(request: Request, _query: NoQuery) -> Facts:
    app, access = site_of(request).app, access_of(request)
    found = await reads_of(request).bulks()
    return {"bulks": [bulk_facts(visible_operation(app, each, access)) for each in found]}


async def _bulk(request: Request, _query: NoQuery) -> Facts:
    site = site_of(request)
    found = found_operation(await reads_of(request).bulks(), request.path_params["id"])
    return bulk_facts(visible_operation(site.app, found, access_of(request)))


async def _doctor(request: Request, _query: NoQuery) -> Facts:
    return (await reads_of(request).doctor()).document()


ENDPOINTS = (
    Endpoint(
        path="/stats",
        summary="Queues, kinds, errors and workers, and what the load needs",
        keys=("at", "queues", "kinds", "errors", "workers", "slots", "busy"),
        answer=_stats,
        query=StatsQuery,
    ),
    Endpoint(
        path="/jobs",
        summary="The newest jobs that a search selects",
        keys=("jobs", "after", "searched_to"),
        answer=_jobs,
        query=JobsQuery,
    ),
    Endpoint(
        path="/suggestions",
        summary="How a search may go on, by the values that are known",
        keys=("suggestions",),
        answer=_suggestions,
        query=SuggestionsQuery,
    ),
    Endpoint(
        path="/jobs/{id}",
        summary="Everything about a job",
        keys=("id", "kind", "queue", "state", "payload", "history", "steps"),
        answer=_job,
    ),
    Endpoint(
        path="/jobs/{id}/why",
        summary="Why a job does not run, or what became of it",
        keys=("job", "now", "reasons", "knows_limits"),
        answer=_why,
    ),
    Endpoint(
        path="/errors",
        summary="The errors that jobs died of",
        keys=("groups", "searched_to"),
        answer=_errors,
        query=ErrorsQuery,
    ),
    Endpoint(path="/deploys", summary="Marked deploys", keys=("deploys",), answer=_deploys),
    Endpoint(
        path="/workers", summary="Workers, alive and gone", keys=("workers",), answer=_workers
    ),
    Endpoint(
        path="/flows/{id}",
        summary="A flow, and its jobs, those that are alike together",
        keys=("id", "name", "state", "states", "parts"),
        answer=_flow,
    ),
    Endpoint(path="/schedules", summary="Schedules", keys=("schedules",), answer=_schedules),
    Endpoint(
        path="/limits", summary="Limits, and what is in use", keys=("limits",), answer=_limits
    ),
    Endpoint(path="/breakers", summary="Breakers", keys=("breakers",), answer=_breakers),
    Endpoint(
        path="/audit",
        summary="What operators did",
        keys=("entries", "after", "searched_to"),
        answer=_audit,
        query=AuditQuery,
    ),
    Endpoint(path="/bulk", summary="Bulk operations", keys=("bulks",), answer=_bulks),
    Endpoint(
        path="/bulk/{id}",
        summary="A bulk operation, and how far it came",
        keys=("id", "verb", "state", "conditions", "matched", "seen", "moved", "by", "reason"),
        answer=_bulk,
    ),
    Endpoint(
        path="/doctor",
        summary="Problems of the store and the workers, with remedies",
        keys=("ok", "facts", "problems", "warnings", "notes"),
        answer=_doctor,
    ),
)


def answered(document: Any, status: int = 200) -> Response:
    """Answer with a JSON document; in ASCII, in which no character can do harm."""
    try:
        text = json.dumps(document, allow_nan=False)
    except ValueError:
        text = json.dumps(_finite(document))
    return Response(text, status, media_type="application/json")


def _finite(value: Any) -> Any:
    """Return a value without numbers that JSON does not have, which other writers may store."""
    match value:
        case dict():
            return {name: _finite(each) for name, each in value.items()}
        case list() | tuple():
            return [_finite(each) for each in value]
        case float() if not math.isfinite(value):
            return None
        case _:
            return value


def _route(endpoint: Endpoint) -> Route:
    async def answer(request: Request) -> Response:
        query = read(query_of(request), endpoint.query)
        return answered(await endpoint.answer(request, query))

    return Route(PREFIX + endpoint.path, answer, methods=["GET"])


async def _act(request: Request) -> Response:
    action = allowed_action(request)
    done = await perform(
        request, action, read(await document_of(request), action.form, strict=True)
    )
    return answered({"message": done.message, **done.facts})


async def _openapi(request: Request) -> Response:
    # Imported here: only this route needs it.
    from windlass.web.api.openapi import openapi_document

    return answered(openapi_document(request.scope.get("root_path", "")))


API_ROUTES = [
    *map(_route, ENDPOINTS),
    Route(f"{PREFIX}/actions/{{action}}", _act, methods=["POST"]),
    Route(f"{PREFIX}/openapi.json", _openapi, methods=["GET"]),
]
