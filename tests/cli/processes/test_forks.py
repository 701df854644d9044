"""Forks that handlers make: they end like any process, whatever the worker does with signals."""

from __future__ import annotations

import asyncio
import signal
from typing import TYPE_CHECKING

from windlass import Windlass

if TYPE_CHECKING:
    from tests.cli.conftest import Shell, Start

SHOP = """
import multiprocessing
import time

from windlass import Windlass

app = Windlass()
forks = multiprocessing.get_context("fork")


def double(number: int) -> int:
    return 2 * number


def terminate() -> int | None:
    process = forks.Process(target=time.sleep, args=(600,))
    process.start()
    process.terminate()
    process.join()
    return process.exitcode


def use_pool() -> list[int]:
    with forks.Pool(2) as pool:
        return pool.map(double, [1, 2, 3])


async def on_the_loop() -> int | None:
    return terminate()


app.job(name="thread.terminate")(terminate)
app.job(name="thread.pool")(use_pool)
app.job(name="child.terminate", isolate=True)(terminate)
app.job(name="child.pool", isolate=True)(use_pool)
app.job(name="loop.terminate")(on_the_loop)
"""
WANTED = {
    "thread.terminate": -signal.SIGTERM,
    "child.terminate": -signal.SIGTERM,
    "loop.terminate": -signal.SIGTERM,
    "thread.pool": [2, 4, 6],
    "child.pool": [2, 4, 6],
}


def test_a_fork_of_a_handler_can_be_terminated_and_a_pool_ends(shell: Shell, start: Start) -> None:
    """Prevents: signal handlers of the worker in forks, which nothing but a kill then ends."""
    shell.write("shop.py", SHOP)
    shell.ok("migrate")
    start("-m", "windlass", "worker", "shop:app", "--metrics-port=0")

    async def results() -> dict[str, object]:
        app = Windlass(f"sqlite:///{shell.file}")
        try:
            # One after the other: forks at the same time inherit each other's pipes and locks.
            return {
                kind: await (await app.producer(kind).aenqueue({})).aresult(timeout="60s")
                for kind in WANTED
            }
        finally:
            await app.aclose()

    assert asyncio.run(results()) == WANTED
