"""Owns what Windlass and its peers are all measured by on Redis, and the bars of each."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace

from benchmarks.entrants import Entrant
from benchmarks.program import Program, ProgramFailed
from benchmarks.redis.contenders import EARLY, IN_NODE
from benchmarks.redis.field import Field
from benchmarks.redis.server import Room
from benchmarks.report import Measure, Race, Rival, Score, against_best
from benchmarks.timings import (
    FOREVER,
    Filled,
    enqueue_singly,
    fill,
    fill_and_drain,
    rate,
    send_slowly,
)
from benchmarks.turns import Series

DRAIN = Measure(name="drain", unit="jobs/s")
TUNED = Measure(name="drain, tuned", unit="jobs/s")
TWO = Measure(name="drain, two processes", unit="jobs/s")
BULK = Measure(name="bulk enqueue", unit="jobs/s")
SINGLE = Measure(name="single enqueue", unit="jobs/s")
P50 = Measure(name="latency p50", unit="ms", lower_is_better=True)
P99 = Measure(name="latency p99", unit="ms", lower_is_better=True)
_CUT_OFF = 10.0
"""Seconds after which a peer's drain is ended."""
_LOOK = 0.005
_LATE = 30.0


def best(measure: Measure, scores: Sequence[Score]) -> Score | None:
    """Return the best of those who ran."""
    choose = min if measure.lower_is_better else max
    ran = [score for score in scores if score.rounds]
    return choose(ran, key=lambda score: score.median or 0.0) if ran else None


# -- drain and bulk enqueue ------------------------------------------------------------------------


def drain(field: Field) -> list[Race]:
    """Fill a queue by its bulk call, then let one worker process empty it."""
    ours, tuned, *peers = field.take_turns(
        "drain",
        [
            (entrant, lambda entrant: _fill_and_drain(field, entrant))
            for entrant in (field.ours, field.tuned, *field.peers)
        ],
    )
    drained = [_drained(peer) for peer in peers]
    bulks = [peer.score(lambda it: it.bulk) for peer in peers]
    return [
        _against_both(DRAIN, ours.score(lambda it: it.drain), drained, node=2.0, python=8.0),
        _against_both(TUNED, tuned.score(lambda it: it.drain), drained, node=3.5),
        against_best(BULK, ours.score(lambda it: it.bulk), bulks, bar=3.5),
    ]


def _against_both(
    measure: Measure, ours: Score, peers: Sequence[Score], *, node: float, python: float = 0.0
) -> Race:
    """Hold ours against the peer in Node.js, and against the best of those in Python."""
    bars = {IN_NODE: node}
    first = best(measure, [peer for peer in peers if peer.name != IN_NODE])
    if python and first is not None:
        bars[first.name] = python
    rivals = [Rival(score=peer, bar=bars.get(peer.name)) for peer in peers]
    return Race(measure=measure, ours=ours, rivals=rivals)


def _drained(series: Series[Filled]) -> Score:
    cut_off = any(each.cut_off for each in series.rounds)
    note = f"in {_CUT_OFF:g} s, not empty then:" if cut_off else ""
    return series.score(lambda it: it.drain, note=note)


def _fill_and_drain(field: Field, entrant: Entrant) -> Filled:
    with field.arena.room(entrant) as room:
        return fill_and_drain(room, field.jobs(entrant), patience=_patience(field, entrant))


def _patience(field: Field, entrant: Entrant) -> float:
    return FOREVER if entrant in (field.ours, field.tuned) else _CUT_OFF


# -- two processes ---------------------------------------------------------------------------------


def two_processes(field: Field) -> list[Race]:
    """Let two worker processes empty a queue, and of ours one."""
    turns: list[tuple[Entrant, Callable[[Entrant], float]]] = [
        (field.ours, lambda entrant: _drain_by(field, entrant, processes=1)),
        (field.tuned, lambda entrant: _drain_by(field, entrant, processes=2)),
    ]
    turns += [
        (entrant, lambda entrant: _drain_by(field, entrant, processes=2))
        for entrant in (field.ours, *field.peers)
    ]
    one, tuned, ours, *peers = field.take_turns("two processes", turns)
    race = _against_both(TWO, ours.score(float), [it.score(float) for it in peers], node=4.0)
    own = [
        Rival(score=one.score(float, name="Windlass, one process"), bar=1.2),
        Rival(score=tuned.score(float)),
    ]
    return [replace(race, rivals=[*own, *race.rivals])]


def _drain_by(field: Field, entrant: Entrant, *, processes: int) -> float:
    jobs = 2 * field.jobs(entrant)
    patience = _patience(field, entrant)
    with field.arena.room(entrant) as room, ExitStack() as stack:
        fill(room, jobs)
        workers = [stack.enter_context(room.program()) for _ in range(processes)]
        for worker in workers:
            worker.ask("work")
        emptied = _watch(room, patience)
        if emptied:
            _wait_for_all(workers, jobs)
        starts = sorted(start for worker in workers for start in worker.ask("stop"))
    ended = [max(emptied, starts[-1])] if emptied else []
    return rate([*starts, *ended])


def _watch(room: Room, patience: float) -> int:
    """Return the moment at which the queue's own keys show nothing left, or 0 if it is too late."""
    until = time.monotonic() + patience
    with room.server.client() as run:
        while time.monotonic() < until:
            if room.is_empty(run):
                return time.monotonic_ns()
            time.sleep(_LOOK)
    return 0


def _wait_for_all(workers: Sequence[Program], jobs: int) -> None:
    """Wait until all jobs have started: some acknowledge a job before they run it."""
    until = time.monotonic() + _LATE
    while sum(worker.ask("reach", expected=jobs, patience=_LOOK) for worker in workers) < jobs:
        if time.monotonic() > until:
            raise ProgramFailed(f"nothing is left, but not all of {jobs} jobs were run")


# -- single enqueue --------------------------------------------------------------------------------


def single(field: Field) -> list[Race]:
    """Enqueue jobs one by one, each acknowledged by Redis before the next."""
    everybody: list[Series[float]] = [field.series(it) for it in (field.ours, *field.peers)]
    for number in range(field.sizes.rounds):
        field.tell(f"single enqueue, round {number + 1} of {field.sizes.rounds}")
        enqueue_singly(field.arena, everybody, field.sizes.singles)
    ours, *peers = (series.score(float) for series in everybody)
    bars = {"Huey": 1.0}
    first = best(SINGLE, [peer for peer in peers if peer.name not in EARLY])
    if first is not None:
        bars[first.name] = 1.5
    rivals = [Rival(score=peer, bar=bars.get(peer.name)) for peer in peers]
    return [Race(measure=SINGLE, ours=ours, rivals=rivals)]


# -- latency ---------------------------------------------------------------------------------------


def latency(field: Field) -> list[Race]:
    """Send one job each 20 ms to an idle worker in another process."""
    ours, *peers = field.take_turns(
        "latency",
        [
            (entrant, lambda entrant: send_slowly(field.arena, entrant, field.sizes.latencies))
            for entrant in (field.ours, *field.peers)
        ],
    )
    p50s = [peer.score(lambda it: it.p50) for peer in peers]
    p99s = [peer.score(lambda it: it.p99) for peer in peers]
    return [
        against_best(P50, ours.score(lambda it: it.p50), p50s, bar=1.0),
        against_best(P99, ours.score(lambda it: it.p99), p99s, bar=1.0),
    ]
