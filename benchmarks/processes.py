"""Owns how two worker processes drain one PostgreSQL, and how much of that is the server's work."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass

import psycopg

from benchmarks.capacity import proc
from benchmarks.database import Room
from benchmarks.entrants import Entrant
from benchmarks.field import Field
from benchmarks.program import Program
from benchmarks.report import Measure, Race, Rival
from benchmarks.timings import FOREVER, PEERS_CUT_OFF, fill, rate

TWO = Measure(name="drain, two processes", unit="jobs/s")
SERVER = Measure(name="CPU of the server", unit="µs a job", lower_is_better=True)
WORKERS = Measure(name="CPU of the two workers", unit="µs a job", lower_is_better=True)
_BARS = {"graphile-worker": 1.25}
_LOOK = 0.02


@dataclass(frozen=True, kw_only=True)
class Drained:
    """Jobs a second, and the CPU time of a job in microseconds."""

    rate: float
    server: float
    workers: float


def two_processes(field: Field) -> list[Race]:
    """Let two worker processes empty a queue; show what a job takes the server and the workers."""
    one, ours, bare, *peers = field.take_turns(
        "two processes",
        [(field.ours, lambda entrant: _drain(field, entrant, processes=1))]
        + [
            (entrant, lambda entrant: _drain(field, entrant, processes=2))
            for entrant in (field.ours, field.bare, *field.peers)
        ],
    )
    return [
        Race(
            measure=TWO,
            ours=ours.score(lambda it: it.rate),
            rivals=[
                Rival(score=one.score(lambda it: it.rate, name="Windlass, one process")),
                Rival(score=bare.score(lambda it: it.rate)),
                *(
                    Rival(score=it.score(lambda it: it.rate), bar=_BARS.get(it.entrant.name))
                    for it in peers
                ),
            ],
        ),
        Race(
            measure=SERVER,
            ours=ours.score(lambda it: it.server),
            rivals=[Rival(score=it.score(lambda it: it.server)) for it in (bare, *peers)],
        ),
        Race(
            measure=WORKERS,
            ours=ours.score(lambda it: it.workers),
            rivals=[Rival(score=it.score(lambda it: it.workers)) for it in (bare, *peers)],
        ),
    ]


def _drain(field: Field, entrant: Entrant, *, processes: int) -> Drained:
    jobs = 2 * field.sizes.jobs
    patience = FOREVER if entrant is field.ours else PEERS_CUT_OFF
    with field.arena.room(entrant) as room, ExitStack() as stack:
        fill(room, jobs)
        workers = [stack.enter_context(room.program()) for _ in range(processes)]
        ours = [each for worker in workers for each in proc.family(worker.pid)]
        server = _server(room)
        spent = [proc.cpu_seconds(server), proc.cpu_seconds(ours)]
        for worker in workers:
            worker.ask("work")
        ran = _reach(workers, jobs, patience)
        ended = [room.wait_until_empty()] if ran >= jobs else []
        # The processes of the server that began meanwhile are new connections of the workers.
        taken = [proc.cpu_seconds(_server(room)) - spent[0], proc.cpu_seconds(ours) - spent[1]]
        starts = sorted(start for worker in workers for start in worker.ask("stop"))
    of_server, of_workers = (seconds / max(ran, 1) * 1e6 for seconds in taken)
    return Drained(rate=rate([*starts, *ended]), server=of_server, workers=of_workers)


def _server(room: Room) -> list[int]:
    """Return all processes of the server."""
    with psycopg.connect(room.url, autocommit=True) as db:
        backend = db.info.backend_pid
        return proc.family(proc.parent(backend))


def _reach(workers: Sequence[Program], jobs: int, patience: float) -> int:
    """Wait until so many handlers have started, or patience is at its end; return how many."""
    until = time.monotonic() + patience
    while True:
        ran = sum(worker.ask("reach", expected=jobs, patience=_LOOK) for worker in workers)
        if ran >= jobs or time.monotonic() > until:
            return int(ran)
