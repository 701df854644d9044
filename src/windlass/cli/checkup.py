"""Owns what `windlass doctor` finds by comparing: this host's clock, and the workers' releases."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta

from windlass.cli import show
from windlass.core.job import Finding, WorkerRecord
from windlass.release import __version__
from windlass.store import Store

_APART = timedelta(seconds=2)
"""By how much two clocks may differ, beside what it takes to ask."""
_NAMED = 5


def _host_time() -> datetime:
    return datetime.now(UTC)


async def clocks_apart(
    store: Store, host_time: Callable[[], datetime] = _host_time
) -> Finding | None:
    """Find out whether this host and the store agree what time it is."""
    before = host_time()
    now = (await store.sweep()).now
    after = host_time()
    apart = max(before - now, now - after, timedelta(0))
    if apart <= _APART:
        return None
    which = "ahead of" if before > now else "behind"
    return Finding(
        problem=f"the clock of this host is {show.short(apart)} {which} the store's, which "
        "decides about leases and due times; times that your own code computes here are off by "
        "that",
        remedy="synchronise both hosts by NTP: timedatectl set-ntp true",
    )


def releases_apart(workers: Sequence[WorkerRecord]) -> Iterator[Finding]:
    """Find workers that are alive under several releases, or under another than this."""
    releases: dict[str, list[str]] = defaultdict(list)
    for each in workers:
        if each.alive:
            releases[each.info.release].append(each.info.id)
    told = "; ".join(
        f"{release}: {_some(sorted(names))}" for release, names in sorted(releases.items())
    )
    if len(releases) > 1:
        yield Finding(
            problem=f"workers of several releases of windlass are alive ({told})",
            remedy="finish the rollout: restart the workers of the older one",
        )
    elif releases and __version__ not in releases:
        yield Finding(
            problem=f"workers run another release of windlass than this, {__version__} ({told})",
            remedy="install the same one here and there",
        )


def _some(names: Sequence[str]) -> str:
    rest = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + rest
