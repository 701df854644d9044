"""Owns the list of all actions, and how one is performed: role checked, done, seen by everybody."""

from __future__ import annotations

from msgspec import Struct
from starlette.exceptions import HTTPException
from starlette.requests import Request

from windlass.web.actions import bulk_actions, job_actions, lever_actions
from windlass.web.actions.action import AnyAction, Done, Scene
from windlass.web.site import access_of, site_of

ACTIONS: dict[str, AnyAction] = {
    each.name: each
    for each in (*job_actions.ACTIONS, *bulk_actions.ACTIONS, *lever_actions.ACTIONS)
}


def allowed_action(request: Request) -> AnyAction:
    """Return the action that a request names, if the person may do it.

    Raises:
        HTTPException: there is none, or the role does not allow it.
    """
    action = ACTIONS.get(request.path_params["action"])
    if action is None:
        raise HTTPException(404, "there is no such action; the page has a button for each")
    access = access_of(request)
    if not access.may(action.role):
        raise HTTPException(
            403, f"{action.label.lower()} takes the role {action.role}, yours is {access.role}"
        )
    return action


def scene_of(request: Request, form: Struct) -> Scene:
    """Return the app on which the person acts, with the reason of the form."""
    why = getattr(form, "reason", "")
    return Scene(app=site_of(request).app, access=access_of(request), why=why)


async def perform(request: Request, action: AnyAction, form: Struct) -> Done:
    """Do it, and let every open page see it."""
    done = await action.perform(scene_of(request, form), form)
    site_of(request).reads.forget()
    return done
