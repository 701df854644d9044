"""The log lines of a real worker: every one that belongs to a job names it, whoever wrote it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.cli.conftest import Shell, Start

WORKER = ("-m", "windlass", "worker", "shop:app", "--burst")
SHOP = """
import asyncio, logging
from dataclasses import dataclass
from windlass import Windlass

app = Windlass()
log = logging.getLogger("shop")


@app.job(queue="a")
async def in_loop(card: str) -> None:
    await asyncio.sleep(0)
    log.info("user %s\\n%s", "in_loop", "\\x1b[31mforged")


@app.job(queue="b")
def in_thread(card: str) -> None:
    log.info("user in_thread")


@app.job(queue="c", isolate=True)
def in_child(card: str) -> None:
    log.info("user in_child")


@dataclass
class Card:
    card: str


@app.job(queue="d", batch_size=5, batch_timeout="1ms")
async def in_batch(cards: list[Card]) -> None:
    log.info("user in_batch")
"""
KINDS = {"in_loop": "a", "in_thread": "b", "in_child": "c", "in_batch": "d"}


def lines_of(shell: Shell, start: Start, **environ: str) -> list[dict[str, Any]]:
    shell.write("shop.py", SHOP)
    for kind in KINDS:
        shell.ok("enqueue", kind, json.dumps({"card": "planted-4111"}), "--app", "shop:app")
    said = shell.ended(start(*WORKER, **environ))
    assert said.code == 0, said.err
    assert "planted-4111" not in said.out + said.err, "no payload is logged"
    return [json.loads(line) for line in said.err.splitlines()]


def test_every_log_line_of_a_job_names_the_job_wherever_it_is_written(
    shell: Shell, start: Start
) -> None:
    lines = lines_of(shell, start)
    for kind, queue in KINDS.items():
        own = [line for line in lines if line.get("kind") == kind]
        events = [line["event"] for line in own]
        assert "job.started" in events
        assert "job.finished" in events
        assert any(event.startswith("user ") for event in events)
        for line in own:
            assert line["queue"] == queue
            assert line["worker_id"]
            assert line.get("job_id") or line["job_ids"]
            if "job_ids" not in line:
                assert line["attempt"] >= 1  # More if it had to wait for its child process.
        (finished,) = [line for line in own if line["event"] == "job.finished"]
        assert finished["duration"] >= 0
    strays = [line for line in lines if line["event"].startswith("user") and "kind" not in line]
    assert strays == []


@pytest.mark.parametrize("name", ["LOG_LEVEL", "WINDLASS_LOG_LEVEL"])
def test_a_higher_level_silences_all_that_is_below_it(
    shell: Shell, start: Start, name: str
) -> None:
    # Without a port: that another test has it is worth a warning.
    assert lines_of(shell, start, METRICS_PORT="0", **{name: "warning"}) == []
