"""How a worker runs Django's tasks: outcomes, contexts, threads, signals, connections."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest
from django.db import connection

from tests.contrib.django.conftest import Project, retry_at_once
from tests.contrib.django.shop import tasks
from tests.contrib.django.shop.models import Order
from tests.support.django_tasks import TaskResultStatus, default_task_backend
from windlass import Cancel

SUCCESSFUL, FAILED, READY = (
    TaskResultStatus.SUCCESSFUL,
    TaskResultStatus.FAILED,
    TaskResultStatus.READY,
)


# -- outcomes --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["add", "aadd"])
def test_a_task_that_returns_is_successful(project: Project, name: str) -> None:
    result = getattr(tasks, name).enqueue(2, b=3)
    project.work()
    result.refresh()
    assert (result.status, result.return_value, result.is_finished) == (SUCCESSFUL, 5, True)
    assert result.enqueued_at <= result.started_at == result.last_attempted_at
    assert result.started_at <= result.finished_at
    assert (result.attempts, result.errors) == (1, [])


@pytest.mark.parametrize(
    ("name", "path"), [("fail", "builtins.ValueError"), ("afail", "builtins.ValueError")]
)
def test_a_task_that_raises_has_failed(project: Project, name: str, path: str) -> None:
    result = getattr(tasks, name).enqueue()
    project.work()
    result.refresh()
    assert result.status == FAILED
    (error,) = result.errors
    assert (error.exception_class_path, error.exception_class) == (path, ValueError)
    assert "ValueError: no such order" in error.traceback
    assert "tasks.py" in error.traceback
    assert result.finished_at is not None
    with pytest.raises(ValueError, match="Task failed"):
        _ = result.return_value


def test_an_exception_may_hold_anything(project: Project) -> None:
    result = tasks.fail_with_objects.enqueue()
    project.work()
    result.refresh()
    assert (result.status, result.errors[0].exception_class) == (FAILED, ValueError)
    assert "inner" in result.errors[0].traceback


def test_a_result_is_refreshed_from_a_coroutine(project: Project) -> None:
    result = tasks.add.enqueue(2)
    project.work()
    assert (result.status, result.attempts) == (READY, 0)
    asyncio.run(result.arefresh())
    assert (result.status, result.return_value, result.attempts) == (SUCCESSFUL, 3, 1)


def test_the_class_of_an_error_is_found_by_its_path(project: Project) -> None:
    result = tasks.refuse.enqueue()
    project.work()
    result.refresh()
    assert result.errors[0].exception_class is tasks.Refused


def test_a_value_that_json_does_not_have_is_a_failure_that_is_not_tried_again(
    project: Project,
) -> None:
    with project.options(max_retries=3):
        result = tasks.unwritable.enqueue()
        project.work()
        result.refresh()
        assert (result.status, result.attempts) == (FAILED, 1)
        assert issubclass(result.errors[0].exception_class, TypeError)
        assert "must return a value that JSON has" in result.errors[0].traceback


def test_a_tuple_comes_back_as_a_list(project: Project) -> None:
    result = tasks.pair.enqueue(4)
    project.work()
    result.refresh()
    assert result.return_value == [4, 4]


def test_a_task_that_ends_its_program_fails_and_the_worker_goes_on(project: Project) -> None:
    left, after = tasks.leave.enqueue(), tasks.add.enqueue(1)
    project.work()
    left.refresh()
    after.refresh()
    assert (left.status, after.status) == (FAILED, SUCCESSFUL)
    assert left.errors[0].exception_class is SystemExit


def test_a_failure_is_tried_again_and_keeps_its_errors(project: Project) -> None:
    path = tasks.fail_once.module_path
    retry = {"retry": retry_at_once(), "max_retries": None}
    with project.options(max_retries=3, tasks={path: retry}):
        result = tasks.fail_once.enqueue()
        project.work_until_finished(result)
        assert (result.status, result.return_value) == (SUCCESSFUL, "done")
        assert (result.attempts, len(result.errors)) == (2, 1)
        assert result.started_at < result.last_attempted_at


def test_a_cancelled_task_has_failed_and_says_so(project: Project) -> None:
    result = tasks.noop.enqueue()
    project.app.control.cancel(UUID(result.id), reason="ordered by mistake")
    result.refresh()
    assert result.status == FAILED
    assert result.errors[0].traceback == "cancelled: ordered by mistake"
    assert result.errors[0].exception_class.__name__ == "JobCancelled"


# -- contexts --------------------------------------------------------------------------------------


def test_a_task_is_given_its_context_first(project: Project) -> None:
    sync, awaited = tasks.with_context.enqueue(7), tasks.awith_context.enqueue(value=7)
    project.work()
    sync.refresh()
    awaited.refresh()
    assert sync.return_value == [1, sync.id, "RUNNING", [7], {}, 7]
    assert awaited.return_value == 8


def test_a_task_may_enqueue_others(project: Project) -> None:
    result = tasks.enqueue_more.enqueue(3)
    project.work()
    result.refresh()
    ids = result.return_value.split(",")
    assert sorted(tasks.seen) == [0, 1, 2]
    assert {default_task_backend.get_result(each).status for each in ids} == {SUCCESSFUL}


# -- order -----------------------------------------------------------------------------------------


def test_tasks_run_by_priority_then_by_age(project: Project) -> None:
    for value, priority in [("a", 0), ("b", 10), ("c", -10), ("d", 10)]:
        tasks.note.using(priority=priority).enqueue(value)
    project.work(concurrency=1)
    assert tasks.seen == ["b", "d", "a", "c"]


def test_a_worker_serves_the_queues_that_it_is_given(project: Project) -> None:
    mail, other = tasks.mail.enqueue(), tasks.add.enqueue(1)
    project.work(queues="mail")
    mail.refresh()
    other.refresh()
    assert (mail.status, other.status) == (SUCCESSFUL, READY)


def test_a_deferred_task_runs_once_its_time_is_past(project: Project) -> None:
    result = tasks.add.using(run_after=datetime.now(UTC) + timedelta(seconds=0.1)).enqueue(1)
    project.work_until_finished(result)
    assert result.return_value == 2


# -- threads and connections -----------------------------------------------------------------------


def test_sync_tasks_run_side_by_side_in_threads(project: Project) -> None:
    """Prevents: Django's own `acall`, which runs all of a process in one thread."""
    first, second = tasks.meet.enqueue(), tasks.meet.enqueue()
    project.work()
    first.refresh()
    second.refresh()
    assert (first.status, second.status) == (SUCCESSFUL, SUCCESSFUL)
    assert first.return_value != second.return_value


