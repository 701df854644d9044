"""Owns what Windlass and its peers are all measured by on PostgreSQL, and from when to when.

Every measure begins with an empty database, and with fresh processes. A worker's process is ready
and waits before it is told to work.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial

from benchmarks.database import Room
from benchmarks.entrants import Entrant
from benchmarks.field import Field, Series
from benchmarks.program import Program, ProgramFailed
from benchmarks.report import Measure, Race, Rival, Score, against_best, percentile

_WARM_UPS = 50
_BURSTS = 20
_FOREVER = 240.0
_PEERS_CUT_OFF = 20.0
_SNAPSHOT_CUT_OFF = 60.0
_LAST_SECONDS = 5.0
_PRIORITIES = 3

DRAIN = Measure(name="drain", unit="jobs/s")
DRAIN_BARS = {"bare statements": 0.6, "PgQueuer": 2.0, "graphile-worker": 1.0}
BULK = Measure(name="bulk enqueue", unit="jobs/s")
SINGLE = Measure(name="single enqueue", unit="jobs/s")
P50 = Measure(name="latency p50", unit="ms", lower_is_better=True)
P99 = Measure(name="latency p99", unit="ms", lower_is_better=True)
SNAPSHOT = Measure(name="old snapshot held open", unit="jobs/s")


def fill(room: Room, jobs: int, *, kind: str = "noop", priorities: int = 1) -> None:
    """Fill a queue, and leave nothing to do of that for whoever is measured next."""
    with room.program() as producer:
        producer.ask("bulk", count=jobs, kind=kind, priorities=priorities)
    room.tidy()


def reach(worker: Program, expected: int) -> None:
    """Wait until so many handlers have started."""
    reached = worker.ask("reach", expected=expected, patience=_FOREVER)
    if reached < expected:
        raise ProgramFailed(f"it ran {reached} of {expected} jobs in {_FOREVER:g} s")


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


def drain(field: Field) -> list[Race]:
    """Fill a queue by its bulk call, then let one worker process empty it."""
    ours, *rivals = field.take_turns(
        "drain",
        [
            (entrant, lambda entrant: _fill_and_drain(field, entrant))
            for entrant in (field.ours, field.bare, *field.peers)
        ],
    )
    bare = field.take_turns(
        "bare bulk enqueue",
        [(entrant, lambda entrant: _fill_only(field, entrant)) for entrant in field.bare_bulks],
    )
    bulks = against_best(
        BULK,
        ours.score(lambda it: it.bulk),
        [rival.score(lambda it: it.bulk) for rival in rivals[1:]],
        bar=1.5,
    )
    return [
        Race(
            measure=DRAIN,
            ours=ours.score(lambda it: it.drain),
            rivals=[
                Rival(score=_drained(rival), bar=DRAIN_BARS.get(rival.entrant.name))
                for rival in rivals
            ],
        ),
        replace(bulks, rivals=[*bulks.rivals, *(Rival(score=it.score(float)) for it in bare)]),
    ]


def _drained(series: Series[Filled]) -> Score:
    cut_off = any(each.cut_off for each in series.rounds)
    note = f"in {_PEERS_CUT_OFF:g} s, not empty then:" if cut_off else ""
    return series.score(lambda it: it.drain, note=note)


def _fill_and_drain(field: Field, entrant: Entrant) -> Filled:
    jobs = field.sizes.jobs
    with field.arena.room(entrant) as room:
        taken = _bulk(room, jobs)
        with room.program() as worker:
            room.tidy()
            worker.ask("work")
            patience = _FOREVER if entrant is field.ours else _PEERS_CUT_OFF
            reached = worker.ask("reach", expected=jobs + 1, patience=patience)
            emptied = [room.wait_until_empty()] if reached > jobs else []
            starts: list[int] = worker.ask("stop")
    # The last acknowledgement counts, so the moment when nothing is left stands for a last start.
    return Filled(bulk=jobs / taken, drain=rate([*starts, *emptied]), cut_off=not emptied)


def _fill_only(field: Field, entrant: Entrant) -> float:
    with field.arena.room(entrant) as room:
        return field.sizes.jobs / _bulk(room, field.sizes.jobs)


def _bulk(room: Room, jobs: int) -> float:
    """Return the seconds that a bulk enqueue takes, after one job to warm up."""
    with room.program() as producer:
        producer.ask("bulk", count=1)
        seconds: float = producer.ask("bulk", count=jobs)
    return seconds


# -- single enqueue --------------------------------------------------------------------------------


def single(field: Field) -> list[Race]:
    """Enqueue jobs one by one, each committed before the next.

    All take turns in bursts, since a disk's mood changes faster than a whole round goes by.
    """
    everybody: list[Series[float]] = [field.series(it) for it in (field.ours, *field.peers)]
    for number in range(field.sizes.rounds):
        field.tell(f"single enqueue, round {number + 1} of {field.sizes.rounds}")
        _enqueue_singly(field, everybody)
    ours, *peers = (series.score(float) for series in everybody)
    return [against_best(SINGLE, ours, peers, bar=1.1)]


def _enqueue_singly(field: Field, everybody: Sequence[Series[float]]) -> None:
    burst = field.sizes.singles // _BURSTS
    with ExitStack() as stack:
        producers = {}
        for series in everybody:
            producer = series.attempt(partial(_producer, field, series.entrant, stack))
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


def _producer(field: Field, entrant: Entrant, stack: ExitStack) -> Program:
    room = stack.enter_context(field.arena.room(entrant))
    producer = stack.enter_context(room.program())
    producer.ask("enqueue", count=_WARM_UPS)
    return producer


# -- latency ---------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Latency:
    """From just before the enqueue call to the handler's first line, in milliseconds."""

    p50: float
    p99: float


