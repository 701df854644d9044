"""Owns a simulation of a fleet on one PostgreSQL server, by the costs that were measured.

`python -m benchmarks.scaling_out --hosts 20 --jobs-per-second 5000` plays some seconds: jobs
arrive, worker processes exchange outcomes for new jobs, and the server has as many CPUs as are
given. It says how busy the server and the workers are, how long jobs wait, and what comes next.
No server is needed. It knows nothing of locks, caches and disks: measure before you buy.
"""

from __future__ import annotations

import argparse
import heapq
import math
import random
import statistics
import sys
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, field

_PER_PROCESS, _RESERVED = 5, 3
"""Connections of a worker process, and those that a server keeps for its administrators."""
_DAY_SECONDS = 86_400
_FULL = 0.7
"""Share of the CPUs in use from which waits grow steeply."""
_FEW_CARRIED = 10
_MANY_CONNECTIONS = 500
_MUCH_HISTORY = 500e9
"""Jobs of a claim, connections and bytes from which there is something to say about them."""
_TURN_SECONDS = 0.0005
"""Jobs that end within this time end in one turn of the event loop."""
_SEED = 7


@dataclass(frozen=True, kw_only=True)
class Costs:
    """What one thing takes, in seconds of CPU and in bytes, by the tables of docs/capacity.md.

    They were measured before the page's newest run, on CPUs half as fast.

    An exchange of a worker process with the server has two parts, of which each has a fixed cost
    and one for each job: it records outcomes, and it claims jobs.
    """

    part: float = 315e-6
    part_job: float = 18.5e-6
    worker_part: float = 415e-6
    worker_part_job: float = 23e-6
    enqueue: float = 273e-6
    bulk_enqueue: float = 15.1e-6
    idle_process: float = 2.35e-3
    """CPU seconds of the server, a second, for a worker process that has nothing to do."""
    wal_single: float = 431 + 826
    wal_bulk: float = 291 + 826
    finished: float = 326
    """Bytes of a finished job that is kept."""


@dataclass(frozen=True, kw_only=True)
class Fleet:
    """What is asked about."""

    hosts: int = 20
    processes: int = 2
    slots: int = 100
    jobs_per_second: float = 5_000
    duration: float = 0.1
    spread: float = 0.2
    """Share of the duration by which a job may take longer."""
    bulk: int = 1
    """Jobs of one enqueue."""
    server_cpus: int = 8
    databases: int = 1
    """Servers, each with its share of queues, hosts and jobs."""
    producers: int = 50
    """Connections of everything that enqueues."""
    retention_days: int = 7
    round_trip: float = 0.0005
    seconds: float = 5.0

    @property
    def share(self) -> Fleet:
        """The part of the fleet that one of the servers has."""
        kept = {name: getattr(self, name) for name in self.__dataclass_fields__}
        kept["hosts"] = math.ceil(self.hosts / self.databases)
        kept["jobs_per_second"] = self.jobs_per_second / self.databases
        return Fleet(**{**kept, "databases": 1})

    @property
    def connections(self) -> int:
        """Connections that one server has to allow."""
        return self.hosts * (self.processes * _PER_PROCESS + 1) + self.producers + _RESERVED


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What became of it, for one server."""

    fleet: Fleet
    done: int
    left: int
    server: float
    """CPU seconds that the server needed, a second."""
    worker: float
    """Share of the time in which a worker process was busy with exchanges."""
    carried: float
    """Jobs that an exchange carried on average, counted when they are claimed."""
    waits: Sequence[float]
    costs: Costs

    @property
    def in_use(self) -> float:
        """Share of the server's CPUs in use; above 1, work piles up."""
        return self.server / self.fleet.server_cpus

    @property
    def keeps_up(self) -> bool:
        """Whether the server has CPU to spare, and few jobs were left in the end."""
        return self.in_use < 1 and self.left <= 0.5 * self.fleet.jobs_per_second + self.fleet.bulk

    def wait(self, share: float) -> float:
        """Return the wait that this share of the jobs does not exceed, in seconds."""
        return sorted(self.waits)[int(share * (len(self.waits) - 1))] if self.waits else math.nan


@dataclass
class _Process:
    """A worker process: its free slots, and the outcomes that it has not recorded yet."""

    free: int
    outcomes: int = 0
    is_busy: bool = False
    spent: float = 0.0


