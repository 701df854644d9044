"""Owns the jobs that the demo enqueues: a share of each kind."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from windlass.app import Draft
from windlass.demo import jobs

_SLOW_SHARE = 0.16
_FLAKY_SHARE = 0.06
_SINGLE = 3
UNIQUE = "2026-01-01"


def drafts(count: int) -> list[Draft[Any]]:
    """Make `count` jobs, mixed as they would arrive; the unique one comes first."""
    slow, flaky = int(count * _SLOW_SHARE), int(count * _FLAKY_SHARE)
    fast = count - slow - flaky - _SINGLE
    single: list[Draft[Any]] = [
        digest(),
        jobs.build_report.draft("quarter.pdf"),
        jobs.import_feed.draft("https://example.org/poison.xml"),
    ]
    return single + list(_mixed(fast, slow, flaky))


def digest() -> Draft[str]:
    """Make the unique job; another one with its key adds nothing while this one lives."""
    return jobs.daily_digest.using(unique=UNIQUE).draft(UNIQUE)


def _mixed(fast: int, slow: int, flaky: int) -> Iterator[Draft[Any]]:
    for number in range(max(fast, slow, flaky)):
        if number < slow:
            yield jobs.resize_image.draft(f"{number}.png", milliseconds=50 + number * 37 % 151)
        if number < flaky:
            yield jobs.charge_card.draft(f"order-{number}", outages=1 + number % 2)
        if number < fast:
            yield jobs.send_email.draft(f"user{number}@example.org")
