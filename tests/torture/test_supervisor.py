"""The supervisor: it runs no user code, so that nothing that a handler does can stop it."""

from __future__ import annotations

import os
import signal
import time
from datetime import timedelta
from pathlib import Path
from uuid import UUID

import pytest

from tests.support.postgres_workers import on_sqlite
from tests.support.worker_processes import CALM, LEASE, NOISE, PATIENCE, WorkerProcess, Yard, until
from tests.torture.programs.families import alive, descendants
from windlass import State


def holder(fleet: WorkerProcess, yard: Yard, job: UUID, count: int) -> tuple[int, str]:
    """Return the process and the worker of a fleet that run a job."""
    crew = fleet.crew(count)
    pid = yard.begun(job)
    return pid, crew[pid]


def test_a_worker_that_is_killed_is_replaced_and_its_jobs_run_again_at_once(yard: Yard) -> None:
    """Case 1. Prevents jobs that wait for a lease although somebody knows that their worker died.

    Those beside the one that may have done it are charged nothing, and nobody is.
    """
    fleet = yard.fleet("--processes=2", lease="30s", patches=CALM)
    jobs = yard.enqueue_many("wait", 4, gate="done", attempts=1)
    pid, worker = holder(fleet, yard, jobs[0], 2)
    for job in jobs:
        yard.begun(job)  # One that has not begun is no suspect.

    lost = [job for job in jobs if yard.job(job).worker == worker]
    os.kill(pid, signal.SIGKILL)
    again = [yard.settled(job) for job in lost]
    yard.open_gate("done")
    done = [yard.settled(job) for job in jobs]

    assert fleet.event("process.ended", pid=pid)["how"].startswith("died of SIGKILL")
    assert len(fleet.crew(3)) == 3
    assert {job.history[0].outcome for job in again} == {"suspected"}
    assert [(job.state, job.failures, job.crashes) for job in done] == [(State.COMPLETED, 0, 0)] * 4


@pytest.mark.long
def test_a_worker_that_is_stopped_loses_its_lease_and_comes_back_under_another(yard: Yard) -> None:
    """Cases 2 and 3. Prevents a supervisor that renews for a worker which cannot do anything."""
    fleet = yard.fleet("--processes=2")
    job = yard.enqueue("wait", gate="never", attempts=1)
    pid, worker = holder(fleet, yard, job, 2)
    other = next(each for process, each in fleet.crew(2).items() if process != pid)
    yard.seasoned(other)

    os.kill(pid, signal.SIGSTOP)
    done = yard.settled(job)
    os.kill(pid, signal.SIGCONT)

    assert (done.state, done.worker, done.attempt) == (State.COMPLETED, other, 2)
    fleet.event("lease.lost", worker_id=worker)
    again = fleet.event("worker.registered_again")["worker_id"]
    assert yard.settled(yard.enqueue("quick")).state is State.COMPLETED
    assert [each.alive for each in yard.workers() if each.info.id == again] == [True]


@pytest.mark.long
def test_code_that_holds_the_interpreter_costs_no_lease_and_is_found(yard: Yard) -> None:
    """Case 8. Prevents C code from making its own worker look dead, and so from running twice."""
    fleet = yard.fleet()
    spare = yard.fleet()
    # Either would rescue the other's job if nobody renewed for who cannot.
    yard.seasoned(*fleet.crew(1).values(), *spare.crew(1).values())
    job = yard.enqueue("hold_interpreter", seconds=int(3 * LEASE))
    done = yard.settled(job)

    assert (done.state, done.attempt, done.crashes) == (State.COMPLETED, 1, 0)
    assert len(yard.ledger.entries("start", job)) == 1
    stalled = (fleet.events("loop.stalled") or spare.events("loop.stalled"))[0]
    assert "hold_interpreter" in stalled["stack"]


@pytest.mark.long
def test_without_its_supervisor_a_worker_drains_and_ends(yard: Yard) -> None:
    """Prevents workers that nobody supervises, and jobs that die with the supervisor."""
    fleet = yard.fleet()
    job = yard.enqueue("wait", gate="done")
    pid = yard.begun(job)
    fleet.kill()
    until(lambda: fleet.events("worker.draining"), "the drain of a worker without supervisor")
    yard.open_gate("done")
    done = yard.settled(job)
    assert (done.state, done.attempt) == (State.COMPLETED, 1)
    until(lambda: not alive(pid), "the end of the worker")


