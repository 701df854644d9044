"""Owns the depths that stores return: bounded counts, marked where they may be too low."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import datetime

from windlass.core.jobs.states import FINISHED, State
from windlass.core.stats.depths import Depth, Depths, QueueCount

QUEUES = 1_000
"""Most queues that depths have."""
_COUNTED = frozenset(State) - (FINISHED - {State.DEAD})


def depths_of(
    counts: Iterable[tuple[str, State, int]], most: int, *, snapshot_age: float | None = None
) -> Depths:
    """Return depths from counts that may exceed `most` a little.

    The queues share that number for their pending jobs; for other states, all queues together have
    it.
    """
    rows = sorted(row for row in counts if row[1] in _COUNTED)
    per_queue = share_of(most, sum(state is State.PENDING for _, state, _ in rows))
    total: Counter[State] = Counter()
    for _, state, count in rows:
        total[state] += count
    depths = []
    for queue, state, count in rows[: QUEUES * len(_COUNTED)]:
        cap = per_queue if state is State.PENDING else most
        over = (count if state is State.PENDING else total[state]) > cap
        depths.append(Depth(queue=queue, state=state, count=min(count, cap), capped=over))
    cut = tuple(state for state in total if state is not State.PENDING and total[state] > most)
    return Depths(counts=tuple(depths), cut=cut, snapshot_age=snapshot_age)


def counts_of(
    counts: Iterable[tuple[str, State, int]],
    oldest: Mapping[tuple[str, State], datetime],
    most: int,
) -> list[QueueCount]:
    """Return counts by queue and state that may exceed `most` a little, marked where they do.

    Jobs that completed or were cancelled share that number.
    """
    rows = list(counts)
    finished = [row for row in rows if row[1] not in _COUNTED]
    over = sum(count for _, _, count in finished) > most
    found = [
        *depths_of(rows, most).counts,
        *(Depth(queue=row[0], state=row[1], count=row[2], capped=over) for row in finished),
    ]
    return [
        QueueCount(
            queue=each.queue,
            state=each.state,
            count=min(each.count, most),
            oldest=oldest.get((each.queue, each.state)),
            capped=each.capped,
        )
        for each in sorted(found, key=lambda each: (each.queue, each.state))
    ]


def share_of(most: int, queues: int) -> int:
    """Return how many pending jobs of each queue are counted."""
    return max(most // max(queues, 1), 1)
