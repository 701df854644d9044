"""Owns how lanes share a claim: those whose oldest jobs are of one age get a part of it each."""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from datetime import timedelta

from windlass.core.claims.lanes import Head

_MAX_AGE_DIFFERENCE = timedelta(seconds=1)
_MIN_SHARE_JOBS = 50
"""To ask a lane costs a store as much as a few jobs."""


def alike(
    units: Sequence[Head | Sequence[Head]], slots: int, targets: Container[str]
) -> Iterator[Sequence[Head | Sequence[Head]]]:
    """Yield lanes in their order: those that share a claim together, but no more than it has slots.

    Lanes share if they have one priority and their oldest jobs came within a second, so that a
    claim takes the oldest jobs of all of them, and not a thousand of one lane. Keys that take turns
    and kinds with a target do not share: they have an order of their own.
    """
    start = 0
    for at in range(1, len(units) + 1):
        is_full = at - start >= slots
        if is_full or at == len(units) or not _share_a_claim(units[start], units[at], targets):
            yield units[start:at]
            start = at


def share_of(slots: int, lanes: int) -> int:
    """Return for how many jobs each lane is asked at first; it may be more than there are slots."""
    return max(_MIN_SHARE_JOBS, -(-slots // lanes))


def _share_a_claim(
    first: Head | Sequence[Head], other: Head | Sequence[Head], targets: Container[str]
) -> bool:
    return (
        isinstance(first, Head)
        and isinstance(other, Head)
        and other.position - first.position <= _MAX_AGE_DIFFERENCE
        and first.lane.priority == other.lane.priority
        and first.lane.kind not in targets
        and other.lane.kind not in targets
    )
