"""An old task of another library hands its job over once, however often it is delivered.

The blocks of the pages run here as they are, against the library itself, with a broker in memory.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.docs.test_docs import blocks_of
from windlass import Windlass

ARGUMENTS = ("ada@example.org", "welcome")


@pytest.fixture
def jobs(monkeypatch: pytest.MonkeyPatch) -> Iterator[Windlass]:
    """Give an app in memory, which the blocks know as `shop.jobs`."""
    app = Windlass("memory://")

    @app.job
    async def send_email(to: str, template: str) -> None: ...

    module = ModuleType("shop.jobs")
    vars(module).update(app=app, send_email=send_email)
    monkeypatch.setitem(sys.modules, "shop", ModuleType("shop"))
    monkeypatch.setitem(sys.modules, "shop.jobs", module)
    yield app
    app.close()


def old_tasks(page: str) -> dict[str, Any]:
    """Run the block of a page that hands over, and return its names."""
    (text,) = [
        block.text
        for block in blocks_of(f"docs/coming-from/{page}.md")
        if block.language == "py" and "tasks_old.py" in block.text.partition("\n")[0]
    ]
    names: dict[str, Any] = {"__name__": "tasks_old"}
    exec(compile(text, f"{page}.md", "exec"), names)
    return names


def payloads(app: Windlass) -> list[bytes]:
    return [job.payload for job in app.jobs.find(kind="send_email").jobs]


ONCE = [b'{"to":"ada@example.org","template":"welcome"}']


def test_a_task_of_celery_that_is_delivered_twice_makes_one_job(jobs: Windlass) -> None:
    task = old_tasks("celery")["send_email"]
    for _ in range(2):
        task.apply(args=ARGUMENTS, task_id="the same").get()
    assert payloads(jobs) == ONCE


def test_a_task_of_huey_that_is_delivered_twice_makes_one_job(
    jobs: Windlass, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    names = old_tasks("huey")
    names["send_email"](*ARGUMENTS)
    queued = names["huey"].dequeue()
    for _ in range(2):
        names["huey"].execute(queued)
    names["huey"].storage.close()
    assert payloads(jobs) == ONCE


def test_a_message_of_dramatiq_that_is_delivered_twice_makes_one_job(jobs: Windlass) -> None:
    import dramatiq
    from dramatiq.brokers.stub import StubBroker
    from dramatiq.middleware import CurrentMessage

    broker = StubBroker(middleware=[CurrentMessage()])
    dramatiq.set_broker(broker)
    message = old_tasks("dramatiq")["send_email"].message(*ARGUMENTS)
    worker = dramatiq.Worker(broker, worker_timeout=100)
    worker.start()
    for _ in range(2):
        broker.enqueue(message)
    broker.join("mail", timeout=60_000)
    worker.stop()
    assert payloads(jobs) == ONCE


def test_a_job_of_procrastinate_that_is_run_twice_makes_one_job(jobs: Windlass) -> None:
    names = old_tasks("procrastinate")

    class Job:
        id = 7

    class Context:
        job = Job

    async def deliver() -> None:
        for _ in range(2):
            await names["send_email"].func(Context, *ARGUMENTS)

    asyncio.run(deliver())
    assert payloads(jobs) == ONCE
