"""Owns how a task becomes a handler of its own kind, and how that handler calls the task.

The kind is the path of the function, so limits, percentiles and groups of errors are per task. The
payload has a field for each argument, of any JSON type: Django's contract, not the annotations,
says what a task may be given.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from asgiref.sync import sync_to_async
from django.core.exceptions import ImproperlyConfigured

from windlass.contrib.django.task_jobs.framework import TaskContext, normalize_json
from windlass.contrib.django.task_jobs.results import PRIORITY_STEP, parameters_of, result_of
from windlass.contrib.django.task_jobs.signals import asend_started, send_started
from windlass.contrib.django.task_jobs.task import job_options
from windlass.core.errors import ConfigError, PermanentError
from windlass.handlers.any_context import AnyContext
from windlass.handlers.context import Context
from windlass.handlers.sync_context import SyncContext

if TYPE_CHECKING:
    from windlass.app.producer import Handler
    from windlass.contrib.django.project_apps import ProjectApp

_CONTEXT = "windlass_context"
"""The parameter of a handler for its context, a name that no task uses."""


class ResultNotJson(PermanentError, TypeError):
    """A task returned a value that has no JSON form, and would again: the job dies."""


def handler_of(app: ProjectApp, task: Any) -> Handler[..., Any, ..., Any]:
    """Return the handler of a task, which is registered when it is first asked for.

    Raises:
        ImproperlyConfigured: an option of the task is wrong.
    """
    kind = task.module_path
    known = app.handlers.get(kind)
    if known is not None and app.tasks[kind].func is task.func:
        return known
    with app.registering:
        app.tasks[kind] = task  # A module that was loaded again has a new function.
        known = app.handlers.get(kind)  # Again: another thread may have registered it by now.
        if known is None:
            known = app.handlers[kind] = _register(app, task)
        return known


def _register(app: ProjectApp, task: Any) -> Handler[..., Any, ..., Any]:
    kind = task.module_path
    options = job_options(task, app.options.tasks)
    make = _async_handler if inspect.iscoroutinefunction(task.func) else _sync_handler
    function = _with_signature(make(app, kind), task)
    try:
        decorate: Any = app.job(
            name=kind,
            queue=task.queue_name,
            priority=int(task.priority) * PRIORITY_STEP,
            **options,
        )
        handler: Handler[..., Any, ..., Any] = decorate(function)
        return handler
    except (ConfigError, TypeError, ValueError) as error:
        raise ImproperlyConfigured(f"the task {kind}: {error}") from error


def _sync_handler(app: ProjectApp, kind: str) -> Any:
    def run(**fields: Any) -> Any:
        task, result = _begun(app, kind, fields[_CONTEXT])
        send_started(app, result)
        before = (TaskContext(task_result=result),) if task.takes_context else ()
        return _json(task, task.func(*before, *result.args, **result.kwargs))

    return run


def _async_handler(app: ProjectApp, kind: str) -> Any:
    async def run(**fields: Any) -> Any:
        task, result = _begun(app, kind, fields[_CONTEXT])
        # The ORM of coroutines has a thread of its own, whose connections only this call closes.
        await sync_to_async(app.tidy)()
        try:
            await asend_started(app, result)
            before = (TaskContext(task_result=result),) if task.takes_context else ()
            return _json(task, await task.func(*before, *result.args, **result.kwargs))
        finally:
            await sync_to_async(app.tidy)()

    return run


def _begun(app: ProjectApp, kind: str, ctx: AnyContext) -> tuple[Any, Any]:
    return app.tasks[kind], result_of(app, ctx.job)


def _json(task: Any, value: Any) -> Any:
    try:
        return normalize_json(value)
    except (TypeError, ValueError) as error:
        raise ResultNotJson(
            f"{task.module_path} must return a value that JSON has, got a "
            f"{type(value).__qualname__} ({error}); return its id, or a dict"
        ) from error


def _with_signature(function: Any, task: Any) -> Any:
    """Give a handler the name of its task, and a parameter for each field of its payload."""
    context = Context if inspect.iscoroutinefunction(function) else SyncContext
    parameters = parameters_of(task)
    if parameters is None:
        names = dict.fromkeys(("args", "kwargs"), inspect.Parameter.empty)
    else:
        names = {name: each.default for name, each in parameters.items()}
    keyword = inspect.Parameter.KEYWORD_ONLY
    function.__signature__ = inspect.Signature(
        [
            inspect.Parameter(_CONTEXT, keyword, annotation=context),
            *(inspect.Parameter(name, keyword, default=names[name]) for name in names),
        ]
    )
    function.__annotations__ = {_CONTEXT: context}
    for attribute in ("__module__", "__name__", "__qualname__", "__doc__"):
        setattr(function, attribute, getattr(task.func, attribute))
    return function
