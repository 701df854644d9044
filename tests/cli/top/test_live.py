"""`windlass top` beside a worker that works: what it shows is what happens."""

from __future__ import annotations

import re
import signal
from typing import TYPE_CHECKING

import pytest

from tests.support.screens import Glass, Sit, given_back
from windlass.core.jobs.states import State

if TYPE_CHECKING:
    from tests.cli.conftest import Shell, Start

pytestmark = pytest.mark.timeout(240)
SLOW = """
import time
from pathlib import Path

from windlass import Windlass

app = Windlass()


@app.job(queue="mail", max_retries=0)
def send_email(to: str) -> None:
    while not Path(to).exists():
        time.sleep(0.02)
    if to == "nowhere":
        raise ConnectionError("no route")
"""
WORKER = ("-m", "windlass", "worker", "slow:app", "--threads", "2", "--log-level", "critical")


def row(glass: Glass, *begin: str) -> list[str]:
    """Return the cells of the first row that begins with one of some texts."""
    lines = [line.lstrip(" ▸") for line in glass.lines]
    return next((line.split() for line in lines if line.startswith(begin)), [])


def queue(glass: Glass) -> list[str]:
    """Return how many jobs of the only queue wait, and how many run."""
    return row(glass, "mail")[1:3]


def test_jobs_are_seen_to_wait_to_run_and_to_end_while_a_worker_works(
    shop: Shell, start: Start, sit: Sit
) -> None:
    """Prevents: `all is well, no queue has jobs` while 58 of them wait, until somebody samples."""
    shop.write("slow.py", SLOW)
    glass = sit(columns=120, lines=40)
    glass.sees("no worker is running", "no queue has jobs")
    jobs = shop.enqueue("send_email", queue="mail", payload=b'{"to": "ada"}', count=58)
    glass.until(lambda: queue(glass) == ["58", "0"])
    glass.sees("no worker is running, and 58 jobs wait")

    worker = start(*WORKER)
    glass.until(lambda: queue(glass) == ["56", "2"])
    # What a worker has in use is known by its heartbeats, a moment later.
    glass.sees("threads 2/2", "all 2 threads are in use, and jobs of kind send_email are waiting")
    assert "running" in row(glass, f"{_host(glass)}:")
    assert "all is well" not in glass.text

    shop.write("ada", "")
    glass.until(lambda: "no queue has jobs" in glass.text or queue(glass)[:1] == ["0"])
    glass.until(lambda: shop.states(jobs) == {State.COMPLETED})
    glass.until(lambda: "58" in row(glass, f"{_host(glass)}:"))

    shop.write("nowhere", "")
    shop.enqueue("send_email", queue="mail", payload=b'{"to": "nowhere"}')
    glass.until(lambda: row(glass, "mail")[4:5] == ["1"])
    glass.sees("ConnectionError: no route")
    worker.send_signal(signal.SIGTERM)
    glass.sees("no worker is running")
    glass.type("q")
    given_back(glass, 0)


def _host(glass: Glass) -> str:
    """Return the host of the only worker, as its id begins with it."""
    found = re.search(r"^ ?▸?(\S+):\d+:", glass.text, re.MULTILINE)
    return found[1] if found else "none"
