"""Why a job waits for a worker: none serves it, or slots, threads or children are in use."""

from __future__ import annotations

from typing import Any

import pytest

from tests.core.why.waiting_job import NOW, SECOND, a_job, a_worker, causes, only, reasons
from windlass.core.jobs.ids import job_id
from windlass.core.jobs.job import Attempt, Job
from windlass.core.jobs.states import State
from windlass.core.stats.depths import Standing
from windlass.core.why.explain import AHEAD_COUNTED
from windlass.core.why.reason import Cause
from windlass.core.workers import WorkerPulse, WorkerRecord

OTHER = job_id(2, 2)


@pytest.mark.parametrize(
    ("workers", "cause"),
    [
        ([], Cause.NO_WORKER),
        ([a_worker(alive=False)], Cause.NO_WORKER),
        ([a_worker(queues=("files",))], Cause.UNSERVED),
        ([a_worker(excluded=("mail",))], Cause.UNSERVED),
        ([a_worker(kinds=("other",))], Cause.UNKNOWN_KIND),
        ([a_worker(kinds=("other",)), a_worker("w2", queues=("x",))], Cause.UNKNOWN_KIND),
        ([a_worker(pulse=WorkerPulse(state="draining"))], Cause.DRAINING),
        ([a_worker(pulse=WorkerPulse(state="draining")), a_worker("w2")], Cause.NEXT),
    ],
)
def test_why_says_why_no_worker_takes_a_job(workers: list[WorkerRecord], cause: Cause) -> None:
    reason = only(a_job(), workers=workers)
    assert reason.cause is cause
    assert "windlass worker" in reason.remedy


# -- crowded ---------------------------------------------------------------------------------------


def test_all_slots_in_use_are_a_reason_unless_one_worker_has_room() -> None:
    full = a_worker(pulse=WorkerPulse(running=4, slots=4))
    reason = only(a_job(), workers=[full])
    assert reason.cause is Cause.BUSY
    assert reason.message == "all 4 slots of the workers that could run it are in use (w1)"
    assert only(a_job(), workers=[full, a_worker("w2")]).cause is Cause.NEXT
    freed = only(a_job(), workers=[full], held={"w1": []})
    assert freed.cause is Cause.NEXT, "what it holds is news, its heartbeat is not"


def test_the_slots_of_a_queue_can_be_in_use_while_others_are_free() -> None:
    worker = a_worker(queue_slots={"mail": 1})
    held = {"w1": [a_job(id=OTHER, state=State.RUNNING)]}
    assert "for queue mail" in only(a_job(), workers=[worker], held=held).message
    elsewhere = {"w1": [a_job(id=OTHER, state=State.RUNNING, queue="files")]}
    assert only(a_job(), workers=[worker], held=elsewhere).cause is Cause.NEXT


def pooled(name: str = "w1", **told: Any) -> WorkerRecord:
    """A worker that has room for two jobs in threads, and for two in children."""
    pools = {"send": "isolated_processes", "read": "threads"}
    usual = {"slots": 100, "kinds": ("send", "read", "ask"), "threads": 2, "isolated_processes": 2}
    return a_worker(name, **{**usual, "pools": pools, **told})


def two(kind: str) -> dict[str, list[Job]]:
    return {"w1": [a_job(id=job_id(9, n), kind=kind, state=State.RUNNING) for n in range(2)]}


@pytest.mark.parametrize(
    ("kind", "what", "option", "fact"),
    [
        ("send", "child processes", "isolated-processes", "isolated_processes"),
        ("read", "threads", "threads", "threads"),
    ],
)
def test_a_shortage_of_threads_or_children_is_reported_although_slots_are_free(
    kind: str, what: str, option: str, fact: str
) -> None:
    reason = only(a_job(kind=kind), workers=[pooled()], held=two(kind))
    assert reason.cause is Cause.BUSY
    assert reason.message == f"all 2 {what} of the workers that could run it are in use (w1)"
    assert (
        reason.remedy == f"more workers, or more {what}: windlass worker MODULE:ATTR --{option} N"
    )
    assert reason.facts == {"workers": ["w1"], fact: 2}
    other = "read" if kind == "send" else "send"
    for there in (other, "ask"):
        assert only(a_job(kind=there), workers=[pooled()], held=two(kind)).cause is Cause.NEXT
    has_room = [pooled(), pooled("w2")]
    assert only(a_job(kind=kind), workers=has_room, held=two(kind)).cause is Cause.NEXT


