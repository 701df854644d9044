"""`windlass worker --drain` and `--burst`: workers that end, and who is told to."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.worker_processes import until
from windlass import State
from windlass.cli.processes import drain_command as drain

if TYPE_CHECKING:
    from tests.cli.conftest import Shell, Start

SLOW = """
import asyncio
from pathlib import Path

from windlass import Windlass

app = Windlass()


@app.job
async def hold() -> None:
    Path("began").touch()
    while not Path("go").exists():
        await asyncio.sleep(0.01)
"""
SLEEP = "import time; time.sleep(60)"


def is_serving(shop: Shell) -> bool:
    return bool(shop.ok("workers", "--alive", "--json").json["workers"])


# -- --drain ---------------------------------------------------------------------------------------


def test_drain_has_a_worker_finish_its_job_and_waits_for_its_end(shop: Shell, start: Start) -> None:
    shop.write("slow.py", SLOW)
    (job,) = shop.enqueue("hold")
    process = start("-m", "windlass", "worker", "slow:app")
    until((shop.directory / "began").exists, "a job that runs")
    # Let go only once the worker drains: a drain that did not wait would be over by then.
    assert process.stderr is not None
    threading.Thread(target=_go_when_draining, args=(shop, process), daemon=True).start()

    said = shop.ok("worker", "--drain", process.pid)

    # As a parent that has not looked yet, which a script that deploys mostly is not.
    assert f"process {process.pid} has ended" in said.err
    assert process.poll() == 0, "it did not wait"
    assert shop.job(job).state is State.COMPLETED
    assert shop.job(job).attempt == 1


def _go_when_draining(shop: Shell, process: subprocess.Popen[str]) -> None:
    assert process.stderr is not None
    for line in process.stderr:
        if json.loads(line)["event"] == "worker.draining":
            shop.write("go", "")


def test_drain_of_a_supervised_worker_names_its_supervisor(shop: Shell, start: Start) -> None:
    """Prevents a script that ends one worker after the other, and wonders at the new ones."""
    process = start("-m", "windlass", "worker", "shop:app")
    until(shop.is_served, "a worker")
    (told,) = shop.ok("workers", "--alive", "--json").json["workers"]

    said = shop.ok("worker", "--drain", told["pid"]).err
    assert f"supervisor {process.pid}, which would replace it" in said
    assert f"windlass worker --drain {process.pid}" in said
    assert f"process {told['pid']} has ended" in said
    until(shop.is_served, "its successor")
    assert "supervisor" not in shop.ok("worker", "--drain", process.pid).err


def test_drain_of_a_process_that_is_gone_is_done(shop: Shell, start: Start) -> None:
    process = start("-c", "pass")
    process.wait()
    for _ in range(2):
        assert "has already ended" in shop.ok("worker", "--drain", process.pid).err


def test_drain_of_a_process_that_ended_and_is_still_listed_is_done(
    shop: Shell, start: Start
) -> None:
    process = start("-c", "pass")
    until(lambda: drain._birth(process.pid) is None, "the end of the process")
    os.kill(process.pid, 0)  # Nobody has waited for it.
    assert "has already ended" in shop.ok("worker", "--drain", process.pid).err


@pytest.mark.parametrize(
    "other",
    [
        ("-c", SLEEP, "windlass", "doctor"),
        ("-c", SLEEP, "worker"),
        ("-c", SLEEP, "windlass", "worker", "--drain", "1"),
        ("-c", SLEEP, "windlass", "worker", "--drain=1"),
    ],
)
def test_drain_refuses_a_process_that_is_no_worker(
    shop: Shell, start: Start, other: tuple[str, ...]
) -> None:
    process = start(*other)
    until(lambda: other[-1] in _cmdline(process.pid), "the other program")
    shop("worker", "--drain", process.pid).refused("is not a `windlass worker`")
    assert process.poll() is None


@pytest.mark.parametrize(
    "called",
    [
        ("windlass", "worker", "shop:app"),
        ("/usr/local/bin/windlass", "--debug", "worker"),
        ("/sbin/docker-init", "--", "/usr/bin/windlass", "worker", "shop:app"),
        ("/srv/windlass/__main__.py", "worker", "--concurrency", "4"),
    ],
)
def test_drain_knows_a_worker_however_it_was_called(
    shop: Shell, start: Start, called: tuple[str, ...]
) -> None:
    process = start("-c", SLEEP, *called)
    until(lambda: called[-1] in _cmdline(process.pid), "the worker")
    assert "has ended" in shop.ok("worker", "--drain", process.pid).err
    assert process.wait(10) == -signal.SIGTERM


def _cmdline(pid: int) -> str:
    return Path(f"/proc/{pid}/cmdline").read_text(encoding="utf-8")


def test_drain_gives_up_after_the_shutdown_timeout_and_says_so(
    shop: Shell, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(drain, "DRAIN_GRACE", timedelta(milliseconds=100))
    ignores = "import signal; signal.signal(15, signal.SIG_IGN); open('deaf', 'w'); " + SLEEP
    process = start("-c", ignores, "windlass", "worker")
    until((shop.directory / "deaf").exists, "a worker that does not listen")
    shop("worker", "--drain", process.pid, "--shutdown-timeout", "200ms").refused(
        "is still running 300ms after SIGTERM", "--shutdown-timeout"
    )
    assert process.poll() is None


def test_drain_needs_a_number(shop: Shell) -> None:
    shop("worker", "--drain", "0").refused("--drain", code=2)
    shop("worker", "--drain", "all").refused("--drain", code=2)


# -- --burst ---------------------------------------------------------------------------------------


def test_a_burst_works_off_what_there_is_and_exits_with_0(shop: Shell, start: Start) -> None:
    jobs = shop.enqueue(queue="mail", payload=b'{"to": "a"}', count=200)
    (left,) = shop.enqueue(queue="slow", payload=b'{"to": "a"}')
    (later,) = shop.enqueue(queue="mail", payload=b'{"to": "a"}', due=timedelta(hours=1))
    process = start("-m", "windlass", "worker", "shop:app", "--burst", "--exclude", "slow")
    said = shop.ended(process)
    assert said.code == 0, said.err
    assert shop.states(jobs) == {State.COMPLETED}
    assert shop.job(left).state is State.PENDING
    assert shop.job(later).state is State.SCHEDULED
    events = {line["event"]: line for line in map(json.loads, said.err.splitlines())}
    assert events["worker.started"]["excluded"] == ["slow"]
    assert "worker.stopped" in events
    assert not is_serving(shop)


# -- which queues ----------------------------------------------------------------------------------


@pytest.mark.parametrize("wrong", ["mail=0", "mail=many", "mail=1,mail=2"])
def test_slots_of_a_queue_that_cannot_be_are_refused(shop: Shell, wrong: str) -> None:
    shop("worker", "shop:app", "--queues", wrong).refused("--queues must be ", "'mail=10,default'")


def test_no_queue_left_to_serve_is_refused(shop: Shell, start: Start) -> None:
    flags = ("--queues", "mail", "--exclude", "mail")
    said = shop.ended(start("-m", "windlass", "worker", "shop:app", *flags))
    said.refused("no queue is left to serve")


@pytest.mark.parametrize(
    ("flags", "shown", "facts"),
    [
        (
            ("--queues", "mail=10,default"),
            "default, mail=10",
            {"queues": ["default", "mail"], "queue_slots": {"mail": 10}, "excluded": []},
        ),
        (
            ("--exclude", "mail,slow"),
            "all but mail, slow",
            {"queues": [], "queue_slots": {}, "excluded": ["mail", "slow"]},
        ),
        (
            ("--queues", "mail=10,default", "--exclude", "mail"),
            "default",
            {"queues": ["default"], "queue_slots": {}, "excluded": []},
        ),
    ],
)
def test_workers_shows_which_queues_are_served(
    shop: Shell, start: Start, flags: tuple[str, ...], shown: str, facts: dict[str, object]
) -> None:
    process = start("-m", "windlass", "worker", "shop:app", *flags)
    until(shop.is_served, "a worker")
    (told,) = shop.ok("workers", "--json").json["workers"]
    assert {name: told[name] for name in facts} == facts
    assert f" {shown} " in shop.ok("workers").out
    assert shop.ok("worker", "--drain", process.pid).code == 0
