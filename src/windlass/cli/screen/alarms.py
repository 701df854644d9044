"""Owns what is wrong, by the figures alone, the worst first: what an operator should read first."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from windlass.cli.screen import figures
from windlass.cli.screen.panels import Looked
from windlass.cli.screen.rows import FAILING, does_not_drain, waiting
from windlass.core.states import State
from windlass.core.stats import QueueFigures

_ENOUGH = 5
"""Of how many runs a share of failed ones says something."""
_OLD = 30.0
"""Seconds after which a worker should have counted again, twice over."""


@dataclass(frozen=True, kw_only=True)
class Alarm:
    """Something that is wrong; what is not urgent is a warning."""

    told: str
    urgent: bool


def alarms(looked: Looked) -> list[Alarm]:
    """Return what is wrong; nothing, if all is well."""
    found = [
        *_missing(looked),
        *_age(looked),
        *_queues(looked),
        *_breakers(looked),
        *_kinds(looked),
        *_capacity(looked),
        *_pauses(looked),
    ]
    return sorted(found, key=lambda each: not each.urgent)


def _missing(looked: Looked) -> Iterator[Alarm]:
    if not looked.stats.workers:
        waits = sum(map(waiting, looked.stats.queues))
        told = f"no worker runs, and {_jobs(waits)}" if waits else "no worker runs"
        yield Alarm(told=f"{told}: windlass worker module:attribute", urgent=bool(waits))


def _age(looked: Looked) -> Iterator[Alarm]:
    age = looked.stats.sample_age
    if age is not None and age > _OLD:
        told = f"no worker has counted for {figures.span(age)}: queues are told as they were then"
        yield Alarm(told=told, urgent=False)


def _queues(looked: Looked) -> Iterator[Alarm]:
    stats = looked.stats
    for each in sorted(stats.queues, key=lambda each: -waiting(each)):
        if not waiting(each) or each.paused:
            continue
        if not each.workers and stats.workers:
            told = f"no worker serves queue {each.name}, and {_jobs(waiting(each))}"
            yield Alarm(told=told, urgent=True)
            continue
        if each.workers and each.unserved:
            told = f"queue {each.name} has jobs of kinds that no worker runs"
            yield Alarm(told=told, urgent=True)
        if does_not_drain(each) and each.arrival_rate:
            came, left = figures.rate(each.arrival_rate), figures.rate(each.service_rate)
            told = f"queue {each.name} grows: {came}/s in, {left}/s out"
            yield Alarm(told=told, urgent=True)
        elif _stands_still(each):
            told = f"nothing comes to queue {each.name} or leaves it, and {_jobs(waiting(each))}"
            yield Alarm(told=told, urgent=False)


def _stands_still(queue: QueueFigures) -> bool:
    """Say whether jobs wait for something else than others to end, which nobody told yet."""
    still = queue.arrival_rate == 0 and queue.service_rate == 0
    runs = queue.jobs.get(State.RUNNING.value, 0)
    return still and bool(queue.workers) and not runs and not queue.unserved


def _breakers(looked: Looked) -> Iterator[Alarm]:
    stats = looked.stats
    for state, names in (("open", stats.breakers), ("half-open", stats.half_open)):
        if names:
            what, are = ("breaker", "is") if len(names) == 1 else ("breakers", "are")
            told = f"{what} {figures.several(names)} {are} {state}: windlass breakers list"
            yield Alarm(told=told, urgent=state == "open")


def _kinds(looked: Looked) -> Iterator[Alarm]:
    for each in looked.stats.kinds:
        if each.error_rate is None or each.error_rate < FAILING or each.runs < _ENOUGH:
            continue
        why = next((error.error for error in looked.stats.errors if error.kind == each.name), "")
        told = f"{figures.share(each.error_rate)} of the runs of {each.name} fail"
        yield Alarm(told=f"{told}: {why}" if why else told, urgent=each.error_rate >= 0.5)
    died = sum(each.dead for each in looked.stats.kinds)
    if died:
        jobs = "1 job" if died == 1 else f"{figures.count(died)} jobs"
        yield Alarm(told=f"{jobs} died in the last hour", urgent=False)


def _capacity(looked: Looked) -> Iterator[Alarm]:
    stats = looked.stats
    waits = sum(map(waiting, stats.queues))
    if waits and stats.slots and (stats.slots_needed or 0) > stats.slots:
        told = f"{figures.rate(stats.slots_needed)} slots are needed, and there are {stats.slots}"
        yield Alarm(told=told, urgent=True)
    elif waits and stats.slots and stats.busy >= stats.slots:
        yield Alarm(told=f"all {stats.slots} slots are busy, and {_jobs(waits)}", urgent=False)
    if stats.workers and stats.arrival_rate is None:
        why = stats.unknown.get("arrival_rate", "no worker has counted yet")
        yield Alarm(told=f"how much comes and leaves is not known: {why}", urgent=False)
    for each in stats.workers:
        if each.pool is not None and each.pool.in_use >= each.pool.limit:
            told = f"worker {each.id} uses all of its {each.pool.limit} connections"
            yield Alarm(told=told, urgent=False)


def _pauses(looked: Looked) -> Iterator[Alarm]:
    depths = {each.name: waiting(each) for each in looked.stats.queues}
    for what, name in looked.pauses:
        held = f", and {_jobs(depths[name])}" if what == "queue" and depths.get(name) else ""
        yield Alarm(told=f"{what} {name} is paused{held}", urgent=False)


def _jobs(number: int) -> str:
    return "1 job waits" if number == 1 else f"{figures.count(number)} jobs wait"
