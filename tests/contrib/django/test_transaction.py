"""How an enqueue goes with Django's transactions: in them on PostgreSQL, after them elsewhere."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext

from tests.contrib.django.conftest import Project
from tests.contrib.django.shop import tasks
from tests.contrib.django.shop.models import Order
from tests.support.django_tasks import TaskResultDoesNotExist, default_task_backend, task_enqueued
from windlass import WindlassError

on_sqlite = pytest.mark.parametrize("place", ["sqlite"], indirect=True)
on_postgres = pytest.mark.parametrize("place", ["postgres"], indirect=True)


def exists(result: Any) -> bool:
    try:
        default_task_backend.get_result(result.id)
    except TaskResultDoesNotExist:
        return False
    return True


def test_a_job_appears_with_the_commit_of_the_data(project: Project) -> None:
    with transaction.atomic():
        Order.objects.create(name="lamp")
        result = tasks.count_orders.enqueue()
        assert not exists(result)
    assert exists(result)
    project.work()
    result.refresh()
    assert result.return_value == 1


def test_a_job_of_a_rolled_back_block_never_was(project: Project) -> None:
    with pytest.raises(LookupError), transaction.atomic():
        result = tasks.noop.enqueue()
        raise LookupError
    assert not exists(result)


def test_a_savepoint_takes_its_jobs_along(project: Project) -> None:
    with transaction.atomic():
        kept = tasks.noop.enqueue()
        with pytest.raises(LookupError), transaction.atomic():
            lost = tasks.noop.enqueue()
            raise LookupError
    assert (exists(kept), exists(lost)) == (True, False)


def test_an_enqueue_outside_of_blocks_is_there_at_once(project: Project) -> None:
    assert exists(tasks.noop.enqueue())


def test_an_awaited_enqueue_joins_the_transaction_of_its_thread(project: Project) -> None:
    async def main() -> Any:
        block = transaction.atomic()
        await sync_to_async(block.__enter__)()
        result = await tasks.noop.aenqueue()
        before = await _aexists(result)
        await sync_to_async(block.__exit__)(None, None, None)
        return before, await _aexists(result)

    assert asyncio.run(main()) == (False, True)


async def _aexists(result: Any) -> bool:
    try:
        await default_task_backend.aget_result(result.id)
    except TaskResultDoesNotExist:
        return False
    return True


@on_postgres
def test_joining_costs_one_statement_of_djangos_connection(project: Project) -> None:
    with transaction.atomic(), CaptureQueriesContext(connection) as queries:
        tasks.noop.enqueue()
        assert [each for each in queries.captured_queries if "-- Add jobs." in each["sql"]]
        assert len(queries) == 1


@on_postgres
def test_a_transaction_without_a_block_is_joined_as_well(project: Project) -> None:
    transaction.set_autocommit(False)
    try:
        result = tasks.noop.enqueue()
        assert not exists(result)
        transaction.commit()
        assert exists(result)
    finally:
        transaction.rollback()
        transaction.set_autocommit(True)


def test_off_enqueues_at_once_whatever_becomes_of_the_transaction(project: Project) -> None:
    with project.options(transaction="off"):
        with pytest.raises(LookupError), transaction.atomic():
            result = tasks.noop.enqueue()
            assert exists(result)
            raise LookupError
        assert exists(result)


@on_postgres
def test_on_commit_can_be_chosen_on_postgresql(project: Project) -> None:
    with project.options(transaction="on_commit"), transaction.atomic():
        tasks.noop.enqueue()
        assert len(connection.run_on_commit) == 1


@on_postgres
def test_a_store_elsewhere_is_not_joined(project: Project) -> None:
    url = f"sqlite:///{project.directory}/elsewhere.db"
    with project.options(url=url), transaction.atomic():
        tasks.noop.enqueue()
        assert len(connection.run_on_commit) == 1


@contextmanager
def heard_ids() -> Iterator[list[str]]:
    """Keep the ids of the results that `task_enqueued` is sent with."""
    ids: list[str] = []

    def receive(task_result: Any, **_: Any) -> None:
        ids.append(task_result.id)

    task_enqueued.connect(receive)
    try:
        yield ids
    finally:
        task_enqueued.disconnect(receive)


@pytest.mark.parametrize("way", [None, "on_commit"])
def test_the_signal_of_an_enqueue_in_a_transaction_comes_with_the_commit(
    project: Project, way: str | None
) -> None:
    with project.options(transaction=way), heard_ids() as ids:
        with transaction.atomic():
            result = tasks.noop.enqueue()
            assert ids == []
        assert ids == [result.id]


def test_a_rolled_back_enqueue_sends_no_signal(project: Project) -> None:
    with heard_ids() as ids:
        with pytest.raises(LookupError), transaction.atomic():
            tasks.noop.enqueue()
            raise LookupError
        assert ids == []


def test_a_receiver_that_raises_after_the_commit_skips_no_other_callback(project: Project) -> None:
    def receive(**_: Any) -> None:
        raise LookupError("of a receiver")

    called: list[str] = []
    task_enqueued.connect(receive)
    try:
        with transaction.atomic():
            first, second = tasks.noop.enqueue(), tasks.noop.enqueue()
            transaction.on_commit(lambda: called.append("later"))
    finally:
        task_enqueued.disconnect(receive)
    assert (called, exists(first), exists(second)) == (["later"], True, True)


@on_sqlite
def test_an_enqueue_that_fails_after_the_commit_skips_no_other_callback_and_is_known(
    project: Project, caplog: pytest.LogCaptureFixture
) -> None:
    broken = project.directory / "broken.db"
    broken.write_text("not a database, whatever its name says" * 10)
    called: list[str] = []
    with project.options(url=f"sqlite:///{broken}"):
        with transaction.atomic():
            order = Order.objects.create(name="lamp")
            lost = [tasks.noop.enqueue(), tasks.add.enqueue(1)]
            transaction.on_commit(lambda: called.append("later"))
        assert [each.status for each in lost] == ["FAILED", "FAILED"]
        assert all(each.is_finished and each.errors[0].traceback for each in lost)
        assert issubclass(lost[0].errors[0].exception_class, WindlassError)
    assert called == ["later"]
    assert Order.objects.filter(pk=order.pk).exists()
    lines = [each.getMessage() for each in caplog.records if each.levelname == "ERROR"]
    for result in lost:
        assert [line for line in lines if result.id in line and result.task.module_path in line]


def test_a_duplicate_returns_the_job_that_holds_the_key(project: Project) -> None:
    path = tasks.note.module_path
    said: list[str] = []

    def receive(task_result: Any, **_: Any) -> None:
        said.append(task_result.id)

    with project.options(tasks={path: {"unique": "value"}}):
        first = tasks.note.enqueue("a")
        task_enqueued.connect(receive)
        again, other = tasks.note.enqueue("a"), tasks.note.enqueue("b")
        task_enqueued.disconnect(receive)
        assert said == [other.id]
        assert (again.id, other.id != first.id) == (first.id, True)
        with transaction.atomic():
            third = tasks.note.enqueue("a")
        if project.place == "postgres":
            assert third.id == first.id
        project.work()
        assert sorted(tasks.seen) == ["a", "b"]
