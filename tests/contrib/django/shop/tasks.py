"""The tasks of the shop: one for each thing that a task can do."""

from __future__ import annotations

import threading
import time
from typing import Any

from tests.contrib.django.shop.models import Order
from tests.support.django_tasks import task

seen: list[Any] = []
"""What tasks did, for tests to look at."""
meeting = threading.Barrier(2, timeout=20)


class Refused(Exception):
    """An error of the shop's own."""


@task
def noop(*args: Any, **kwargs: Any) -> None: ...


@task
async def anoop() -> None: ...


@task
def add(a: int, b: int = 1) -> int:
    return a + b


@task
async def aadd(a: int, b: int = 1) -> int:
    return a + b


@task
def note(value: Any) -> Any:
    seen.append(value)
    return value


@task
def pair(value: int) -> tuple[int, int]:
    return value, value


@task
def fail(message: str = "no such order") -> None:
    raise ValueError(message)


@task
def refuse() -> None:
    raise Refused("not for you")


@task
def fail_with_objects() -> None:
    raise ValueError(ValueError("inner"), threading.Lock(), {"a": object()})


@task
async def afail() -> None:
    raise ValueError("no such order")


@task
def unwritable() -> Any:
    return object()


@task
def leave() -> None:
    raise SystemExit(3)


@task(takes_context=True)
def with_context(context: Any, value: int) -> list[Any]:
    result = context.task_result
    return [context.attempt, result.id, str(result.status), result.args, result.kwargs, value]


@task(takes_context=True)
async def awith_context(context: Any, value: int = 0) -> int:
    return int(context.attempt) + value


@task(takes_context=True)
def fail_once(context: Any) -> str:
    if context.attempt == 1:
        raise ValueError("the first time")
    return "done"


@task
def save_order(name: str) -> int:
    return int(Order.objects.create(name=name).pk)


@task
async def asave_order(name: str) -> int:
    return int((await Order.objects.acreate(name=name)).pk)


@task
def count_orders() -> int:
    return int(Order.objects.count())


@task
def meet() -> str:
    """Wait for another run of this task, in another thread."""
    meeting.wait()
    return threading.current_thread().name


@task(takes_context=True)
def enqueue_more(context: Any, times: int) -> str:
    results = [note.enqueue(n) for n in range(times)]
    return ",".join(result.id for result in results)


@task(queue_name="mail", priority=7)
def mail() -> None: ...


@task
def sleep(seconds: float) -> None:
    time.sleep(seconds)
