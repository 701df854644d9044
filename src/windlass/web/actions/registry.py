"""Owns the list of all actions, and how one is performed: role checked, done, shown to viewers."""

from __future__ import annotations

from typing import Any

from msgspec import Struct
from starlette.exceptions import HTTPException
from starlette.requests import Request

from windlass.web.access.own_jobs import find_job
from windlass.web.access.queue_access import Reach, check_queue, check_whole, reach_of
from windlass.web.actions import bulk_actions, job_actions, lever_actions
from windlass.web.actions.action import AnyAction, Done, Plan, Scene
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


def scene_of(request: Request, form: Struct, *, as_json: bool = False) -> Scene:
    """Return the app on which the person acts, with the reason of the form."""
    why = getattr(form, "reason", "")
    app, access = site_of(request).app, access_of(request)
    return Scene(app=app, access=access, why=why, as_json=as_json)


async def plan(request: Request, action: AnyAction, form: Struct, *, as_json: bool = False) -> Plan:
    """Say what an action would do, if the person may do it to what the form names."""
    scene = scene_of(request, form, as_json=as_json)
    await _check_reach(scene, action, form)
    found: Plan = await action.plan(scene, form)
    return found


async def perform(request: Request, action: AnyAction, form: Struct) -> Done:
    """Do it, if the person may do it to what the form names, and let every open page see it."""
    scene = scene_of(request, form)
    await _check_reach(scene, action, form)
    done = await action.perform(scene, form)
    site_of(request).reads.forget()
    return done


async def _check_reach(scene: Scene, action: AnyAction, form: Any) -> None:
    """Refuse what a person whose access is limited to queues must not change.

    Actions on what a search selects, on bulk operations and on new jobs check it where they act.

    Raises:
        UnknownJob: the job is of another queue.
        HTTPException: the queue is another, or the action changes more than one.
    """
    match reach_of(action.name):
        case Reach.JOB:
            await find_job(scene.app, scene.access, str(form.id))
        case Reach.QUEUE:
            check_queue(scene.access, form.name)
        case Reach.ALL:
            check_whole(scene.access, action.name.replace("-", " a ", 1))
