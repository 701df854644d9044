"""The signals of a worker: when they are sent, and receivers that fail or are slow."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from django.dispatch import Signal

from tests.contrib.django.conftest import Project, retry_at_once
from tests.contrib.django.shop import tasks
from tests.contrib.django.shop.models import Order
from tests.support.django_tasks import (
    TaskResultStatus,
    default_task_backend,
    task_enqueued,
    task_finished,
    task_started,
)
from windlass.contrib.django import WindlassBackend
from windlass.contrib.django.task_jobs import signals

SUCCESSFUL, FAILED = TaskResultStatus.SUCCESSFUL, TaskResultStatus.FAILED
on_sqlite = pytest.mark.parametrize("place", ["sqlite"], indirect=True)


@contextmanager
def heard(*signals: Signal) -> Iterator[list[tuple[Signal, Any, Any]]]:
    """Keep what signals say: the signal, its sender, the status at that moment."""
    said: list[tuple[Signal, Any, Any]] = []
    receivers = []
    for signal in signals:

        def receive(signal: Signal, sender: Any, task_result: Any, **_: Any) -> None:
            said.append((signal, sender, task_result))

        signal.connect(receive)
        receivers.append((signal, receive))
    try:
        yield said
    finally:
        for signal, receiver in receivers:
            signal.disconnect(receiver)


@pytest.mark.parametrize(
    ("name", "status"),
    [("add", SUCCESSFUL), ("aadd", SUCCESSFUL), ("fail", FAILED), ("afail", FAILED)],
)
def test_signals_tell_the_life_of_a_task(project: Project, name: str, status: Any) -> None:
    with heard(task_enqueued, task_started, task_finished) as said:
        result = getattr(tasks, name).enqueue(*([1] if "add" in name else []))
        assert [(each[0], each[2].id) for each in said] == [(task_enqueued, result.id)]
        project.work()
    assert [each[0] for each in said] == [task_enqueued, task_started, task_finished]
    assert {each[1] for each in said} == {WindlassBackend}
    assert [each[2].status for each in said[1:]] == ["RUNNING", status]
    finished = said[2][2]
    result.refresh()
    assert finished.attempts == result.attempts == 1
    assert finished.errors == result.errors
    assert (finished.id, finished.worker_ids) == (result.id, result.worker_ids)
    if status == SUCCESSFUL:
        assert finished.return_value == result.return_value == 2


def test_a_failure_that_is_tried_again_is_no_end(project: Project) -> None:
    path = tasks.fail_once.module_path
    with (
        project.options(max_retries=3, tasks={path: {"retry": retry_at_once()}}),
        heard(task_started, task_finished) as said,
    ):
        result = tasks.fail_once.enqueue()
        project.work_until_finished(result)
        assert [each[0] for each in said] == [task_started, task_started, task_finished]
        assert said[-1][2].status == SUCCESSFUL


def test_receivers_of_the_end_use_the_orm_and_see_it_stored(project: Project) -> None:
    seen = []

    def receive(task_result: Any, **_: Any) -> None:
        stored = default_task_backend.get_result(task_result.id)
        seen.append((stored.status, Order.objects.create(name="by a receiver").pk is not None))

    task_finished.connect(receive)
    try:
        tasks.add.enqueue(1)
        project.work()
    finally:
        task_finished.disconnect(receive)
    assert seen == [(SUCCESSFUL, True)]


def test_a_receiver_that_raises_changes_no_outcome(project: Project) -> None:
    def receive(**_: Any) -> None:
        raise LookupError("of a receiver")

    task_started.connect(receive)
    task_finished.connect(receive)
    try:
        result = tasks.add.enqueue(1)
        project.work()
    finally:
        task_started.disconnect(receive)
        task_finished.disconnect(receive)
    result.refresh()
    assert result.status == SUCCESSFUL


@on_sqlite
def test_signals_that_wait_are_bounded_and_those_not_sent_are_counted(
    project: Project, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Prevents: a slow receiver fills the memory of a worker with finished jobs."""
    monkeypatch.setattr(signals, "_MAX_WAITING", 2)
    ends, all_settled = project.app.ends, threading.Event()
    settled, kinds = ends.settled, []

    def count(job: Any, move: Any) -> None:
        settled(job, move)
        kinds.append(job.kind)
        if len(kinds) == 6:
            all_settled.set()

    def around(call: Callable[[], None]) -> None:
        assert all_settled.wait(60)
        call()

    monkeypatch.setattr(ends, "settled", count)
    monkeypatch.setattr(ends, "around", around)
    with heard(task_finished) as said:
        for _ in range(6):
            tasks.add.enqueue(1)
        project.work()
    assert 2 <= len(said) <= 3  # With or without the one that the receiver has.
    assert not_sent(caplog) == [6 - len(said)]


@on_sqlite
def test_signals_that_still_wait_at_a_forced_shutdown_are_dropped_and_counted(
    project: Project, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Prevents: the process of a worker ends only once slow receivers have seen every job."""
    ends, began, released, sent = project.app.ends, *(threading.Event() for _ in range(3))
    settled, outcomes = ends.settled, []
    monkeypatch.setattr(ends, "settled", lambda *outcome: outcomes.append(outcome))
    tasks.add.enqueue(1)
    project.work()

    def around(call: Callable[[], None]) -> None:
        began.set()
        assert released.wait(60)
        call()
        sent.set()

    async def main() -> None:
        for _ in range(4):
            settled(*outcomes[0])
        assert await asyncio.to_thread(began.wait, 60)
        waiting = asyncio.create_task(ends.wait())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        released.set()

    monkeypatch.setattr(ends, "around", around)
    with heard(task_finished) as said:
        asyncio.run(main())
        assert sent.wait(60)  # The shutdown that was cut short has not waited for it.
    assert (len(said), not_sent(caplog)) == (1, [3])


def not_sent(caplog: pytest.LogCaptureFixture) -> list[int]:
    """Return the counts of the log lines about signals that were not sent."""
    lines = [each.getMessage() for each in caplog.records]
    return [int(each.rpartition("count=")[2]) for each in lines if "signals.not_sent" in each]


def test_a_failed_task_is_logged_with_its_exception(
    project: Project, caplog: pytest.LogCaptureFixture
) -> None:
    tasks.fail.enqueue()
    project.work()
    lines = [each for each in caplog.records if "state=FAILED" in each.getMessage()]
    assert [each.exc_info and each.exc_info[0] for each in lines] == [ValueError]
