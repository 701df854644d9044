"""Whatever user code a job brings about, its log lines say which job it is of, on a real worker."""

from __future__ import annotations

import json
from collections import defaultdict
from typing import TYPE_CHECKING, Any

from tests.support.app_on_store import OF_A_JOB

if TYPE_CHECKING:
    from tests.cli.conftest import Shell, Start

WORKER = (
    "-m",
    "windlass",
    "worker",
    "shop:app",
    "--burst",
    "--threads",
    "2",
    "--isolated-processes",
    "1",
)
SHOP = """
import asyncio, logging
from dataclasses import dataclass
from windlass import Context, PermanentError, Retry, SyncContext, Windlass

log = logging.getLogger("shop")


def say(what):
    log.info("user %s", what)


async def asay(what):
    await asyncio.to_thread(say, f"{what} in a thread")
    await asyncio.create_task(later(what))


async def later(what):
    await asyncio.sleep(0)
    say(f"{what} in a task")


@dataclass
class Order:
    number: int

    def __post_init__(self):
        say("payload")


def may_retry(error):
    say("when")
    return True


async def around(ctx, call_next):
    say("middleware before")
    try:
        return await call_next()
    finally:
        say("middleware after")


app = Windlass(middleware=[around])


@app.on_job_start
def started(ctx):
    say("on start")


@app.on_job_complete
async def completed(ctx, value):
    say("on complete")


@app.on_job_error
async def failed(ctx, error):
    say("on error")


AT_ONCE = Retry(max_retries=1, when=may_retry, initial="1ms")


@app.job(queue="a", retry=AT_ONCE)
async def with_steps(ctx: Context, order: Order) -> None:
    ctx.log.info("user ctx.log")
    await asay("handler")
    await ctx.step("loop", asay, "step")
    await ctx.step("thread", say, "step in a def")
    if ctx.attempt == 1:
        raise ConnectionError("once more")


@app.job(queue="b", max_retries=0)
def with_undos(ctx: SyncContext, order: Order) -> None:
    ctx.step("thread", say, "step in a def", undo=undo)
    raise PermanentError("no seats")


def undo(what):
    say("undo in a def")


async def undo_later(what):
    await asay("undo")


@app.job(queue="c", isolate=True, max_retries=0)
async def in_child(ctx: Context, order: Order) -> None:
    await asay("handler")
    await ctx.step("loop", asay, "step", undo=undo_later)
    await ctx.step("thread", say, "step in a def", undo=undo)
    raise PermanentError("no seats")


@app.job
async def fetch(number: int) -> int:
    await asay("stage")
    return number


@app.job
def save(fetch: int) -> None:
    say("stage in a def")


imports = app.pipeline("imports", [fetch, save], queue="d")


@app.job(queue="e")
async def part(order: Order) -> None:
    await asay("handler")


@app.job(queue="e")
def join(order: Order) -> None:
    say("handler in a def")
"""
EVERYWHERE = {"middleware before", "middleware after", "on start"}
ASAY = {"in a thread", "in a task"}


def spoken(what: str) -> set[str]:
    return {f"{what} {where}" for where in ASAY}


EXPECTED = {
    "with_steps": EVERYWHERE
    | spoken("handler")
    | spoken("step")
    | {"ctx.log", "step in a def", "payload", "when", "on error", "on complete"},
    "with_undos": EVERYWHERE | {"step in a def", "undo in a def", "payload", "on error"},
    "in_child": EVERYWHERE
    | spoken("handler")
    | spoken("step")
    | spoken("undo")
    | {"step in a def", "undo in a def", "payload", "on error"},
    "imports": EVERYWHERE | spoken("stage") | {"stage in a def", "on complete"},
    "part": EVERYWHERE | spoken("handler") | {"payload", "on complete"},
    "join": EVERYWHERE | {"handler in a def", "payload", "on complete"},
}
ENQUEUE = """
from shop import Order, app, imports, in_child, join, part, with_steps, with_undos

for handler in (with_steps, with_undos, in_child):
    handler.enqueue(Order(1))
imports.enqueue({"number": 1})
app.chain(part.draft(Order(1)), join.draft(Order(1))).enqueue()
"""


def lines_of(shell: Shell, start: Start) -> list[dict[str, Any]]:
    shell.write("shop.py", SHOP)
    sent = shell.ended(start("-c", ENQUEUE))
    assert sent.code == 0, sent.err
    said = shell.ended(start(*WORKER, WINDLASS_LOG_LEVEL="debug"))
    assert said.code == 0, said.err
    return [json.loads(line) for line in said.err.splitlines()]


def test_wherever_user_code_runs_for_a_job_its_lines_name_that_job(
    shell: Shell, start: Start
) -> None:
    lines = lines_of(shell, start)
    said: dict[str, set[str]] = defaultdict(set)
    for line in lines:
        if "job_id" in line:
            assert line.keys() >= OF_A_JOB, "our own lines say no less"
        if line["event"].startswith("user "):
            assert line.keys() >= OF_A_JOB, line
            said[line["kind"]].add(line["event"].removeprefix("user "))
            assert ("flow" in line) is (line["queue"] == "e"), line
    del said["windlass.flow"]  # The flow's own job, around whose handler the app's middleware is.
    for kind, expected in EXPECTED.items():
        assert said.pop(kind) == expected, kind
    assert not said
    tried = {line["attempt"] for line in lines if line.get("kind") == "with_steps"}
    assert tried == {1, 2}, "each line is of its attempt"
