"""Owns `WindlassBackend`: Django's contract for tasks, kept by the app of an alias in TASKS."""

from __future__ import annotations

import traceback
from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from uuid import UUID

from asgiref.sync import sync_to_async
from django.core.checks import CheckMessage
from django.utils import timezone

from windlass.app.handle import Handle
from windlass.app.loop_thread import refuse_in_event_loop
from windlass.contrib.django.checks import check_backend
from windlass.contrib.django.project_apps import ProjectApp, app_of
from windlass.contrib.django.task_jobs.framework import (
    BaseTaskBackend,
    TaskError,
    TaskResult,
    TaskResultDoesNotExist,
    TaskResultStatus,
    task_enqueued,
)
from windlass.contrib.django.task_jobs.results import (
    POSITIONAL,
    PRIORITY_STEP,
    aware,
    payload_of,
    result_of,
)
from windlass.contrib.django.task_jobs.task import WindlassTask
from windlass.contrib.django.task_jobs.task_handlers import handler_of
from windlass.contrib.django.transaction import enqueue
from windlass.core.jobs.job import Job


class WindlassBackend(BaseTaskBackend):
    """A backend of Django's tasks framework whose tasks are jobs of Windlass.

    Django makes one for each thread; all of them share the app of their alias.
    """

    task_class = WindlassTask
    supports_defer = True
    supports_async_task = True
    supports_get_result = True
    supports_priority = True

    app_of = staticmethod(app_of)

    @property
    def app(self) -> ProjectApp:
        """The Windlass app of this backend.

        Raises:
            ImproperlyConfigured: one of OPTIONS is wrong.
        """
        return self.app_of(self.alias, self.options)

    def validate_task(self, task: Any) -> None:
        """Check a task, and register it: Django calls this for every task that is made.

        Raises:
            InvalidTask: this backend cannot run it.
            ImproperlyConfigured: an option of it, or of the backend, is wrong.
        """
        super().validate_task(task)
        handler_of(self.app, task)

    def enqueue(self, task: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Enqueue a task: in the current transaction where that is possible, else after it.

        Raises:
            TypeError: the task does not take these arguments, or they have no JSON form.
            StoreError: the store did not take the job; after a commit, that is logged and the
                result is FAILED instead, since raising it would skip later `on_commit` callbacks.
        """
        self.validate_task(task)
        refuse_in_event_loop("{}.enqueue(...)", "await {}.aenqueue(...)", task.name)
        result = self._ready(task, args, kwargs)
        draft = self._draft(task, result)
        object.__setattr__(result, "id", str(draft.job.id))
        handle = enqueue(self.app, draft, _Enqueueing(type(self), result))
        if handle is not None and handle.is_duplicate:
            object.__setattr__(result, "id", str(handle.id))
            self._refresh(result)
        return result

    async def aenqueue(self, task: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Enqueue a task from a coroutine, in the thread that has Django's connections."""
        return await sync_to_async(self.enqueue, thread_sensitive=True)(task, args, kwargs)

    def get_result(self, result_id: str) -> Any:
        """Return the result of a task.

        Raises:
            TaskResultDoesNotExist: there is none of this id.
            CalledFromEventLoop: it would stop the event loop of this thread.
        """
        refuse_in_event_loop("get_result(...)", "await aget_result(...), or await arefresh()")
        app = self.app
        return self._result(result_id, app.portal.call(app.store.get(_id_of(result_id))))

    async def aget_result(self, result_id: str) -> Any:
        """Return the result of a task, from a coroutine.

        Raises:
            TaskResultDoesNotExist: there is none of this id.
        """
        return self._result(result_id, await self.app.store.get(_id_of(result_id)))

    def check(self, **_: Any) -> Iterable[CheckMessage]:
        """Check the settings of this backend, for `manage.py check`."""
        return check_backend(self.alias, self.options, lambda: self.app)

    def _ready(self, task: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        return TaskResult(
            task=task,
            id="",
            status=TaskResultStatus.READY,
            enqueued_at=timezone.now(),
            started_at=None,
            finished_at=None,
            last_attempted_at=None,
            args=list(args),
            kwargs=dict(kwargs),
            backend=self.alias,
            errors=[],
            worker_ids=[],
        )

    def _draft(self, task: Any, result: Any) -> Any:
        return (
            handler_of(self.app, task)
            .using(
                queue=task.queue_name,
                priority=int(task.priority) * PRIORITY_STEP,
                at=None if task.run_after is None else aware(task.run_after),
                headers={POSITIONAL: str(len(result.args))} if result.args else None,
            )
            .draft(**payload_of(task, result.args, result.kwargs))
        )

    def _refresh(self, result: Any) -> None:
        """Show the job that holds the unique key; it may be one of an uncommitted transaction."""
        try:
            result.refresh()
        except TaskResultDoesNotExist:
            return

    def _result(self, result_id: str, job: Job | None) -> Any:
        if job is None:
            raise TaskResultDoesNotExist(result_id)
        return result_of(self.app, job)


class _Enqueueing:
    """Sends `task_enqueued` for a result, or marks it as failed."""

    def __init__(self, sender: type[WindlassBackend], result: Any) -> None:
        self._sender = sender
        self._result = result

    def enqueued(self, handle: Handle[Any], *, is_committed: bool) -> None:
        if handle.is_duplicate:
            return
        send = task_enqueued.send_robust if is_committed else task_enqueued.send
        send(self._sender, task_result=self._result)

    def failed(self, error: Exception) -> None:
        path = f"{type(error).__module__}.{type(error).__qualname__}"
        trace = "".join(traceback.format_exception(error))
        self._result.errors.append(TaskError(exception_class_path=path, traceback=trace))
        object.__setattr__(self._result, "status", TaskResultStatus.FAILED)
        object.__setattr__(self._result, "finished_at", timezone.now())


def _id_of(result_id: object) -> UUID:
    try:
        return result_id if isinstance(result_id, UUID) else UUID(str(result_id))
    except ValueError:
        raise TaskResultDoesNotExist(result_id) from None
