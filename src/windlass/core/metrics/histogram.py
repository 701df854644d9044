"""Owns how times are counted: in buckets that grow by an eighth, small enough for percentiles.

Workers count in these; Prometheus sees groups of them, and the store keeps them sparsely, in
windows of a few minutes.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate

_STEPS = (
    1.00, 1.12, 1.25, 1.40, 1.60, 1.80, 2.00, 2.24, 2.50, 2.80,
    3.15, 3.55, 4.00, 4.50, 5.00, 5.60, 6.30, 7.10, 8.00, 9.00,
)  # fmt: skip
"""Preferred numbers (Renard's 20): even steps of 12 % that pass through 1, 2.5 and 5."""
BOUNDS = tuple(round(step * 10.0**power, 9) for power in range(-4, 5) for step in _STEPS)
"""The upper bounds in seconds, from 0.1 ms to a day; one more bucket holds everything beyond."""
SHOWN = (
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 25.0, 50.0, 100.0,
    250.0, 500.0, 1000.0, 5000.0,
)  # fmt: skip
"""The bounds for Prometheus: each is one of `BOUNDS`, so that counts are exact."""
_ENDS = tuple(BOUNDS.index(bound) + 1 for bound in SHOWN)


def bucket_of(seconds: float) -> int:
    """Return the number of the bucket that a time falls into."""
    return bisect_left(BOUNDS, seconds)


def empty() -> list[int]:
    return [0] * (len(BOUNDS) + 1)


def shown(counts: Sequence[int]) -> list[int]:
    """Return the cumulative counts for Prometheus' bounds, and the total."""
    sums = [0, *accumulate(counts)]
    return [*(sums[end] for end in _ENDS), sums[-1]]


def sparse(counts: Iterable[int]) -> list[int]:
    """Write buckets as alternating numbers and counts, without the empty ones."""
    return [each for number, count in enumerate(counts) if count for each in (number, count)]


def add_sparse(*several: Sequence[int]) -> list[int]:
    """Add up buckets that are written sparsely."""
    counts: dict[int, int] = {}
    for buckets in several:
        for number, count in zip(buckets[::2], buckets[1::2], strict=False):
            if number >= 0 and count > 0:
                counts[number] = counts.get(number, 0) + count
    return [each for number in sorted(counts) for each in (number, counts[number])]


def total(buckets: Sequence[int]) -> int:
    """Return how many times were counted."""
    return sum(_read(buckets).values())


def quantile(buckets: Sequence[int], share: float) -> float | None:
    """Return the time that this share of all does not exceed, to an eighth; None if there is none.

    A time beyond the last bound counts as that bound.
    """
    counts = _read(buckets)
    left = share * sum(counts.values())
    for number in sorted(counts):
        left -= counts[number]
        if left <= 0:
            return BOUNDS[min(number, len(BOUNDS) - 1)]
    return None


def mean(buckets: Sequence[int]) -> float | None:
    """Return the mean of all times, each taken to be in the middle of its bucket; None if empty."""
    counts = _read(buckets)
    if not counts:
        return None
    return sum(_middle(number) * count for number, count in counts.items()) / sum(counts.values())


def _middle(number: int) -> float:
    if number >= len(BOUNDS):
        return BOUNDS[-1]
    return (BOUNDS[number] + (BOUNDS[number - 1] if number else 0.0)) / 2


def _read(buckets: Sequence[int]) -> dict[int, int]:
    counts: Mapping[int, int] = dict(zip(buckets[::2], buckets[1::2], strict=False))
    return {number: count for number, count in counts.items() if number >= 0 and count > 0}