def latency(field: Field) -> list[Race]:
    """Send one job each 20 ms to an idle worker in another process."""
    ours, *peers = field.take_turns(
        "latency",
        [
            (entrant, lambda entrant: _send_slowly(field, entrant))
            for entrant in (field.ours, *field.peers)
        ],
    )
    p50s = [peer.score(lambda it: it.p50) for peer in peers]
    p99s = [peer.score(lambda it: it.p99) for peer in peers]
    return [
        against_best(P50, ours.score(lambda it: it.p50), p50s, bar=1.0),
        against_best(P99, ours.score(lambda it: it.p99), p99s, bar=1.0),
    ]


def _send_slowly(field: Field, entrant: Entrant) -> Latency:
    jobs = field.sizes.latencies
    with field.arena.room(entrant) as room, room.program() as worker:
        with room.program() as producer:
            worker.ask("work", idle=True)
            producer.ask("send", count=_WARM_UPS)
            reach(worker, _WARM_UPS)
            room.tidy()
            producer.ask("send", count=jobs)
        reach(worker, _WARM_UPS + jobs)
        waits = [wait / 1e6 for wait in worker.ask("stop")[_WARM_UPS:]]
    return Latency(p50=statistics.median(waits), p99=percentile(waits, 0.99))


# -- an old snapshot -------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Passage:
    """How fast jobs passed at first and at last, and how many did."""

    first: float
    last: float
    passed: int


def snapshot(field: Field) -> list[Race]:
    """Let jobs of three priorities pass while somebody holds a snapshot from before the first."""
    (ours,) = field.take_turns(
        "old snapshot", [(field.ours, lambda entrant: _pass_by(field, entrant))]
    )
    # The peers have no bar to meet here, and some take long: once is enough.
    peers = field.take_turns(
        "old snapshot",
        [(peer, lambda entrant: _pass_by(field, entrant)) for peer in field.peers],
        rounds=1,
    )
    edge = f"{field.sizes.edge:,}"
    return [
        Race(
            measure=SNAPSHOT,
            ours=ours.score(lambda it: it.last, name=f"Windlass, last {edge}"),
            rivals=[
                Rival(score=ours.score(lambda it: it.first, name=f"first {edge}"), bar=0.8),
                *(Rival(score=score) for peer in peers for score in _passage(peer, edge)),
            ],
        )
    ]


def _passage(series: Series[Passage], edge: str) -> Iterator[Score]:
    name = series.entrant.name
    yield series.score(lambda it: it.first, name=f"{name}, first {edge}")
    for each in series.rounds:
        note = f"{each.last / each.first:.0%} of that, after {each.passed:,}:"
        yield series.score(lambda it: it.last, name=f"{name}, at last", note=note)


def _pass_by(field: Field, entrant: Entrant) -> Passage:
    jobs, edge = field.sizes.passing, field.sizes.edge
    patience = _FOREVER if entrant is field.ours else _SNAPSHOT_CUT_OFF
    with field.arena.room(entrant) as room:
        fill(room, jobs, priorities=_PRIORITIES)
        with room.program() as worker, room.old_snapshot():
            worker.ask("work")
            worker.ask("reach", expected=jobs, patience=patience)
            starts: list[int] = worker.ask("stop")
    return Passage(first=rate(starts[:edge]), last=rate(_last(starts, edge)), passed=len(starts))


def _last(starts: Sequence[int], edge: int) -> Sequence[int]:
    """Return the last of the starts, or those of the last seconds if they are fewer."""
    since = starts[-1] - int(_LAST_SECONDS * 1e9) if starts else 0
    return [start for start in starts[-edge:] if start >= since]