def test_of_a_worker_that_nobody_looked_at_its_heartbeat_tells_what_is_free() -> None:
    full = pooled(pulse=WorkerPulse(running=2, in_isolated_processes=2))
    assert only(a_job(), workers=[full]).facts["isolated_processes"] == 2
    assert only(a_job(kind="read"), workers=[full]).cause is Cause.NEXT
    assert only(a_job(), workers=[full], held={"w1": []}).cause is Cause.NEXT


def test_a_lack_of_slots_and_of_children_are_both_reported() -> None:
    slots, children = reasons(a_job(), workers=[pooled(slots=2)], held=two("send"))
    assert (slots.facts["slots"], children.facts["isolated_processes"]) == (2, 2)


def test_a_suspect_needs_a_child_whatever_its_kind() -> None:
    history = (Attempt(number=1, worker="w", started_at=NOW, duration=SECOND, outcome="suspected"),)
    job = a_job(kind="ask", history=history)
    busy, mark = reasons(job, workers=[pooled()], held=two("send"))
    assert (busy.facts["isolated_processes"], mark.cause) == (2, Cause.SUSPECT)


def test_a_worker_of_a_release_that_tells_nothing_of_threads_is_judged_by_how_busy_it_is() -> None:
    old = a_worker(pulse=WorkerPulse(running=1, busy=1.0))
    held = {"w1": [a_job(id=OTHER, state=State.RUNNING)]}
    assert only(a_job(), workers=[old], held=held).cause is Cause.BUSY
    new = pooled(pulse=WorkerPulse(running=1, busy=1.0))
    assert only(a_job(kind="ask"), workers=[new], held=held).cause is Cause.NEXT


def test_a_job_behind_others_says_for_about_how_long() -> None:
    reason = only(a_job(), standing=Standing(ahead=1200, ended=600))
    assert reason.cause is Cause.BEHIND
    assert reason.message == (
        "behind 1,200 jobs of queue mail; at 10/s, as in the last minute, that takes about 2m00s"
    )
    assert reason.facts == {"ahead": 1200, "rate": 10.0, "wait": 120.0}
    still = only(a_job(), standing=Standing(ahead=1))
    assert still.message == ("behind 1 job of queue mail; none has ended in the last minute")
    many = only(a_job(), standing=Standing(ahead=AHEAD_COUNTED))
    assert "behind 10,000 or more jobs" in many.message


def test_how_long_others_take_is_judged_by_what_ended_since_there_was_anything_to_do() -> None:
    """Before that there may have been nothing to do."""
    standing = Standing(ahead=52, ended=8, span=4 * SECOND)
    reason = only(a_job(), standing=standing)
    assert "at 2/s, as in the last 4s, that takes about 26s" in reason.message
    none = only(a_job(), standing=Standing(ahead=52, span=0 * SECOND))
    assert none.message.endswith("none has ended since it was due")


def test_why_of_a_job_behind_others_suggests_more_of_the_scarce_pool() -> None:
    standing = Standing(ahead=3)
    busy, behind = reasons(
        a_job(kind="read"), workers=[pooled()], held=two("read"), standing=standing
    )
    assert (busy.cause, behind.cause) == (Cause.BUSY, Cause.BEHIND)
    assert "--threads N" in busy.remedy
    assert behind.remedy == busy.remedy


def test_where_nothing_can_start_it_does_not_matter_how_many_are_before_it() -> None:
    standing = Standing(ahead=5)
    assert causes(a_job(), workers=[], standing=standing) == [Cause.NO_WORKER]


def test_where_nothing_holds_it_up_it_is_next() -> None:
    assert only(a_job()).cause is Cause.NEXT
