"""The command that each reason of `windlass why` names is typed, and does what it is for.

Mostly the job runs then; a few commands only show, or end it, and some reasons name none.

A reason without a case here fails the last test, so that none is added with a command that was
never tried.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import TYPE_CHECKING
from uuid import UUID

import pytest

from tests.support.doctor_fixtures import Ward, children_of, until
from windlass.core.jobs.ids import member_id
from windlass.core.jobs.job import NewJob
from windlass.core.jobs.states import State
from windlass.core.why.reason import Cause
from windlass.store.sqlite import SqliteStore

if TYPE_CHECKING:
    from tests.cli.conftest import Shell, Start

pytestmark = pytest.mark.timeout(240)


@pytest.fixture
def ward(shell: Shell, start: Start) -> Ward:
    """Return a clinic without patients."""
    return Ward(shell, start)


# -- jobs that wait, each for a reason of its own ----------------------------------------------


def not_due(ward: Ward) -> UUID:
    ward.work()
    return ward.enqueue("treat", "{}", "--delay", "1h")


def retrying(ward: Ward) -> UUID:
    ward.work()
    job = ward.enqueue("relapse")
    ward.reaches(job, State.SCHEDULED)
    return job


def retrying_in_its_place(ward: Ward) -> UUID:
    ward.work()
    job = ward.enqueue("dose", '{"patient": "ada", "fails": true}')
    until(lambda: ward.shell.job(job).failures == 1)
    return job


def snoozed(ward: Ward) -> UUID:
    ward.work()
    job = ward.enqueue("postpone")
    ward.reaches(job, State.SCHEDULED)
    return job


def for_an_event(ward: Ward) -> UUID:
    ward.work()
    return ward.enqueue("consult")


def in_a_flow(ward: Ward) -> UUID:
    return member_id(ward.enqueue_flow("chain"), 2)


def in_a_queue_that_is_paused(ward: Ward) -> UUID:
    ward.shell.ok("queues", "pause", "mail")
    ward.work()
    return ward.enqueue("treat", "{}", "--queue", "mail")


def of_a_kind_that_is_paused(ward: Ward) -> UUID:
    ward.shell.ok("queues", "pause", "--kind", "treat")
    ward.work()
    return ward.enqueue("treat")


def of_a_key_that_is_paused(ward: Ward) -> UUID:
    ward.shell.ok("queues", "pause", "--key", "ada")
    ward.work()
    return ward.enqueue("dose", '{"patient": "ada"}')


def behind_an_open_breaker(ward: Ward) -> UUID:
    ward.work()
    ward.enqueue("test_blood", '{"sick": true}')
    until(lambda: ward.breakers() == ["open"])
    return ward.enqueue("test_blood")


def behind_a_breaker_that_is_kept_open(ward: Ward) -> UUID:
    ward.shell.ok("breakers", "open", "lab", "--app", "clinic:app")
    ward.work()
    return ward.enqueue("test_blood")


def over_a_limit(ward: Ward) -> UUID:
    ward.work()
    ward.runs(ward.enqueue("scan", '{"gate": "never"}'))
    return ward.enqueue("scan")


def over_the_limit_of_a_resource(ward: Ward) -> UUID:
    ward.work()
    ward.runs(ward.enqueue("expose", '{"gate": "never"}'))
    return ward.enqueue("expose")


def over_the_limit_of_a_queue(ward: Ward) -> UUID:
    ward.work()
    ward.runs(ward.enqueue("operate", '{"gate": "never"}', "--queue", "surgery"))
    return ward.enqueue("operate", "{}", "--queue", "surgery")


def over_a_rate(ward: Ward) -> UUID:
    ward.work()
    ward.reaches(ward.enqueue("bill"), State.COMPLETED)
    return ward.enqueue("bill")


def behind_one_that_runs(ward: Ward) -> UUID:
    ward.work()
    ward.runs(ward.enqueue("visit", '{"patient": "ada", "gate": "never"}'))
    return ward.enqueue("visit", '{"patient": "ada"}')


def behind_one_that_is_retried(ward: Ward) -> UUID:
    retrying_in_its_place(ward)
    return ward.enqueue("dose", '{"patient": "ada"}')


def without_a_worker(ward: Ward) -> UUID:
    return ward.enqueue("treat")


def in_a_queue_that_nobody_serves(ward: Ward) -> UUID:
    ward.work("--queues", "mail")
    return ward.enqueue("treat")


def of_a_kind_that_nobody_knows(ward: Ward) -> UUID:
    ward.shell.write("bare.py", "from windlass import Windlass\napp = Windlass()\n")
    ward.work(app="bare:app")
    return ward.enqueue("treat")


def while_its_worker_ends(ward: Ward) -> UUID:
    worker = ward.work("--shutdown-timeout", "1h")
    ward.runs(ward.enqueue("operate", '{"gate": "never"}'))
    worker.send_signal(signal.SIGTERM)
    return ward.enqueue("treat")


def while_all_slots_are_in_use(ward: Ward) -> UUID:
    ward.work("--concurrency", "1")
    ward.runs(ward.enqueue("operate", '{"gate": "never"}'))
    return ward.enqueue("operate")


def while_all_threads_are_in_use(ward: Ward) -> UUID:
    ward.work("--threads", "1")
    ward.runs(ward.enqueue("measure", '{"gate": "never"}'))
    return ward.enqueue("measure")


def while_all_child_processes_are_in_use(ward: Ward) -> UUID:
    ward.work("--isolated-processes", "1")
    ward.runs(ward.enqueue("dissect", '{"gate": "never"}'))
    return ward.enqueue("dissect")


def behind_others(ward: Ward) -> UUID:
    while_all_threads_are_in_use(ward)
    return ward.enqueue("measure")


def under_suspicion(ward: Ward) -> UUID:
    worker = ward.work()
    job = ward.enqueue("operate")
    ward.runs(job)
    ward.shell.ok("queues", "pause", "default")
    for pid in children_of(worker.pid):
        os.kill(pid, signal.SIGKILL)
    ward.reaches(job, State.PENDING)
    return job


def next_in_line(ward: Ward) -> UUID:
    # A worker that is alive, and looks too seldom: nothing is wrong with it.
    ward.shell.register("w1", kinds=("treat",))
    return ward.enqueue("treat")


def running(ward: Ward) -> UUID:
    ward.work()
    job = ward.enqueue("operate", '{"gate": "never"}')
    ward.runs(job)
    return job


def being_cancelled(ward: Ward) -> UUID:
    ward.work()
    job = ward.enqueue("measure")
    ward.runs(job)
    ward.shell.ok("jobs", "cancel", job)
    return job


def lost(ward: Ward) -> UUID:
    ward.lease = "3s"  # The next worker may rescue when it has kept its own for once.
    worker = ward.work()
    job = ward.enqueue("operate")
    ward.runs(job)
    served_by = children_of(worker.pid)
    for pid in served_by:
        os.kill(pid, signal.SIGSTOP)  # Or else it would give the job back.
    worker.kill()
    for pid in served_by:
        os.kill(pid, signal.SIGKILL)
    return job


def being_undone(ward: Ward) -> UUID:
    ward.work()
    job = ward.enqueue("stay")
    ward.reaches(job, State.SCHEDULED)
    ward.open("bed")
    return job


def with_an_expiry(ward: Ward) -> UUID:
    return ward.enqueue("treat", "{}", "--expires", "1d")


def parked(ward: Ward) -> UUID:
    store = SqliteStore(ward.shell.file)
    job = NewJob(id=ward.shell.ids.next(), kind="treat", payload=b"{}", waiting_for="the doctor")
    (added,) = ward.shell.store(store.enqueue([job]), store)
    return added.id


def completed(ward: Ward) -> UUID:
    ward.work()
    job = ward.enqueue("treat")
    ward.reaches(job, State.COMPLETED)
    return job


def dead(ward: Ward) -> UUID:
    ward.work()
    job = ward.enqueue("heal")
    ward.reaches(job, State.DEAD)
    ward.open("cured")
    return job


def dead_of_an_invalid_payload(ward: Ward) -> UUID:
    (job,) = ward.shell.enqueue("treat", payload=b'{"patient": 7}')
    ward.work()
    ward.reaches(job, State.DEAD)
    return job


def dead_by_an_undo_that_failed(ward: Ward) -> UUID:
    ward.work()
    own = ward.enqueue_flow("undone")
    ward.reaches(own, State.DEAD)
    ward.open("cured")
    return own


def cancelled(ward: Ward) -> UUID:
    job = ward.enqueue("treat")
    ward.shell.ok("jobs", "cancel", job)
    return job


# -- what becomes of them once the command was typed -------------------------------------------


def runs(ward: Ward, job: UUID) -> None:
    ward.open("go")
    ward.reaches(job, State.COMPLETED)


def runs_already(ward: Ward, job: UUID) -> None:
    """Run beside the one that has what it lacked, and still has it."""
    ward.runs(job)


def is_cancelled(ward: Ward, job: UUID) -> None:
    ward.reaches(job, State.CANCELLED)


def is_still_so(ward: Ward, job: UUID) -> None:
    """Nothing more comes of it, and the reason says so, or names a command that only shows it."""
    assert ward.state(job) in (State.COMPLETED, State.CANCELLED)


def runs_once_somebody_looks(ward: Ward, job: UUID) -> None:
    ward.work()
    runs(ward, job)


def ends_when_its_handler_does(ward: Ward, job: UUID) -> None:
    ward.open("go")
    ward.reaches(job, State.CANCELLED, State.COMPLETED)


def is_undone(ward: Ward, job: UUID) -> None:
    until(lambda: "undone: admit" in (ward.shell.job(job).reason or ""))


def ends_undone(ward: Ward, job: UUID) -> None:
    until(lambda: (ward.shell.job(job).reason or "").startswith("undone: "))


Build = Callable[[Ward], UUID]
End = Callable[[Ward, UUID], None]
CASES: list[tuple[Cause, Build, End]] = [
    (Cause.NOT_DUE, not_due, runs),
    (Cause.RETRYING, retrying, runs),
    (Cause.RETRYING, retrying_in_its_place, runs),
    (Cause.SNOOZED, snoozed, runs),
    (Cause.EVENT, for_an_event, runs),
    (Cause.FLOW, in_a_flow, runs),
    (Cause.PARKED, parked, is_cancelled),
    (Cause.PAUSED, in_a_queue_that_is_paused, runs),
    (Cause.PAUSED, of_a_kind_that_is_paused, runs),
    (Cause.PAUSED, of_a_key_that_is_paused, runs),
    (Cause.BREAKER, behind_an_open_breaker, runs),
    (Cause.BREAKER, behind_a_breaker_that_is_kept_open, runs),
    (Cause.LIMITED, over_a_limit, runs),
    (Cause.LIMITED, over_the_limit_of_a_resource, runs),
    (Cause.LIMITED, over_the_limit_of_a_queue, runs),
    (Cause.LIMITED, over_a_rate, runs),
    (Cause.IN_ORDER, behind_one_that_runs, runs),
    (Cause.IN_ORDER, behind_one_that_is_retried, runs),
    (Cause.NO_WORKER, without_a_worker, runs),
    (Cause.UNSERVED, in_a_queue_that_nobody_serves, runs),
    (Cause.UNKNOWN_KIND, of_a_kind_that_nobody_knows, runs),
    (Cause.DRAINING, while_its_worker_ends, runs),
    (Cause.BUSY, while_all_slots_are_in_use, runs),
    (Cause.BUSY, while_all_threads_are_in_use, runs),
    (Cause.BUSY, while_all_child_processes_are_in_use, runs),
    (Cause.BEHIND, behind_others, runs),
    (Cause.SUSPECT, under_suspicion, runs),
    (Cause.NEXT, next_in_line, runs_once_somebody_looks),
    (Cause.RUNNING, running, is_cancelled),
    (Cause.CANCELLING, being_cancelled, ends_when_its_handler_does),
    (Cause.LOST, lost, runs),
    (Cause.UNDOING, being_undone, is_undone),
    (Cause.EXPIRES, with_an_expiry, runs_once_somebody_looks),
    (Cause.COMPLETED, completed, is_still_so),
    (Cause.DEAD, dead, runs),
    (Cause.DEAD, dead_of_an_invalid_payload, runs),
    (Cause.DEAD, dead_by_an_undo_that_failed, ends_undone),
    (Cause.CANCELLED, cancelled, is_still_so),
]
WITHOUT_A_COMMAND = {Cause.CANCELLING, Cause.EXPIRES, Cause.CANCELLED}
"""Reasons that nothing but time, or a new job, changes."""


@pytest.mark.parametrize(
    ("cause", "build", "end"),
    CASES,
    ids=[f"{cause.name}-{build.__name__}" for cause, build, _ in CASES],
)
def test_the_command_that_a_reason_names_helps(
    ward: Ward, cause: Cause, build: Build, end: End
) -> None:
    job = build(ward)
    reason = ward.told(job, cause)
    if cause in WITHOUT_A_COMMAND:
        assert "windlass" not in (reason["remedy"] or "")
    else:
        ward.follow(reason["remedy"])
    if cause in BESIDES:
        for other in ward.why(job):
            if other["remedy"]:
                ward.follow(other["remedy"])
    end(ward, job)


BESIDES = {Cause.UNDOING, Cause.SUSPECT}
"""Reasons that are told besides another one, whose command is what helps."""


def test_every_reason_has_a_case() -> None:
    assert {cause for cause, _, _ in CASES} == set(Cause)
