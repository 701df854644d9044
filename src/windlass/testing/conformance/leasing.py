"""Owns the laws of leases: how a worker's begins, is renewed, runs out and is ended."""

from __future__ import annotations

from datetime import timedelta

from windlass.core.workers import WorkerInfo, WorkerPulse, WorkerRecord
from windlass.testing.conformance.bench import HOUR, LEASE, MANY, SECOND, Bench, ids
from windlass.testing.conformance.law import law


@law
async def a_registered_worker_is_shown_as_registered(bench: Bench) -> None:
    """The store keeps a worker's info, and its lease by the store's clock."""
    info = WorkerInfo(
        id="w1",
        name="it's ünï",
        host="box",
        pid=4711,
        release="1.2.3",
        lease=LEASE,
        slots=16,
        least_slots=2,
        queues=("mail", "default"),
        kinds=("send", "report"),
        pools={"report": "isolated_processes"},
        threads=4,
        isolated_processes=2,
    )
    await bench.store.register(info)
    (record,) = await bench.store.workers()
    assert record.info == info
    assert record.pulse == WorkerPulse()
    assert record.started_at == record.last_seen == bench.now()
    assert record.lease_until == bench.now() + LEASE
    assert record.alive


@law
async def a_heartbeat_renews_the_lease(bench: Bench) -> None:
    """A heartbeat sets the lease to a whole one from now, and records the pulse."""
    worker = await bench.worker()
    started = bench.now()
    pulse = WorkerPulse(
        state="draining",
        processed=12,
        running=3,
        slots=8,
        busy=0.375,
        in_threads=2,
        in_isolated_processes=1,
        waiting=True,
        cpu=0.25,
        loop_lag=timedelta(microseconds=1_500),
        clock_ahead=-timedelta(seconds=90),
    )
    await bench.advance(LEASE - SECOND)
    assert await bench.heartbeat(worker, pulse)
    await bench.advance(LEASE - SECOND)
    (record,) = await bench.store.workers()
    assert record.alive
    assert record.pulse == pulse
    assert record.started_at == started
    assert record.last_seen == started + LEASE - SECOND
    assert record.lease_until == record.last_seen + LEASE


@law
async def a_lease_runs_out_by_the_stores_clock(bench: Bench) -> None:
    """A worker is alive as long as its lease, and no longer."""
    worker = await bench.worker()
    await bench.advance(LEASE - SECOND)
    assert (await _record(bench, worker)).alive
    await bench.advance(2 * SECOND)
    record = await _record(bench, worker)
    assert (record.alive, record.ended) == (False, False), "it could still be renewed"


@law
async def a_heartbeat_of_an_unknown_worker_is_refused(bench: Bench) -> None:
    """A worker that never registered has no lease to renew."""
    assert not await bench.heartbeat("nobody")
    assert await bench.store.workers() == []


@law
async def a_retired_worker_has_no_lease(bench: Bench) -> None:
    """An ended lease stays ended, though time was left; retiring twice is no error."""
    worker, other = await bench.worker(), await bench.worker()
    await bench.store.retire(worker)
    await bench.store.retire(worker)
    await bench.store.retire("nobody")
    assert not (await _record(bench, worker)).alive
    assert not await bench.heartbeat(worker)
    record = await _record(bench, worker)
    assert (record.alive, record.ended) == (False, True)
    assert not (await _record(bench, other)).ended
    assert await bench.heartbeat(other)


@law
async def a_lease_that_was_ended_stays_ended(bench: Bench) -> None:
    """A renewal that comes after a rescue ended the lease is refused, again and again."""
    late = await bench.worker()
    rescuer = await bench.seasoned()
    await bench.store.rescue(worker=rescuer, token=bench.number(), limit=MANY)
    for _ in range(2):
        assert not await bench.heartbeat(late)
        record = await _record(bench, late)
        assert (record.alive, record.ended) == (False, True)
    await bench.enqueue()
    assert await bench.claim(late) == []


@law
async def a_lease_that_ran_out_unnoticed_can_be_renewed(bench: Bench) -> None:
    """A worker whose jobs were not rescued continues with them."""
    worker = await bench.worker()
    job = await bench.start(worker)
    await bench.advance(LEASE + HOUR)
    assert await bench.heartbeat(worker)
    assert (await _record(bench, worker)).alive
    assert await bench.leave(job)


@law
async def a_worker_that_registers_again_has_a_new_lease(bench: Bench) -> None:
    """A worker that lost its lease may begin another one, under a new id or its own."""
    worker = await bench.worker(name="again")
    await bench.store.retire(worker)
    await bench.advance(SECOND)
    await bench.worker(name="again")
    (record,) = await bench.store.workers()
    assert record.alive
    assert not record.ended
    assert record.started_at == bench.now()
    job = await bench.enqueue()
    assert ids(await bench.claim(worker)) == [job]


@law
async def workers_are_listed_newest_first(bench: Bench) -> None:
    """Live and dead workers are listed, the latest to start first."""
    workers = []
    for _ in range(3):
        workers.append(await bench.worker())
        await bench.advance(SECOND)
    await bench.store.retire(workers[1])
    records = await bench.store.workers()
    assert [record.info.id for record in records] == workers[::-1]
    assert [record.alive for record in records] == [True, False, True]


async def _record(bench: Bench, worker: str) -> WorkerRecord:
    (record,) = [known for known in await bench.store.workers() if known.info.id == worker]
    return record


@law
async def a_worker_can_ask_what_it_holds(bench: Bench) -> None:
    """A claimed job is held, with its token, until it is settled; jobs of others are not listed."""
    mine = await bench.start()
    await bench.start()
    (held,) = await bench.store.held(mine.worker or "")
    assert (held.id, held.token) == (mine.id, mine.token)
    assert await bench.leave(mine)
    assert await bench.store.held(mine.worker or "") == []
