"""Django's contract for a backend of tasks, kept on SQLite and on PostgreSQL."""

from __future__ import annotations

import asyncio
import json
import sys
import threading
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.test.utils import override_settings

from tests.contrib.django.conftest import Project
from tests.contrib.django.shop import tasks
from tests.support.django_tasks import (
    InvalidTask,
    TaskResultDoesNotExist,
    TaskResultMismatch,
    TaskResultStatus,
    default_task_backend,
    task_backends,
)
from windlass import CalledFromEventLoop
from windlass.contrib.django import WindlassBackend, WindlassTask
from windlass.contrib.django.task_jobs.task_handlers import handler_of

SHOP = "tests.contrib.django.shop"

pytestmark = pytest.mark.usefixtures("project")


def test_all_four_features_are_supported() -> None:
    assert task_backends["default"].supports_defer
    assert task_backends["default"].supports_async_task
    assert task_backends["default"].supports_get_result
    assert task_backends["default"].supports_priority
    assert isinstance(task_backends["default"], WindlassBackend)


# -- enqueue ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["noop", "anoop"])
def test_an_enqueued_task_is_ready(name: str) -> None:
    result = getattr(tasks, name).enqueue()
    assert result.status == TaskResultStatus.READY
    assert not result.is_finished
    assert result.started_at is result.finished_at is result.last_attempted_at is None
    assert (result.args, result.kwargs, result.errors, result.worker_ids) == ([], {}, [], [])
    assert (result.attempts, result.backend) == (0, "default")
    with pytest.raises(ValueError, match="not finished"):
        _ = result.return_value
    result.refresh()
    assert result.status == TaskResultStatus.READY


@pytest.mark.parametrize("name", ["noop", "anoop"])
def test_a_task_can_be_enqueued_from_a_coroutine(name: str) -> None:
    async def main() -> Any:
        result = await getattr(tasks, name).aenqueue()
        await result.arefresh()
        return await getattr(tasks, name).aget_result(result.id)

    result = asyncio.run(main())
    assert result.status == TaskResultStatus.READY
    assert result.task.func is getattr(tasks, name).func


def test_a_blocking_enqueue_in_an_event_loop_names_the_awaited_one() -> None:
    async def main() -> None:
        tasks.noop.enqueue()

    with pytest.raises(Exception, match=r"await noop.aenqueue\(...\)"):
        asyncio.run(main())


@pytest.mark.parametrize(
    ("name", "args", "kwargs"),
    [
        ("add", [1], {}),
        ("add", [1, 2], {}),
        ("add", [1], {"b": 2}),
        ("add", [], {"b": 2, "a": 1}),
        ("noop", [1, "two", None], {"three": [3.5], "args": {"kwargs": True}}),
        ("with_context", [5], {}),
        ("awith_context", [], {"value": 5}),
    ],
)
def test_arguments_come_back_as_they_were_given(
    name: str, args: list[Any], kwargs: dict[str, Any]
) -> None:
    task = getattr(tasks, name)
    result = task.enqueue(*args, **kwargs)
    assert (result.args, result.kwargs) == (args, kwargs)
    again = default_task_backend.get_result(result.id)
    assert (again.args, again.kwargs) == (args, kwargs)


def test_the_payload_has_the_names_of_the_arguments(project: Project) -> None:
    """So jobs are found by them, and limits and unique keys can name one."""
    result = tasks.add.enqueue(1, b=2)
    job = project.app.handle(result.id).info()
    assert json.loads(job.payload) == {"a": 1, "b": 2}
    assert job.kind == "tests.contrib.django.shop.tasks.add"


def test_arguments_are_made_json() -> None:
    assert tasks.note.enqueue((1, {"a": (2,)})).args == [[1, {"a": [2]}]]


@pytest.mark.parametrize("value", [object(), {1, 2}, datetime.now(UTC)])
def test_arguments_that_have_no_json_form_are_refused(value: object) -> None:
    with pytest.raises(TypeError, match="Unsupported type"):
        tasks.note.enqueue(value)


@pytest.mark.parametrize(("args", "kwargs"), [([], {}), ([1, 2, 3], {}), ([1], {"c": 3})])
def test_arguments_that_the_task_does_not_take_are_refused(
    args: list[int], kwargs: dict[str, int]
) -> None:
    with pytest.raises(TypeError, match=r"shop\.tasks\.add\(\): .*argument"):
        tasks.add.enqueue(*args, **kwargs)


def test_queue_and_priority_are_those_of_the_task_or_of_using(project: Project) -> None:
    mail = project.app.handle(tasks.mail.enqueue().id).info()
    assert (mail.queue, mail.priority) == ("mail", 70)
    other = tasks.mail.using(queue_name="slow", priority=-100).enqueue()
    job = project.app.handle(other.id).info()
    assert (job.queue, job.priority) == ("slow", -1000)
    task = default_task_backend.get_result(other.id).task
    assert (task.queue_name, task.priority) == ("slow", -100)


def test_a_deferred_task_waits_for_its_time(project: Project) -> None:
    at = datetime.now(UTC) + timedelta(hours=1)
    result = tasks.noop.using(run_after=at).enqueue()
    project.work()
    result.refresh()
    assert result.status == TaskResultStatus.READY
    assert project.app.handle(result.id).info().due_at == at
    assert default_task_backend.get_result(result.id).task.run_after == at


def test_naive_times_are_refused_with_time_zones_and_taken_without(project: Project) -> None:
    naive = datetime.now() + timedelta(hours=1)  # noqa: DTZ005 - that is the case.
    with pytest.raises(InvalidTask, match="aware"):
        tasks.noop.using(run_after=naive)
    with override_settings(USE_TZ=False):
        result = tasks.noop.using(run_after=naive).enqueue()
        again = default_task_backend.get_result(result.id)
        assert again.task.run_after == naive
        assert again.enqueued_at.tzinfo is None


