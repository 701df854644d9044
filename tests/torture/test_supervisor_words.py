"""What a supervisor says, and how soon: in its log, at a terminal, in `windlass workers`."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from tests.support.postgres_workers import on_sqlite
from tests.support.worker_processes import (
    CALM,
    PATIENCE,
    PROGRAMS,
    SOURCES,
    WorkerProcess,
    Yard,
    until,
)
from windlass import State

FAIL_ONCE = """
from windlass.supervisor.reloader import FileWatch
look, looks = FileWatch.changed, []
def changed(self):
    looks.append(1)
    if len(looks) == 1:
        raise OSError("too many open files")
    return look(self)
FileWatch.changed = changed
"""
NOTES = "import windlass\napp = windlass.Windlass()\n@app.job\ndef word(): return {!r}\n"


@on_sqlite
@pytest.mark.long
def test_a_first_start_that_is_broken_waits_for_the_next_save(yard: Yard) -> None:
    """Prevents a `--reload` that has to be started again for every slip before the first start."""
    source = yard.directory / "notes.py"
    source.write_text("def broken(:\n")
    process, output = yard.run("-m", "windlass", "worker", "notes:app", "--reload")
    fleet = WorkerProcess(process, output, output)
    fleet.event("supervisor.waiting")
    source.write_text("def still_broken(:\n")
    until(lambda: len(fleet.events("supervisor.waiting")) == 2, "the second failure")
    source.write_text(NOTES.format("at last"))
    fleet.crew(1)
    assert yard.settled(yard.enqueue("word")).result == b'"at last"'
    source.write_text("def broken_again(:\n")
    fleet.event("supervisor.roll_failed")
    assert yard.settled(yard.enqueue("word")).result == b'"at last"'
    fleet.send(signal.SIGTERM)
    assert fleet.ended() == 0


@pytest.mark.long
@on_sqlite
def test_a_reloader_that_waits_for_a_save_can_be_stopped(yard: Yard) -> None:
    (yard.directory / "notes.py").write_text("def broken(:\n")
    process, output = yard.run("-m", "windlass", "worker", "notes:app", "--reload")
    fleet = WorkerProcess(process, output, output)
    fleet.event("supervisor.waiting")
    fleet.send(signal.SIGINT)
    assert fleet.ended() == 0


@pytest.mark.long
@on_sqlite
def test_a_look_at_the_files_that_fails_is_not_the_last_one(yard: Yard) -> None:
    fleet = yard.fleet("--reload", before=FAIL_ONCE)
    fleet.event("files.not_watched")
    fleet.crew(1)
    source = yard.directory / "other.py"
    source.write_text("")
    fleet.event("files.changed", files=[str(source)])
    fleet.crew(2)


@pytest.mark.long
@on_sqlite
def test_a_process_that_could_not_start_says_why_it_ended(yard: Yard) -> None:
    fleet = yard.fleet()
    ((pid, worker),) = fleet.crew(1).items()
    (yard.directory / "gate-broken").touch()
    fleet.send(signal.SIGHUP)
    ended = fleet.event("process.ended")
    assert ended["why"] == "it could not start: it ended before it had registered"
    assert (ended["level"], ended["how"]) == ("error", "exited with code 1")
    assert "worker_id" not in ended

    fleet.send(signal.SIGTERM)
    assert fleet.ended() == 0
    ended = fleet.event("process.ended", pid=pid)
    assert (ended["worker_id"], ended["why"]) == (worker, "shutdown")


@pytest.mark.long
def test_others_soon_know_what_a_worker_does(yard: Yard) -> None:
    """Prevents a list of workers that is as old as a third of their leases."""
    fleet = yard.fleet(lease="90s")
    (worker,) = fleet.crew(1).values()

    def running() -> tuple[int | None, int]:
        (record,) = [each for each in yard.workers() if each.info.id == worker]
        return record.pulse.slots, record.pulse.running

    until(lambda: running() == (100, 0), "the first word of a worker", within=60)
    job = yard.enqueue("wait", gate="done")
    until(lambda: running() == (100, 1), "the word of a job that runs", within=60)
    yard.open_gate("done")
    yard.settled(job)
    until(lambda: running() == (100, 0), "the word of its end", within=60)


@pytest.mark.long
@on_sqlite
def test_the_lines_of_a_suspect_are_its_own(yard: Yard) -> None:
    """Prevents a story in which one job is blamed for what another one logged."""
    fleet = yard.fleet("--processes=1", lease="30s", patches=CALM)
    neighbour = yard.enqueue("wait", gate="never", attempts=1)
    yard.begun(neighbour)
    deadly = yard.settled(yard.enqueue("die"))
    saved = yard.settled(neighbour)

    for job, other in ((deadly, saved), (saved, deadly)):
        error = job.history[0].error
        assert (job.history[0].outcome, error is not None) == ("suspected", True)
        assert error is not None
        lines = error.traceback.splitlines()
        assert any("job.started" in line and str(job.id) in line for line in lines)
        assert all(str(job.id) in line for line in lines)
        assert str(other.id) not in error.traceback
    assert len(fleet.events("job.suspected")) == 2
    assert fleet.events("job.released") == []


@pytest.mark.long
@on_sqlite
def test_the_first_ctrl_c_at_a_terminal_says_what_a_second_one_would_do(yard: Yard) -> None:
    jobs = yard.enqueue_many("wait", 2, gate="done")
    ours, theirs = os.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "windlass", "worker", "tests.torture.programs.handlers:app"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=theirs,
        cwd=yard.directory,
        env=os.environ
        | {
            "PYTHONPATH": os.pathsep.join([str(SOURCES), str(PROGRAMS.parents[2])]),
            "TORTURE_YARD": str(yard.directory),
            "WINDLASS_URL": yard.workers_url,
        },
    )
    os.close(theirs)
    try:
        for job in jobs:
            yard.begun(job)
        until(lambda: yard.workers()[0].pulse.running == 2, "a supervisor that knows of them")
        process.send_signal(signal.SIGINT)
        said = read_until(ours, "Ctrl-C again")
        assert "finishing 2 jobs; press Ctrl-C again to release them now" in said
        process.send_signal(signal.SIGINT)
        read_until(ours, None)
        assert process.wait(PATIENCE) == 0
    finally:
        process.kill()
        process.wait()
        os.close(ours)
    assert yard.states() == {State.PENDING: 2}


def read_until(terminal: int, words: str | None) -> str:
    """Return what a terminal shows until there are some words, or until it is hung up."""
    shown = ""
    while words is None or words not in shown:
        try:
            shown += os.read(terminal, 65_536).decode(errors="replace")
        except OSError:
            assert words is None, shown
            break
    return shown