@dataclass
class _Play:
    """The state of a simulation, and its events in the order of their times."""

    fleet: Fleet
    costs: Costs
    cpus: list[float]
    processes: list[_Process]
    pending: deque[float] = field(default_factory=deque)
    events: list[tuple[float, int, str, int, int]] = field(default_factory=list)
    waits: list[float] = field(default_factory=list)
    claimed: list[int] = field(default_factory=list)
    server: float = 0.0
    done: int = 0
    number: int = 0
    chance: random.Random = field(default_factory=lambda: random.Random(_SEED))

    def at(self, time: float, what: str, process: int = 0, jobs: int = 0) -> None:
        self.number += 1
        heapq.heappush(self.events, (time, self.number, what, process, jobs))

    def serve(self, now: float, cost: float) -> float:
        """Return when the server has done something for which it needs this much CPU time."""
        self.server += cost
        end = max(now, heapq.heappop(self.cpus)) + cost
        heapq.heappush(self.cpus, end)
        return end


def simulate(fleet: Fleet, costs: Costs | None = None) -> Outcome:
    """Play some seconds of one server with its share of the fleet."""
    own, prices = fleet.share, costs or Costs()
    play = _Play(
        fleet=own,
        costs=prices,
        cpus=[0.0] * own.server_cpus,
        processes=[_Process(free=own.slots) for _ in range(own.hosts * own.processes)],
    )
    chance = play.chance
    pace = own.jobs_per_second / own.bulk
    play.at(-math.log(1 - chance.random()) / pace, "enqueue")
    while play.events and play.events[0][0] < own.seconds:
        now, _, what, process, jobs = heapq.heappop(play.events)
        if what == "enqueue":
            cost = prices.enqueue if own.bulk == 1 else prices.bulk_enqueue * own.bulk
            play.at(play.serve(now, cost), "arrive", jobs=own.bulk)
            play.at(now - math.log(1 - chance.random()) / pace, "enqueue")
        elif what == "arrive":
            play.pending.extend([now] * jobs)
            _wake(play, now)
        elif what == "answer":
            _start(play, now, process, jobs)
        else:
            play.processes[process].free += jobs
            play.processes[process].outcomes += jobs
            play.done += jobs
            _exchange(play, now, process)
    idle = prices.idle_process * len(play.processes)
    return Outcome(
        fleet=own,
        done=play.done,
        left=len(play.pending),
        server=play.server / own.seconds + idle,
        worker=statistics.fmean(each.spent for each in play.processes) / own.seconds,
        carried=statistics.fmean(play.claimed) if play.claimed else 0.0,
        waits=play.waits,
        costs=prices,
    )


def _wake(play: _Play, now: float) -> None:
    """Let a process that is not busy look for jobs; any of them, as wake-ups are spread."""
    first = play.chance.randrange(len(play.processes))
    for step in range(len(play.processes)):
        process = (first + step) % len(play.processes)
        if not play.processes[process].is_busy and play.processes[process].free:
            _exchange(play, now, process)
            return


def _exchange(play: _Play, now: float, number: int) -> None:
    """Record outcomes and claim jobs in one round trip, if there are any and none is under way."""
    process, costs = play.processes[number], play.costs
    claims = min(len(play.pending), process.free)
    if process.is_busy or not (claims or process.outcomes):
        return
    parts, jobs = bool(claims) + bool(process.outcomes), claims + process.outcomes
    process.is_busy, process.outcomes = True, 0
    process.free -= claims
    for _ in range(claims):
        play.waits.append(-play.pending.popleft())
    own = costs.worker_part * parts + costs.worker_part_job * jobs
    process.spent += own
    answered = play.serve(
        now + play.fleet.round_trip / 2, costs.part * parts + costs.part_job * jobs
    )
    play.at(answered + play.fleet.round_trip / 2 + own, "answer", number, claims)
    for place in range(len(play.waits) - claims, len(play.waits)):
        play.waits[place] += answered + play.fleet.round_trip / 2 + own
    if claims:
        play.claimed.append(claims)


def _start(play: _Play, now: float, number: int, jobs: int) -> None:
    """Let claimed jobs run, and look for more."""
    play.processes[number].is_busy = False
    longest = play.fleet.duration * play.fleet.spread
    ends = Counter(int(longest * play.chance.random() / _TURN_SECONDS) for _ in range(jobs))
    for turn, ended in sorted(ends.items()):
        play.at(now + play.fleet.duration + turn * _TURN_SECONDS, "end", number, ended)
    _exchange(play, now, number)


# -- in words ------------------------------------------------------------------------------------


