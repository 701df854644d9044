"""Owns how many jobs a sample looks at: as many as the store has time for."""

from __future__ import annotations

from windlass.core.job import Json
from windlass.core.sample import Sample

_WALK, _LEAST_WALK, _MOST_WALK = 60_000, 5_000, 500_000
_SHORT, _LONG = 0.1, 0.3


def walk_after(before: Sample | None) -> int:
    """Return how many jobs of each state the next sample may look at: what the store has time for.

    Nobody looks at more than there are, so that only a sample that was cut short says how fast the
    store could go.
    """
    if before is None or not before.walk:
        return _WALK
    if before.seconds > _LONG:
        return max(before.walk // 2, _LEAST_WALK)
    if not any(queue.capped for queue in before.queues.values()):
        return min(max(before.walk, _LEAST_WALK), _WALK)
    return min(before.walk * 2, _MOST_WALK) if before.seconds < _SHORT else before.walk


def walk_of_turn(before: Sample | None, turn: Json | None) -> int:
    """Return how many jobs a sample may look at; half of what came to nothing the last time.

    A turn says what is tried until that has come to something.
    """
    tried = (turn or {}).get("walk")
    if not isinstance(tried, int):
        return walk_after(before)
    return max(min(tried // 2, walk_after(before)), _LEAST_WALK)
