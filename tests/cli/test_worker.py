"""`windlass worker`: what it refuses, and a real one in a process of its own."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from windlass import Windlass

if TYPE_CHECKING:
    from tests.cli.conftest import Shell


async def result_of(file: Path, job_id: str) -> object:
    app = Windlass(f"sqlite:///{file}")
    try:
        return await app.job_by_id(job_id).aresult(timeout="30s")
    finally:
        await app.aclose()


def test_memory_is_refused_with_the_reason_and_the_remedy(shop: Shell) -> None:
    refused(shop, "--url=memory://", "inside one process", "app.run_worker()", "sqlite:///")


def refused(shop: Shell, flag: str, *told: str) -> None:
    """See that a worker says in one line why it does not start; its supervisor adds nothing."""
    process = subprocess.run(
        [sys.executable, "-m", "windlass", "worker", "shop:app", flag],
        cwd=shop.directory,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (process.returncode, process.stdout) == (1, "")
    assert len(process.stderr.strip().splitlines()) == 1
    assert all(each in process.stderr for each in told), process.stderr


def test_without_an_app_it_is_wrong_usage(shell: Shell) -> None:
    shell("worker").refused("which app?", "WINDLASS_APP", code=2)


def test_the_help_has_processes_beside_slots_and_an_example_of_them(shell: Shell) -> None:
    text = shell.ok("worker", "-h").out
    flags = [line.split()[0] for line in text.splitlines() if line.lstrip().startswith("--")]
    assert flags.index("--processes") == flags.index("--slots") + 1
    assert "windlass worker shop.jobs:app --processes 4\n" in text


@pytest.mark.parametrize(
    ("flag", "value"),
    [
        ("--slots", "0"),
        ("--slots", "many"),
        ("--slots", "9..3"),
        ("--threads", "-1"),
        ("--children", "0"),
        ("--batch-size", "1.5"),
        ("--poll-interval", "soon"),
        ("--lease", "0s"),
        ("--shutdown-timeout", "-5"),
        ("--log-level", "loud"),
        ("--log-format", "xml"),
    ],
)
def test_a_flag_that_cannot_be_is_refused_by_its_name(shop: Shell, flag: str, value: str) -> None:
    shop("worker", "shop:app", f"{flag}={value}").refused(f"{flag} = '{value}' is wrong: write ")


def test_a_module_that_cannot_be_imported_is_told(shop: Shell) -> None:
    refused(shop, "--imports=missing", "the import 'missing' failed")


def test_a_worker_serves_in_a_process_of_its_own_and_drains_when_told(shop: Shell) -> None:
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "windlass", "worker", "shop:app", "--name", "mine"),
            *("--slots", "3..9", "--queues", "mail", "--url", "sqlite:///windlass.db"),
        ],
        cwd=shop.directory,
        env={**os.environ, "WINDLASS_SLOT": "1"},
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        job_id = shop.ok("enqueue", "send_email", '{"to": "a"}', "--app", "shop:app").out.strip()
        assert asyncio.run(result_of(shop.file, job_id)) == "a x1"
        (worker,) = shop.ok("workers", "--alive", "--json").json["workers"]
        assert (worker["name"], worker["slots"], worker["queues"]) == ("mine", 3, ["mail"])
        assert (worker["least_slots"], worker["most_slots"]) == (3, 9)
        process.send_signal(signal.SIGTERM)
        _, told = process.communicate(timeout=30)
    finally:
        process.kill()
    assert process.returncode == 0
    events = {line["event"]: line for line in map(json.loads, told.splitlines())}
    assert events["worker.started"]["store"] == str(shop.file)
    assert events["worker.started"]["slots"] == "3..9"
    assert "WINDLASS_SLOT is set" in events["setting.unknown"]["problem"]
    assert "worker.stopped" in events
    assert shop.ok("workers", "--alive", "--json").json["workers"] == []


def test_a_worker_that_cannot_open_its_store_ends_with_one_line(tmp_path: Path) -> None:
    done = subprocess.run(
        [
            *(sys.executable, "-m", "windlass", "worker", "windlass.demo:app"),
            *("--url", "sqlite:///missing/jobs.db"),
        ],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr.startswith("error: the directory of ")
    assert done.stderr.count("\n") == 1


BROKEN = """
import asyncio
import time
from collections.abc import AsyncIterator

from windlass import Windlass

app = Windlass()


class Pool: ...


@app.resource
async def pool() -> AsyncIterator[Pool]:
    {opening}
    yield Pool()
    {closing}


@app.job
async def work() -> str:
    return "done"
"""
DEAF = """
    while True:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            pass
"""


@pytest.mark.long
@pytest.mark.parametrize(
    ("closing", "event"),
    [(DEAF, "resource.not_closed"), ("time.sleep(1000)", "worker.stuck")],
    ids=["deaf", "blocking"],
)
def test_a_resource_that_never_closes_does_not_keep_the_process_from_ending(
    shop: Shell, closing: str, event: str
) -> None:
    module = f"never_closed_by_{event.partition('.')[0]}"  # Modules outlive a test.
    shop.write(f"{module}.py", BROKEN.format(opening="", closing=closing))
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "windlass", "worker", f"{module}:app"),
            *("--url", "sqlite:///windlass.db", "--shutdown-timeout", "3s"),
        ],
        cwd=shop.directory,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        job_id = shop.ok("enqueue", "work", "{}", "--app", f"{module}:app").out.strip()
        assert asyncio.run(result_of(shop.file, job_id)) == "done"
        process.send_signal(signal.SIGTERM)
        _, told = process.communicate(timeout=30)
    finally:
        process.kill()
    assert process.returncode == 0
    # Its lease was ended before, so that nobody waits for it to run out.
    assert shop.ok("workers", "--alive", "--json").json["workers"] == []
    events = [json.loads(line)["event"] for line in told.splitlines()]
    assert event in events
    assert "process.stuck" not in events  # It ended by itself, and was not killed.


def test_a_resource_that_cannot_be_opened_ends_the_process_with_one_line(shop: Shell) -> None:
    shop.write("broken.py", BROKEN.format(opening="raise OSError('no route')", closing=""))
    done = subprocess.run(
        [
            *(sys.executable, "-m", "windlass", "worker", "broken:app"),
            *("--url", "sqlite:///windlass.db"),
        ],
        cwd=shop.directory,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert done.returncode == 1
    told = "error: the resource 'pool' could not be opened: OSError: no route\n"
    assert done.stderr == told
