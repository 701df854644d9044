"""Owns the confirmation of an action, and the form that performs it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from windlass.core.errors import WindlassError
from windlass.core.jobs.ids import read_id
from windlass.core.payloads.json_checks import strict_json
from windlass.web.actions.action import AnyAction
from windlass.web.actions.registry import allowed_action, perform
from windlass.web.actions.registry import plan as planned
from windlass.web.forms import form_of, read
from windlass.web.site import render, see_other, site_of


async def confirm(request: Request) -> Response:
    """Say what an action would do: nothing has changed yet."""
    action = allowed_action(request)
    return await _asked(request, action, dict(request.query_params))


async def act(request: Request) -> Response:
    """Perform an action, and lead to what it changed."""
    action = allowed_action(request)
    given = await form_of(request)
    try:
        form = read(_parsed(given), action.form)
        done = await perform(request, action, form)
    except (WindlassError, ValueError, HTTPException) as error:
        if "payload" not in given and action.name != "set-limit":
            raise
        # What was typed is shown again, beside what is wrong with it.
        said = error.detail if isinstance(error, HTTPException) else str(error)
        return await _asked(request, action, given, said)
    said = site_of(request).sealed(done.message)
    return see_other(request, done.path, **done.query, done=said)


async def _asked(
    request: Request, action: AnyAction, given: Mapping[str, str], problem: str = ""
) -> Response:
    try:
        fields = _parsed(given)
    except ValueError:
        fields = {name: value for name, value in given.items() if name != "payload"}
    form = read(_without_empty(fields), action.form)
    plan = await planned(request, action, form)
    typed = {each.name for each in plan.inputs}
    context = {
        "action": action,
        "plan": plan,
        "hidden": {name: value for name, value in given.items() if name not in typed},
        "typed": given if problem else {},
        "problem": problem,
    }
    return render(request, "action.html", context, status=422 if problem else 200)


def _parsed(given: Mapping[str, str]) -> dict[str, Any]:
    """Return the fields of a form as data: a payload is JSON, an id may be shortened."""
    fields: dict[str, Any] = dict(given)
    if "payload" in fields:
        fields["payload"] = _json(fields["payload"])
    if "id" in fields:
        first, last = read_id(fields["id"])
        if first != last:
            raise ValueError(f"id must be the whole id of a job, got {fields['id']!r}")
    return fields


def _without_empty(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value != ""}


def _json(text: str) -> Any:
    try:
        return strict_json(text)
    except ValueError as error:
        raise ValueError(f"the payload is not JSON: {error}; correct it") from None
