"""Owns how counts that end somewhere are told: as many as there are, or at least so many."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from windlass.core.job import Depth, Depths
from windlass.core.states import FINISHED, State

QUEUES = 1_000
"""Of how many queues the depths are told."""
_COUNTED = frozenset(State) - (FINISHED - {State.DEAD})


def depths_of(
    counts: Iterable[tuple[str, State, int]], most: int, *, snapshot_age: float | None = None
) -> Depths:
    """Make depths of counts that went, or could have gone, a little further than they may.

    The queues share what may be counted of pending jobs; of the other states, all jobs do.
    """
    found = sorted(each for each in counts if each[1] in _COUNTED)
    pending = [each for each in found if each[1] is State.PENDING]
    each_queue = share_of(most, len(pending))
    total: Counter[State] = Counter()
    for _, state, count in found:
        total[state] += count
    told = []
    for queue, state, count in found[: QUEUES * len(_COUNTED)]:
        cap = each_queue if state is State.PENDING else most
        over = (count if state is State.PENDING else total[state]) > cap
        told.append(Depth(queue=queue, state=state, count=min(count, cap), capped=over))
    cut = tuple(state for state in total if state is not State.PENDING and total[state] > most)
    return Depths(counts=tuple(told), cut=cut, snapshot_age=snapshot_age)


def share_of(most: int, queues: int) -> int:
    """Return how many pending jobs of each queue are counted."""
    return max(most // max(queues, 1), 1)
