"""Owns how tests post the lines of runs, and read what was written."""

from __future__ import annotations

import asyncio
import functools
import inspect
import io
import json
import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from uuid import UUID, uuid4

from windlass.core.payloads.redaction import Redaction
from windlass.observability.log_handler import LogHandler
from windlass.observability.logs import configure_logging
from windlass.observability.run_log_lines import run_lines

PLAIN = Redaction()


class Job:
    """What the lines of a run tell of its job."""

    def __init__(self, kind: str = "pay", queue: str = "money", job_id: UUID | None = None) -> None:
        self.id = job_id or uuid4()
        self.kind, self.queue, self.attempt = kind, queue, 2
        self.flow: UUID | None = None
        self.worker = "w1"


@contextmanager
def heard() -> Iterator[io.StringIO]:
    """What is written as JSON, with nobody else listening: pytest does, too."""
    root, stream = logging.getLogger(), io.StringIO()
    level, handlers = root.level, root.handlers[:]
    root.handlers[:] = []
    try:
        configure_logging("info", "json", stream)
        yield stream
    finally:
        root.setLevel(level)
        root.handlers[:] = handlers


def alone(test: Callable[..., None]) -> Callable[..., None]:
    """Give a test `sink`; a fixture could not, since pytest's handlers come after fixtures."""
    signature = inspect.signature(test)
    others = [each for name, each in signature.parameters.items() if name != "sink"]

    @functools.wraps(test)
    def wrapped(**given: Any) -> None:
        with heard() as sink:
            test(sink=sink, **given)

    wrapped.__signature__ = signature.replace(parameters=others)  # type: ignore[attr-defined]
    return wrapped


def records(sink: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in sink.getvalue().splitlines()]


def in_a_turn(say: Callable[[], None]) -> None:
    """Say something within one turn of an event loop, and let it turn once more."""

    async def main() -> None:
        say()
        await asyncio.sleep(0)

    asyncio.run(main())


def hold_until(is_so: Callable[[], bool]) -> None:
    """Block whatever runs here until something is so."""
    limit = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < limit
        time.sleep(0.005)


def post(job: Any, seconds: float = 0.25) -> None:
    poster = run_lines(PLAIN)
    assert poster is not None
    poster.finished(poster.started(job, "w1"), seconds)


def lines_of() -> LogHandler:
    (lines,) = [each for each in logging.getLogger().handlers if isinstance(each, LogHandler)]
    return lines
