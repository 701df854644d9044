"""Connections that end, are cut or do not let anybody write: workers find new ones and go on."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any, LiteralString
from uuid import UUID

import pytest

from tests.support.network_proxy import Proxy
from tests.support.postgres_workers import OTHERS, PostgresYard
from tests.support.worker_processes import LEASE, NOISE, WorkerProcess, until
from windlass import Kind, State, StoreUnavailable, Windlass
from windlass.core.workers import WorkerInfo, WorkerPulse

IMPATIENT = {"windlass.store.postgres.connections.dedicated:DedicatedConnection.run.timeout": 2.0}
"""Notices in two seconds what takes fifteen otherwise."""


@pytest.mark.long
def test_an_idle_windlass_worker_has_some_five_connections_a_process_and_one_for_the_supervisor(
    postgres_yard: PostgresYard,
) -> None:
    """The number that docs/postgresql.md and docs/capacity.md have operators reckon with."""
    yard = postgres_yard
    count: LiteralString = (
        f"SELECT count(*) FROM pg_stat_activity WHERE {OTHERS} AND application_name = 'windlass'"
    )
    fleet = yard.fleet("--processes=2")
    fleet.crew(2)
    until(lambda: yard.value(count) >= 2 * 4 + 1, "the connections of all three")
    calm = time.monotonic() + 2
    while time.monotonic() < calm:
        assert 2 * 4 + 1 <= yard.value(count) <= 2 * 7 + 1, "duties that meet take some more"
        time.sleep(0.05)


# -- case 20 -----------------------------------------------------------------------------------


STORMS = 10
BATCH = 60


@pytest.mark.long
def test_backends_that_are_terminated_again_and_again_lose_no_job(
    postgres_yard: PostgresYard,
) -> None:
    """Case 20. Prevents workers that give up, or jobs that are forgotten, with a connection."""
    yard = postgres_yard
    workers = [yard.worker(), yard.worker()]
    for worker in workers:
        worker.started()
    producer = Windlass(yard.plain_url)
    kind = producer.producer(Kind("quick", dict[str, Any]))
    accepted: list[UUID] = []
    ended = done_in_storm = 0
    for _ in range(STORMS):
        drafts = [kind.draft({"pause": 0.05}) for _ in range(BATCH)]
        accepted += [handle.id for handle in producer.enqueue_many(drafts)]
        ended += yard.hang_up()
        calm = time.monotonic() + 0.3
        until(lambda: time.monotonic() > calm, "the next storm")  # noqa: B023
        done_in_storm = yard.states().get(State.COMPLETED, 0)
    producer.close()
    until(lambda: yard.states() == {State.COMPLETED: len(accepted)}, "every accepted job")

    assert ended > 3 * STORMS
    assert done_in_storm > 0
    assert {entry.job for entry in yard.ledger.entries("end")} == {str(job) for job in accepted}
    pauses = {event["next_in"] for worker in workers for event in worker.events("service.failed")}
    assert len(pauses) > 2, "workers that were cut off together come back together"
    assert all(worker.is_running() for worker in workers)


# -- case 22 -----------------------------------------------------------------------------------


@pytest.mark.long
def test_a_worker_whose_connections_are_black_holed_goes_on_by_new_ones(
    far_yard: PostgresYard, proxy: Proxy
) -> None:
    """Case 22. Prevents a worker that waits for ever for an answer that no cable brings."""
    yard = far_yard
    worker = yard.worker(patches=IMPATIENT)
    worker_id = worker.started()
    ends_in_the_dark = yard.enqueue("wait", gate="dark")
    yard.begun(ends_in_the_dark)

    proxy.black_hole()
    yard.open_gate("dark")
    waiting = yard.enqueue("quick")
    for service in ("completer", "operator_requests"):
        worker.event("service.failed", service=service)
    worker.event("heartbeat.failed")
    assert yard.job(ends_in_the_dark).state is State.RUNNING
    proxy.passing()

    done = [yard.settled(job, within=5 + NOISE) for job in (ends_in_the_dark, waiting)]
    assert [(job.state, job.attempt) for job in done] == [(State.COMPLETED, 1)] * 2
    assert len(yard.ledger.entries("end")) == 2
    until(lambda: yard.workers()[0].alive, "a lease that is renewed")
    assert yard.workers()[0].info.id == worker_id


@pytest.mark.long
def test_a_call_to_a_silent_server_fails_in_time(proxy: Proxy, migrated_url: str) -> None:
    """Case 22. Prevents a web request, or a lease, from hanging on a connection that is dead.

    Some have a connection that was good a moment ago, some have to make one, and the URL would let
    them take half a minute for that.
    """
    url = f"{proxy.url(migrated_url)}?connect_timeout=30"
    warm, cold = (
        Windlass(url, listen_url="off", enqueue_timeout=f"{SHORT}s", pool_overflow=0)
        for _ in range(2)
    )
    with asyncio.Runner() as runner, ThreadPoolExecutor(5) as threads:
        runner.run(warm.store.register(_info()))
        runner.run(_aenqueue(warm))
        _enqueue(warm)
        _beat(warm)
        proxy.black_hole()
        late = [
            threads.submit(_time_of_refusal, call)
            for call in (
                lambda: _enqueue(warm),
                lambda: _enqueue(cold),
                lambda: _beat(warm),
                lambda: _beat(cold),
                lambda: runner.run(_aenqueue(warm)),
            )
        ]
        times = [each.result() for each in late]
        times.append(_time_of_refusal(lambda: asyncio.run(_aenqueue(cold))))
        proxy.passing()
        runner.run(_aenqueue(warm))
        _enqueue(warm)
        _beat(warm)
        runner.run(warm.aclose())
        runner.run(cold.aclose())
    assert max(times) < SHORT + NOISE, times


SHORT = 2


def _enqueue(app: Windlass) -> None:
    app.producer(Kind("quick", dict[str, Any])).enqueue({})


async def _aenqueue(app: Windlass) -> None:
    await app.producer(Kind("quick", dict[str, Any])).aenqueue({})


def _beat(app: Windlass) -> None:
    assert app.store.heartbeat("far", WorkerPulse(), timedelta(seconds=SHORT))


def _time_of_refusal(call: Callable[[], object]) -> float:
    began = time.monotonic()
    with pytest.raises(StoreUnavailable):
        call()
    return time.monotonic() - began


def _info() -> WorkerInfo:
    return WorkerInfo(
        id="far", name="far", host="far", pid=1, release="1", lease=timedelta(minutes=1), slots=1
    )


# -- case 23 -----------------------------------------------------------------------------------


@pytest.mark.long
def test_a_worker_that_hears_nothing_polls_and_says_so(
    postgres_yard: PostgresYard, proxy: Proxy
) -> None:
    """Case 23. Prevents jobs that wait for a wake-up which nobody hears.

    The patient worker polls so rarely that only a wake-up can start its jobs in time.
    """
    yard = postgres_yard
    ears = {"WINDLASS_LISTEN_URL": proxy.url(yard.plain_url)}
    patient = yard.worker(queues="patient", poll_interval="300s", environ=ears)
    busy = yard.worker(queues="busy", poll_interval="500ms", environ=ears)
    ids = [worker.started() for worker in (patient, busy)]
    until(lambda: _sleepers(yard) == 2, "both asleep, and listening")
    until(lambda: _beats(yard) > 3, "some heartbeats")
    assert _listening(yard) == dict.fromkeys(ids, True)
    assert _run_in(yard, "patient") == State.COMPLETED

    proxy.refuse()
    proxy.reset()
    for worker in (patient, busy):
        worker.event("wakeups.lost")
    until(lambda: _listening(yard) == dict.fromkeys(ids, False), "both deaf")
    assert _told(yard) == dict.fromkeys(ids, False)
    assert _run_in(yard, "busy") == State.COMPLETED
    unheard = yard.producer("quick", queue="patient").enqueue({}).id

    proxy.accept()
    for worker in (patient, busy):
        worker.event("wakeups.restored")
    assert yard.settled(unheard).state is State.COMPLETED
    assert _run_in(yard, "patient") == State.COMPLETED
    until(lambda: _listening(yard) == dict.fromkeys(ids, True), "both listening again")


def test_a_listener_that_is_terminated_is_soon_replaced(postgres_yard: PostgresYard) -> None:
    """Case 23. Prevents a worker that stays deaf although the server would speak to it."""
    yard = postgres_yard
    worker = yard.worker(poll_interval="300s")
    worker.started()
    until(lambda: _sleepers(yard), "a worker that sleeps")

    assert yard.hang_up("query LIKE 'LISTEN %'") == 1
    assert yard.settled(yard.enqueue("quick")).state is State.COMPLETED
    assert yard.settled(yard.enqueue("quick")).state is State.COMPLETED


def _listening(yard: PostgresYard) -> dict[str, bool]:
    return {each.info.id: each.pulse.listening for each in yard.workers()}


def _beats(yard: PostgresYard) -> float:
    """Return for how many times a third of a lease each worker has lived, at least."""
    lived = [each.last_seen - each.started_at for each in yard.workers()]
    return min(lived) / timedelta(seconds=LEASE / 3)


def _sleepers(yard: PostgresYard) -> int:
    return int(yard.value("SELECT count(*) FROM sleepers"))


def _told(yard: PostgresYard) -> dict[str, bool]:
    """Return what `windlass workers --json` says."""
    said = json.loads(yard.windlass("workers", "--json"))["workers"]
    return {each["id"]: each["listening"] for each in said}


def _run_in(yard: PostgresYard, queue: str) -> State:
    return yard.settled(yard.producer("quick", queue=queue).enqueue({}).id).state


# -- case 26 -----------------------------------------------------------------------------------


def test_a_server_that_turns_read_only_is_waited_for_and_its_connections_are_dropped(
    postgres_yard: PostgresYard,
) -> None:
    """Case 26. Prevents a failover from leaving everybody on connections that cannot write.

    The connections that were made in between stay read-only for as long as they live.
    """
    yard = postgres_yard
    worker = yard.worker()
    worker.started()
    producer = Windlass(yard.plain_url, enqueue_timeout="2s")
    kind = producer.producer(Kind("quick", dict[str, Any]))
    runner = asyncio.Runner()
    running = yard.enqueue("wait", gate="written")
    yard.begun(running)

    set_read_only(yard, "on")
    yard.hang_up()
    yard.open_gate("written")
    with pytest.raises(StoreUnavailable, match="read-only"):
        kind.enqueue({})
    with pytest.raises(StoreUnavailable, match="read-only"):
        runner.run(kind.aenqueue({}))
    _fails_read_only(worker, "completer")
    assert "read-only" in until(lambda: _failed_beats(worker), "a heartbeat that fails")[-1]

    set_read_only(yard, "off")
    handles = [kind.enqueue({}), runner.run(kind.aenqueue({}))]
    done = [yard.settled(job) for job in (running, *(handle.id for handle in handles))]
    assert [(job.state, job.attempt) for job in done] == [(State.COMPLETED, 1)] * 3
    assert worker.is_running()
    runner.run(producer.aclose())
    runner.close()


def set_read_only(yard: PostgresYard, word: str) -> None:
    with yard.raw() as db:
        db.execute("SET default_transaction_read_only = off")
        name = db.info.dbname
        db.execute(f'ALTER DATABASE "{name}" SET default_transaction_read_only = {word}'.encode())


def _fails_read_only(worker: WorkerProcess, service: str) -> None:
    def failures() -> list[dict[str, Any]]:
        failed = worker.events("service.failed", service=service)
        return [event for event in failed if "read-only" in event["error"]]

    until(failures, f"a {service} that cannot write")


def _failed_beats(worker: WorkerProcess) -> list[str]:
    return [
        event["error"]
        for event in worker.events("heartbeat.failed")
        if "read-only" in event["error"]
    ]