# -- tasks that cannot be --------------------------------------------------------------------------


@pytest.mark.parametrize("priority", [-101, 101, 1.5])
def test_priorities_have_bounds(priority: float) -> None:
    with pytest.raises(InvalidTask, match="priority must be a whole number"):
        tasks.noop.using(priority=priority)


def test_only_functions_of_modules_are_tasks() -> None:
    def local() -> None: ...

    for function in (local, lambda: None, len):
        with pytest.raises(InvalidTask, match="module level"):
            WindlassTask(
                func=function, priority=0, backend="default", queue_name="default", run_after=None
            )


def test_queues_that_the_backend_does_not_have_are_refused(project: Project) -> None:
    with project.tasks_setting(default={"QUEUES": ["default"]}):
        tasks.noop.using(queue_name="default")
        with pytest.raises(InvalidTask, match="Queue 'slow' is not valid"):
            tasks.noop.using(queue_name="slow")


# -- results ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "result_id", ["0197c2d4-7f00-7000-8000-000000000000", "123", "", "x" * 64, "no id", None]
)
def test_a_result_that_is_not_there_does_not_exist(result_id: Any) -> None:
    with pytest.raises(TaskResultDoesNotExist):
        default_task_backend.get_result(result_id)
    with pytest.raises(TaskResultDoesNotExist):
        asyncio.run(default_task_backend.aget_result(result_id))
    with pytest.raises(TaskResultDoesNotExist):
        tasks.noop.get_result(result_id)


def test_a_result_of_another_task_is_a_mismatch() -> None:
    result = tasks.noop.enqueue()
    assert tasks.noop.get_result(result.id).id == result.id
    with pytest.raises(TaskResultMismatch):
        tasks.add.get_result(result.id)
    with pytest.raises(TaskResultMismatch):
        asyncio.run(tasks.add.aget_result(result.id))


def test_a_job_that_is_no_task_has_no_result(project: Project) -> None:
    handle = project.app.producer("tests.contrib.django.shop.tasks.add").enqueue({"a": 1})
    assert default_task_backend.get_result(str(handle.id)).kwargs == {"a": 1}

    @project.app.job
    def native() -> None: ...

    with pytest.raises(TaskResultDoesNotExist, match="kind 'native', which is no task"):
        default_task_backend.get_result(str(native.enqueue().id))


def test_a_result_is_found_though_the_module_of_its_task_was_not_imported(
    project: Project,
) -> None:
    handle = project.app.producer(f"{SHOP}.unimported.later").enqueue({"name": "lamp"})
    result = default_task_backend.get_result(str(handle.id))
    assert (result.task.func.__name__, result.kwargs) == ("later", {"name": "lamp"})


def test_a_kind_of_the_store_imports_no_module_outside_of_the_apps(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Prevents: who may write jobs decides what a web process imports."""
    (project.directory / "outside_of_apps.py").write_text("imported = True")
    monkeypatch.syspath_prepend(project.directory)
    handle = project.app.producer("outside_of_apps.imported").enqueue({})
    with pytest.raises(TaskResultDoesNotExist, match="no task of this project"):
        default_task_backend.get_result(str(handle.id))
    assert "outside_of_apps" not in sys.modules


@pytest.mark.parametrize("kind", ["unimportable.task", "models.Order", "nowhere.task", "tasks.no"])
def test_a_task_that_cannot_be_imported_has_no_result(project: Project, kind: str) -> None:
    handle = project.app.producer(f"{SHOP}.{kind}").enqueue({})
    with pytest.raises(TaskResultDoesNotExist, match="no task of this project"):
        default_task_backend.get_result(str(handle.id))


def test_a_blocking_get_result_in_an_event_loop_names_the_awaited_one() -> None:
    result = tasks.noop.enqueue()

    async def get() -> None:
        tasks.noop.get_result(result.id)

    async def refresh() -> None:
        result.refresh()

    for main in (get, refresh):
        with pytest.raises(
            CalledFromEventLoop, match=r"await aget_result\(...\), or await arefresh"
        ):
            asyncio.run(main())


def test_a_task_that_two_threads_register_at_once_has_one_handler(project: Project) -> None:
    """Prevents: the second thread finds its kind taken, and its enqueue fails."""
    app = project.app

    class AfterAnother:
        """A lock that another thread held, and registered the task."""

        def __enter__(self) -> None:
            app.registering = threading.RLock()
            self.handler = handler_of(app, tasks.note)

        def __exit__(self, *_: object) -> None: ...

    app.registering = lock = AfterAnother()
    assert handler_of(app, tasks.note) is lock.handler


def test_a_result_survives_that_its_queue_is_given_up(project: Project) -> None:
    with project.tasks_setting(default={"OPTIONS": {"max_retries": 0}}):
        result = tasks.mail.enqueue()
    with project.tasks_setting(default={"QUEUES": ["default"]}):
        assert default_task_backend.get_result(result.id).status == TaskResultStatus.READY


def test_backends_of_several_aliases_have_jobs_of_their_own(project: Project) -> None:
    other = {"OPTIONS": {"url": f"sqlite:///{project.directory}/other.db"}}
    with project.tasks_setting(default={}, other=other):
        result = tasks.add.using(backend="other").enqueue(1)
        assert result.backend == "other"
        with pytest.raises(TaskResultDoesNotExist):
            task_backends["default"].get_result(result.id)
        project.work()
        result.refresh()
        assert result.status == TaskResultStatus.READY
        project.work(alias="other")
        result.refresh()
        assert result.return_value == 2
