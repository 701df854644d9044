"""Owns time travel for Django's tests: jobs run in the test's own transaction.

A `TestCase` never commits, and a handler's thread has connections of its own. So `travel` enqueues
what waits for the commit, and lets handlers use the connections of the test.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from datetime import datetime
from typing import Any, TypeVar
from uuid import UUID

from asgiref.sync import async_to_sync, sync_to_async
from django.db import connections

from windlass.contrib.django.project import register_tasks
from windlass.contrib.django.project_apps import ProjectApp, windlass_app
from windlass.contrib.django.task_jobs.framework import Task, TaskResult
from windlass.contrib.django.task_jobs.results import payload_of
from windlass.contrib.django.task_jobs.task_handlers import handler_of
from windlass.contrib.django.transaction import AfterCommit
from windlass.core.values.durations import Duration
from windlass.testing.travel import Travel, travel_as

T = TypeVar("T")
__tracebackhide__ = True
"""Makes pytest leave out these frames: a failure is shown in the test."""


class DjangoTravel(Travel):
    """The clock of a test in a Django project: as `windlass.testing.Travel`.

    Its assertions also take a task, or the result of an enqueue.
    """

    _app: ProjectApp
    _is_inside = False

    def enqueue_waiting(self) -> int:
        """Enqueue what waits for the commit of this test's transaction; return how many there were.

        `run_due`, `advance` and `run_all` do so first. Those of a rolled-back block are gone.
        """
        database = connections[self._app.options.database]
        waiting = [each for each in database.run_on_commit if self._is_own(each[1])]
        database.run_on_commit = [each for each in database.run_on_commit if each not in waiting]
        for _, callback, *_ in waiting:
            callback.enqueue()
        return len(waiting)

    def draft(self, task: Any, *args: Any, **kwargs: Any) -> Any:
        """Return a task with arguments, to select its jobs: `t.draft(send, "ada")`."""
        return handler_of(self._app, task).draft(**payload_of(task, args, kwargs))

    def _is_own(self, callback: object) -> bool:
        return isinstance(callback, AfterCommit) and callback.app is self._app

    async def arun_due(self) -> int:
        """Run the jobs that are due now, from an `async def` test: see `run_due`."""
        async with self._inside_test():
            return await super().arun_due()

    async def aadvance_to(self, at: datetime) -> int:
        """Let time pass until a moment, from an `async def` test: see `advance_to`."""
        async with self._inside_test():
            return await super().aadvance_to(at)

    async def arun_all(self, within: Duration = "365d") -> int:
        """Let time pass until no job waits, from an `async def` test: see `run_all`."""
        async with self._inside_test():
            return await super().arun_all(within)

    @asynccontextmanager
    async def _inside_test(self) -> AsyncIterator[None]:
        if self._is_inside:
            yield
            return
        await sync_to_async(self.enqueue_waiting)()
        with self._lending(await sync_to_async(_connections_here)()):
            yield

    def _block_on(self, work: Coroutine[Any, Any, T]) -> T:
        self.enqueue_waiting()

        async def run() -> T:
            return await work

        # By asgiref: the ORM of an `async def` task then uses the connections of this thread.
        with self._lending(_connections_here()):
            result: T = async_to_sync(run)()
            return result

    @contextmanager
    def _lending(self, shared: Mapping[str, Any]) -> Iterator[None]:
        self._is_inside = True
        try:
            with _lent_connections(self._app, shared, self.enqueue_waiting):
                yield
        finally:
            self._is_inside = False

    def _selection(self, what: Any) -> Any:
        if isinstance(what, Task):
            return super()._selection(what.module_path)
        if isinstance(what, TaskResult):
            return super()._selection(UUID(what.id))
        return super()._selection(what)

    def _named(self, what: Any) -> str:
        if isinstance(what, Task):
            return str(what.module_path)
        return super()._named(UUID(what.id) if isinstance(what, TaskResult) else what)


@contextmanager
def travel(backend: str = "default", **options: Any) -> Iterator[DjangoTravel]:
    """Put a backend on an empty store in memory, and run its jobs inside this test.

    Options are those of `windlass.testing.travel`. One job runs at a time, with the connections of
    this thread: a task sees what the test has not committed, and `TestCase` rolls back its changes.

    Example:
        `with travel() as t: send.enqueue("ada"); t.run_due(); t.assert_completed(send)`
    """
    app = windlass_app(backend)
    register_tasks(app)
    with travel_as(DjangoTravel, app, **{"concurrency": 1, **options}) as t:
        yield t


def _connections_here() -> dict[str, Any]:
    return {alias: connections[alias] for alias in connections}


@contextmanager
def _lent_connections(
    app: ProjectApp, shared: Mapping[str, Any], enqueue_waiting: Callable[[], int]
) -> Iterator[None]:
    """Let the threads of handlers use the connections of the test, which waits meanwhile.

    After each call, `enqueue_waiting` enqueues what the handler has committed.
    """
    registry, ends = app.registry, app.ends

    def lend() -> None:
        for alias, connection in shared.items():
            connections[alias] = connection

    def take_back() -> None:
        enqueue_waiting()
        for alias in shared:
            del connections[alias]

    def around(call: Callable[[], None]) -> None:
        lend()
        try:
            call()
        finally:
            take_back()

    for connection in shared.values():
        connection.inc_thread_sharing()
    before, ends.around = ends.around, around
    tidy, app.tidy = app.tidy, enqueue_waiting
    registry.on_call_start.insert(0, lend)
    registry.on_call_end.append(take_back)
    try:
        yield
    finally:
        registry.on_call_start.remove(lend)
        registry.on_call_end.remove(take_back)
        ends.around, app.tidy = before, tidy
        for connection in shared.values():
            connection.dec_thread_sharing()
