"""Owns how long jobs wait for nothing: for a poll, for a wake-up, for a lease to run out."""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from benchmarks.capacity import proc
from benchmarks.capacity.crew import Crew, crew
from benchmarks.capacity.sizes import Survey
from benchmarks.capacity.table import Cell, Table
from benchmarks.capacity.watch import serving
from benchmarks.capacity.yards import PostgresYard, fill, wait_for
from benchmarks.report import percentile
from windlass import Kind, Windlass

_RUNNING = "SELECT EXISTS (SELECT FROM windlass.jobs WHERE state = 'running')"
_WARM_UPS = 2


@dataclass
class _Idler:
    """An idle crew on a database of its own, with its way of learning of new jobs."""

    listens: bool
    poll: str
    yard: PostgresYard
    crew: Crew
    worker_cpu: float = 0.0
    server_cpu: float = 0.0

    def spent(self) -> tuple[float, float]:
        return self.crew.cpu(), proc.cpu_seconds(self.yard.backends())


def latency(survey: Survey) -> list[Table]:
    """Send jobs, one by one, to crews that idle: with wake-ups and without, by polling interval.

    All crews idle at the same time, since none of them needs more than a sliver of the machine.
    """
    survey.tell("latency, and what idling takes")
    polls = survey.sizes.polls
    with ExitStack() as stack:
        idlers = [_idler(survey, stack, listens=True, poll=polls[-1])]
        idlers += [_idler(survey, stack, listens=False, poll=poll) for poll in polls]
        _idle(idlers, survey.sizes.idle)
        rows = _sent(survey, idlers, stack)
    head = [
        "wake-ups",
        "`poll_interval`",
        "p50, ms",
        "p95, ms",
        "longest, ms",
        "idle worker, CPU ms/s",
        "its connections in the server, CPU ms/s",
    ]
    return [Table(name="latency", head=head, rows=rows)]


def _idler(survey: Survey, stack: ExitStack, *, listens: bool, poll: str) -> _Idler:
    yard = stack.enter_context(survey.site.postgres())
    way: dict[str, Any] = {} if listens else {"listen_url": "off"}
    it = stack.enter_context(crew(yard.url, poll_interval=poll, **way))
    serving(yard, it)
    fill(yard, _WARM_UPS, "stamped", {"sent": 0})
    wait_for("warm-ups", yard.is_empty)
    return _Idler(listens=listens, poll=poll, yard=yard, crew=it)


def _idle(idlers: Sequence[_Idler], seconds: float) -> None:
    """Let all idle, and note what each takes of a second for that."""
    before = [idler.spent() for idler in idlers]
    time.sleep(seconds)
    for idler, (worker, server) in zip(idlers, before, strict=True):
        now = idler.spent()
        idler.worker_cpu = (now[0] - worker) / seconds
        idler.server_cpu = (now[1] - server) / seconds


def _sent(survey: Survey, idlers: Sequence[_Idler], stack: ExitStack) -> list[list[Cell]]:
    """Send to all in turn, at moments that no poll goes by."""
    apps = [Windlass(idler.yard.url) for idler in idlers]
    for app in apps:
        stack.callback(app.close)
    producers = [app.producer(Kind("stamped", dict[str, int])) for app in apps]
    pause, moments = survey.sizes.stamped_every / len(idlers), random.Random(1)
    for _ in range(survey.sizes.stamps):
        for producer in producers:
            producer.enqueue({"sent": time.monotonic_ns()})
            time.sleep(pause * moments.uniform(0.5, 1.5))
    for idler in idlers:
        wait_for("the last job", idler.yard.is_empty)
    return [_row(idler) for idler in idlers]


def _row(idler: _Idler) -> list[Cell]:
    waits = [wait / 1e6 for wait in idler.yard.results()[_WARM_UPS:]]
    return [
        "yes" if idler.listens else "no",
        idler.poll,
        statistics.median(waits),
        percentile(waits, 0.95),
        max(waits),
        idler.worker_cpu * 1e3,
        idler.server_cpu * 1e3,
    ]


def rescue(survey: Survey) -> list[Table]:
    """Kill whole crews and single processes, and see when their jobs run again elsewhere."""
    survey.tell("rescue, and restarts")
    rows: list[list[Cell]] = []
    with ExitStack() as stack:
        lost = [_Lost(survey, stack, lease) for lease in survey.sizes.leases]
        rows += [["worker process killed, its supervisor lives", None, _replaced(survey)]]
        for each in lost:
            rows.append(["whole host lost", f"{each.lease} s", each.seconds()])
    started, ended = _restarted(survey)
    rows.append(["start, until the first job runs", None, started])
    rows.append(["SIGTERM, until an idle worker has ended", None, ended])
    head = ["what happens", "`lease`", "seconds"]
    return [Table(name="rescue", head=head, rows=rows)]


class _Lost:
    """A job whose crew was killed, and another crew that will find it."""

    def __init__(self, survey: Survey, stack: ExitStack, lease: int) -> None:
        self.lease = lease
        self._yard = stack.enter_context(survey.site.postgres())
        with crew(self._yard.url, lease=f"{lease}s") as first:
            serving(self._yard, first)
            fill(self._yard, 1, "hold")
            wait_for("a job that runs", lambda: self._yard.ask(_RUNNING))
            self._heir = stack.enter_context(crew(self._yard.url, lease=f"{lease}s"))
            serving(self._yard, self._heir, 2)
            self._killed = time.monotonic_ns()
            first.kill()

    def seconds(self) -> float:
        """Return the time from the loss to the second start."""
        wait_for("a rescue", self._yard.is_empty)
        (began,) = self._yard.results()
        return (int(began) - self._killed) / 1e9


def _replaced(survey: Survey) -> float:
    """Kill the only worker process; return when its job ran again in the one that replaced it."""
    with survey.site.postgres() as yard, crew(yard.url) as it:
        serving(yard, it)
        fill(yard, 1, "hold")
        wait_for("a job that runs", lambda: yard.ask(_RUNNING))
        killed = time.monotonic_ns()
        it.kill_workers()
        wait_for("a rescue", yard.is_empty)
        (began,) = yard.results()
        return (int(began) - killed) / 1e9


def _restarted(survey: Survey) -> tuple[float, float]:
    with survey.site.postgres() as yard:
        fill(yard, 1, "stamped", {"sent": time.monotonic_ns()})
        sent = time.monotonic_ns()
        with crew(yard.url) as it:
            wait_for("the first job", yard.is_empty)
            started = (time.monotonic_ns() - sent) / 1e9
            time.sleep(1)
            told = time.monotonic_ns()
            it.end()
            ended = (time.monotonic_ns() - told) / 1e9
    return started, ended
