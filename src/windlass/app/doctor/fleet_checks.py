"""Owns the comparisons of `windlass doctor`: clocks of hosts, releases of workers, schedules that
are due and those that tick."""

from __future__ import annotations

import shlex
import socket
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Sequence
from datetime import UTC, datetime, timedelta

from windlass.core.jobs.queries import Finding
from windlass.core.restored import CHANGED, LINEAGE, read_lineage
from windlass.core.schedules.clock_step import RECORD as STEP
from windlass.core.schedules.clock_step import read_step
from windlass.core.schedules.schedule import RECORD, UNSERVED
from windlass.core.values.durations import brief, human
from windlass.core.values.text import listed, plural
from windlass.core.workers import WorkerRecord
from windlass.store import StoreQueries
from windlass.version import __version__

_APART = timedelta(seconds=2)
"""By how much two clocks may differ, besides the time it takes to ask."""
_RECENT = timedelta(hours=12)
"""For how long a step of the store's clock is reported."""
_MAX_HOSTS = 10
_MAX_SCHEDULES = 10


def _host_time() -> datetime:
    return datetime.now(UTC)


async def clocks_apart(
    store: StoreQueries, host_time: Callable[[], datetime] = _host_time
) -> Finding | None:
    before = host_time()
    now = (await store.sweep()).now
    after = host_time()
    apart = max(before - now, now - after, timedelta(0))
    if apart <= _APART:
        return None
    return _wrong("this host", apart if before > now else -apart, "computes here")


async def clocks(store: StoreQueries, workers: Sequence[WorkerRecord]) -> list[Finding]:
    """Find clocks that differ from the store's: of this host, of workers' hosts, or a step of its
    own.

    Each problem is reported once.
    """
    stepped = await _stepped(store)
    if (alike := _all_alike(workers)) is not None:
        return [_stores_own(alike), *stepped]
    here = await clocks_apart(store)
    if here is None:
        return [*workers_clocks_apart(workers), *stepped]
    return [here, *workers_clocks_apart(workers, reported={socket.gethostname()}), *stepped]


async def _stepped(store: StoreQueries) -> list[Finding]:
    step = read_step((await store.records(STEP)).get(STEP))
    if step is None or abs((await store.sweep()).now - step.at) > _RECENT:
        return []
    span = human(timedelta(seconds=round(abs(step.by).total_seconds())))
    way = f"{'back' if step.by < timedelta(0) else 'forward'} by {span}"
    return [
        Finding(
            problem=f"the store's clock was set {way}, at {step.at:%Y-%m-%d %H:%M:%S} UTC",
            remedy="let NTP slew the clock of the store's host, and check the scheduled jobs: "
            "windlass jobs list --state scheduled",
        )
    ]


async def lineages_apart(store: StoreQueries) -> Finding | None:
    """Find that the server's history is another one than before, which is reported for a while."""
    name = await store.lineage()
    seen = read_lineage((await store.records(LINEAGE)).get(LINEAGE))
    if name is None or seen is None:
        return None
    is_recent = (await store.sweep()).now - seen.since < _RECENT
    if name == seen.name and (seen.before is None or not is_recent):
        return None
    when = "since workers looked last" if name != seen.name else f"since {seen.since:%F %T} UTC"
    return Finding(
        problem=f"{CHANGED} ({when})",
        remedy="after a restore: windlass restored park, before workers start; after a failover to "
        "a standby that was behind: windlass restored missing FILE, with job ids of your own data "
        "(docs/failover.md)",
    )


def workers_clocks_apart(
    workers: Sequence[WorkerRecord], reported: Collection[str] = ()
) -> Iterator[Finding]:
    """Find hosts whose live workers report that their clock differs from the store's.

    The hosts in `reported` are left out.
    """
    hosts: dict[str, list[WorkerRecord]] = defaultdict(list)
    for each in workers:
        is_wrong = each.alive and abs(each.pulse.clock_ahead) > _APART
        if is_wrong and each.info.host not in reported:
            hosts[each.info.host].append(each)
    for host, there in sorted(hosts.items())[:_MAX_HOSTS]:
        ahead = max((each.pulse.clock_ahead for each in there), key=abs)
        names = listed(sorted(each.info.id for each in there))
        yield _wrong(f"host {host}", ahead, f"computes there ({names})")
    if len(hosts) > _MAX_HOSTS:
        more = plural(len(hosts) - _MAX_HOSTS, "more host")
        yield Finding(
            problem=f"the clock of {more} differs from the store's",
            remedy="windlass workers --alive --json shows each as clock_ahead, in seconds",
        )


def _all_alike(workers: Sequence[WorkerRecord]) -> timedelta | None:
    ahead = {each.info.host: each.pulse.clock_ahead for each in workers if each.alive}
    least, most = min(ahead.values(), default=_APART), max(ahead.values(), default=-_APART)
    is_wrong = least > _APART or most < -_APART
    return least if len(ahead) > 1 and is_wrong and most - least < _APART else None


def _stores_own(ahead: timedelta) -> Finding:
    which = "behind" if ahead > timedelta(0) else "ahead of"
    return Finding(
        problem="the store's clock, which is used for leases and due times, is "
        f"{brief(abs(ahead))} {which} that of every host where workers run",
        remedy="synchronise the store's host with NTP: timedatectl set-ntp true",
    )


def _wrong(host: str, ahead: timedelta, where: str) -> Finding:
    which = "ahead of" if ahead > timedelta(0) else "behind"
    return Finding(
        problem=f"the clock of {host} is {brief(abs(ahead))} {which} the store's, which "
        f"sets leases and due times; times that your code {where} are off by that",
        remedy=f"synchronise {host} and the store's host with NTP: timedatectl set-ntp true",
    )


def releases_apart(workers: Sequence[WorkerRecord]) -> Iterator[Finding]:
    """Find live workers of several releases, or of another release than this."""
    releases: dict[str, list[str]] = defaultdict(list)
    for each in workers:
        if each.alive:
            releases[each.info.release].append(each.info.id)
    alive = "; ".join(
        f"{release}: {listed(sorted(names))}" for release, names in sorted(releases.items())
    )
    if len(releases) > 1:
        yield Finding(
            problem=f"workers of several releases of windlass are alive ({alive})",
            remedy="finish the rollout: restart the workers of the older release",
        )
    elif releases and __version__ not in releases:
        yield Finding(
            problem=f"workers run another release of windlass than {__version__} here ({alive})",
            remedy="install the same release in both places",
        )


async def broken_schedules(store: StoreQueries) -> list[Finding]:
    """Find schedules that are due, and that no worker can read."""
    marks = await store.records(UNSERVED)
    broken = {name: str(mark["why"]) for name, mark in sorted(marks.items()) if mark.get("why")}
    found: list[Finding] = []
    for mark, why in list(broken.items())[:_MAX_SCHEDULES]:
        name = mark.removeprefix(UNSERVED)
        # A mark may be out of date.
        known = (await store.records(RECORD + name)).get(RECORD + name, {})
        if known.get("unserved"):
            problem = f"schedule {name} is due, but no worker can run it: {why}"
            remedy = f"fix that on the workers' hosts; windlass schedules show {shlex.quote(name)}"
            found.append(Finding(problem=problem, remedy=remedy))
    return found
