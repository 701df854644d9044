"""Owns how a queue on a server is timed: which processes there are, and from when to when.

Every measure begins with an empty queue, and with fresh processes. A worker's process is ready and
waits before it is told to work.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from benchmarks.entrants import Entrant
from benchmarks.program import Program, ProgramFailed
from benchmarks.report import percentile
from benchmarks.turns import Series

FOREVER = 240.0
"""Seconds that Windlass gets for what it does in one round."""
PEERS_CUT_OFF = 20.0
_WARM_UPS = 50
_BURSTS = 20


class Room(Protocol):
    """One contender's place on a server, empty at first."""

    def program(self) -> AbstractContextManager[Program]:
        """Run one of the contender's processes, connected, for as long as this lasts."""
        ...

    def tidy(self) -> None:
        """Leave nothing to do of what was done so far, so that no measure pays for another's."""
        ...

    def wait_until_empty(self) -> int:
        """Return the moment at which the server shows nothing left of the contender's jobs."""
        ...


class Arena(Protocol):
    """Gives every contender a room."""

    def room(self, entrant: Entrant) -> AbstractContextManager[Room]:
        """Give a contender an empty room, for as long as this lasts."""
        ...


def fill(room: Room, jobs: int, *, kind: str = "noop", priorities: int = 1) -> None:
    """Fill a queue, and leave nothing to do of that for whoever is measured next."""
    with room.program() as producer:
        producer.ask("bulk", count=jobs, kind=kind, priorities=priorities)
    room.tidy()


def bulk(room: Room, jobs: int) -> float:
    """Return the seconds that a bulk enqueue takes, after one job to warm up."""
    with room.program() as producer:
        producer.ask("bulk", count=1)
        seconds: float = producer.ask("bulk", count=jobs)
    return seconds


def reach(worker: Program, expected: int) -> None:
    """Wait until so many handlers have started."""
    reached = worker.ask("reach", expected=expected, patience=FOREVER)
    if reached < expected:
        raise ProgramFailed(f"it ran {reached} of {expected} jobs in {FOREVER:g} s")


def rate(starts: Sequence[int]) -> float:
    """Return the jobs a second between the first and the last of these starts."""
    if len(starts) < 2 or starts[-1] == starts[0]:
        return 0.0
    return (len(starts) - 1) / ((starts[-1] - starts[0]) / 1e9)


# -- drain and bulk enqueue ------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Filled:
    """One bulk enqueue, and the drain of what it brought: jobs a second."""

    bulk: float
    drain: float
    cut_off: bool


def fill_and_drain(room: Room, jobs: int, *, patience: float) -> Filled:
    """Fill a queue by its bulk call, then let one worker process empty it, within some seconds."""
    taken = bulk(room, jobs)
    with room.program() as worker:
        room.tidy()
        worker.ask("work")
        reached = worker.ask("reach", expected=jobs + 1, patience=patience)
        emptied = [room.wait_until_empty()] if reached > jobs else []
        starts: list[int] = worker.ask("stop")
    # The last acknowledgement counts, so the moment when nothing is left stands for a last start.
    return Filled(bulk=jobs / taken, drain=rate([*starts, *emptied]), cut_off=not emptied)


# -- single enqueue --------------------------------------------------------------------------------


def enqueue_singly(arena: Arena, everybody: Sequence[Series[float]], singles: int) -> None:
    """Add one round of single enqueues, each committed before the next, to everybody's series.

    All take turns in bursts, since a machine's mood changes faster than a whole round goes by.
    """
    burst = singles // _BURSTS
    with ExitStack() as stack:
        producers = {}
        for series in everybody:
            producer = series.attempt(partial(_producer, arena, series.entrant, stack))
            if producer is not None:
                producers[series] = producer
        seconds = dict.fromkeys(producers, 0.0)
        for _ in range(_BURSTS):
            for series, producer in producers.items():
                ask = partial(producer.ask, "enqueue", count=burst)
                seconds[series] += series.attempt(ask) or 0.0
    for series, taken in seconds.items():
        if not series.missing:
            series.rounds.append(burst * _BURSTS / taken)


def _producer(arena: Arena, entrant: Entrant, stack: ExitStack) -> Program:
    room = stack.enter_context(arena.room(entrant))
    producer = stack.enter_context(room.program())
    producer.ask("enqueue", count=_WARM_UPS)
    return producer


# -- latency ---------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Latency:
    """From just before the enqueue call to the handler's first line, in milliseconds."""

    p50: float
    p99: float


def send_slowly(arena: Arena, entrant: Entrant, jobs: int) -> Latency:
    """Send one job each 20 ms to an idle worker in another process."""
    with arena.room(entrant) as room, room.program() as worker:
        with room.program() as producer:
            worker.ask("work", idle=True)
            producer.ask("send", count=_WARM_UPS)
            reach(worker, _WARM_UPS)
            room.tidy()
            producer.ask("send", count=jobs)
        reach(worker, _WARM_UPS + jobs)
        waits = [wait / 1e6 for wait in worker.ask("stop")[_WARM_UPS:]]
    return Latency(p50=statistics.median(waits), p99=percentile(waits, 0.99))
