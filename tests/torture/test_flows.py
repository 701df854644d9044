"""Flows whose workers die: a fan-in never hangs, and starts once, when all before it have ended."""

from __future__ import annotations

import random
import signal
import time
from uuid import UUID

import pytest

from tests.support.worker_processes import WorkerProcess, Yard, until
from windlass import Flow, State

pytestmark = pytest.mark.long
PARTS = 300


def fan_in(yard: Yard, parts: int = PARTS) -> tuple[Flow, UUID]:
    """Enqueue one job, many after it, and one after these."""
    flow = yard.app.flow("fan-in")
    part, join = yard.producer("part"), yard.producer("join")
    first = flow.add(part.draft({"number": 0}))
    many = [flow.add(part.draft({"number": each}), after=[first]) for each in range(parts)]
    last = flow.add(join.draft({}), after=many)
    flow.enqueue()
    return flow, last.id


def check(yard: Yard, flow: Flow, join: UUID, parts: int = PARTS) -> None:
    """See that a fan-in ended as it should, and began with its last job when it could."""
    job = yard.settled(flow.id, within=60)
    assert job.state is State.COMPLETED, job.reason
    assert job.result == b'{"completed":%d,"dead":0,"cancelled":0,"undone":0}' % (parts + 2)
    assert yard.job(join).result == b"%d" % sum(range(parts))
    began = min(entry.at for entry in yard.ledger.entries("start", join))
    ended = {entry.job for entry in yard.ledger.entries("end") if entry.at < began}
    assert len(ended - {join}) == parts + 1, "it began before its parents had ended"
    until(lambda: not yard.call(yard.app.store.records("flow:")), "the end of its record")
    assert yard.call(yard.app.store.topics(10)) == []


@pytest.mark.parametrize("where", ["before", "within", "behind"])
@pytest.mark.parametrize("time_", [1, 3])
def test_a_worker_that_dies_where_it_hears_of_ends_leaves_nothing_unheard(
    yard: Yard, where: str, time_: int
) -> None:
    flow, join = fan_in(yard)
    doomed = yard.worker(app="fan_out:app", environ={"TORTURE_DIES": f"{where}:{time_}"})
    until(lambda: not doomed.is_running(), "its death")
    assert yard.job(flow.id).state is State.SCHEDULED
    yard.worker(app="fan_out:app")
    check(yard, flow, join)


def test_workers_that_are_killed_all_the_time_work_off_a_flow_nevertheless(yard: Yard) -> None:
    flow, join = fan_in(yard, 1_000)
    chance = random.Random(6)
    workers: list[WorkerProcess] = []
    until_then = time.monotonic() + 12
    while time.monotonic() < until_then:
        while len(workers) < 3:
            dies = f"{chance.choice(['before', 'within', 'behind'])}:{chance.randint(1, 6)}"
            workers.append(
                yard.worker(app="fan_out:app", environ={"TORTURE_DIES": dies}, concurrency=20)
            )
        time.sleep(0.3)
        if chance.random() < 0.5:
            workers[0].kill()
        workers = [worker for worker in workers if worker.is_running()]
    for worker in workers:
        worker.send(signal.SIGKILL)
    yard.worker(app="fan_out:app")
    check(yard, flow, join, 1_000)


def test_a_member_whose_processes_die_is_dead_at_last_and_the_flow_goes_on(yard: Yard) -> None:
    flow = yard.app.flow("deadly", on_failure="continue")
    part, kill, after = (yard.producer(kind) for kind in ("part", "kill", "after"))
    good = flow.add(part.draft({"number": 1}))
    bad = flow.add(kill.draft({}))
    last = flow.add(after.draft({}), after=[good, bad])
    flow.enqueue()
    yard.worker(app="fan_out:app", max_crashes=1)
    assert yard.settled(bad.id, within=60).state is State.DEAD
    assert yard.settled(flow.id, within=30).state is State.COMPLETED
    assert yard.job(last.id).result == b'["int","JobDead"]'


def test_a_flow_whose_last_worker_died_goes_on_with_the_next(yard: Yard) -> None:
    flow, join = fan_in(yard)
    doomed = yard.worker(app="fan_out:app", environ={"TORTURE_DIES": "before:1"})
    until(lambda: not doomed.is_running(), "its death")
    assert yard.call(yard.app.store.topics(10)) == [f"flow:{flow.id}"], "settled, got heard"
    yard.worker(app="fan_out:app")
    check(yard, flow, join)