STEPS = ("worker.started", "worker.draining")
"""What happens first, and what then, when one worker takes the place of another."""


@pytest.mark.long
def test_a_hangup_replaces_every_worker_and_disturbs_no_job(yard: Yard) -> None:
    """Prevents a deploy that stops the work, or cuts off what runs."""
    fleet = yard.fleet("--processes=2")
    job = yard.enqueue("wait", gate="done")
    pid, _ = holder(fleet, yard, job, 2)
    old = set(fleet.crew(2))

    fleet.send(signal.SIGHUP)
    new = set(fleet.crew(4)) - old
    fleet.event("worker.draining", worker_id=fleet.crew(4)[pid])
    yard.open_gate("done")
    done = yard.settled(job)
    until(lambda: not any(map(alive, old)), "the end of the old workers")

    assert (done.state, done.attempt) == (State.COMPLETED, 1)
    assert set(descendants(fleet.pid)) >= new
    order = [event["event"] for event in fleet.events(None) if event["event"] in STEPS]
    assert order[2:] == [*STEPS, *STEPS], "each goes only when its successor serves"
    ended = until(
        lambda: len(found := fleet.events("process.ended")) == 2 and found, "the word of their end"
    )
    assert [event["why"] for event in ended or ()] == ["replaced"] * 2


@pytest.mark.long
def test_new_code_that_cannot_start_leaves_the_old_workers_alone(yard: Yard) -> None:
    fleet = yard.fleet()
    (old,) = fleet.crew(1)
    (yard.directory / "gate-broken").touch()
    fleet.send(signal.SIGHUP)
    fleet.event("supervisor.roll_failed")
    assert yard.settled(yard.enqueue("quick")).state is State.COMPLETED
    assert alive(old)


@pytest.mark.long
def test_a_fleet_drains_on_sigterm_and_leaves_no_process_behind(yard: Yard) -> None:
    """Case 15."""
    fleet = yard.fleet("--processes=2")
    jobs = yard.enqueue_many("wait", 4, gate="done")
    for job in jobs:
        yard.begun(job)
    crew = fleet.crew(2)
    fleet.send(signal.SIGTERM)
    for worker in crew.values():
        fleet.event("worker.draining", worker_id=worker)
    yard.open_gate("done")

    assert fleet.ended() == 0
    assert yard.states() == {State.COMPLETED: 4}
    assert not any(map(alive, crew))


@pytest.mark.long
def test_told_twice_a_fleet_gives_everything_back_at_once(yard: Yard) -> None:
    """Cases 15 and 16: nothing is charged."""
    fleet = yard.fleet("--processes=2", shutdown_timeout="10m")
    jobs = yard.enqueue_many("wait", 4, gate="never")
    for job in jobs:
        yard.begun(job)
    fleet.send(signal.SIGTERM)
    fleet.event("worker.draining")
    fleet.send(signal.SIGTERM)

    assert fleet.ended() == 0
    assert yard.states() == {State.PENDING: 4}
    assert yard.charged() == 0


@pytest.mark.long
def test_a_fleet_ends_in_time_whatever_its_handlers_do(yard: Yard) -> None:
    """Case 17, with a worker that is stopped as well: it could not end if it wanted to."""
    fleet = yard.fleet("--processes=2", shutdown_timeout="1s")
    job = yard.enqueue("swallow")
    pid, _ = holder(fleet, yard, job, 2)
    other = next(process for process in fleet.crew(2) if process != pid)
    os.kill(other, signal.SIGSTOP)
    fleet.event("process.stopped", pid=other)
    fleet.send(signal.SIGTERM)

    assert fleet.ended(PATIENCE) == 0
    assert not alive(other)
    back = yard.job(job)
    assert (back.state, back.failures, back.crashes) == (State.PENDING, 0, 0)


@on_sqlite
def test_an_app_that_cannot_be_loaded_ends_the_supervisor_with_the_reason(yard: Yard) -> None:
    process, output = yard.run(
        "-m", "windlass", "worker", "tests.torture.programs.handlers:nothing"
    )
    assert process.wait(PATIENCE) == 1
    told = output.read_text().strip().splitlines()
    assert len(told) == 1
    assert "nothing" in told[0]


