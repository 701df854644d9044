"""A worker at a real terminal: a banner, then one line for each event, however narrow it is."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest

from tests.support.screens import Glass, python_in

if TYPE_CHECKING:
    from tests.cli.conftest import Shell

SHOP = """
import logging
from windlass import Context, Retry, Windlass

app = Windlass()


@app.job(queue="mail")
async def send_email(ctx: Context, to: str) -> None:
    ctx.log.info("rendering")


@app.job(max_retries=0)
async def pay(cents: int) -> float:
    return 100 / cents  # the culprit
"""
Watch = Callable[..., Glass]


@pytest.fixture
def watch(shell: Shell) -> Iterator[Watch]:
    """Start a worker at a terminal, which ends with the test."""
    glasses: list[Glass] = []

    def start(*args: str, columns: int = 80, **environ: str) -> Glass:
        shell.write("shop.py", SHOP)
        command = ("-m", "windlass", "worker", "shop:app", *args)
        # A port of this process's own: one that is taken would be a line more.
        environ = {"WINDLASS_METRICS_PORT": str(21_000 + os.getpid() % 9_000), **environ}
        glass = Glass(python_in(shell.directory, *command, **environ), columns=columns, lines=60)
        glasses.append(glass)
        return glass

    yield start
    for glass in glasses:
        glass.close()


def end(glass: Glass) -> None:
    os.kill(glass.pid, signal.SIGTERM)
    glass.until(glass.has_ended)


def test_a_worker_begins_with_a_banner_of_store_queues_and_addresses(
    shell: Shell, watch: Watch
) -> None:
    glass = watch("--concurrency", "7", "--threads", "3", "--queues", "mail=2,reports")
    glass.sees("worker.started", "metrics.served")
    end(glass)
    head = glass.text.partition("worker.started")[0]
    assert "windlass" in head
    assert "shop:app" in head
    assert str(shell.file) in head.replace("\n", "")
    assert "queues   mail=2, reports" in head
    assert "kinds    pay, send_email" in head
    assert "7 jobs; def handlers in 3 threads" in head
    assert "/metrics" in head
    assert "/health" in head


@pytest.mark.parametrize("columns", [70, 80, 200])
def test_every_event_is_one_line_and_a_failure_has_its_frames_below(
    shell: Shell, watch: Watch, columns: int
) -> None:
    glass = watch(columns=columns)
    glass.sees("worker.started")
    shell.ok("enqueue", "send_email", '{"to": "a"}', "--app", "shop:app")
    shell.ok("enqueue", "pay", '{"cents": 0}', "--app", "shop:app")
    glass.sees("windlass jobs show", "finished")
    end(glass)
    lines = glass.lines
    after = lines[next(i for i, line in enumerate(lines) if "worker.started" in line) :]
    events = [line for line in after if line and not line.startswith(" ")]
    assert all(line[2:3] == line[5:6] == ":" for line in events), glass.text
    (finished,) = [line for line in events if "finished" in line]
    (started,) = [line for line in events if "started     send_email" in line]
    short = started.split()[-1]
    assert len(short) == 8
    assert f"send_email {short}" in finished
    assert finished.endswith("ms")
    assert 'File "shop.py", line 15, in pay' in glass.text
    assert "return 100 / cents  # the culprit" in glass.text
    assert glass.text.count("File ") == 1, "frames of Windlass are left out"
    assert {"cyan", "red", "green"} <= glass.colours


def test_no_color_means_none(watch: Watch) -> None:
    glass = watch(NO_COLOR="1")
    glass.sees("worker.started")
    end(glass)
    assert b"\x1b[" not in glass.received


def test_json_at_a_terminal_has_no_banner(watch: Watch) -> None:
    glass = watch("--log-format", "json", columns=1_000)
    glass.sees('"event": "worker.started"')
    end(glass)
    assert all(line.startswith("{") for line in glass.lines if line), glass.text


def test_lines_of_child_processes_look_alike(shell: Shell, watch: Watch) -> None:
    glass = watch(WINDLASS_ISOLATE="1")
    glass.sees("worker.started")
    shell.ok("enqueue", "send_email", '{"to": "a"}', "--app", "shop:app")
    glass.sees("rendering   send_email", "finished    send_email")
    end(glass)
