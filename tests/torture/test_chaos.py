"""Twenty faults within two minutes, under load; an independent ledger tells what happened."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections import Counter
from pathlib import Path
from uuid import UUID

import pytest

from tests.torture.harness import LEASE, WorkerProcess, descendants, until
from tests.torture.test_postgres_crashes import EFFECTS, effects
from tests.torture.yards import PostgresYard
from windlass import State

FAULTS = 20
BETWEEN = (3.0, 5.5)
BATCH = 40
SEED = int(os.environ.get("TORTURE_SEED", "0")) or random.SystemRandom().randrange(1, 2**32)


class Producer(threading.Thread):
    """Enqueues jobs, and remembers those that were accepted."""

    def __init__(self, yard: PostgresYard) -> None:
        super().__init__(daemon=True)
        self._yard = yard
        self._told = threading.Event()
        self.accepted: list[UUID] = []

    def run(self) -> None:
        producer = self._yard.producer("transact")
        while not self._told.wait(0.1):
            drafts = [producer.draft({}) for _ in range(BATCH)]
            handles = self._yard.app.enqueue_many(drafts)
            self.accepted += [handle.id for handle in handles]

    def stop(self) -> None:
        self._told.set()
        self.join()


def strike(fleet: WorkerProcess, dice: random.Random) -> str:
    """Do something terrible to one of the workers."""
    workers = until(
        lambda: [pid for pid in descendants(fleet.pid) if is_worker(pid, fleet)], "a worker"
    )
    number = dice.choice([signal.SIGKILL, signal.SIGSTOP, signal.SIGTERM])
    victim = dice.choice(workers)
    os.kill(victim, number)
    if number is signal.SIGSTOP:
        time.sleep(dice.uniform(0.2, 2 * LEASE))
        os.kill(victim, signal.SIGCONT)
    return number.name


def is_worker(pid: int, fleet: WorkerProcess) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    state, parent, *_ = stat.rpartition(")")[2].split()
    return state != "Z" and int(parent) == fleet.pid


@pytest.mark.long
@pytest.mark.timeout(400)
def test_twenty_faults_lose_nothing_repeat_no_effect_and_charge_nobody(
    postgres_yard: PostgresYard,
) -> None:
    """Two workers of fifty slots; the seed makes a storm that can be had again."""
    yard, dice = postgres_yard, random.Random(SEED)
    yard.ask(EFFECTS)
    fleet = yard.fleet("--processes=2", slots="50")
    fleet.crew(2)
    producer = Producer(yard)
    producer.start()
    struck = Counter[str]()
    for _ in range(FAULTS):
        time.sleep(dice.uniform(*BETWEEN))
        struck[strike(fleet, dice)] += 1
    producer.stop()
    accepted = producer.accepted
    done = {State.COMPLETED: len(accepted)}
    until(lambda: yard.states() == done, f"the end of {len(accepted)} jobs (seed {SEED})", 120)

    assert sum(struck.values()) == FAULTS
    assert len(accepted) > 100 * BATCH
    assert effects(yard) == {str(job): 1 for job in accepted}, f"seed {SEED}: {struck}"
    runs = Counter(entry.job for entry in yard.ledger.entries("start"))
    assert set(runs) == {str(job) for job in accepted}
    assert runs.total() > len(accepted), "no fault hit anything"
    assert yard.charged() == 0
    fleet.send(signal.SIGTERM)
    assert fleet.ended() == 0
    assert yard.states() == done
