"""Where a job failed: its worker says the user's file and line, wherever the handler runs."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.cli.conftest import Shell, Start

WORKER = ("-m", "windlass", "worker", "shop:app", "--burst")
SHOP = """
from dataclasses import dataclass
from windlass import Context, Retry, SyncContext, Windlass

app = Windlass()


def divide(by: int) -> float:
    return 1 / by  # the culprit


def guarded(by: int) -> float:
    try:
        return divide(by)
    except ZeroDivisionError as error:
        raise ValueError("cannot share, password=planted-4111") from error


@app.job(max_retries=0)
async def in_loop(by: int) -> None:
    divide(by)


@app.job(max_retries=0)
def in_thread(by: int) -> None:
    divide(by)


@app.job(max_retries=0, isolate=True)
def in_child(by: int) -> None:
    divide(by)


@app.job(max_retries=0, isolate=True)
async def in_loop_of_child(by: int) -> None:
    divide(by)


@app.job(max_retries=0)
async def in_step(ctx: Context, by: int) -> None:
    await ctx.step("divide", divide, by)


@app.job(max_retries=0)
def in_blocking_step(ctx: SyncContext, by: int) -> None:
    ctx.step("divide", divide, by)


@dataclass
class Share:
    by: int


@app.job(max_retries=0, batch_size=5, batch_timeout="1ms")
async def in_batch(shares: list[Share]) -> None:
    divide(shares[0].by)


@app.job(max_retries=0)
async def caused(by: int) -> None:
    guarded(by)


@app.job(retry=Retry(max_retries=1, initial="1h"))
async def retried(by: int) -> None:
    divide(by)


@app.job(max_retries=0)
async def deep(by: int) -> None:
    descend(by)


def descend(by: int) -> float:
    return ascend(by) + 1


def ascend(by: int) -> float:
    return descend(by) + 1
"""
WHERE = 'shop.py", line 9, in divide\n    return 1 / by  # the culprit'


def lines_of(shell: Shell, start: Start, *kinds: str) -> list[dict[str, Any]]:
    shell.write("shop.py", SHOP)
    for kind in kinds:
        shell.ok("enqueue", kind, json.dumps({"by": 0}), "--app", "shop:app")
    said = shell.ended(start(*WORKER))
    assert said.code == 0, said.err
    assert "planted-4111" not in said.out + said.err
    return [json.loads(line) for line in said.err.splitlines()]


def test_the_line_of_a_death_has_the_users_frames_and_none_of_windlass(
    shell: Shell, start: Start
) -> None:
    kinds = ["in_loop", "in_thread", "in_child", "in_loop_of_child", "in_batch", "caused"]
    kinds += ["in_step", "in_blocking_step"]
    lines = lines_of(shell, start, *kinds)
    dead = {line["kind"]: line for line in lines if line["event"] == "job.dead"}
    assert set(dead) == set(kinds)
    for kind, line in dead.items():
        assert line["level"] == "error"
        assert line["duration"] >= 0
        assert WHERE in line["traceback"], (kind, line)
        assert "windlass/" not in line["traceback"], (kind, line["traceback"])
    chain = dead["caused"]["traceback"]
    assert chain.index("ValueError: cannot share") < chain.index("which was caused by")
    assert chain.index("which was caused by") < chain.index("ZeroDivisionError: division by zero")
    assert "password=***" in chain


def test_a_retry_is_a_warning_with_the_frames_and_a_failed_run_one_line(
    shell: Shell, start: Start
) -> None:
    """Prevents two warnings for one failure, neither of which said where it was."""
    lines = lines_of(shell, start, "retried")
    own = [line for line in lines if line.get("kind") == "retried"]
    assert [line["event"] for line in own] == ["job.started", "job.retried"]
    assert own[1]["level"] == "warning"
    assert WHERE in own[1]["traceback"]


def test_the_frames_in_a_line_are_bounded(shell: Shell, start: Start) -> None:
    lines = lines_of(shell, start, "deep")
    (line,) = [line for line in lines if line["event"] == "job.dead"]
    assert "RecursionError" in line["error"]
    assert 1_000 < len(line["traceback"]) < 9_000


def test_the_frames_of_every_attempt_stay_in_the_store(shell: Shell, start: Start) -> None:
    lines_of(shell, start, "in_step")
    (job,) = shell.ok("dead", "list", "--json").json["jobs"]
    shown = shell.ok("jobs", "show", job["id"]).out
    assert "shop.py" in shown
    assert "line 9, in divide" in shown
    assert "windlass/" not in shown
