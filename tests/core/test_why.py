"""Why a job does not run: every reason in words, with the command that changes it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from windlass.core.breaker_record import BreakerChange, BreakerState, BreakerStatus
from windlass.core.holds import Hold, holds_on
from windlass.core.job import (
    Attempt,
    ErrorInfo,
    Job,
    Progress,
    Pulse,
    Saga,
    Standing,
    WorkerInfo,
    WorkerRecord,
    flow_id,
    job_id,
    member_id,
)
from windlass.core.limits import Limit, Measure, Rate
from windlass.core.pauses import Pauses
from windlass.core.reasons import Cause, Reason, span
from windlass.core.states import FINISHED, State
from windlass.core.why import AHEAD_COUNTED, Scene, explain

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
ID = job_id(1, 1)
OTHER = job_id(2, 2)


def a_job(**facts: Any) -> Job:
    usual: dict[str, Any] = {
        "id": ID,
        "kind": "send",
        "queue": "mail",
        "priority": 0,
        "key": "",
        "state": State.PENDING,
        "payload": b"{}",
        "due_at": NOW - MINUTE,
        "created_at": NOW - MINUTE,
    }
    return Job(**usual | facts)


def a_worker(name: str = "w1", *, alive: bool = True, **told: Any) -> WorkerRecord:
    pulse = told.pop("pulse", Pulse())
    usual: dict[str, Any] = {"slots": 4, "kinds": ("send",)}
    info = WorkerInfo(
        id=name,
        name=name,
        host="host",
        pid=1,
        release="1",
        lease=30 * SECOND,
        **usual | told,
    )
    until = NOW + 20 * SECOND if alive else NOW - 5 * SECOND
    return WorkerRecord(
        info=info, pulse=pulse, started_at=NOW, last_seen=NOW, lease_until=until, alive=alive
    )


def causes(job: Job, **scene: Any) -> list[Cause]:
    return [each.cause for each in reasons(job, **scene)]


def reasons(job: Job, **scene: Any) -> tuple[Reason, ...]:
    usual: dict[str, Any] = {"now": NOW, "workers": [a_worker()]}
    found = explain(job, Scene(**usual | scene))
    assert all(each.told for each in found)
    return found


def only(job: Job, **scene: Any) -> Reason:
    (reason,) = reasons(job, **scene)
    return reason


# -- scheduled -------------------------------------------------------------------------------------


def test_a_job_that_is_not_due_says_until_when() -> None:
    reason = only(a_job(state=State.SCHEDULED, due_at=NOW + 5 * MINUTE))
    assert reason.cause is Cause.NOT_DUE
    assert reason.told == "it is not due until 2026-03-01 12:05:00Z, in 5m"
    assert reason.remedy == f"windlass jobs retry {ID}"
    assert reason.until == NOW + 5 * MINUTE


def test_a_retry_says_after_which_error_and_until_when() -> None:
    error = ErrorInfo(type="Refused", message="no")
    reason = only(
        a_job(state=State.SCHEDULED, due_at=NOW + MINUTE, attempt=2, failures=2, error=error)
    )
    assert reason.cause is Cause.RETRYING
    assert "attempt 2 failed" in reason.told
    assert reason.told.endswith("in 1m: Refused: no")
    assert reason.facts["error"] == "Refused: no"


def test_a_snoozed_job_is_not_taken_for_one_that_failed() -> None:
    history = (Attempt(number=1, worker="w", started_at=NOW, duration=SECOND, outcome="snoozed"),)
    job = a_job(state=State.SCHEDULED, due_at=NOW + MINUTE, history=history)
    assert only(job).cause is Cause.SNOOZED


def test_a_job_that_found_no_child_is_not_taken_for_one_that_is_retried() -> None:
    error = ErrorInfo(type="Refused", message="no")
    suspected, snoozed = (
        Attempt(number=2, worker="w", started_at=NOW, duration=SECOND, outcome=outcome)
        for outcome in ("suspected", "snoozed")
    )
    facts: dict[str, Any] = {"state": State.SCHEDULED, "due_at": NOW + SECOND, "error": error}
    job = a_job(history=(suspected,), reason="snoozed", attempt=3, failures=1, **facts)
    reason = reasons(job)[0]
    assert reason.cause is Cause.SNOOZED
    assert reason.told.startswith("no child process was free to run it, or none could start")
    assert reason.remedy == "windlass worker MODULE:ATTR --children N"
    by_handler = a_job(history=(snoozed,), reason="snoozed", **facts)
    assert only(by_handler).told.startswith("its handler put it off")


def test_a_job_that_waits_for_an_event_says_how_to_send_it_and_how_long_it_waits() -> None:
    job = a_job(state=State.SCHEDULED, waiting_for="event:paid now", due_at=NOW + MINUTE)
    reason = only(job)
    assert reason.cause is Cause.EVENT
    assert "in 1m at the longest" in reason.told
    assert reason.remedy == "windlass events send 'paid now'"
    forever = only(
        a_job(state=State.SCHEDULED, waiting_for="event:x", due_at=NOW.replace(year=9999))
    )
    assert "longest" not in forever.told
    assert forever.until is None


def test_a_job_of_a_flow_names_it() -> None:
    flow = flow_id(1, 1)
    member, undo = member_id(flow, 2), member_id(flow, 3)
    for job, waits_for in ((flow, ""), (member, ":2"), (undo, ":undo:0"), (member, ":last")):
        waiting_for = f"flow:{flow}{waits_for}"
        reason = only(a_job(id=job, state=State.SCHEDULED, waiting_for=waiting_for))
        assert (reason.cause, reason.remedy) == (Cause.FLOW, f"windlass flows show {flow}")
        assert reason.facts == {"flow": str(flow)}


def test_whatever_else_a_job_waits_for_is_named() -> None:
    reason = only(a_job(state=State.SCHEDULED, waiting_for="tea"))
    assert reason.cause is Cause.PARKED
    assert "'tea'" in reason.told


def test_what_will_bar_a_scheduled_job_is_told_besides() -> None:
    paused = Pauses(queues=frozenset({"mail"}))
    job = a_job(state=State.SCHEDULED, due_at=NOW + MINUTE)
    assert causes(job, paused=paused, workers=[]) == [
        Cause.NOT_DUE,
        Cause.PAUSED,
        Cause.NO_WORKER,
    ]


# -- barred ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("paused", "command"),
    [
        (Pauses(queues=frozenset({"mail"})), "windlass queues resume mail"),
        (Pauses(kinds=frozenset({"send"})), "windlass queues resume --kind send"),
        (Pauses(keys=frozenset({"a b"})), "windlass queues resume --key 'a b'"),
    ],
)
def test_a_pause_is_told_with_the_command_that_ends_it(paused: Pauses, command: str) -> None:
    reason = only(a_job(key="a b"), paused=paused)
    assert (reason.cause, reason.remedy) == (Cause.PAUSED, command)


def test_a_kind_is_paused_under_its_older_names_too_and_told_by_the_one_to_resume() -> None:
    paused = Pauses(queues=frozenset({"mail"}), kinds=frozenset({"post"}))
    queue, kind = reasons(a_job(), paused=paused, kind="post")
    assert (queue.facts, kind.facts) == ({"queue": "mail"}, {"kind": "post"})
    assert kind.remedy == "windlass queues resume --kind post"


def test_an_open_breaker_says_until_when_and_why() -> None:
    change = BreakerChange(
        at=NOW, old=BreakerState.CLOSED, new=BreakerState.OPEN, why="5 in a row", by="w1"
    )
    status = BreakerStatus(
        name="bank",
        state=BreakerState.OPEN,
        until=NOW + MINUTE,
        opened_at=NOW,
        history=(change,),
    )
    reason = only(a_job(), breakers=[status])
    assert reason.told == "breaker bank is open until 2026-03-01 12:01:00Z, in 1m: 5 in a row"
    assert reason.remedy == "windlass breakers close bank"
    forced = BreakerStatus(name="bank", state=BreakerState.OPEN, forced="open")
    reason = only(a_job(), breakers=[forced])
    assert "by hand" in reason.told
    assert reason.remedy == "windlass breakers auto bank"


def test_a_closed_breaker_is_no_reason_and_a_half_open_one_lets_few_through() -> None:
    assert only(a_job(), breakers=[BreakerStatus(name="bank")]).cause is Cause.NEXT
    half = BreakerStatus(name="bank", state=BreakerState.HALF_OPEN)
    assert causes(a_job(), breakers=[half]) == [Cause.BREAKER]


def test_a_breaker_whose_time_is_up_is_about_to_be_tried() -> None:
    late = BreakerStatus(name="bank", state=BreakerState.OPEN, until=NOW)
    told = only(a_job(), breakers=[late]).told
    assert told.startswith("breaker bank is open, and is about to be tried with a few jobs")


@pytest.mark.parametrize(
    ("workers", "cause"),
    [
        ([], Cause.NO_WORKER),
        ([a_worker(alive=False)], Cause.NO_WORKER),
        ([a_worker(queues=("files",))], Cause.UNSERVED),
        ([a_worker(excluded=("mail",))], Cause.UNSERVED),
        ([a_worker(kinds=("other",))], Cause.UNKNOWN_KIND),
        ([a_worker(kinds=("other",)), a_worker("w2", queues=("x",))], Cause.UNKNOWN_KIND),
        ([a_worker(pulse=Pulse(state="draining"))], Cause.DRAINING),
        ([a_worker(pulse=Pulse(state="draining")), a_worker("w2")], Cause.NEXT),
    ],
)
def test_it_is_told_why_no_worker_takes_it(workers: list[WorkerRecord], cause: Cause) -> None:
    reason = only(a_job(), workers=workers)
    assert reason.cause is cause
    assert "windlass worker" in reason.remedy


# -- crowded ---------------------------------------------------------------------------------------


def test_all_slots_in_use_are_a_reason_unless_one_worker_has_room() -> None:
    full = a_worker(pulse=Pulse(running=4, slots=4))
    reason = only(a_job(), workers=[full])
    assert reason.cause is Cause.BUSY
    assert reason.told == "all 4 slots of the workers that would run it are in use (w1)"
    assert only(a_job(), workers=[full, a_worker("w2")]).cause is Cause.NEXT
    freed = only(a_job(), workers=[full], held={"w1": []})
    assert freed.cause is Cause.NEXT, "what it holds is news, its heartbeat is not"


def test_the_slots_of_a_queue_can_be_in_use_while_others_are_free() -> None:
    worker = a_worker(queue_slots={"mail": 1})
    held = {"w1": [a_job(id=OTHER, state=State.RUNNING)]}
    assert "for queue mail" in only(a_job(), workers=[worker], held=held).told
    elsewhere = {"w1": [a_job(id=OTHER, state=State.RUNNING, queue="files")]}
    assert only(a_job(), workers=[worker], held=elsewhere).cause is Cause.NEXT


def pooled(name: str = "w1", **told: Any) -> WorkerRecord:
    """A worker that has room for two jobs in threads, and for two in children."""
    pools = {"send": "children", "read": "threads"}
    usual = {"slots": 100, "kinds": ("send", "read", "ask"), "threads": 2, "children": 2}
    return a_worker(name, **{**usual, "pools": pools, **told})


def two(kind: str) -> dict[str, list[Job]]:
    return {"w1": [a_job(id=job_id(9, n), kind=kind, state=State.RUNNING) for n in range(2)]}


@pytest.mark.parametrize(
    ("kind", "what", "option"),
    [("send", "child processes", "children"), ("read", "threads", "threads")],
)
def test_where_no_thread_or_child_is_free_that_is_told_though_slots_are(
    kind: str, what: str, option: str
) -> None:
    reason = only(a_job(kind=kind), workers=[pooled()], held=two(kind))
    assert reason.cause is Cause.BUSY
    assert reason.told == f"all 2 {what} of the workers that would run it are in use (w1)"
    assert (
        reason.remedy == f"more workers, or more {what}: windlass worker MODULE:ATTR --{option} N"
    )
    assert reason.facts == {"workers": ["w1"], option: 2}
    other = "read" if kind == "send" else "send"
    for there in (other, "ask"):
        assert only(a_job(kind=there), workers=[pooled()], held=two(kind)).cause is Cause.NEXT
    has_room = [pooled(), pooled("w2")]
    assert only(a_job(kind=kind), workers=has_room, held=two(kind)).cause is Cause.NEXT


def test_of_a_worker_that_nobody_looked_at_its_heartbeat_tells_what_is_free() -> None:
    full = pooled(pulse=Pulse(running=2, in_children=2))
    assert only(a_job(), workers=[full]).facts["children"] == 2
    assert only(a_job(kind="read"), workers=[full]).cause is Cause.NEXT
    assert only(a_job(), workers=[full], held={"w1": []}).cause is Cause.NEXT


def test_whoever_lacks_slots_and_children_is_told_both() -> None:
    slots, children = reasons(a_job(), workers=[pooled(slots=2)], held=two("send"))
    assert (slots.facts["slots"], children.facts["children"]) == (2, 2)


def test_a_suspect_needs_a_child_whatever_its_kind() -> None:
    history = (Attempt(number=1, worker="w", started_at=NOW, duration=SECOND, outcome="suspected"),)
    job = a_job(kind="ask", history=history)
    busy, mark = reasons(job, workers=[pooled()], held=two("send"))
    assert (busy.facts["children"], mark.cause) == (2, Cause.SUSPECT)


def test_a_worker_of_a_release_that_tells_nothing_of_threads_is_judged_by_how_busy_it_is() -> None:
    old = a_worker(pulse=Pulse(running=1, busy=1.0))
    held = {"w1": [a_job(id=OTHER, state=State.RUNNING)]}
    assert only(a_job(), workers=[old], held=held).cause is Cause.BUSY
    new = pooled(pulse=Pulse(running=1, busy=1.0))
    assert only(a_job(kind="ask"), workers=[new], held=held).cause is Cause.NEXT


def test_a_job_behind_others_says_for_about_how_long() -> None:
    reason = only(a_job(), standing=Standing(ahead=1200, ended=600))
    assert reason.cause is Cause.BEHIND
    assert reason.told == (
        "it is behind 1,200 jobs of queue mail; at 10/s, as in the last minute, that takes about 2m"
    )
    assert reason.facts == {"ahead": 1200, "rate": 10.0, "wait": 120.0}
    still = only(a_job(), standing=Standing(ahead=1))
    assert still.told == ("it is behind 1 job of queue mail; none has ended in the last minute")
    many = only(a_job(), standing=Standing(ahead=AHEAD_COUNTED))
    assert "behind 10,000 or more jobs" in many.told


def test_where_nothing_can_start_it_does_not_matter_how_many_are_before_it() -> None:
    standing = Standing(ahead=5)
    assert causes(a_job(), workers=[], standing=standing) == [Cause.NO_WORKER]


def test_where_nothing_holds_it_up_it_is_next() -> None:
    assert only(a_job()).cause is Cause.NEXT


# -- limits ----------------------------------------------------------------------------------------

CRAWL = Limit(name="kind:send", concurrency=2)


def holds(limit: Limit | None, account: dict[str, Any], *jobs: Job, key: str = "") -> list[Hold]:
    job = a_job(key=key)
    name = "kind:send"
    keyed = limit is not None and limit.keyed
    record = Limit(name=name, keyed=keyed).record(key)
    return list(
        holds_on(
            job,
            name,
            limit,
            change=None,
            accounts={record: account},
            running={"w1": jobs},
            amount=1,
            now=NOW,
        )
    )


def test_a_full_concurrency_says_who_has_it_and_for_which_job() -> None:
    account = {"concurrency": {"holds": {"w1": {"": 2}}}}
    running = [a_job(id=job_id(9, number), state=State.RUNNING) for number in range(2)]
    (hold,) = holds(CRAWL, account, *running)
    assert hold.binds
    reason = only(a_job(), holds=[hold])
    assert reason.cause is Cause.LIMITED
    assert reason.told.startswith(
        "limit kind:send (2 at a time) lets no more start, held by w1 (2), for "
    )
    assert str(running[0].id) in reason.told
    assert reason.remedy == "windlass limits set kind:send --concurrency N"


def test_tokens_that_a_worker_has_and_does_not_use_hold_nothing_up() -> None:
    account = {"concurrency": {"holds": {"w1": {"": 2}}}}
    (hold,) = holds(CRAWL, account, a_job(id=OTHER, state=State.RUNNING))
    assert not hold.binds


def test_a_wish_that_was_not_met_just_now_says_that_there_is_nothing_left() -> None:
    for ago, binds in ((1, True), (10, False)):
        wants = {"": {"w2": NOW.timestamp() - ago}}
        (hold,) = holds(None, {"concurrency": {"holds": {"w1": {"": 2}}, "wants": wants}})
        assert hold.binds is binds


def test_a_rate_that_is_used_up_says_when_the_next_start_is() -> None:
    limit = Limit(name="kind:send", rate=Rate(2, 60))
    cooling = {"": [[NOW.timestamp() + 30, 2], [NOW.timestamp() - 1, 5]]}
    (hold,) = holds(limit, {"rate": {"cooling": cooling}})
    assert hold.binds
    assert (hold.cooling, hold.next_at) == (2, NOW + 30 * SECOND)
    reason = only(a_job(), holds=[hold])
    assert reason.told.startswith("limit kind:send (2/m) lets no more start")
    assert reason.until == NOW + 30 * SECOND
    assert reason.remedy == "windlass limits set kind:send --rate N/s"


def test_a_limit_by_keys_counts_the_key_of_the_job_only() -> None:
    limit = Limit(name="kind:send", concurrency=1, keyed=True)
    account = {"concurrency": {"holds": {"w1": {"a": 1}}}}
    other = a_job(id=OTHER, key="a", state=State.RUNNING)
    (mine,) = holds(limit, account, other, key="a")
    assert mine.binds
    assert "for key a" in only(a_job(key="a"), holds=[mine]).told
    (free,) = holds(limit, account, other, key="b")
    assert not free.binds


def test_a_strict_order_binds_also_between_two_runs() -> None:
    limit = Limit(name="kind:send", concurrency=1, keyed=True, ordered=True)
    (hold,) = holds(limit, {"concurrency": {"holds": {"w1": {"a": 1}}}}, key="a")
    assert hold.binds


def test_a_limit_of_which_nothing_is_out_does_not_bind() -> None:
    (hold,) = holds(CRAWL, {})
    assert hold.measure is Measure.CONCURRENCY
    assert not hold.binds
    assert holds(None, {}) == []


# -- running and finished --------------------------------------------------------------------------


def test_a_running_job_says_who_holds_it_since_when_how_far_it_is_and_for_how_long() -> None:
    job = a_job(
        state=State.RUNNING,
        worker="w1",
        attempt=2,
        started_at=NOW - MINUTE,
        progress=Progress(fraction=0.4, message="half way"),
    )
    reason = only(job)
    assert reason.cause is Cause.RUNNING
    assert reason.told == (
        "worker w1 runs it since 2026-03-01 11:59:00Z, 1m ago (attempt 2); it is at 40% half way; "
        "its lease lasts until 2026-03-01 12:00:20Z, in 20s"
    )
    assert reason.remedy == f"windlass jobs cancel {ID}"


def test_a_job_of_a_lost_worker_is_to_be_rescued_if_somebody_is_there() -> None:
    job = a_job(state=State.RUNNING, worker="gone", attempt=1)
    gone = a_worker("gone", alive=False)
    lost, _ = reasons(job, workers=[gone, a_worker()])
    assert lost.cause is Cause.LOST
    assert "rescues it" in lost.told
    alone, _ = reasons(job, workers=[gone])
    assert alone.remedy.startswith("windlass worker")


def test_a_running_job_that_was_asked_to_end_says_so() -> None:
    job = a_job(state=State.RUNNING, worker="w1", cancel_requested=True)
    assert causes(job) == [Cause.CANCELLING, Cause.RUNNING]


@pytest.mark.parametrize("state", sorted(FINISHED))
def test_a_finished_job_says_what_became_of_it(state: State) -> None:
    error = ErrorInfo(type="Refused", message="no")
    job = a_job(
        state=state,
        worker="w1",
        started_at=NOW - MINUTE,
        finished_at=NOW - 30 * SECOND,
        reason="gave up",
        error=error if state is State.DEAD else None,
    )
    reason = only(job, workers=[])
    assert reason.cause.value == state.value
    assert "30s ago" in reason.told
    if state is State.DEAD:
        assert "gave up; Refused: no" in reason.told
        assert reason.remedy == f"windlass jobs retry {ID}"


def test_what_is_worth_knowing_besides_comes_last() -> None:
    history = (Attempt(number=1, worker="w", started_at=NOW, duration=SECOND, outcome="suspected"),)
    error = ErrorInfo(type="Refused", message="no")
    job = a_job(
        history=history,
        saga=Saga.UNDOING,
        expires_at=NOW + MINUTE,
        failures=1,
        attempt=2,
        error=error,
    )
    next_, undoing, failed, *rest = reasons(job)
    assert (next_.cause, undoing.cause) == (Cause.NEXT, Cause.UNDOING)
    assert failed.told == "it has failed before, in attempt 2: Refused: no"
    assert [each.cause for each in rest] == [Cause.SUSPECT, Cause.EXPIRES]


@pytest.mark.parametrize(
    ("seconds", "told"),
    [
        (-1, "0ms"),
        (0.35, "350ms"),
        (2.54, "2.5s"),
        (12.4, "12s"),
        (7509, "2h5m"),
        (190000, "2d4h"),
    ],
)
def test_a_span_has_no_digits_that_nobody_reads(seconds: float, told: str) -> None:
    assert span(timedelta(seconds=seconds)) == told
