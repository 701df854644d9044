"""Owns what many limit keys, many schedules and many workers take: figures without a bar."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta

from benchmarks.growth.looks import look
from benchmarks.growth.stage import QUEUE, Sample, Stage, Starts
from windlass import Windlass
from windlass.core.policies.pauses import PAUSES
from windlass.core.workers import WorkerInfo, WorkerPulse

_BULK = 5_000
_CALLS = 50
_LEASE = timedelta(minutes=10)
_PATIENCE = timedelta(seconds=10)
_DUE = 2_000
_TICKS_SECONDS = 120.0
_COPY_SCHEDULES = """
    INSERT INTO windlass.records (name, value, alarm)
    SELECT 'schedule:crowd-' || n, value, alarm
    FROM windlass.records, generate_series({first}, {last}) AS n WHERE name = 'schedule:one'
"""
_COPY_WORKERS = """
    INSERT INTO windlass.workers
    SELECT 'crowd-' || n, replace(info::text, '"crowd"', '"crowd-' || n || '"')::json, pulse, lease,
           started_at, last_seen, since, lease_until, ended
    FROM windlass.workers, generate_series(1, {number} - 1) AS n WHERE id = 'crowd'
"""
_RING = f"""
    UPDATE windlass.records SET alarm = now() - interval '1 minute', value = (
        value::jsonb || jsonb_build_object('next', now() - interval '1 minute',
                                           'alarm', now() - interval '1 minute'))::json
    WHERE name IN (SELECT 'schedule:crowd-' || n FROM generate_series(1, {_DUE}) AS n)
"""


@dataclass(frozen=True, kw_only=True)
class Figure:
    """What one of many takes, with few and with many of them."""

    name: str
    few: str
    many: str
    of_few: float
    of_many: float
    unit: str = "ms"

    @property
    def ratio(self) -> float:
        """The cost with few, divided by the cost with many."""
        return self.of_few / max(self.of_many, 1e-9)


Work = Callable[[], Awaitable[object]]


async def limit_keys(stage: Stage, *, keys: int) -> Sequence[Figure]:
    """Run two jobs of each key under a limit, with many keys and with a tenth of them."""
    app, few = Windlass(stage.url, log_level="warning"), keys // 10
    done = 0

    @app.job(queue=QUEUE, key="tenant", concurrency=2)
    async def limited(tenant: int) -> None:
        nonlocal done
        del tenant
        done += 1

    costs = []
    for number in (few, keys):
        done, jobs = 0, 2 * number
        for first in range(0, jobs, _BULK):
            numbers = range(first, min(first + _BULK, jobs))
            await app.aenqueue_many([limited.draft(each % number) for each in numbers])
        stage.tidy()
        before = stage.clock()
        await app.arun_worker(burst=True, queues=[QUEUE])
        assert done == jobs
        costs.append(before.until(stage.clock()))
    await app.aclose()

    def figure(name: str, take: Callable[[Sample], float]) -> Figure:
        small, large = costs
        return Figure(
            name=name,
            few=f"{few:,} keys",
            many=f"{keys:,} keys",
            of_few=take(small) / few / 2 * 1e6,
            of_many=take(large) / keys / 2 * 1e6,
            unit="µs",
        )

    return [
        figure("a job under a limit, two of each key: wall", lambda each: each.seconds),
        figure("the same: CPU of worker and server", lambda each: each.cpu),
        figure("the same: CPU of the server", lambda each: each.server),
    ]


async def schedules(stage: Stage, *, number: int) -> Sequence[Figure]:
    """Look at schedules, and let some of them tick, among as few as these and among many."""
    app, few = Windlass(stage.url, log_level="warning"), min(_DUE, number)
    starts = Starts()

    @app.job(queue=QUEUE)
    async def tick() -> None:
        starts.note()

    async def ticks() -> None:
        starts.expect(few)
        worker = asyncio.create_task(app.arun_worker(queues=[QUEUE]))
        try:
            await asyncio.wait_for(starts.reached.wait(), _TICKS_SECONDS)
        finally:
            worker.cancel()
            await asyncio.wait({worker})

    await app.schedules.aput("one", tick.draft(), every="1h", overlap="allow")
    store = app.store
    looks: dict[str, Work] = {
        "a look at the alarms, none due: CPU": lambda: store.ringing(200),
        "a look at the pauses: CPU": lambda: store.records(PAUSES),
    }
    listing, ticking = "`windlass schedules list`: CPU", "a tick: CPU"
    found: dict[str, list[float]] = {name: [] for name in (*looks, listing, ticking)}
    first = 1
    for last in (few, number):
        stage.sql(_COPY_SCHEDULES.format(first=first, last=last), "ANALYZE windlass.records")
        first = last + 1
        for name, work in looks.items():
            found[name].append(await _cost(stage, work))
        found[listing].append((await look("schedules list", stage)).cpu * 1e3)
        stage.sql(_RING)
        found[ticking].append((await stage.timed(ticks)).cpu / few * 1e3)
    await app.aclose()
    return [_figure(name, costs, few, number, "schedules") for name, costs in found.items()]


async def workers(stage: Stage, *, number: int) -> Sequence[Figure]:
    """Renew the leases of many workers, and look at them."""
    app = Windlass(stage.url, log_level="warning")
    store, pulse = app.store, WorkerPulse(running=3, slots=100, processed=12_345)
    info = WorkerInfo(
        id="crowd", name="crowd", host="host", pid=1, release="1", lease=_LEASE, slots=100
    )
    await store.register(info)

    async def beat(names: Sequence[str]) -> None:
        def renew() -> None:
            for name in names:
                assert store.heartbeat(name, pulse, _PATIENCE), name

        await asyncio.to_thread(renew)

    names = ["crowd", *(f"crowd-{each}" for each in range(1, number))]
    beats = [(await stage.timed(lambda: beat(["crowd"] * number))).server / number * 1e3]
    looked = [await _cost(stage, store.workers)]
    stage.sql(_COPY_WORKERS.format(number=number), "ANALYZE windlass.workers")
    beats.append((await stage.timed(lambda: beat(names))).server / number * 1e3)
    looked.append(await _cost(stage, store.workers))
    await app.aclose()
    return [
        _figure("a heartbeat: CPU of the server", beats, 1, number, "workers"),
        _figure("a look at all workers: CPU", looked, 1, number, "workers"),
    ]


async def _cost(stage: Stage, work: Work, times: int = _CALLS) -> float:
    """Return the CPU milliseconds of one of several calls, of this process and the server."""

    async def calls() -> None:
        for _ in range(times):
            await work()

    await work()  # Connects.
    return (await stage.timed(calls)).cpu / times * 1e3


def _figure(name: str, costs: Sequence[float], few: int, many: int, what: str) -> Figure:
    return Figure(
        name=name, few=f"{few:,} {what}", many=f"{many:,} {what}", of_few=costs[0], of_many=costs[1]
    )
