"""Owns a worker as a process: its signals, and an end that always comes."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys

from windlass.runtime import Worker


def serve(worker: Worker) -> None:
    """Run a worker until SIGTERM or SIGINT: the first drains, the second gives back at once.

    Code of handlers that ignores its cancellation, or runs in a thread that never returns, would
    keep the interpreter from ending; the process then ends without it. Every job is settled then.
    """
    with asyncio.Runner() as runner:
        runner.run(_serve(worker))
        if worker.left_behind:
            logging.shutdown()
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(0)


async def _serve(worker: Worker) -> None:
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, worker.stop)
    try:
        await worker.run()
    finally:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)
