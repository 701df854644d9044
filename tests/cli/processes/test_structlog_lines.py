"""Lines that handlers write by structlog name their job, wherever they run, and no other."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.cli.conftest import Shell, Start

WORKER = ("-m", "windlass", "worker", "shop:app", "--burst")
SHOP = """
import asyncio
from dataclasses import dataclass

import structlog
from windlass import Context, SyncContext, Windlass

app = Windlass()
log = structlog.get_logger()


@app.job
async def in_loop(ctx: Context, n: int) -> None:
    await asyncio.sleep(0.001 * (n % 5))
    log.info("user", mine=str(ctx.job_id), n=n)
    structlog.contextvars.bind_contextvars(bound=n)
    await asyncio.sleep(0.001)
    log.info("user", mine=str(ctx.job_id), n=n)


@app.job
def in_thread(ctx: SyncContext, n: int) -> None:
    log.info("user", mine=str(ctx.job_id), n=n)


@app.job(isolate=True)
def in_child(ctx: SyncContext, n: int) -> None:
    log.info("user", mine=str(ctx.job_id), n=n)


async def inner(job_id: str, n: int) -> None:
    log.info("user", mine=job_id, n=n)


@app.job
async def in_step(ctx: Context, n: int) -> None:
    await ctx.step("inner", inner, str(ctx.job_id), n)


@dataclass
class Item:
    n: int


@app.job(batch_size=5, batch_timeout="1ms")
async def in_batch(items: list[Item]) -> None:
    log.info("batch", n=0)
"""
AS_JSON = """
structlog.configure(
    processors=[structlog.contextvars.merge_contextvars, structlog.processors.JSONRenderer()],
    logger_factory=structlog.WriteLoggerFactory(),  # In one write, whatever thread it comes from.
)
"""
KINDS = ("in_loop", "in_thread", "in_child", "in_step", "in_batch")


def lines_of(shell: Shell, start: Start, source: str, count: int) -> str:
    shell.write("shop.py", source)
    shell.write(
        "fill.py",
        "import shop\n"
        f"for n in range({count}):\n"
        "    for kind in (shop.in_loop, shop.in_thread, shop.in_child, shop.in_step):\n"
        "        kind.enqueue(n)\n"
        "    shop.in_batch.enqueue(shop.Item(n))\n",
    )
    shell.ended(start("fill.py"))
    said = shell.ended(start(*WORKER))
    assert said.code == 0, said.err
    return said.out


def test_every_line_by_structlog_names_its_own_job_and_nothing_of_others(
    shell: Shell, start: Start
) -> None:
    out = lines_of(shell, start, SHOP + AS_JSON, 20)
    lines: list[dict[str, Any]] = [json.loads(line) for line in out.splitlines()]
    own = [line for line in lines if line["event"] == "user"]
    assert len(own) == 20 * 5
    for line in own:
        assert line["job_id"] == line["mine"]
        assert line["worker_id"]
        assert line["queue"] == "default"
        assert line["attempt"] >= 1  # One that had to wait for its start was given back.
        assert line.get("bound", line["n"]) == line["n"]
    assert {line["kind"] for line in own} == set(KINDS) - {"in_batch"}
    batches = [line for line in lines if line["event"] == "batch"]
    assert sum(len(line["job_ids"]) for line in batches) == 20
    assert all("job_id" not in line and line["kind"] == "in_batch" for line in batches)


def test_structlog_as_it_comes_names_the_job(shell: Shell, start: Start) -> None:
    out = lines_of(shell, start, SHOP, 1)
    jobs = shell.ok("jobs", "list", "--json").json["jobs"]
    ids = [job["id"] for job in jobs if job["kind"] in ("in_loop", "in_child")]
    assert len(ids) == 2
    assert all(out.count(job_id) >= 2 for job_id in ids), "as mine= and as job_id="
