"""`windlass worker`: what it refuses, and a real one in a process of its own."""

from __future__ import annotations

import asyncio
import json
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from windlass import Windlass
from windlass.cli.processes.worker_command import WorkerCommand, read, written

if TYPE_CHECKING:
    from tests.cli.conftest import Shell, Start

WORKER = ("-m", "windlass", "worker")


async def result_of(file: Path, job_id: str) -> object:
    app = Windlass(f"sqlite:///{file}")
    try:
        return await app.handle(job_id).aresult(timeout="30s")
    finally:
        await app.aclose()


def test_memory_is_refused_with_the_reason_and_the_remedy(shop: Shell, start: Start) -> None:
    said = shop.ended(start(*WORKER, "shop:app", "--url=memory://"))
    said.refused("inside one process", "app.run_worker()", "sqlite:///")
    assert said.out == "", "its supervisor adds nothing"


def test_without_an_app_it_is_wrong_usage(shell: Shell) -> None:
    shell("worker").refused("no app was given", "WINDLASS_APP", code=2)


def test_the_help_has_processes_beside_slots_and_an_example_of_them(shell: Shell) -> None:
    text = shell.ok("worker", "-h").out
    flags = [line.split()[0] for line in text.splitlines() if line.lstrip().startswith("--")]
    assert flags.index("--processes") == flags.index("--concurrency") + 1
    assert "windlass worker shop.jobs:app --processes 4\n" in text


@pytest.mark.parametrize(
    ("flag", "value"),
    [
        ("--concurrency", "0"),
        ("--concurrency", "many"),
        ("--concurrency", "9..3"),
        ("--threads", "-1"),
        ("--isolated-processes", "0"),
        ("--claim-size", "1.5"),
        ("--poll-interval", "soon"),
        ("--lease", "0s"),
        ("--shutdown-timeout", "-5"),
        ("--log-level", "loud"),
        ("--log-format", "xml"),
    ],
)
def test_a_flag_that_cannot_be_is_refused_by_its_name(shop: Shell, flag: str, value: str) -> None:
    refused = shop("worker", "shop:app", f"{flag}={value}").refused
    refused(f"{flag} must be ", f", got '{value}'")


def test_a_worker_that_was_started_before_a_setting_was_refused_runs_no_user_code(
    shop: Shell, start: Start, tmp_path: Path
) -> None:
    marker = tmp_path / "imported"
    Path("marking.py").write_text(
        f"from pathlib import Path\nPath({str(marker)!r}).touch()\nfrom shop import app\n"
    )
    said = shop.ended(start(*WORKER, "marking:app", "--lease=0s"))
    said.refused("lease")
    assert said.out == ""
    assert not marker.exists()


def test_a_module_that_cannot_be_imported_is_reported(shop: Shell, start: Start) -> None:
    said = shop.ended(start(*WORKER, "shop:app", "--imports=missing"))
    said.refused("importing 'missing' failed")


@pytest.mark.parametrize("args", [("--debug", "worker"), ("worker", "--debug"), ("worker",)])
def test_a_worker_whose_app_cannot_be_imported_says_where_and_by_debug_the_whole_way(
    shop: Shell, start: Start, args: tuple[str, ...]
) -> None:
    shop.write("broken.py", "import nonexistent")
    said = shop.ended(start("-m", "windlass", *args, "broken:app"))
    assert said.code == 1
    assert 'broken.py", line 1' in said.err
    assert ("windlass/cli/app_target.py" in said.err) is ("--debug" in args)


def test_an_error_in_a_module_of_handlers_is_reported_with_file_and_line(
    shop: Shell, start: Start
) -> None:
    shop.write("broken.py", "1 / 0")
    said = shop.ended(start(*WORKER, "shop:app", "--imports=broken"))
    assert said.code == 1
    assert said.err.startswith("error: importing 'broken' failed: ZeroDivisionError: division")
    assert 'broken.py", line 1' in said.err


def test_an_invalid_app_reference_is_wrong_usage(shop: Shell) -> None:
    shop("worker", "shop.py").refused("got 'shop.py'", "shop.jobs:app", code=2)


@pytest.mark.parametrize("debug", [False, True])
@pytest.mark.parametrize("name", ["", "it's = mine"])
def test_a_worker_reads_the_order_that_its_supervisor_wrote(name: str, debug: bool) -> None:
    flags = {"queues": "mail=10", "log_level": "--", "insecure": True}
    order = WorkerCommand("shop:app", flags, name, burst=not debug, debug=debug)
    assert read(written(order)) == order
    assert read(written(order._replace(flags={**flags, "slots": None}))) == order


