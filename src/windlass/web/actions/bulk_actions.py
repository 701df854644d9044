"""Owns the actions on all jobs that a search selects, and on the bulk operations that do them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import cast
from uuid import UUID

from msgspec import Struct

from windlass.app.control.bulk_operations import BulkVerb, count_some
from windlass.app.jobs.searching import store_now
from windlass.core.jobs.bulk import BulkOperation, bulk_facts
from windlass.core.jobs.moves import FROM, Verb
from windlass.core.jobs.queries import Where, filter_for
from windlass.core.jobs.states import State
from windlass.core.search.search import Search
from windlass.core.search.terms import Field, Term, Value
from windlass.core.values.text import plural
from windlass.core.workflows.flow_graph import FLOW_KIND
from windlass.web.access.queue_access import is_within
from windlass.web.access.roles import Access, Role
from windlass.web.access.visible import visible_operation
from windlass.web.actions.action import REASON, Action, AnyAction, Done, Input, Plan, Scene
from windlass.web.actions.bulk_operations import found_operation
from windlass.web.search import checked, states_in, where_of

_DONE = {Verb.CANCEL: "cancelled", Verb.REDRIVE: "redriven", Verb.PURGE: "purged"}
_EFFECTS = {
    Verb.CANCEL: "Jobs that wait never run; running ones are asked to end.",
    Verb.REDRIVE: "Dead jobs get a new life with the same payload and all of their retries.",
    Verb.PURGE: "The jobs and everything that is known about them are deleted. This cannot be "
    "undone.",
}
_BY_WORKERS = "Workers do it step by step, the oldest jobs first; it can be paused and stopped."
_PULLS = {
    "pause": ("Pause", "It moves no more jobs after the step under way, until it is resumed."),
    "resume": ("Resume", "Workers carry it on where it was paused."),
    "stop": ("Stop", "It ends for good. The jobs that it has moved stay as they are."),
}


_REASON = Input(name="reason", label="Reason", hint="Recorded with your name.", required=True)
_RATE = Input(name="rate", label="Rate", hint="Like 10/s. Empty: as fast as workers can.")


class BulkForm(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The jobs that a search selects, how fast they are moved, and why."""

    search: str
    rate: str = ""
    reason: str = ""


class OperationForm(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A bulk operation, and why."""

    id: UUID
    reason: str = ""


# -- jobs that a search selects ----------------------------------------------------------------


def _where(scene: Scene, verb: Verb, text: str) -> Where:
    """Return the conditions, without states in which the verb has no effect.

    Raises:
        ValueError: the search is empty, cannot be read, or names no state that the verb changes.
    """
    search = checked(scene.app, scene.access, text)
    narrowed = where_of(_without_flows(search, scene.access), scene.access)
    if narrowed is None:
        raise ValueError("the search must name a queue of your login, got others; leave them out")
    where = cast("Where", {**narrowed, "states": [s for s in State if s in FROM[verb]]})
    if not search.terms:
        raise ValueError(f"{verb} must be given a search, got none; write kind:… or state:…")
    asked = states_in(search)
    if asked and not set(asked) & FROM[verb]:
        possible = ", ".join(each for each in State if each in FROM[verb])
        raise ValueError(f"{verb} has no effect on these states; choose among {possible}")
    return where


def _without_flows(search: Search, access: Access) -> Search:
    """Leave flows out for people limited to queues: their jobs may be of others, and move, too."""
    if access.queues is None:
        return search
    flows = Term(field=Field.KIND, values=(Value(FLOW_KIND),), negated=True)
    return Search(terms=(*search.terms, flows))


async def _plan(scene: Scene, form: BulkForm, *, verb: Verb) -> Plan:
    where, store = _where(scene, verb, form.search), scene.app.store
    which = filter_for(verb, where, await store_now(store, where))
    matched, is_capped = await count_some(store, which)
    group = "dead" if verb is Verb.REDRIVE else "jobs"
    return Plan(
        title=f"{verb.value.capitalize()} all jobs that match",
        effect=f"{_EFFECTS[verb]} {_BY_WORKERS}",
        command=scene.command(group, verb.value, "--find", where.get("search", ""), "--background"),
        back="/jobs",
        back_query={"q": form.search},
        jobs=matched,
        at_least=is_capped,
        inputs=(_RATE, _REASON),
        danger=verb is Verb.PURGE,
    )


async def _perform(scene: Scene, form: BulkForm, *, verb: Verb) -> Done:
    where = _where(scene, verb, form.search)
    operation = await scene.control.astart_bulk(
        cast("BulkVerb", verb.value),
        rate=form.rate or None,
        reason=scene.reason(form.reason, _DONE[verb]),
        **where,
    )
    jobs = plural(operation.matched, "job")
    at_least = "at least " if operation.is_capped else ""
    message = f"The bulk operation is started: {at_least}{jobs} to {verb}."
    return _done(scene, operation, message)


def _done(scene: Scene, operation: BulkOperation, message: str) -> Done:
    facts = bulk_facts(visible_operation(scene.app, operation, scene.access))
    return Done(message=message, path=f"/bulk/{operation.id}", facts=facts)


def _bulk(verb: Verb, role: Role) -> AnyAction:
    return Action(
        name=f"{verb.value}-jobs",
        label=f"{verb.value.capitalize()} them",
        role=role,
        form=BulkForm,
        plan=partial(_plan, verb=verb),
        perform=partial(_perform, verb=verb),
    )


# -- bulk operations ---------------------------------------------------------------------------


async def _operation(scene: Scene, operation_id: UUID) -> BulkOperation:
    known = await scene.control.abulks()
    seen = (each for each in known if is_within(each.which, scene.access))
    return found_operation(seen, str(operation_id))


async def _plan_pull(scene: Scene, form: OperationForm, *, verb: str) -> Plan:
    operation = await _operation(scene, form.id)
    label, effect = _PULLS[verb]
    return Plan(
        title=f"{label} the bulk operation: {operation.verb} jobs",
        effect=effect,
        command=scene.command("bulk", verb, str(operation.id)),
        back=f"/bulk/{operation.id}",
        inputs=(REASON,),
        danger=verb == "stop",
    )


async def _pull(scene: Scene, form: OperationForm, *, verb: str) -> Done:
    found = await _operation(scene, form.id)
    control = scene.control
    pulls: dict[str, Callable[[UUID], Awaitable[BulkOperation]]] = {
        "pause": control.apause_bulk,
        "resume": control.aresume_bulk,
        "stop": control.astop_bulk,
    }
    operation = await pulls[verb](found.id)
    return _done(scene, operation, f"The bulk operation is {operation.state}.")


def _of_operation(verb: str) -> AnyAction:
    return Action(
        name=f"{verb}-bulk",
        label=_PULLS[verb][0],
        role=Role.OPERATOR,
        form=OperationForm,
        plan=partial(_plan_pull, verb=verb),
        perform=partial(_pull, verb=verb),
    )


ACTIONS: tuple[AnyAction, ...] = (
    _bulk(Verb.CANCEL, Role.OPERATOR),
    _bulk(Verb.REDRIVE, Role.OPERATOR),
    _bulk(Verb.PURGE, Role.ADMIN),
    *map(_of_operation, _PULLS),
)
