"""Owns what `windlass doctor` finds by comparing: clocks of hosts, releases of workers, schedules
that are due and those that tick.
"""

from __future__ import annotations

import shlex
import socket
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Sequence
from datetime import UTC, datetime, timedelta

from windlass.cli import show
from windlass.core.job import Finding, WorkerRecord
from windlass.core.schedule import RECORD, UNSERVED
from windlass.release import __version__
from windlass.store import Store

_APART = timedelta(seconds=2)
"""By how much two clocks may differ, beside what it takes to ask."""
_NAMED = 5
_HOSTS_TOLD = 10
_SCHEDULES_TOLD = 10


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
    return _wrong("this host", apart if before > now else -apart, "computes here")


async def clocks(store: Store, workers: Sequence[WorkerRecord]) -> list[Finding]:
    """Find clocks that are not the store's: of this host, of hosts where workers run, or its own.

    What is wrong is told once.
    """
    if (alike := _all_alike(workers)) is not None:
        return [_stores_own(alike)]
    here = await clocks_apart(store)
    if here is None:
        return list(workers_clocks_apart(workers))
    return [here, *workers_clocks_apart(workers, told={socket.gethostname()})]


def workers_clocks_apart(
    workers: Sequence[WorkerRecord], told: Collection[str] = ()
) -> Iterator[Finding]:
    """Find hosts whose live workers have told that their clock is not the store's.

    Of some hosts it is `told` already.
    """
    hosts: dict[str, list[WorkerRecord]] = defaultdict(list)
    for each in workers:
        is_wrong = each.alive and abs(each.pulse.clock_ahead) > _APART
        if is_wrong and each.info.host not in told:
            hosts[each.info.host].append(each)
    for host, there in sorted(hosts.items())[:_HOSTS_TOLD]:
        ahead = max((each.pulse.clock_ahead for each in there), key=abs)
        names = _some(sorted(each.info.id for each in there))
        yield _wrong(f"host {host}", ahead, f"computes there ({names})")
    if len(hosts) > _HOSTS_TOLD:
        more = show.plural(len(hosts) - _HOSTS_TOLD, "more host")
        yield Finding(
            problem=f"the clock of {more} is not the store's",
            remedy="windlass workers --alive --json tells of each, as clock_ahead in seconds",
        )


def _all_alike(workers: Sequence[WorkerRecord]) -> timedelta | None:
    """Return by how much the clocks of several hosts are all ahead, if it is the same for all."""
    ahead = {each.info.host: each.pulse.clock_ahead for each in workers if each.alive}
    least, most = min(ahead.values(), default=_APART), max(ahead.values(), default=-_APART)
    is_wrong = least > _APART or most < -_APART
    return least if len(ahead) > 1 and is_wrong and most - least < _APART else None


def _stores_own(ahead: timedelta) -> Finding:
    which = "behind" if ahead > timedelta(0) else "ahead of"
    return Finding(
        problem=f"the store's clock, which decides about leases and due times, is "
        f"{show.short(abs(ahead))} {which} that of every host where workers run",
        remedy="synchronise the store's host by NTP: timedatectl set-ntp true",
    )


def _wrong(host: str, ahead: timedelta, where: str) -> Finding:
    which = "ahead of" if ahead > timedelta(0) else "behind"
    return Finding(
        problem=f"the clock of {host} is {show.short(abs(ahead))} {which} the store's, which "
        f"decides about leases and due times; times that your own code {where} are off by that",
        remedy=f"synchronise {host} and the store's by NTP: timedatectl set-ntp true",
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


async def broken_schedules(store: Store) -> list[Finding]:
    """Find schedules that are due, and that no worker can make sense of."""
    marks = await store.records(UNSERVED)
    broken = {name: str(mark["why"]) for name, mark in sorted(marks.items()) if mark.get("why")}
    found: list[Finding] = []
    for mark, why in list(broken.items())[:_SCHEDULES_TOLD]:
        name = mark.removeprefix(UNSERVED)
        # A mark may be out of date.
        known = (await store.records(RECORD + name)).get(RECORD + name, {})
        if known.get("unserved"):
            problem = f"schedule {name} is due, and no worker can tick it: {why}"
            remedy = f"mend that on the workers' hosts; windlass schedules show {shlex.quote(name)}"
            found.append(Finding(problem=problem, remedy=remedy))
    return found