def test_a_worker_serves_in_a_process_of_its_own_and_drains_on_sigterm(
    shop: Shell, start: Start
) -> None:
    process = start(
        *(*WORKER, "shop:app", "--name", "mine"),
        *("--concurrency", "3..9", "--queues", "mail", "--url", "sqlite:///windlass.db"),
        WINDLASS_CONCURENCY="1",
    )
    job_id = shop.ok("enqueue", "send_email", '{"to": "a"}', "--app", "shop:app").out.strip()
    assert asyncio.run(result_of(shop.file, job_id)) == "a x1"
    (worker,) = shop.ok("workers", "--alive", "--json").json["workers"]
    assert (worker["name"], worker["slots"], worker["queues"]) == ("mine", 3, ["mail"])
    assert (worker["least_slots"], worker["most_slots"]) == (3, 9)
    process.send_signal(signal.SIGTERM)
    said = shop.ended(process)
    assert said.code == 0
    events = {line["event"]: line for line in map(json.loads, said.err.splitlines())}
    assert events["worker.started"]["store"] == str(shop.file)
    assert events["worker.started"]["slots"] == "3..9"
    assert "WINDLASS_CONCURENCY is set" in events["setting.unknown"]["problem"]
    assert "worker.stopped" in events
    assert shop.ok("workers", "--alive", "--json").json["workers"] == []


def test_a_worker_that_cannot_open_its_store_ends_with_one_line(shell: Shell, start: Start) -> None:
    said = shell.ended(start(*WORKER, "windlass.demo:app", "--url", "sqlite:///missing/jobs.db"))
    said.refused("the directory of ")


BROKEN = """
import asyncio
import time
from collections.abc import AsyncIterator

from windlass import Windlass

app = Windlass()


class Pool: ...


@app.provide
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
    [(DEAF, "provider.not_closed"), ("time.sleep(1000)", "worker.stuck")],
    ids=["deaf", "blocking"],
)
def test_a_resource_that_never_closes_does_not_keep_the_process_from_ending(
    shop: Shell, start: Start, closing: str, event: str
) -> None:
    module = f"never_closed_by_{event.partition('.')[0]}"  # Modules outlive a test.
    shop.write(f"{module}.py", BROKEN.format(opening="", closing=closing))
    process = start(
        *(*WORKER, f"{module}:app"),
        *("--url", "sqlite:///windlass.db", "--shutdown-timeout", "3s"),
    )
    job_id = shop.ok("enqueue", "work", "{}", "--app", f"{module}:app").out.strip()
    assert asyncio.run(result_of(shop.file, job_id)) == "done"
    process.send_signal(signal.SIGTERM)
    said = shop.ended(process)
    assert said.code == 0
    # Its lease was ended before, so that nobody waits for it to run out.
    assert shop.ok("workers", "--alive", "--json").json["workers"] == []
    events = [json.loads(line)["event"] for line in said.err.splitlines()]
    assert event in events
    assert "process.stuck" not in events  # It ended by itself, and was not killed.


def test_a_resource_that_cannot_be_opened_ends_the_process_with_one_line(
    shop: Shell, start: Start
) -> None:
    shop.write("broken.py", BROKEN.format(opening="raise OSError('no route')", closing=""))
    said = shop.ended(start(*WORKER, "broken:app", "--url", "sqlite:///windlass.db"))
    assert said.code == 1
    assert said.err == "error: the provider 'pool' could not be opened: OSError: no route\n"


def test_an_idle_worker_is_seen_again_long_before_its_lease_wants_a_renewal(
    shop: Shell, start: Start
) -> None:
    """Prevents idle workers from looking dead: docs/cli.md promises about two seconds."""
    process = start(*WORKER, "shop:app", "--lease", "10m")
    seen: set[str] = set()

    def look() -> bool:
        said = shop("workers", "--alive", "--json")
        if said.code == 0:
            seen.update(worker["last_seen"] for worker in said.json["workers"])
        return len(seen) >= 3

    give_up = time.monotonic() + 60
    while not look():
        assert time.monotonic() < give_up, seen
        time.sleep(0.2)
    process.send_signal(signal.SIGTERM)
    assert shop.ended(process).code == 0
