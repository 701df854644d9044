"""Owns what a benchmark asks of a queue: the few things that every contender can do."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar, Protocol


class Contender(Protocol):
    """A queue in a directory. One object serves one process, as producer or as worker.

    `starts` is where its handlers leave their traces: the no-op appends the moment at which it
    started, the stamped one how long ago its enqueue began, both in nanoseconds of the clock that
    all processes of a machine share (`time.monotonic_ns`).
    """

    name: ClassVar[str]
    settings: ClassVar[str]
    left: ClassVar[str]
    """The query that says, by the queue's own tables, whether anything is left to do: 0 or 1."""

    def __init__(self, directory: Path, starts: list[int]) -> None: ...

    @property
    def file(self) -> Path:
        """The database file."""
        ...

    def enqueue(self) -> None:
        """Enqueue one no-op, and return when it is committed."""
        ...

    def enqueue_bulk(self, count: int) -> None:
        """Enqueue many no-ops by the fastest way that the library itself has."""
        ...

    def enqueue_stamped(self) -> None:
        """Enqueue one job that carries the moment just before this call."""
        ...

    def work(self) -> None:
        """Serve as a worker, in this thread, until SIGINT."""
        ...

    def close(self) -> None:
        """Let go of the file."""
        ...
