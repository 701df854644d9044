"""Owns the confirmation of an action, and the form that performs it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from windlass.core.errors import PayloadInvalid, WindlassError
from windlass.core.jobs.ids import read_id
from windlass.core.payloads.json_checks import strict_json
from windlass.web.actions.action import AnyAction
from windlass.web.actions.registry import allowed_action, perform
from windlass.web.actions.registry import plan as planned
from windlass.web.forms import form_of, read
from windlass.web.payload_form.fields import Field, field_at
from windlass.web.payload_form.names import PREFIX
from windlass.web.payload_form.reading import FieldInvalid, is_form, payload_in
from windlass.web.site import render, see_other, site_of

_AS = "as"
"""The parameter that asks for a payload as JSON, although it has a form."""


async def confirm(request: Request) -> Response:
    """Say what an action would do: nothing has changed yet."""
    action = allowed_action(request)
    given = dict(request.query_params)
    return await _asked(request, action, given, as_json=given.pop(_AS, "") == "json")


async def act(request: Request) -> Response:
    """Perform an action, and lead to what it changed."""
    action = allowed_action(request)
    given = await form_of(request)
    try:
        form = read(_parsed(given), action.form)
        done = await perform(request, action, form)
    except (WindlassError, ValueError, HTTPException) as error:
        has_payload = "payload" in given or is_form(given)
        if not has_payload and action.name != "set-limit":
            raise
        # What was typed is shown again, beside what is wrong with it.
        as_json = "payload" in given
        return await _asked(request, action, given, error=error, as_json=as_json)
    said = site_of(request).sealed(done.message)
    return see_other(request, done.path, **done.query, done=said)


async def _asked(
    request: Request,
    action: AnyAction,
    given: Mapping[str, str],
    *,
    error: Exception | None = None,
    as_json: bool = False,
) -> Response:
    form = read(_without_empty(_shown(given)), action.form)
    plan = await planned(request, action, form, as_json=as_json)
    typed = {each.name for each in plan.inputs}
    context = {
        "action": action,
        "plan": plan,
        "hidden": {
            name: value
            for name, value in given.items()
            if name not in typed
            and not name.startswith(PREFIX)
            and not (name == "payload" and plan.fields)
        },
        "typed": given if error is not None else {},
        "problem": _said(error),
        "wrong": _wrong(plan.fields, error),
        "other": {**_identity(given), _AS: "json"} if plan.fields else _identity(given),
    }
    return render(request, "action.html", context, status=200 if error is None else 422)


def _said(error: Exception | None) -> str:
    if isinstance(error, HTTPException):
        return error.detail
    return "" if error is None else str(error)


def _wrong(fields: tuple[Field, ...], error: Exception | None) -> tuple[str, str] | None:
    """Return the id of the field that is wrong, and why; None if no field is."""
    if not isinstance(error, PayloadInvalid | FieldInvalid) or not error.field:
        return None
    found = field_at(fields, error.field, error.reason)
    return None if found is None else (found.id, error.reason)


def _identity(given: Mapping[str, str]) -> dict[str, str]:
    """Return the fields that say what an action is about."""
    return {name: given[name] for name in ("id", "kind", "queue") if name in given}


def _parsed(given: Mapping[str, str]) -> dict[str, Any]:
    """Return the fields of a form as data: a payload is JSON, an id may be shortened."""
    fields: dict[str, Any] = {n: v for n, v in given.items() if not n.startswith(PREFIX)}
    if "payload" in fields:
        fields["payload"] = _json(fields["payload"])
    elif is_form(given):
        fields["payload"] = payload_in(given)
    if "id" in fields:
        first, last = read_id(fields["id"])
        if first != last:
            raise ValueError(f"id must be the whole id of a job, got {fields['id']!r}")
    return fields


def _shown(given: Mapping[str, str]) -> dict[str, Any]:
    """Return the fields of which a confirmation is made.

    The fields of a payload are left out: they are made from the payload that there is, and what was
    typed is shown in them.
    """
    others = {name: value for name, value in given.items() if not name.startswith(PREFIX)}
    try:
        return _parsed(others)
    except ValueError:
        others.pop("payload", None)
        return _parsed(others)


def _without_empty(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value != ""}


def _json(text: str) -> Any:
    try:
        return strict_json(text)
    except ValueError as error:
        raise ValueError(f"the payload is not JSON: {error}; correct it") from None
