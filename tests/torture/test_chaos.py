"""Twenty faults within two minutes, under load; an independent ledger tells what happened.

The ledger itself is put to the test, too: without the fence the same storm must turn it red.
"""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Sequence
from typing import LiteralString
from uuid import UUID

import pytest

from tests.support.postgres_workers import PostgresYard
from tests.support.worker_processes import LEASE, WorkerProcess, until
from tests.torture.programs.families import is_child
from tests.torture.test_postgres_crashes import EFFECTS, effects
from windlass import State

FAULTS = [signal.SIGKILL] * 7 + [signal.SIGSTOP] * 7 + [signal.SIGTERM] * 6
STORM = 120.0
"""Seconds within which all of it happens."""
BETWEEN = (2.0, 4.0)
BATCH = 40
BACKLOG = 50 * BATCH
"""Jobs that wait at most: a machine that is slow has its load, too, and an end of it."""
PAUSE = 0.05
"""Seconds that each transaction stays open, so that faults hit some of them in the middle."""
SEED = int(os.environ.get("TORTURE_SEED", "0")) or random.SystemRandom().randrange(1, 2**32)


class Producer(threading.Thread):
    """Enqueues jobs, more than two workers can do, and remembers those that were accepted."""

    def __init__(self, yard: PostgresYard) -> None:
        super().__init__(daemon=True)
        self._yard = yard
        self._told = threading.Event()
        self.accepted: list[UUID] = []

    def run(self) -> None:
        producer = self._yard.producer("transact")
        with self._yard.raw() as db:
            while not self._told.wait(0.1):
                ((done,),) = db.execute("SELECT count(*) FROM public.effects")
                if len(self.accepted) < done + BACKLOG:
                    drafts = [producer.draft({"pause": PAUSE}) for _ in range(BATCH)]
                    handles = self._yard.app.enqueue_many(drafts)
                    self.accepted += [handle.id for handle in handles]

    def stop(self) -> None:
        self._told.set()
        self.join()


def storm(
    yard: PostgresYard,
    fleet: WorkerProcess,
    faults: Sequence[signal.Signals],
    dice: random.Random,
    *,
    standing: tuple[float, float] = (0.2, 2 * LEASE),
) -> list[UUID]:
    """Let faults strike the workers of a fleet under load, and return the accepted jobs."""
    producer = Producer(yard)
    producer.start()
    for fault in faults:
        time.sleep(dice.uniform(*BETWEEN))
        strike(fleet, fault, dice, dice.uniform(*standing))
    producer.stop()
    return producer.accepted


def strike(
    fleet: WorkerProcess, fault: signal.Signals, dice: random.Random, standing: float
) -> None:
    """Do something terrible to a worker that serves; one that is stopped stands for a while."""
    workers = until(
        lambda: [pid for pid in fleet.crew(1) if is_child(pid, fleet.pid)], "a worker that serves"
    )
    victim = dice.choice(workers)
    os.kill(victim, fault)
    if fault is signal.SIGSTOP:
        time.sleep(standing)
        os.kill(victim, signal.SIGCONT)


def wrongs(yard: PostgresYard, accepted: Sequence[UUID]) -> dict[str, int]:
    """Ask the ledger what went wrong: how many jobs were lost, repeated, made up or charged."""
    happened, expected = effects(yard), {str(job) for job in accepted}
    counts = {
        "lost": len(expected - happened.keys()),
        "repeated": sum(count > 1 for count in happened.values()),
        "made up": len(happened.keys() - expected),
        "charged": yard.charged(),
    }
    return {wrong: count for wrong, count in counts.items() if count}


def histories_of_charged(yard: PostgresYard) -> list[object]:
    """Return what happened to the jobs that were charged."""
    return [
        row[0] for row in yard.ask("SELECT history FROM finished_jobs WHERE failures + crashes > 0")
    ]


@pytest.mark.long
@pytest.mark.again  # `windlass chaos` throws the same faults in test_chaos_checker.py.
@pytest.mark.timeout(400)
def test_twenty_faults_lose_nothing_repeat_no_effect_and_charge_nobody(
    postgres_yard: PostgresYard,
) -> None:
    """Two workers of fifty slots; the seed makes a storm that can be had again."""
    yard, dice = postgres_yard, random.Random(SEED)
    yard.ask(EFFECTS)
    fleet = yard.fleet("--processes=2", concurrency="50")
    fleet.crew(2)
    faults = dice.sample(FAULTS, len(FAULTS))
    began = time.monotonic()
    accepted = storm(yard, fleet, faults, dice)
    took = time.monotonic() - began
    done = {State.COMPLETED: len(accepted)}
    until(lambda: yard.states() == done, f"the end of {len(accepted)} jobs (seed {SEED})", 120)

    assert wrongs(yard, accepted) == {}, f"seed {SEED}: {histories_of_charged(yard)}"
    assert len(accepted) > BACKLOG
    runs = Counter(entry.job for entry in yard.ledger.entries("start"))
    assert set(runs) == {str(job) for job in accepted}
    assert_struck(fleet, runs, accepted)
    assert took < STORM, f"seed {SEED}"
    fleet.send(signal.SIGTERM)
    assert fleet.ended() == 0
    assert yard.states() == done


def assert_struck(fleet: WorkerProcess, runs: Counter[str], accepted: Sequence[UUID]) -> None:
    """Assert that all three sorts of fault happened, and were felt."""
    assert runs.total() > len(accepted), "no fault hit anything"
    ended = fleet.events("process.ended")
    assert [event for event in ended if "SIGKILL" in event["how"]]
    assert [event for event in ended if event["why"] == "signal received"]
    assert fleet.events("process.stopped")
    assert fleet.events("lease.lost"), "none stood still for long enough"


# -- the ledger, put to the test ---------------------------------------------------------------

NO_FENCE: LiteralString = """
ALTER FUNCTION windlass.complete(uuid[], bigint[], json[]) RENAME TO complete_fenced;
CREATE FUNCTION windlass.complete(ids uuid[], tokens bigint[], results json[]) RETURNS uuid[]
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM windlass.complete_fenced(
        array_agg(job.id), array_agg(job.token), array_agg(done.result))
    FROM unnest(ids, results) AS done (id, result) JOIN windlass.jobs AS job USING (id);
    RETURN NULL;
END $$;
"""
"""Completes a job for whoever says so, and says yes to everybody; only a test would want that."""


_STORMS = 5
"""How many there may be: a storm in which nobody stands still at the wrong moment is harmless."""


@pytest.mark.long
@pytest.mark.again
@pytest.mark.timeout(600)
def test_without_the_fence_the_same_storm_is_seen_by_the_ledger(
    postgres_yard: PostgresYard,
) -> None:
    """Prevents a ledger that is green whatever happens: workers that stood still repeat effects."""
    yard, dice = postgres_yard, random.Random(SEED)
    yard.ask(EFFECTS)
    yard.ask(NO_FENCE)
    fleet = yard.fleet("--processes=2", concurrency="50")
    yard.seasoned(*fleet.crew(2).values())
    longer = (1.5 * LEASE, 2 * LEASE)
    accepted: list[UUID] = []
    for _ in range(_STORMS):
        accepted += storm(yard, fleet, [signal.SIGSTOP] * 5, dice, standing=longer)
        until(lambda: set(yard.states()) == {State.COMPLETED}, f"the end (seed {SEED})", 120)
        if "repeated" in wrongs(yard, accepted):
            return
    pytest.fail(f"{_STORMS} storms without a fence, and nobody has seen it (seed {SEED})")
