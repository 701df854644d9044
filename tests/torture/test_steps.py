"""A process that dies at every boundary of steps and undos: what is done is known, or done again.

Case 14, and a failpoint at each place where something is written, or has just been done.
"""

from __future__ import annotations

from itertools import groupby
from typing import Any

import pytest

from tests.support.postgres_workers import on_postgres, on_sqlite
from tests.support.worker_processes import Yard, until
from windlass import State
from windlass.core.jobs.job import Job, Saga
from windlass.core.workflows.step_log import Steps

STEPS = [
    *(f"{tag} {name}" for name in ("hotel", "flight") for tag in ("started", "done")),
    "done mail",
]
UNDOS = ["undoing", "undone flight", "undone hotel", "over"]
EFFECTS = ["in do hotel", "in do flight", "in do mail"]
UNDO_EFFECTS = ["in undo flight", "in undo hotel"]
SOME_STEPS = ["after started hotel", "in do flight", "before done mail", "before completed"]
SOME_UNDOS = ["after undoing", "in undo flight", "before undone hotel", "after over"]


def around(points: list[str]) -> list[str]:
    return [f"{when} {point}" for point in points for when in ("before", "after")]


def but(tried: list[str], points: list[str]) -> list[Any]:
    """Return points as parameters: a landing leaves out those that it tries on a server."""
    again = pytest.mark.again
    return [pytest.param(point, marks=again if point in tried else ()) for point in points]


def run(yard: Yard, point: str, *, fails: bool) -> Job:
    failpoint = yard.directory / "failpoint"
    failpoint.write_text(point)
    yard.fleet("--isolated-processes=1", app="steps:app", lease="2s")
    job = yard.settled(yard.enqueue("travel", fails=fails), within=120)
    # Who dies after the last word has been written may do so a moment after it is read.
    until(lambda: not failpoint.exists(), "the death at the failpoint")
    return job


def effects(yard: Yard, job: Job) -> list[str]:
    """Return what was done, in order, each with its neighbours that are the same taken as one."""
    told = [entry.what.split("|") for entry in yard.ledger.entries(job=job.id)]
    assert {key for _, key, _ in told} == {
        f"{job.id}/{name}" for name in {what.split()[1] for what, _, _ in told}
    }
    return [what for what, _ in groupby(what for what, _, _ in told)]


def repeats(yard: Yard, job: Job) -> dict[str, int]:
    whats = [entry.what.split("|")[0] for entry in yard.ledger.entries(job=job.id)]
    return {what: whats.count(what) for what in whats if whats.count(what) > 1}


def done_again(point: str) -> dict[str, int]:
    """Return what may be done twice: what was done and not yet recorded when the process died."""
    when, what, *name = point.split()
    if when == "in":
        return {f"{what} {name[0]}": 2}
    if when == "before" and what in ("done", "undone"):
        return {f"{'do' if what == 'done' else 'undo'} {name[0]}": 2}
    return {}


@pytest.mark.long
@on_sqlite
@pytest.mark.parametrize("point", but(SOME_STEPS, [*around([*STEPS, "completed"]), *EFFECTS]))
def test_a_job_that_dies_at_a_step_boundary_goes_on_there(yard: Yard, point: str) -> None:
    """Case 14. Prevents a step that is done twice although it was recorded, or not at all."""
    goes_on(yard, point)


@pytest.mark.long
@on_postgres
@pytest.mark.parametrize("point", SOME_STEPS)
def test_a_server_knows_the_steps_of_a_job_that_dies(yard: Yard, point: str) -> None:
    """Some of the same points: where they are is the worker's affair, not the store's."""
    goes_on(yard, point)


def goes_on(yard: Yard, point: str) -> None:
    job = run(yard, point, fails=False)
    assert (job.state, job.result) == (State.COMPLETED, b'"travelled"')
    assert effects(yard, job) == ["do hotel", "do flight", "do mail"]
    assert repeats(yard, job) == done_again(point)


@pytest.mark.long
@on_sqlite
@pytest.mark.parametrize("point", but(SOME_UNDOS, [*around(UNDOS), *EFFECTS, *UNDO_EFFECTS]))
def test_a_job_that_dies_at_an_undo_boundary_is_undone_to_the_end(yard: Yard, point: str) -> None:
    """Prevents what was done from being left standing, or undone twice though it was recorded."""
    is_undone(yard, point)


@pytest.mark.long
@on_postgres
@pytest.mark.parametrize("point", SOME_UNDOS)
def test_a_server_knows_the_undos_of_a_job_that_dies(yard: Yard, point: str) -> None:
    """Some of the same points."""
    is_undone(yard, point)


def is_undone(yard: Yard, point: str) -> None:
    job = run(yard, point, fails=True)
    assert (job.state, job.saga) == (State.DEAD, Saga.OVER)
    assert job.reason == "permanent error; undone: flight, hotel"
    assert Steps(job.steps).to_undo == []
    done = ["do hotel", "do flight", "do mail"]
    assert effects(yard, job) == [*done, "undo flight", "undo hotel"]
    assert repeats(yard, job) == done_again(point)
