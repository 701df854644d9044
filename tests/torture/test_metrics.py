"""Metrics and probes are there whatever handlers do, and however many jobs wait."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import time
import urllib.error
import urllib.request
from contextlib import suppress
from pathlib import Path
from statistics import median

import pytest

from tests.support.postgres_workers import PostgresYard, on_postgres, on_sqlite
from tests.support.worker_processes import WorkerProcess, Yard, until
from tests.support.worker_state import RecordingState
from tests.torture.programs.multitude import (
    BREAKERS,
    LIMITED,
    NEWCOMERS,
    QUEUES,
    SHARDS,
    WORKERS,
    fill,
)
from windlass.core.metrics.families import EVENTS, FAMILIES
from windlass.core.stats.cluster_sample import read_sample, walk_after
from windlass.store.postgres import PostgresStore
from windlass.worker.services.cluster_sampler import ClusterSampler

BAR = 0.5
"""Seconds of the server's CPU that a sample may take."""
OF_A_QUIET_JOB = {"claimed", "completed"}
NEED_A_CAUSE = {
    *(f"windlass_jobs_{event}_total" for event in EVENTS if event not in OF_A_QUIET_JOB),
    "windlass_store_errors_total",
    "windlass_queue_arrival_rate",  # Two samples, which are fifteen seconds apart.
    "windlass_queue_service_rate",
    "windlass_kind_target_seconds",  # A kind with a target.
    "windlass_kind_duration_seconds",  # Runs that were written down, fifteen seconds later.
    "windlass_kind_wait_seconds",
    "windlass_kind_starts_total",
    "windlass_kind_late_starts_total",
    "windlass_kind_short",  # Jobs that wait for threads or children.
    "windlass_breaker_state",
    "windlass_breaker_pinned",
    "windlass_store_disk_bytes",  # PostgreSQL does not tell.
    "windlass_store_disk_free_bytes",
    "windlass_store_findings",  # Nothing endangers the jobs.
    "windlass_limit_in_use",
}
"""The families of which a worker that has run one job has nothing to tell yet."""


def server_seconds(yard: PostgresYard) -> float:
    """Return the CPU time that the server has spent for the sessions that there are."""
    ticks = 0
    for pid in yard.value("SELECT array_agg(pid) FROM pg_stat_activity WHERE datid IS NOT NULL"):
        with suppress(FileNotFoundError):
            fields = Path(f"/proc/{pid}/stat").read_text("ascii").rpartition(")")[2].split()
            ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


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
@pytest.mark.timeout(400)
@pytest.mark.parametrize("yard", ["postgres"], indirect=True)
def test_a_million_jobs_in_two_hundred_queues_are_sampled_within_half_a_second(
    yard: PostgresYard,
) -> None:
    """Case 47: the cluster-wide figures stay cheap, and say where they end.

    With all that a sample reads: dead jobs, workers, what is recorded of kinds, limits, breakers.
    Of the server's own time, that is: it takes 0.2 s, and 0.35 s pass on a quiet machine.
    """
    fill(yard)
    state = RecordingState()
    took: list[float] = []

    async def sample() -> None:
        store = PostgresStore(yard.plain_url, listen_url="off")
        sampler = ClusterSampler(store, state=state)
        for _ in range(5):
            before = server_seconds(yard)
            await sampler._sample(None, "w", walk_after(None))
            took.append(server_seconds(yard) - before)
        # The others ask who is new, too, since of most queues not all jobs are counted.
        yard.ask(NEWCOMERS)
        known = read_sample(state.sample)
        assert known is not None
        known.at = yard.value("SELECT extract(epoch FROM clock())::float8") - 30
        for _ in range(3):
            before = server_seconds(yard)
            await sampler._sample(known, "w", walk_after(None))
            took.append(server_seconds(yard) - before)
        await store.close()

    asyncio.run(sample())
    samples = [found for each, _ in state.samples if (found := read_sample(each)) is not None]
    first, later = samples[:5], samples[5:]
    newer = later[0].queues["queue-7"]
    assert newer.estimated
    assert newer.arrival_rate == pytest.approx(250 / 40, rel=0.3)
    assert len(later) == 3
    assert all(len(each.queues) == QUEUES == len(each.kinds) for each in samples)
    assert first[0].workers["running"] == WORKERS
    assert sum(first[0].limits.values()) == LIMITED * SHARDS * 15
    assert len(first[0].breakers) == BREAKERS
    queue = first[0].queues["queue-7"]
    assert queue.jobs["pending"] > 100
    assert {"pending", "dead"} <= set(queue.capped)
    assert len(repr(state.samples[0][0])) < 100_000, "a record stays small"
    assert 0 < median(took) <= BAR, took
