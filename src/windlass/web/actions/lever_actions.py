"""Owns the actions on queues, kinds, keys, limits, breakers and schedules."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from itertools import chain
from typing import Any, Literal

from msgspec import Struct

from windlass.app.control.bulk_operations import count_some
from windlass.core.documents import breaker_facts, schedule_facts
from windlass.core.errors import UnknownSchedule
from windlass.core.jobs.queries import JobFilter
from windlass.core.jobs.states import State
from windlass.core.policies.breaker_record import BreakerStatus
from windlass.core.policies.limit_usage import LimitState
from windlass.core.search.parser import MAX_VALUES
from windlass.core.search.terms import Field, Term, Value
from windlass.core.values.text import plural
from windlass.web.access.roles import Role
from windlass.web.actions.action import REASON, Action, AnyAction, Done, Input, Plan, Scene

_WAITING = (State.PENDING,)
_PAGES = {"queue": "/queues", "kind": "/kinds", "key": "/queues"}


class NameForm(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The name of what is changed, and why."""

    name: str
    reason: str = ""


class LimitForm(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A limit, and its new values; what is not given stays as it is."""

    name: str
    rate: str | None = None
    burst: int | None = None
    concurrency: int | None = None
    reason: str = ""


# -- pauses ------------------------------------------------------------------------------------


async def _plan_pause(scene: Scene, form: NameForm, *, what: str, verb: str) -> Plan:
    effects = {
        "pause": "Workers start none of its jobs any more. Running jobs continue, and enqueueing "
        "works.",
        "resume": "Workers start its jobs again, within a second.",
    }
    named = (form.name,) if what == "queue" else (f"--{what}", form.name)
    own: dict[str, Any] = {what: form.name}
    return Plan(
        title=f"{verb.capitalize()} {what} {form.name}",
        effect=f"{effects[verb]} {await _waiting(scene, JobFilter(states=_WAITING, **own))}",
        command=scene.command("queues", verb, *named),
        back=_PAGES[what],
        inputs=(REASON,),
    )


async def _waiting(scene: Scene, which: JobFilter) -> str:
    """Say how many jobs wait that a lever concerns."""
    number, is_capped = await count_some(scene.app.store, which)
    jobs = f"{'At least ' if is_capped else ''}{plural(number, 'job')}"
    return f"{jobs} {'waits' if number == 1 else 'wait'} for it now."


async def _waiting_of(scene: Scene, kinds: Sequence[str]) -> str:
    if not kinds:
        return "Which jobs wait for it is not known here."
    term = Term(field=Field.KIND, values=tuple(map(Value, kinds[:MAX_VALUES])))
    return await _waiting(scene, JobFilter(states=_WAITING, terms=(term,)))


async def _pause(scene: Scene, form: NameForm, *, what: str, verb: str) -> Done:
    given: dict[str, Any] = {what: form.name}
    change = scene.control.apause if verb == "pause" else scene.control.aresume
    changed = await change(**given)
    paused = verb == "pause"
    word = "is paused" if paused else "is no longer paused"
    message = f"{what.capitalize()} {form.name} {word}."
    facts = {what: form.name, "paused": paused, "changed": changed}
    return Done(message=message, path=_PAGES[what], facts=facts)


def _pauses(what: str, verb: str) -> AnyAction:
    return Action(
        name=f"{verb}-{what}",
        label=verb.capitalize(),
        role=Role.OPERATOR,
        form=NameForm,
        plan=partial(_plan_pause, what=what, verb=verb),
        perform=partial(_pause, what=what, verb=verb),
    )


# -- limits ------------------------------------------------------------------------------------


async def _limit(scene: Scene, name: str) -> LimitState | None:
    return next((each for each in await scene.control.alimits() if each.name == name), None)


async def _plan_set_limit(scene: Scene, form: LimitForm) -> Plan:
    known = await _limit(scene, form.name)
    fields = {
        "rate": form.rate or (known and known.rate) or "",
        "burst": form.burst or (known and known.burst) or "",
        "concurrency": form.concurrency or (known and known.concurrency) or "",
    }
    hints = {
        "rate": "Like 20/s or 100/m.",
        "burst": "Starts at once after a pause.",
        "concurrency": "Jobs at the same time.",
    }
    given = [(f"--{name}", str(value)) for name, value in fields.items() if value]
    waiting = await _waiting_of(scene, known.kinds if known else ())
    return Plan(
        title=f"Change limit {form.name}",
        effect="Workers observe it within about a second; a lower limit takes effect as running "
        f"jobs end. It holds until it is reset. {waiting}",
        command=scene.command("limits", "set", form.name, *chain(*given)),
        back="/limits",
        inputs=(*(_input(name, str(value), hints[name]) for name, value in fields.items()), REASON),
    )


def _input(name: str, value: str, hint: str) -> Input:
    kind: Literal["text", "number"] = "text" if name == "rate" else "number"
    return Input(name=name, label=name.capitalize(), kind=kind, value=value, hint=hint)


async def _set_limit(scene: Scene, form: LimitForm) -> Done:
    known = await _limit(scene, form.name)
    changes: dict[str, Any] = {
        name: value
        for name, value in (
            ("rate", form.rate),
            ("burst", form.burst),
            ("concurrency", form.concurrency),
        )
        if value is not None and (known is None or value != getattr(known, name))
    }
    if not changes:
        raise ValueError(
            "rate, burst or concurrency must change, got none of them; enter another value"
        )
    await scene.control.aset_limit(form.name, **changes)
    return Done(
        message=f"Limit {form.name} is changed.",
        path="/limits",
        facts={"limit": form.name, **changes},
    )


async def _plan_reset_limit(scene: Scene, form: NameForm) -> Plan:
    known = await _limit(scene, form.name)
    waiting = await _waiting_of(scene, known.kinds if known else ())
    return Plan(
        title=f"Reset limit {form.name}",
        effect=f"The limit has the value of the app's code again. {waiting}",
        command=scene.command("limits", "reset", form.name),
        back="/limits",
        inputs=(REASON,),
    )


async def _reset_limit(scene: Scene, form: NameForm) -> Done:
    changed = await scene.control.areset_limit(form.name)
    word = "is reset" if changed else "was not changed"
    facts = {"limit": form.name, "changed": changed}
    return Done(message=f"Limit {form.name} {word}.", path="/limits", facts=facts)


# -- breakers ----------------------------------------------------------------------------------

_BREAKERS = {
    "open-breaker": ("Open", "open", "No job of its kinds starts until it is released."),
    "close-breaker": ("Close", "close", "It stays closed whatever fails, until it is released."),
    "probe-breaker": ("Probe", "probe", "A few jobs run now: it closes if they succeed."),
    "release-breaker": ("Release", "auto", "It opens and closes by itself again."),
}


async def _plan_breaker(scene: Scene, form: NameForm, *, name: str) -> Plan:
    label, word, effect = _BREAKERS[name]
    found = next((each for each in await scene.control.abreakers() if each.name == form.name), None)
    waiting = await _waiting_of(scene, found.kinds if found else ())
    return Plan(
        title=f"{label} breaker {form.name}",
        effect=f"{effect} {waiting}",
        command=scene.command("breakers", word, form.name),
        back="/limits",
        inputs=(REASON,),
    )


async def _breaker(scene: Scene, form: NameForm, *, name: str) -> Done:
    control = scene.control
    changes: dict[str, Callable[..., Awaitable[BreakerStatus]]] = {
        "open-breaker": control.aopen_breaker,
        "close-breaker": control.aclose_breaker,
        "probe-breaker": control.aprobe_breaker,
        "release-breaker": control.areset_breaker,
    }
    status = await changes[name](form.name)
    message = f"Breaker {form.name} is {status.state}."
    return Done(message=message, path="/limits", facts=breaker_facts(status, history=False))


def _of_breaker(name: str) -> AnyAction:
    return Action(
        name=name,
        label=_BREAKERS[name][0],
        role=Role.ADMIN,
        form=NameForm,
        plan=partial(_plan_breaker, name=name),
        perform=partial(_breaker, name=name),
    )


# -- schedules ---------------------------------------------------------------------------------

_SCHEDULES = {
    "pause": ("Pause", Role.OPERATOR, "It enqueues nothing until it is resumed."),
    "resume": ("Resume", Role.OPERATOR, "It ticks from its next time on; nothing is caught up."),
    "run": ("Run now", Role.OPERATOR, "One job is enqueued now; the next tick stays the same."),
    "remove": ("Remove", Role.ADMIN, "It never ticks again, unless the app's code declares it."),
}


async def _plan_schedule(scene: Scene, form: NameForm, *, verb: str) -> Plan:
    await scene.app.schedules.aget(form.name)
    label, _, effect = _SCHEDULES[verb]
    return Plan(
        title=f"{label}: schedule {form.name}",
        effect=effect,
        command=scene.command("schedules", verb, form.name),
        back="/schedules",
        jobs=1 if verb == "run" else None,
        danger=verb == "remove",
        inputs=(REASON,),
    )


async def _schedule(scene: Scene, form: NameForm, *, verb: str) -> Done:
    schedules = scene.schedules
    match verb:
        case "run":
            handle = await schedules.arun(form.name)
            facts: dict[str, Any] = {"id": str(handle.id)}
            return Done(message="The job is enqueued.", path=f"/jobs/{handle.id}", facts=facts)
        case "remove":
            if not await schedules.aremove(form.name):
                raise UnknownSchedule(form.name)
            facts = {"schedule": form.name, "removed": True}
            return Done(message="The schedule is removed.", path="/schedules", facts=facts)
        case "pause":
            status = await schedules.apause(form.name)
        case _:
            status = await schedules.aresume(form.name)
    message = f"Schedule {form.name} is {status.state}."
    return Done(message=message, path="/schedules", facts=schedule_facts(status))


def _of_schedule(verb: str) -> AnyAction:
    label, role, _ = _SCHEDULES[verb]
    return Action(
        name=f"{verb}-schedule",
        label=label,
        role=role,
        form=NameForm,
        plan=partial(_plan_schedule, verb=verb),
        perform=partial(_schedule, verb=verb),
    )


ACTIONS: tuple[AnyAction, ...] = (
    *(_pauses(what, verb) for what in _PAGES for verb in ("pause", "resume")),
    Action(
        name="set-limit",
        label="Change",
        role=Role.ADMIN,
        form=LimitForm,
        plan=_plan_set_limit,
        perform=_set_limit,
    ),
    Action(
        name="reset-limit",
        label="Reset",
        role=Role.ADMIN,
        form=NameForm,
        plan=_plan_reset_limit,
        perform=_reset_limit,
    ),
    *map(_of_breaker, _BREAKERS),
    *map(_of_schedule, _SCHEDULES),
)
