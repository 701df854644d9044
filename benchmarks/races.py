"""Owns what Windlass and its peers are all measured by on PostgreSQL, and the bars of each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from benchmarks.entrants import Entrant
from benchmarks.field import Field
from benchmarks.report import Measure, Race, Rival, Score, against_best
from benchmarks.timings import (
    FOREVER,
    PEERS_CUT_OFF,
    Filled,
    bulk,
    enqueue_singly,
    fill,
    fill_and_drain,
    rate,
    send_slowly,
)
from benchmarks.turns import Series

_SNAPSHOT_CUT_OFF = 60.0
_LAST_SECONDS = 5.0
_PRIORITIES = 3

DRAIN = Measure(name="drain", unit="jobs/s")
DRAIN_BARS = {"bare statements": 0.6, "PgQueuer": 2.0, "graphile-worker": 1.0}
BULK = Measure(name="bulk enqueue", unit="jobs/s")
SINGLE = Measure(name="single enqueue", unit="jobs/s")
_P50_BAR, _P99_BAR = 1.11, 1.25
"""A tenth below the median of the best peer, and a fifth below its p99."""
P50 = Measure(name="latency p50", unit="ms", lower_is_better=True)
P99 = Measure(name="latency p99", unit="ms", lower_is_better=True)
SNAPSHOT = Measure(name="old snapshot held open", unit="jobs/s")


# -- drain and bulk enqueue ------------------------------------------------------------------------


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
    note = f"in {PEERS_CUT_OFF:g} s, not empty then:" if cut_off else ""
    return series.score(lambda it: it.drain, note=note)


def _fill_and_drain(field: Field, entrant: Entrant) -> Filled:
    patience = FOREVER if entrant is field.ours else PEERS_CUT_OFF
    with field.arena.room(entrant) as room:
        return fill_and_drain(room, field.sizes.jobs, patience=patience)


def _fill_only(field: Field, entrant: Entrant) -> float:
    with field.arena.room(entrant) as room:
        return field.sizes.jobs / bulk(room, field.sizes.jobs)


# -- single enqueue --------------------------------------------------------------------------------


def single(field: Field) -> list[Race]:
    """Enqueue jobs one by one, each committed before the next."""
    everybody: list[Series[float]] = [field.series(it) for it in (field.ours, *field.peers)]
    for number in range(field.sizes.rounds):
        field.tell(f"single enqueue, round {number + 1} of {field.sizes.rounds}")
        enqueue_singly(field.arena, everybody, field.sizes.singles)
    ours, *peers = (series.score(float) for series in everybody)
    return [against_best(SINGLE, ours, peers, bar=1.1)]


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
        against_best(P50, ours.score(lambda it: it.p50), p50s, bar=_P50_BAR),
        against_best(P99, ours.score(lambda it: it.p99), p99s, bar=_P99_BAR),
    ]


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
    patience = FOREVER if entrant is field.ours else _SNAPSHOT_CUT_OFF
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
