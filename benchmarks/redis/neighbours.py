"""Owns what other clients of the same Redis notice: how long scripts hold it, and how they wait."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from benchmarks.entrants import Entrant
from benchmarks.peers.windlass_redis import LOADED, SPREAD
from benchmarks.redis.field import Field
from benchmarks.redis.server import info
from benchmarks.report import Measure, Race, Rival, Score, percentile
from benchmarks.timings import fill, reach
from benchmarks.turns import Series
from tests.support.redis_server import RedisServer
from windlass.store.redis.scripting.script_files import load_scripts

_SIZES = {"100 B": 100, "4 kB": 4_000, "256 kB": 256_000}
_QUEUES = 500
_ALLOWED = 2.0
"""Milliseconds for which a script may hold the server, in 99 of 100 calls."""
_INTERVAL = 0.0005
_IDLE = 1.0
_LOGGED = 1_000_000
_SHORTEST = 0.1
"""Milliseconds of the shortest call that the server logs. If it logged all, it would log every
command inside a script, too, which takes longer than the commands themselves."""
_LOG = {"slowlog_log_slower_than": f"{_SHORTEST * 1e3:.0f}", "slowlog_max_len": f"{_LOGGED}"}


@dataclass(frozen=True, kw_only=True)
class Held:
    """What a fill and a drain meant to others, in milliseconds."""

    script: str
    """The name of the script whose calls took longest."""
    p99: float
    longest: float
    idle: float
    """p99 of somebody's GETs while nothing else happened, and during the drain."""
    meanwhile: float


def neighbours(field: Field) -> list[Race]:
    """Drain in full, with small and with large payloads, while another client sends GETs.

    Jobs of many queues are measured, too: each queue has lists of its own.
    """
    sizes = field.sizes
    cases = {
        name: (f"{LOADED}{size}", min(sizes.jobs, sizes.payloads // size))
        for name, size in _SIZES.items()
    }
    cases[f"{_QUEUES} queues"] = (f"{SPREAD}{_QUEUES}", sizes.jobs)
    everybody: list[Series[Held]] = field.take_turns(
        "other clients", [(field.ours, _hold(field, *case)) for case in cases.values()]
    )
    races = []
    for name, series in zip(cases, everybody, strict=True):
        races += [_scripts(name, series), _waits(name, series)]
    return races


def _scripts(case: str, series: Series[Held]) -> Race:
    longest = max(series.rounds, key=lambda it: it.p99, default=None)
    return Race(
        measure=Measure(name=f"longest script, {case}", unit="ms", lower_is_better=True),
        ours=series.score(
            lambda it: it.p99,
            name="Windlass, p99",
            note=f"{longest.script}:" if longest is not None else "",
        ),
        rivals=[
            Rival(score=Score(name="allowed", rounds=[_ALLOWED]), bar=1.0),
            Rival(score=series.score(lambda it: it.longest, name="the longest of all calls")),
        ],
    )


def _waits(case: str, series: Series[Held]) -> Race:
    return Race(
        measure=Measure(name=f"others' GET p99, {case}", unit="ms", lower_is_better=True),
        ours=series.score(lambda it: it.meanwhile, name="while Windlass drains"),
        rivals=[Rival(score=series.score(lambda it: it.idle, name="while nothing happens"))],
    )


def _hold(field: Field, kind: str, jobs: int) -> Callable[[Entrant], Held]:
    def measure(entrant: Entrant) -> Held:
        with field.arena.room(entrant, **_LOG) as room, _apart(room.server):
            with _looking(room.server) as idle:
                time.sleep(_IDLE)
            fill(room, jobs, kind=kind)
            with room.program() as worker, _looking(room.server) as meanwhile:
                worker.ask("work")
                reach(worker, jobs)
                room.wait_until_empty()
                worker.ask("stop")
            calls = _calls(room.server)
        name, took = max(
            calls.items(),
            key=lambda item: percentile(item[1], 0.99),
            default=("none is longer", [_SHORTEST]),
        )
        return Held(
            script=name,
            p99=percentile(took, 0.99),
            longest=max((max(each) for each in calls.values()), default=_SHORTEST),
            idle=percentile(idle, 0.99),
            meanwhile=percentile(meanwhile, 0.99),
        )

    return measure


@contextmanager
def _apart(server: RedisServer) -> Iterator[None]:
    """Give the server a CPU that its clients do not use.

    Otherwise the time that a script waits for a CPU, while a client of the same machine uses it,
    would count as the time for which the script holds the server. Only Linux can.
    """
    if sys.platform != "linux":
        yield
        return
    ours = os.sched_getaffinity(0)
    first, *others = sorted(ours)
    if others:
        os.sched_setaffinity(int(info(server, "server")["process_id"]), {first})
        os.sched_setaffinity(0, others)  # The processes that are started from now on inherit it.
    try:
        yield
    finally:
        os.sched_setaffinity(0, ours)


@contextmanager
def _looking(server: RedisServer) -> Iterator[list[float]]:
    """Send a GET every half a millisecond, and note how long each takes, in milliseconds."""
    waits: list[float] = []
    ending = threading.Event()

    def look() -> None:
        with server.client() as run:
            while not ending.wait(_INTERVAL):
                began = time.perf_counter()
                run("GET", "somebody")
                waits.append((time.perf_counter() - began) * 1e3)

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield waits
    finally:
        ending.set()
        thread.join()


def _calls(server: RedisServer) -> dict[str, list[float]]:
    """Return how long the calls of a script held the server, in milliseconds, by its name.

    Short ones are left out, so that a percentile of the rest is higher than that of all.
    """
    names = {script.sha: name for name, script in load_scripts().items()}
    calls: dict[str, list[float]] = defaultdict(list)
    for _, _, micros, command, *_ in server.call("SLOWLOG", "GET", -1):
        if command[0].upper() == b"EVALSHA":
            calls[names.get(command[1], command[1].decode())].append(micros / 1e3)
    return calls
