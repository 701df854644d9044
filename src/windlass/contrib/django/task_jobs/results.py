"""Owns how a job becomes Django's `TaskResult`, and how arguments become a payload and back."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

import msgspec
from django.conf import settings
from django.utils import timezone

from windlass.contrib.django.task_jobs.framework import (
    InvalidTask,
    TaskError,
    TaskResult,
    TaskResultDoesNotExist,
    TaskResultStatus,
)
from windlass.contrib.django.task_jobs.task_paths import find_task
from windlass.core.jobs.job import ErrorInfo, Job
from windlass.core.jobs.states import FINISHED, State

if TYPE_CHECKING:
    from windlass.contrib.django.project_apps import ProjectApp

PRIORITY_STEP = 10
"""Django's priorities go from -100 to 100, those of Windlass from -1000 to 1000."""
POSITIONAL = "django-args"
"""The header with the number of arguments that were given by position."""
_STATUS = {
    State.SCHEDULED: "READY",
    State.PENDING: "READY",
    State.RUNNING: "RUNNING",
    State.COMPLETED: "SUCCESSFUL",
    State.DEAD: "FAILED",
    State.CANCELLED: "FAILED",
}
_UNNAMED = (
    inspect.Parameter.POSITIONAL_ONLY,
    inspect.Parameter.VAR_POSITIONAL,
    inspect.Parameter.VAR_KEYWORD,
)


def parameters_of(task: Any) -> dict[str, inspect.Parameter] | None:
    """Return the parameters of a task that are fields of its payload.

    None if a payload of named fields cannot hold them, as with `*args`: then it has the two fields
    `args` and `kwargs`.
    """
    parameters = dict(inspect.signature(task.func).parameters)
    if task.takes_context:
        parameters.pop("context", None)
    if any(each.kind in _UNNAMED for each in parameters.values()):
        return None
    return parameters


def result_of(app: ProjectApp, job: Job) -> Any:
    """Return the `TaskResult` of a job.

    Raises:
        TaskResultDoesNotExist: its kind is no task of this project.
    """
    task = task_of(app, job)
    args, kwargs = arguments_of(task, job)
    starts = [each.started_at for each in job.history if each.started_at is not None]
    result = TaskResult(
        task=task,
        id=str(job.id),
        status=TaskResultStatus[_STATUS[job.state]],
        enqueued_at=local(job.created_at),
        started_at=local(min([*starts, *filter(None, [job.started_at])], default=None)),
        finished_at=local(job.finished_at) if job.state in FINISHED else None,
        last_attempted_at=local(job.started_at or max(starts, default=None)),
        args=args,
        kwargs=kwargs,
        backend=app.alias,
        errors=_errors(job),
        worker_ids=_workers(job),
    )
    if job.state is State.COMPLETED and job.result is not None:
        object.__setattr__(result, "_return_value", msgspec.json.decode(job.result))
    return result


def task_of(app: ProjectApp, job: Job) -> Any:
    """Return the task of a job, with the queue, priority and time that this job has."""
    task = app.tasks.get(job.kind)
    if task is None and job.kind in app.registry:
        task = app.tasks.get(app.registry[job.kind].kind)  # By a name that it had before.
    if task is None:
        task = _imported(app, job)
    is_deferred = job.attempt == 0 and job.due_at > job.created_at
    try:
        return replace(
            task,
            backend=app.alias,
            queue_name=job.queue,
            priority=round(job.priority / PRIORITY_STEP),
            run_after=local(job.due_at) if is_deferred else None,
        )
    except InvalidTask:
        return task  # QUEUES, or the limits of priorities, were others when it was enqueued.


def _imported(app: ProjectApp, job: Job) -> Any:
    task = find_task(job.kind, app.options.imports)
    if task is None:
        raise TaskResultDoesNotExist(
            f"job {job.id} is of kind {job.kind!r}, which is no task of this project; if it was "
            f'renamed, give the new task aliases=["{job.kind}"]'
        )
    return task


def arguments_of(task: Any, job: Job) -> tuple[list[Any], dict[str, Any]]:
    """Return the arguments of a job as they were given, by position and by name."""
    payload = msgspec.json.decode(job.payload)
    if not isinstance(payload, dict):
        return [payload], {}
    parameters = parameters_of(task)
    if parameters is None:
        return list(payload.get("args", ())), dict(payload.get("kwargs", {}))
    count = int(job.headers.get(POSITIONAL, 0))
    names = [name for name in parameters if name in payload][:count]
    return [payload.pop(name) for name in names], payload


def payload_of(task: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a task by the names of its payload's fields.

    Raises:
        TypeError: the task does not take them.
    """
    parameters = parameters_of(task)
    signature = inspect.signature(task.func)
    given = (None, *args) if task.takes_context else args
    try:
        bound = signature.bind(*given, **kwargs)
    except TypeError as error:
        raise TypeError(f"{task.module_path}(): {error}") from None
    if parameters is None:
        return {"args": list(args), "kwargs": dict(kwargs)}
    return {name: value for name, value in bound.arguments.items() if name in parameters}


def _errors(job: Job) -> list[Any]:
    errors = [each.error for each in job.history if each.error is not None]
    if job.error is not None and job.state in FINISHED and job.error not in errors:
        errors.append(job.error)
    found = [
        TaskError(exception_class_path=_class_path(each), traceback=each.traceback or str(each))
        for each in errors
    ]
    if job.state is State.CANCELLED:
        reason = f"cancelled: {job.reason}" if job.reason else "cancelled"
        found.append(TaskError(exception_class_path="windlass.JobCancelled", traceback=reason))
    elif job.state is State.DEAD and not found:
        found.append(TaskError(exception_class_path="windlass.JobDead", traceback=str(job.reason)))
    return found


def _class_path(error: ErrorInfo) -> str:
    return error.type if "." in error.type else f"builtins.{error.type}"


def _workers(job: Job) -> list[str]:
    workers = [each.worker or "unknown" for each in job.history]
    if job.state in (State.RUNNING, State.COMPLETED) and len(workers) < job.attempt:
        workers.append(job.worker or "unknown")
    return workers


def local(at: datetime | None) -> datetime | None:
    """Return a time as Django's settings want it: aware, or naive in the current time zone."""
    if at is None or settings.USE_TZ:
        return at
    naive: datetime = timezone.make_naive(at)
    return naive


def aware(at: datetime) -> datetime:
    """Return a time with its time zone, also where Django's settings do without."""
    with_zone: datetime = timezone.make_aware(at) if timezone.is_naive(at) else at
    return with_zone