@pytest.mark.long
def test_a_blocked_loop_costs_a_fleet_no_lease_and_is_found(yard: Yard) -> None:
    """Case 7. The supervisor renews meanwhile, by a connection of its own, and tells the lag."""
    fleet = yard.fleet("--processes=2")
    crew = fleet.crew(2)
    job = yard.enqueue("block_loop_for", seconds=3 * LEASE)
    worker = crew[yard.begun(job)]
    until(lambda: _lag(yard, worker) > timedelta(seconds=1), "a metric that shows the lag")
    done = yard.settled(job)

    assert (done.state, done.attempt) == (State.COMPLETED, 1)
    assert not fleet.events("lease.lost")
    assert {each.info.id for each in yard.workers() if each.alive} == set(crew.values())
    (stalled,) = fleet.events("loop.stalled")
    assert "time.sleep(seconds)" in stalled["stack"]
    until(lambda: _lag(yard, worker) < timedelta(seconds=1), "a metric that shows its end")


def _lag(yard: Yard, worker: str) -> timedelta:
    (lag,) = [each.pulse.loop_lag for each in yard.workers() if each.info.id == worker]
    return lag


@pytest.mark.long
def test_a_worker_whose_threads_do_not_come_back_is_replaced(yard: Yard) -> None:
    """Case 9. Prevents a worker that keeps one more endless thread for each job that timed out."""
    fleet = yard.fleet()
    ((old, _),) = fleet.crew(1).items()
    jobs = yard.enqueue_many("loop_forever", 2)
    done = [yard.settled(job) for job in jobs]
    fleet.event("worker.recycling")
    until(lambda: not alive(old), "the end of the worker with lost threads")

    assert {(job.state, job.history[-1].outcome) for job in done} == {(State.DEAD, "timed out")}
    assert fleet.event("process.ended", pid=old)["how"] == "exited with code 0"
    assert yard.settled(yard.enqueue("quick_in_thread")).state is State.COMPLETED


@pytest.mark.long
@on_sqlite
def test_a_saved_file_is_served_at_once(yard: Yard) -> None:
    source = yard.directory / "notes.py"
    text = "import windlass\napp = windlass.Windlass()\n@app.job\ndef word(): return {!r}\n"
    source.write_text(text.format("old"))
    process, output = yard.run("-m", "windlass", "worker", "notes:app", "--reload")
    fleet = WorkerProcess(process, output, output)
    fleet.crew(1)
    first = yard.settled(yard.enqueue("word"))
    source.write_text(text.format("new"))
    fleet.event("files.changed", files=[str(source)])
    fleet.crew(2)
    until(lambda: fleet.events("process.ended"), "the end of the old worker")
    second = yard.settled(yard.enqueue("word"))

    assert (first.result, second.result) == (b'"old"', b'"new"')


ADOPT_ORPHANS = "import ctypes; ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)"
"""Makes a process the parent of its orphaned descendants, as PID 1 of a container is."""


@pytest.mark.long
@on_sqlite
def test_as_the_first_process_of_a_container_it_buries_everybodys_orphans(yard: Yard) -> None:
    """Prevents a table full of zombies, and a SIGTERM that PID 1 does not hear."""
    fleet = yard.fleet(before=ADOPT_ORPHANS)
    job = yard.settled(yard.enqueue("leave_orphan"))
    assert job.result is not None
    orphan = int(job.result)
    until(lambda: not Path(f"/proc/{orphan}").exists(), "the burial of an orphan")
    fleet.send(signal.SIGTERM)
    assert fleet.ended() == 0


@pytest.mark.long
def test_an_operators_cancel_reaches_a_running_job_wherever_it_runs(yard: Yard) -> None:
    """Within two seconds, by the command line, on whichever process has it."""
    fleet = yard.fleet("--processes=2")
    jobs = yard.enqueue_many("wait", 4, gate="never")
    for job in jobs:
        yard.begun(job)
    told = time.time()
    said = yard.windlass("jobs", "cancel", jobs[0])
    done = yard.settled(jobs[0])
    (heard,) = yard.ledger.entries("cancelled", jobs[0])

    assert "cancellation requested" in said
    assert done.state is State.CANCELLED
    assert heard.at - told < 2 + NOISE
    assert [yard.job(job).state for job in jobs[1:]] == [State.RUNNING] * 3
    assert fleet.is_running()