def test_tasks_use_the_orm(project: Project) -> None:
    sync, awaited = tasks.save_order.enqueue("lamp"), tasks.asave_order.enqueue("chair")
    project.work()
    sync.refresh()
    awaited.refresh()
    assert [sync.status, awaited.status] == [SUCCESSFUL, SUCCESSFUL], sync.errors + awaited.errors
    assert sorted(Order.objects.values_list("name", flat=True)) == ["chair", "lamp"]


@pytest.mark.parametrize("place", ["postgres"], indirect=True)
def test_a_connection_that_was_lost_costs_no_second_task(project: Project) -> None:
    """Prevents: every later task of a thread fails, as after a restart of the database."""
    first = tasks.count_orders.enqueue()
    project.work(threads=1)
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
    second = tasks.count_orders.enqueue()
    project.work(threads=1)
    first.refresh()
    second.refresh()
    assert (first.status, second.status) == (SUCCESSFUL, SUCCESSFUL)


# -- native handlers -------------------------------------------------------------------------------


def test_native_handlers_of_the_app_run_beside_tasks(project: Project) -> None:
    ran = []

    @project.app.job(name="native")
    def native(n: int) -> Cancel | None:
        ran.append(n)
        return None

    native.enqueue(5)
    result = tasks.add.enqueue(1)
    project.work()
    result.refresh()
    assert (ran, result.return_value) == ([5], 2)
