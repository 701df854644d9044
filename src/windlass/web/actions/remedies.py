"""Owns which action of the page is the remedy for a reason, or for an alarm."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from windlass.core.alarms import Alarm
from windlass.core.jobs.job import Job
from windlass.core.jobs.states import LIVE, State
from windlass.core.why.reason import Cause, Reason
from windlass.web.access.roles import Role

_MAX_JOBS = 3


@dataclass(frozen=True, kw_only=True)
class Button:
    """A link to the confirmation of an action, or to another page."""

    label: str
    path: str
    query: dict[str, str] = field(default_factory=dict)
    role: Role = Role.VIEWER


def _action(label: str, action: str, role: Role = Role.OPERATOR, /, **query: str) -> Button:
    return Button(label=label, path=f"/actions/{action}", query=query, role=role)


def for_reason(job: Job, reason: Reason) -> Iterator[Button]:
    """Yield what would change a reason, the best remedy first."""
    facts, own = reason.facts, str(job.id)
    match reason.cause:
        case Cause.RETRYING | Cause.NOT_DUE | Cause.SNOOZED if job.state is State.SCHEDULED:
            yield _action("Run now", "retry-job", id=own)
        case Cause.RUNNING if not job.cancel_requested:
            yield _action("Cancel", "cancel-job", id=own)
        case Cause.DEAD | Cause.FLOW:
            yield from _for_end(job, reason)
        case Cause.PAUSED | Cause.BREAKER | Cause.LIMITED:
            yield _lever(facts)
        case Cause.BUSY | Cause.BEHIND | Cause.NEXT | Cause.NO_WORKER | Cause.UNSERVED:
            yield Button(label="See workers", path="/workers")


def _lever(facts: Mapping[str, Any]) -> Button:
    """Return what lets jobs start again that a pause, a breaker or a limit holds back."""
    if "breaker" in facts:
        name = facts["breaker"]
        if facts.get("is_pinned"):
            return _action(f"Release breaker {name}", "release-breaker", Role.ADMIN, name=name)
        return _action(f"Probe breaker {name}", "probe-breaker", Role.ADMIN, name=name)
    if "limit" in facts:
        name = facts["limit"]
        return _action(f"Change limit {name}", "set-limit", Role.ADMIN, name=name)
    ((what, name),) = facts.items()
    return _action(f"Resume {what} {name}", f"resume-{what}", name=name)


def _for_end(job: Job, reason: Reason) -> Iterator[Button]:
    """Yield what brings a dead job, or the jobs before one of a flow, to a better end."""
    facts = reason.facts
    others = [*facts.get("culprits", []), *facts.get("before", [])]
    for each in others[:_MAX_JOBS]:
        yield Button(label=f"See {each[-8:]}", path=f"/jobs/{each}")
    if "flow" in facts:
        yield Button(label="See the flow", path=f"/flows/{facts['flow']}")
    elif not others and job.id != job.flow:
        yield _action("Redrive", "redrive-job", id=str(job.id))
        yield _action("Edit payload and redrive", "edit-job", Role.ADMIN, id=str(job.id))


def for_job(job: Job) -> Iterator[Button]:
    """Yield everything that can be done with a job in its state."""
    own = str(job.id)
    if job.state is State.SCHEDULED and job.waiting_for is None:
        yield _action("Run now", "retry-job", id=own)
    if job.state in LIVE and not job.cancel_requested:
        yield _action("Cancel", "cancel-job", id=own)
    if job.state in LIVE and job.key is not None:
        yield _action(f"Pause key {job.key}", "pause-key", name=job.key)
    if job.state is State.DEAD:
        yield _action("Redrive", "redrive-job", id=own)
        yield _action("Edit payload", "edit-job", Role.ADMIN, id=own)
    if job.state not in LIVE:
        yield _action("Purge", "purge-job", Role.ADMIN, id=own)


def for_alarm(alarm: Alarm) -> Iterator[Button]:
    """Yield the way from an alarm to its remedy, or to where its cause is seen."""
    name = alarm.name
    match alarm.topic:
        case "worker":
            yield Button(label="Workers", path="/workers")
        case "queue" | "kind" | "key" if alarm.text.startswith(f"{alarm.topic} {name} is paused"):
            yield _action("Resume", f"resume-{alarm.topic}", name=name)
        case "queue":
            yield Button(label="Its jobs", path="/jobs", query={"queue": name, "state": "pending"})
        case "breaker" if name:
            yield _action("Probe", "probe-breaker", Role.ADMIN, name=name)
            yield Button(label="Breakers", path="/limits")
        case "breaker":
            yield Button(label="Breakers", path="/limits")
        case "kind":
            yield Button(label="Its errors", path="/errors", query={"kind": name})
        case "dead":
            yield Button(label="Errors", path="/errors")
