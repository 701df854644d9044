"""Owns the actions on one job: retry, cancel, redrive, edit, purge, enqueue."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from msgspec import Struct
from starlette.exceptions import HTTPException

from windlass.app.control.audited_enqueue import enqueue_audited
from windlass.app.masking import redaction_of
from windlass.app.producer import Draft
from windlass.core.documents import job_summary
from windlass.core.errors import InvalidTransition, UnknownJob, UnknownKind
from windlass.core.jobs.job import Job
from windlass.core.jobs.states import State
from windlass.core.payloads.masked_job import masked_summary
from windlass.web.access.queue_access import check_queue
from windlass.web.access.roles import Role
from windlass.web.actions.action import REASON, Action, AnyAction, Done, Input, Plan, Scene
from windlass.web.payload_form.fields import Field, fields_of


class JobForm(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A job, and why."""

    id: UUID
    reason: str = ""


class EditForm(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A dead job, its new payload, and why."""

    id: UUID
    payload: Any = None
    reason: str = ""


class EnqueueForm(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A new job of a kind, and why."""

    kind: str
    payload: Any = None
    queue: str = ""
    delay: str = ""
    reason: str = ""


async def _job(scene: Scene, job_id: UUID) -> Job:
    job = await scene.app.store.get(job_id)
    if job is None:
        raise UnknownJob(job_id)
    return job


def _page(job_id: UUID) -> str:
    return f"/jobs/{job_id}"


async def _plan(scene: Scene, form: JobForm, verb: str, effect: str, command: str) -> Plan:
    job = await _job(scene, form.id)
    return Plan(
        title=f"{verb} {job.kind}",
        effect=effect,
        command=scene.command(*command.split(), str(job.id)),
        back=_page(job.id),
        jobs=1,
        inputs=(REASON,),
    )


def _done(scene: Scene, job: Job, message: str) -> Done:
    facts = {"job": job_summary(masked_summary(job, redaction_of(scene.app)))}
    return Done(message=message, path=_page(job.id), facts=facts)


async def _plan_retry(scene: Scene, form: JobForm) -> Plan:
    effect = "The job becomes due now, and runs as soon as a worker has a free slot."
    return await _plan(scene, form, "Run now:", effect, "jobs retry")


async def _retry(scene: Scene, form: JobForm) -> Done:
    reason = scene.reason(form.reason, "retried")
    job = await scene.control.aretry(form.id, reason=reason)
    return _done(scene, job, "The job is due now.")


async def _plan_cancel(scene: Scene, form: JobForm) -> Plan:
    job = await _job(scene, form.id)
    effect = "The job never runs."
    if job.id == job.flow:
        effect = "The flow ends: its waiting jobs never run, and running ones are asked to end."
    elif job.state is State.RUNNING:
        effect = "The running job is asked to end; its handler decides when."
    return await _plan(scene, form, "Cancel", effect, "jobs cancel")


async def _cancel(scene: Scene, form: JobForm) -> Done:
    reason = scene.reason(form.reason, "cancelled")
    job = await scene.control.acancel(form.id, reason=reason)
    asked = job.state is State.RUNNING
    return _done(scene, job, "The job was asked to end." if asked else "The job is cancelled.")


async def _plan_redrive(scene: Scene, form: JobForm) -> Plan:
    effect = "The dead job gets a new life with the same payload and all of its retries."
    return await _plan(scene, form, "Redrive", effect, "dead redrive")


async def _redrive(scene: Scene, form: JobForm) -> Done:
    moved = await scene.control.aredrive([form.id], reason=scene.reason(form.reason, "redriven"))
    if not moved:
        job = await _job(scene, form.id)
        raise InvalidTransition(form.id, job.state, "redrive", "only dead jobs can be redriven")
    return _done(scene, moved[0], "The job is pending again.")


async def _plan_purge(scene: Scene, form: JobForm) -> Plan:
    job = await _job(scene, form.id)
    return Plan(
        title=f"Purge {job.kind}",
        effect="The job and everything that is known about it is deleted. This cannot be undone.",
        command=scene.command("jobs", "purge", str(job.id)),
        back=_page(job.id),
        jobs=1,
        inputs=(REASON,),
        danger=True,
    )


async def _purge(scene: Scene, form: JobForm) -> Done:
    if not await scene.control.apurge([form.id]):
        job = await _job(scene, form.id)
        raise InvalidTransition(form.id, job.state, "purge", "cancel it first")
    return Done(message="The job is deleted.", path="/jobs", facts={"purged": 1})


def _check_payloads(scene: Scene) -> None:
    if not scene.access.payloads:
        raise HTTPException(403, "your login does not show payloads, so it cannot change them")


async def _plan_edit(scene: Scene, form: EditForm) -> Plan:
    _check_payloads(scene)
    job = await _job(scene, form.id)
    if job.state is not State.DEAD:
        remedy = "only dead jobs can be edited; enqueue a new job"
        raise InvalidTransition(job.id, job.state, "edit the payload of", remedy)
    value = form.payload
    if value is None:
        value = scene.app.registry.readable_payload(job.kind, job.payload, whole=True)
    own = _PayloadInputs.of(scene, job.kind, value)
    return Plan(
        title=f"Edit the payload of {job.kind}",
        effect="The dead job gets a new life with this payload; one that does not fit is refused.",
        command=scene.command("dead", "redrive", str(job.id), "--payload", json.dumps(value)),
        back=_page(job.id),
        jobs=1,
        inputs=(*own.inputs, REASON),
        fields=own.fields,
        has_form=own.has_form,
    )


@dataclass(frozen=True, kw_only=True)
class _PayloadInputs:
    """How a payload is entered: by its fields, or as JSON."""

    inputs: tuple[Input, ...] = ()
    fields: tuple[Field, ...] = ()
    has_form: bool = False

    @classmethod
    def of(cls, scene: Scene, kind: str, value: Any) -> _PayloadInputs:
        registry = scene.app.registry
        target = registry[kind].target if kind in registry else None
        fields = None
        if target is not None:
            fields = fields_of(target.codec.json_schema(), value, target.defaults)
        if fields is not None and not scene.as_json:
            return cls(fields=fields, has_form=True)
        checked = "checked by the worker alone" if target is None else "checked by the handler"
        area = Input(
            name="payload",
            label="Payload",
            kind="textarea",
            value=json.dumps(value, indent=2, ensure_ascii=False),
            hint=f"JSON, {checked}'s types." if target is not None else f"JSON, {checked}.",
            required=True,
        )
        return cls(inputs=(area,), has_form=fields is not None)


async def _edit(scene: Scene, form: EditForm) -> Done:
    _check_payloads(scene)
    job = await _job(scene, form.id)
    limit = scene.app.settings.max_payload
    payload = scene.app.registry.checked_payload(job.kind, form.payload, limit=limit)
    reason = scene.reason(form.reason, "payload changed")
    moved = await scene.control.aredrive_with(form.id, payload, reason=reason)
    return _done(scene, moved, "The job is pending again, with the new payload.")


async def _plan_enqueue(scene: Scene, form: EnqueueForm) -> Plan:
    if form.queue:
        check_queue(scene.access, form.queue)
    own = _PayloadInputs.of(scene, form.kind, {} if form.payload is None else form.payload)
    return Plan(
        title=f"Enqueue {form.kind}",
        effect="One new job is enqueued.",
        command=scene.command("enqueue", form.kind, json.dumps(form.payload or {})),
        back="/kinds",
        jobs=1,
        inputs=(
            *own.inputs,
            _queue_input(scene, form),
            Input(name="delay", label="Delay", value=form.delay, hint="Like 30s or 5m."),
            REASON,
        ),
        fields=own.fields,
        has_form=own.has_form,
    )


def _queue_input(scene: Scene, form: EnqueueForm) -> Input:
    own, registry = scene.access.queues, scene.app.registry
    if own is None:
        return Input(name="queue", label="Queue", value=form.queue, hint="Empty: that of the kind.")
    of_kind = registry[form.kind].queue if form.kind in registry else ""
    wished = form.queue or of_kind
    value = wished if wished in own else next(iter(own), "")
    hint = f"Those of your login: {', '.join(own) or 'none'}."
    return Input(name="queue", label="Queue", value=value, hint=hint, required=True)


def _draft(scene: Scene, form: EnqueueForm) -> Draft[Any]:
    options: dict[str, Any] = {"queue": form.queue or None, "delay": form.delay or None}
    try:
        producer = scene.app.producer(form.kind).using(**options)
        return producer.draft({} if form.payload is None else form.payload)
    except UnknownKind as error:
        if scene.access.queues is None:
            raise
        # Without the kinds that are alike, which may be those of other queues.
        raise UnknownKind(error.kind) from None


async def _enqueue(scene: Scene, form: EnqueueForm) -> Done:
    draft = _draft(scene, form)
    check_queue(scene.access, draft.job.queue)
    handle = await enqueue_audited(scene.control, draft)
    message = "The job is enqueued."
    if handle.is_duplicate:
        message = "Nothing was added: this job holds the unique key."
        holder = await scene.app.store.get(handle.id)
        if holder is None or not scene.access.sees(holder.queue):
            message = "Nothing was added: a job that your login does not show holds the unique key."
            return Done(message=message, path="/jobs", facts={"id": None, "is_duplicate": True})
    facts = {"id": str(handle.id), "is_duplicate": handle.is_duplicate}
    return Done(message=message, path=_page(handle.id), facts=facts)


def _of_job(
    name: str, label: str, role: Role, plan: Any, perform: Any, form: type[Struct] = JobForm
) -> AnyAction:
    return Action(name=name, label=label, role=role, form=form, plan=plan, perform=perform)


ACTIONS = (
    _of_job("retry-job", "Run now", Role.OPERATOR, _plan_retry, _retry),
    _of_job("cancel-job", "Cancel", Role.OPERATOR, _plan_cancel, _cancel),
    _of_job("redrive-job", "Redrive", Role.OPERATOR, _plan_redrive, _redrive),
    _of_job("edit-job", "Redrive with this payload", Role.ADMIN, _plan_edit, _edit, EditForm),
    _of_job("purge-job", "Purge", Role.ADMIN, _plan_purge, _purge),
    _of_job("enqueue", "Enqueue", Role.ADMIN, _plan_enqueue, _enqueue, EnqueueForm),
)
