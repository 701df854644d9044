"""Owns what all runs in one process have in common: `RunEnvironment`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from msgspec import Struct

from windlass.core.jobs.job import Job, Progress
from windlass.core.jobs.settle import Transition
from windlass.core.payloads.redaction import Redaction
from windlass.handlers.idempotency import DoneBefore
from windlass.handlers.provided import Provided
from windlass.handlers.streams import StreamEnvironment
from windlass.store import Transaction


class ParentResults(Protocol):
    """Finds the results of a job's parents in its flow."""

    async def of(self, job: Job) -> list[Any]:
        """Return them, in the order of the parents."""

    def of_blocking(self, job: Job) -> list[Any]:
        """Do the same from a thread that runs no event loop."""


class RunEnvironment(Struct, frozen=True, kw_only=True):
    """The parts that all runs in one process have in common."""

    report: Callable[[Job, Progress], None]
    transact: Callable[[Transition], Transaction]
    done: DoneBefore
    results: ParentResults
    streams: StreamEnvironment
    provided: Provided
    redaction: Redaction
    max_result: int
    """Bytes that a result may have."""