def described(outcome: Outcome, databases: int) -> str:
    """Return the outcome as lines for people."""
    fleet, costs = outcome.fleet, outcome.costs
    wal = costs.wal_single if fleet.bulk == 1 else costs.wal_bulk
    rows = {
        "servers": f"{databases}, each with {fleet.server_cpus} CPUs; the rest is for one of them",
        "jobs": f"{fleet.jobs_per_second:,.0f} a second on {fleet.hosts} hosts, "
        f"{fleet.hosts * fleet.processes} processes, "
        f"{fleet.hosts * fleet.processes * fleet.slots:,} slots",
        "server CPUs in use": f"{outcome.server:.1f} of {fleet.server_cpus} "
        f"({outcome.in_use:.0%}), {outcome.server / fleet.jobs_per_second * 1e6:,.0f} µs a job",
        "a process is in exchanges": f"{outcome.worker:.0%} of the time, "
        f"{outcome.carried:.1f} jobs a claim",
        "wait until the start": f"p50 {1e3 * outcome.wait(0.5):.1f} ms, "
        f"p99 {1e3 * outcome.wait(0.99):.1f} ms",
        "keeps up": _kept_up(outcome),
        "connections": f"{fleet.connections:,}",
        "WAL": f"{wal * fleet.jobs_per_second / 1e6:,.1f} MB/s",
        "history": f"{_history(fleet, costs) / 1e9:,.0f} GB, kept for {fleet.retention_days} d",
    }
    width = max(map(len, rows))
    lines = [f"{name:<{width}}  {value}" for name, value in rows.items()]
    return "\n".join([*lines, "", *(f"- {each}" for each in advice(outcome))])


def _kept_up(outcome: Outcome) -> str:
    if outcome.in_use >= 1:
        return "no: the server has no CPU left"
    return "yes" if outcome.keeps_up else f"no: {outcome.left:,} jobs wait in the end"


def _history(fleet: Fleet, costs: Costs) -> float:
    kept = (fleet.retention_days + 1) * _DAY_SECONDS
    return fleet.jobs_per_second * kept * costs.finished


def advice(outcome: Outcome) -> list[str]:
    """Return what comes next, the cheapest first."""
    fleet, found = outcome.fleet, []
    needed = fleet.jobs_per_second * fleet.duration
    slots = fleet.hosts * fleet.processes * fleet.slots
    if needed > 0.8 * slots:
        found.append(
            f"slots: {needed:,.0f} are in use on average, of {slots:,}; add slots or hosts"
        )
    if outcome.worker > _FULL:
        found.append("worker processes: exchanges take up their CPU; add processes")
    if outcome.in_use > _FULL:
        if fleet.bulk == 1:
            found.append("server: enqueue in bulk (--bulk 100), or in your own transactions")
        if outcome.carried < _FEW_CARRIED and fleet.hosts * fleet.processes > 1:
            found.append("server: fewer processes with more slots, so that a claim carries more")
        found.append("server: more CPUs, or several servers by queue (--databases 2)")
    if fleet.retention_days > 1 and _history(fleet, outcome.costs) > _MUCH_HISTORY:
        found.append("history: keep fewer days (--retention-days 1), or buy the disk")
    if fleet.connections > _MANY_CONNECTIONS:
        found.append("connections: PgBouncer in transaction mode, or fewer processes")
    return found or ["nothing: one server carries this"]


def _options(arguments: Sequence[str] | None) -> Fleet:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.scaling_out",
        description=__doc__,
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    default = Fleet()
    for name, text in {
        "hosts": "hosts with workers",
        "processes": "worker processes of each host",
        "slots": "slots of each process",
        "jobs_per_second": "jobs that arrive a second",
        "duration": "seconds that a job takes",
        "spread": "share of the duration by which a job may take longer",
        "bulk": "jobs of one enqueue",
        "server_cpus": "CPUs of the PostgreSQL server",
        "databases": "servers, each with its share of queues, hosts and jobs",
        "producers": "connections of everything that enqueues",
        "retention_days": "days for which finished jobs are kept",
        "round_trip": "seconds to the server and back",
        "seconds": "seconds that are played",
    }.items():
        value = getattr(default, name)
        parser.add_argument(
            f"--{name.replace('_', '-')}", type=type(value), default=value, help=text
        )
    return Fleet(**vars(parser.parse_args(arguments)))


def main(arguments: Sequence[str] | None = None) -> int:
    """Play, and print what became of it."""
    fleet = _options(arguments)
    print(described(simulate(fleet), fleet.databases))
    return 0


if __name__ == "__main__":
    sys.exit(main())