@pytest.mark.long
def test_a_job_that_kills_its_process_is_found_and_its_neighbours_lose_nothing(yard: Yard) -> None:
    """Cases 5 and 6. Prevents one poisonous job from taking others, or a fleet, with it."""
    fleet = yard.fleet(lease="30s")
    neighbours = yard.enqueue_many("wait", 5, gate="never", attempts=1)
    for job in neighbours:
        yard.begun(job)
    deadly = yard.enqueue("die")
    dead = yard.settled(deadly)
    saved = [yard.settled(job) for job in neighbours]

    assert (dead.state, dead.crashes, dead.failures) == (State.DEAD, 3, 0)
    assert [attempt.outcome for attempt in dead.history] == ["suspected", *["crashed"] * 3]
    assert "killed its process 3 times" in (dead.reason or "")
    told = [attempt.error.message for attempt in dead.history if attempt.error is not None]
    assert all("SIGSEGV" in each or "code 3" in each for each in told)
    (last_lines, *_) = [attempt.error.traceback for attempt in dead.history if attempt.error]
    assert "job.started" in last_lines
    shown = yard.windlass("jobs", "show", deadly)
    assert [shown.count(word) for word in ("1. suspected", ". crashed")] == [1, 3]
    for word in ("exited with code 3", "killed its process 3 times", "job.started"):
        assert word in shown
    assert {(job.state, job.failures, job.crashes) for job in saved} == {(State.COMPLETED, 0, 0)}
    assert fleet.is_running()


def test_only_jobs_that_had_begun_are_suspects_when_their_process_dies(yard: Yard) -> None:
    """Prevents hundreds of suspects, each in a child of its own, of jobs that were claimed ahead.

    The first job blocks the event loop, so that those claimed with it cannot begin.
    """
    jobs = yard.enqueue_many("block_loop_until", 20, gate="never", attempts=1)
    fleet = yard.fleet(lease="30s", concurrency="20", patches=CALM)
    pid = yard.begun(jobs[0])
    held = [job for job in jobs[1:] if yard.job(job).state is State.RUNNING]
    os.kill(pid, signal.SIGKILL)
    done = {job: yard.settled(job) for job in jobs}

    outcomes = {job: [each.outcome for each in done[job].history] for job in jobs}
    assert outcomes[jobs[0]] == ["suspected"]
    assert len(held) > 1, "nothing was claimed with it"
    assert [outcomes[job] for job in held] == [["not begun"]] * len(held)
    assert {(job.state, job.failures, job.crashes) for job in done.values()} == {
        (State.COMPLETED, 0, 0)
    }
    assert fleet.is_running()


@pytest.mark.long
@pytest.mark.parametrize("kind", ["fork_and_go_on", "fork_in_thread"])
def test_a_fork_of_a_worker_is_no_second_worker(yard: Yard, kind: str) -> None:
    """Case 11. Prevents a fork that goes on with the worker's sockets, leases and jobs."""
    fleet = yard.fleet()
    (pid,) = fleet.crew(1)
    jobs = [yard.settled(yard.enqueue(kind)), *(yard.settled(yard.enqueue("quick")) for _ in "ab")]
    forks = {entry.pid for entry in yard.ledger.entries("forked")} - {pid}
    until(lambda: not any(map(alive, forks)), "the end of the fork")

    assert len(forks) == 1
    assert {(job.state, job.attempt) for job in jobs} == {(State.COMPLETED, 1)}
    assert not fleet.events("job.fenced")
    fleet.send(signal.SIGTERM)
    assert fleet.ended() == 0


@on_sqlite
@pytest.mark.long
def test_a_burst_ends_only_when_suspects_and_what_was_put_off_are_done(yard: Yard) -> None:
    """Prevents a burst that leaves the jobs of a process that died, or had no child for them."""
    jobs = yard.enqueue_many("wait", 6, gate="never", attempts=1)
    fleet = yard.fleet("--processes=2", "--burst", isolated_processes="1")
    pid, _ = holder(fleet, yard, jobs[0], 2)
    os.kill(pid, signal.SIGKILL)
    other = next(process for process in fleet.crew(2) if process != pid)
    os.kill(other, signal.SIGKILL)
    assert fleet.ended(60) == 0
    assert yard.states() == {State.COMPLETED: 6}
