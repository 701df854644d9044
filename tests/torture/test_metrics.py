"""Metrics and probes are there whatever handlers do, and however many jobs wait."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import time
import urllib.error
import urllib.request
from typing import Any

import pytest

from tests.torture.harness import WorkerProcess, Yard, until
from tests.torture.yards import PostgresYard, on_postgres, on_sqlite
from windlass.core.families import EVENTS, FAMILIES
from windlass.core.sample import read_sample
from windlass.core.sample_walk import walk_after
from windlass.runtime.sampler import Sampler
from windlass.store.postgres import PostgresStore

MILLION = """
INSERT INTO jobs (id, kind, queue, state, payload, due_at)
SELECT gen_random_uuid(), 'kind-' || n % 20, 'queue-' || n % 200,
       CASE WHEN n % 5 = 0 THEN 'scheduled' ELSE 'pending' END, '{"to": "somebody"}',
       now() + (n - 1000000) * interval '1 millisecond'
FROM generate_series(1, 1000000) AS n
"""
NEWCOMERS = """
INSERT INTO jobs (id, kind, queue, payload)
SELECT new_id(clock_timestamp() - n * interval '0.8 ms'), 'kind-1', 'queue-' || n % 200, '{}'
FROM generate_series(1, 50000) AS n
"""
OF_A_QUIET_JOB = {"claimed", "completed"}
NEED_A_CAUSE = {
    *(f"windlass_jobs_{event}_total" for event in EVENTS if event not in OF_A_QUIET_JOB),
    "windlass_store_errors_total",
    "windlass_queue_arrival_rate",  # Two samples, which are fifteen seconds apart.
    "windlass_queue_service_rate",
    "windlass_kind_target_seconds",  # A kind with a target.
    "windlass_kind_duration_seconds",  # Runs that were written down, fifteen seconds later.
    "windlass_kind_wait_seconds",
    "windlass_breaker_state",
    "windlass_limit_in_use",
}
"""The families of which a worker that has run one job has nothing to tell yet."""


def served(fleet: WorkerProcess) -> str:
    return str(fleet.event("metrics.served")["address"])


def fetch(where: str, path: str = "/metrics") -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://{where}{path}", timeout=2) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def values(where: str, family: str) -> dict[str, float]:
    """Return the values of a family by what is between its braces."""
    found = re.findall(rf"^{family}(?:\{{(.*)\}})? (\S+)$", fetch(where)[1], re.MULTILINE)
    return {labels: float(value) for labels, value in found}


@pytest.mark.long
@on_sqlite
def test_metrics_and_probes_answer_while_every_interpreter_is_held(yard: Yard) -> None:
    """Cases 7 and 8: no thread of the workers runs, and the lag is to be seen all the same."""
    fleet = yard.fleet("--processes=1", metrics_port="25000")
    fleet.crew(1)
    where = served(fleet)
    until(lambda: fetch(where, "/health/ready")[0] == 200, "a worker that is ready")
    job = yard.enqueue("hold_interpreter", seconds=6)
    yard.begun(job)
    lag = until(
        lambda: [v for v in values(where, "windlass_loop_lag_seconds").values() if v > 2], "lag"
    )
    assert lag
    assert fetch(where, "/health/live") == (200, "ok\n")
    assert max(values(where, "windlass_heartbeat_age_seconds").values()) < 2, "it is renewed"
    yard.settled(job)
    until(lambda: fetch(where, "/health/ready")[0] == 200, "a worker that is ready again")


@on_postgres
def test_a_worker_that_has_run_a_job_serves_every_family_that_needs_no_cause(
    yard: PostgresYard,
) -> None:
    """A gauge that is mistyped where it is set is left out, and its alert could never fire."""
    before = time.time()
    yard.enqueue("foreign")  # It waits, since nobody here can run it, so that a sample finds it.
    fleet = yard.fleet("--processes=1", metrics_port="25000")
    fleet.crew(1)
    where = served(fleet)
    yard.settled(yard.enqueue("quick"))
    until(lambda: values(where, "windlass_sample_age_seconds"), "a sample")
    until(lambda: values(where, "windlass_jobs_completed_total"), "a job that is counted")
    told = set(re.findall(r"^# TYPE (\S+)", fetch(where)[1], re.MULTILINE))
    assert told >= set(FAMILIES) - NEED_A_CAUSE
    (began,) = values(where, "windlass_start_time_seconds").values()
    assert before < began < time.time()


@pytest.mark.long
@on_sqlite
def test_counts_do_not_fall_when_a_process_is_killed_and_labels_do_not_grow(yard: Yard) -> None:
    fleet = yard.fleet("--processes=2", metrics_port="25000")
    crew = fleet.crew(2)
    where = served(fleet)
    for job in yard.enqueue_many("quick", 40):
        yard.settled(job)
    done = 'queue="default",kind="quick"'
    until(lambda: values(where, "windlass_jobs_completed_total").get(done) == 40, "all are counted")
    for number, pid in enumerate(crew, 1):
        os.kill(pid, signal.SIGKILL)
        fleet.crew(2 + number)
        until(
            lambda: values(where, "windlass_process_deaths_total") == {"": number},  # noqa: B023
            "a death",
        )
        until(lambda: len(values(where, "windlass_slots")) == 2, "its successor")
        assert values(where, "windlass_jobs_completed_total")[done] == 40
        assert set(values(where, "windlass_up")) == {'process="1"', 'process="2"'}


@pytest.mark.long
@pytest.mark.timeout(300)
@on_postgres
def test_a_million_jobs_in_two_hundred_queues_are_sampled_within_half_a_second(
    yard: PostgresYard,
) -> None:
    """Case 47: the cluster-wide figures stay cheap, and say where they end."""
    with yard.unindexed() as db:
        db.execute(MILLION)
    made: list[Any] = []

    async def sample() -> None:
        store = PostgresStore(yard.plain_url, listen_url="off")
        for _ in range(3):
            sampler = Sampler(store, worker_id=lambda: "w", sampled=lambda *it: made.append(it[0]))
            await sampler._sample(None, "w", walk_after(None))
        # The others ask who is new, too, since of most queues not all jobs are counted.
        yard.ask(NEWCOMERS)
        before = read_sample(made[-1])
        assert before is not None
        before.at -= 30
        for _ in range(3):
            await sampler._sample(before, "w", walk_after(before))
        await store.close()

    asyncio.run(sample())
    samples = [each for each in map(read_sample, made) if each is not None]
    assert [len(each.queues) for each in samples] == [200] * 6
    later = samples[3:]
    assert later[0].queues["queue-7"].estimated
    assert later[0].queues["queue-7"].arrival_rate == pytest.approx(250 / 40, rel=0.3)
    # The best of three, since other tests run beside this one.
    assert min(each.seconds for each in samples[:3]) <= 0.5
    assert min(each.seconds for each in later) <= 0.5
    queue = samples[0].queues["queue-7"]
    assert queue.jobs["pending"] > 100
    assert "pending" in queue.capped
    assert len(repr(made[0])) < 100_000, "a record stays small"
