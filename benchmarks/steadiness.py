"""Owns what Windlass on PostgreSQL is held against itself by: crowds, long queues, many slots."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack

from benchmarks.database import Room
from benchmarks.entrants import Entrant
from benchmarks.field import Field
from benchmarks.report import Measure, Race, Rival
from benchmarks.timings import fill, rate, reach
from benchmarks.turns import Series

CROWD = Measure(name="16 producers, workers busy", unit="jobs/s")
WAITING = Measure(name="claims from a long queue", unit="jobs/s")
UNKNOWN = Measure(name="claims past an unknown kind", unit="jobs/s")
SLOTS = Measure(name="10 ms jobs, one process", unit="jobs/s")
PROCESSES = Measure(name="10 ms jobs, 10 slots each", unit="jobs/s")
_PROPORTION = 0.8
_PROPORTION_UNTIL = 100
"""Slots, beyond which it is PostgreSQL, or this one process, that sets the limit."""
_CLIENT_PROCESSES = 4
_CLIENT_THREADS = 4
_NAPS_A_SLOT = 100
_SELDOM = 0.1


# -- a crowd of producers --------------------------------------------------------------------------


def crowd(field: Field) -> list[Race]:
    """Enqueue singly from sixteen clients while a worker is busy, with wake-ups and without."""
    ours, without = field.take_turns(
        CROWD.name,
        [
            (entrant, lambda entrant: _enqueue_together(field, entrant))
            for entrant in (field.ours, field.without_wake_ups)
        ],
    )
    rival = Rival(score=without.score(float), bar=0.9)
    return [Race(measure=CROWD, ours=ours.score(float), rivals=[rival])]


def _enqueue_together(field: Field, entrant: Entrant) -> float:
    """Return the sum of the clients' rates. The worker has more to do than it can in that time."""
    each = field.sizes.crowd // _CLIENT_PROCESSES
    with field.arena.room(entrant) as room, ExitStack() as stack:
        fill(room, field.sizes.crowd * 2, kind="nap")
        worker = stack.enter_context(room.program())
        clients = [stack.enter_context(room.program()) for _ in range(_CLIENT_PROCESSES)]
        worker.ask("work", slots=10)
        reach(worker, 100)
        for client in clients:
            client.tell("crowd", count=each, threads=_CLIENT_THREADS)
        seconds: list[float] = [client.hear() for client in clients]
        worker.ask("stop")
    return sum(each / taken for taken in seconds)


# -- what waits behind and in front ----------------------------------------------------------------


def waiting(field: Field) -> list[Race]:
    """Claim while a million jobs wait behind, or others in front that this worker cannot run."""
    sizes = field.sizes
    many, few, unknown, known = field.take_turns(
        "long queues",
        [
            (field.ours, _claims(field, lambda room: fill(room, sizes.jobs + sizes.many))),
            (field.ours, _claims(field, lambda room: fill(room, sizes.jobs + sizes.few))),
            (field.ours, _claims(field, lambda room: fill(room, sizes.jobs), sizes.unknown)),
            (field.ours, _claims(field, lambda room: fill(room, sizes.jobs))),
        ],
    )
    return [
        Race(
            measure=WAITING,
            ours=many.score(float, name=f"Windlass, {sizes.many:,} behind"),
            rivals=[Rival(score=few.score(float, name=f"{sizes.few:,} behind"), bar=0.9)],
        ),
        Race(
            measure=UNKNOWN,
            ours=unknown.score(float, name=f"Windlass, {sizes.unknown:,} in front"),
            rivals=[Rival(score=known.score(float, name="none in front"), bar=0.9)],
        ),
    ]


def _claims(
    field: Field, known: Callable[[Room], None], unknown: int = 0
) -> Callable[[Entrant], float]:
    """Return the measure of how fast jobs start in a queue that is filled in this way."""
    jobs = field.sizes.jobs

    def measure(entrant: Entrant) -> float:
        with field.arena.room(entrant) as room:
            if unknown:
                fill(room, unknown, kind="elsewhere")
            known(room)
            with room.program() as worker:
                worker.ask("work")
                reach(worker, jobs)
                starts: list[int] = worker.ask("stop")
        return rate(starts[:jobs])

    return measure


# -- jobs that wait --------------------------------------------------------------------------------


def naps(field: Field) -> list[Race]:
    """Run jobs that wait for 10 ms each, in more and more slots, and in more and more processes."""
    slots, processes = (10, 100, 500), (1, 2, 4)
    in_slots = field.take_turns(
        SLOTS.name, [(field.ours, _naps(field, slots=number)) for number in slots]
    )
    in_processes = field.take_turns(
        PROCESSES.name, [(field.ours, _naps(field, processes=number)) for number in processes]
    )
    return [
        *_in_proportion(SLOTS, "slots", slots, in_slots),
        *_in_proportion(PROCESSES, "processes", processes, in_processes),
    ]


def _in_proportion(
    measure: Measure, unit: str, numbers: Sequence[int], everybody: Sequence[Series[float]]
) -> Iterator[Race]:
    """Hold every case against the first: so many times the slots, so many times the rate."""
    base = everybody[0].score(float, name=f"{numbers[0]} {unit}")
    for number, series in list(zip(numbers, everybody, strict=True))[1:]:
        bar = _PROPORTION * number / numbers[0] if number <= _PROPORTION_UNTIL else None
        ours = series.score(float, name=f"Windlass, {number} {unit}")
        yield Race(measure=measure, ours=ours, rivals=[Rival(score=base, bar=bar)])


def _naps(field: Field, *, slots: int = 10, processes: int = 1) -> Callable[[Entrant], float]:
    jobs = max(field.sizes.naps * processes, slots * _NAPS_A_SLOT)

    def measure(entrant: Entrant) -> float:
        with field.arena.room(entrant) as room, ExitStack() as stack:
            fill(room, jobs, kind="nap")
            workers = [stack.enter_context(room.program()) for _ in range(processes)]
            for worker in workers:
                worker.ask("work", slots=slots)
            room.wait_until_empty(look=_SELDOM)
            starts = sorted(start for worker in workers for start in worker.ask("stop"))
        return rate(starts)

    return measure
