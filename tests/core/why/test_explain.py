"""Why a job does not run: every reason in words, with the command that changes it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from windlass.core.jobs.ids import flow_id, job_id, member_id
from windlass.core.jobs.job import Attempt, ErrorInfo, Job, Progress, Saga
from windlass.core.jobs.states import FINISHED, State
from windlass.core.policies.breaker_record import BreakerChange, BreakerState, BreakerStatus
from windlass.core.policies.limit import Limit, Measure, Rate
from windlass.core.policies.limit_usage import Hold, holds_on
from windlass.core.policies.pauses import Pauses
from windlass.core.stats.depths import Standing
from windlass.core.why.explain import AHEAD_COUNTED, Scene, explain
from windlass.core.why.reason import Cause, Reason
from windlass.core.workers import WorkerInfo, WorkerPulse, WorkerRecord

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
    pulse = told.pop("pulse", WorkerPulse())
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
    assert all(each.message for each in found)
    return found


def only(job: Job, **scene: Any) -> Reason:
    (reason,) = reasons(job, **scene)
    return reason


# -- scheduled -------------------------------------------------------------------------------------


def test_a_job_that_is_not_due_says_until_when() -> None:
    reason = only(a_job(state=State.SCHEDULED, due_at=NOW + 5 * MINUTE))
    assert reason.cause is Cause.NOT_DUE
    assert reason.message == "scheduled; due 2026-03-01 12:05:00Z, in 5m00s"
    assert reason.remedy == f"windlass jobs retry {ID}"
    assert reason.until == NOW + 5 * MINUTE


def test_a_retry_says_after_which_error_and_until_when() -> None:
    error = ErrorInfo(type="Refused", message="no")
    reason = only(
        a_job(state=State.SCHEDULED, due_at=NOW + MINUTE, attempt=2, failures=2, error=error)
    )
    assert reason.cause is Cause.RETRYING
    assert "attempt 2 failed" in reason.message
    assert reason.message.endswith("in 1m00s: Refused: no")
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
    assert reason.message.startswith("no child process was free or could start")
    assert reason.remedy == "windlass worker MODULE:ATTR --isolated-processes N"
    by_handler = a_job(history=(snoozed,), reason="snoozed", **facts)
    assert only(by_handler).message.startswith("snoozed by its handler")


def test_a_job_that_waits_for_an_event_says_how_to_send_it_and_how_long_it_waits() -> None:
    job = a_job(state=State.SCHEDULED, waiting_for="event:paid now", due_at=NOW + MINUTE)
    reason = only(job)
    assert reason.cause is Cause.EVENT
    assert reason.message.endswith("at most until 2026-03-01 12:01:00Z, in 1m00s")
    assert reason.remedy == "windlass events send 'paid now'"
    forever = only(
        a_job(state=State.SCHEDULED, waiting_for="event:x", due_at=NOW.replace(year=9999))
    )
    assert "longest" not in forever.message
    assert forever.until is None


def test_a_job_of_a_flow_names_it() -> None:
    flow = flow_id(1, 1)
    member, undo = member_id(flow, 2), member_id(flow, 3)
    for job, waits_for in ((flow, ""), (member, ":2"), (undo, ":undo:0"), (member, ":last")):
        waiting_for = f"flow:{flow}{waits_for}"
        reason = only(a_job(id=job, state=State.SCHEDULED, waiting_for=waiting_for))
        assert (reason.cause, reason.remedy) == (Cause.FLOW, f"windlass flows show {flow}")
        assert reason.facts == {"flow": str(flow), "before": []}


def test_a_job_of_a_flow_names_those_that_could_run_before_it() -> None:
    flow = flow_id(1, 1)
    first = a_job(id=member_id(flow, 1))
    waiting = a_job(id=member_id(flow, 2), state=State.SCHEDULED, waiting_for=f"flow:{flow}:2")
    reason = only(waiting, before=[first])
    assert f"its flow {first.flow}: {first.id} (send, pending)" in reason.message
    assert reason.remedy == f"windlass why {first.id}"


def test_a_flow_that_died_of_its_undos_names_them_and_not_itself() -> None:
    """Its own job only sums up: run again before them, it would die of the same."""
    flow = flow_id(1, 1)
    own = a_job(id=flow, state=State.DEAD, reason="compensation failed: x")
    undo = a_job(id=member_id(flow, 3), state=State.DEAD)
    (reason,) = explain(own, Scene(now=NOW, before=[undo]))
    assert reason.remedy == f"windlass jobs retry {undo.id}"
    assert reason.facts["culprits"] == [str(undo.id)]
    (moot,) = explain(own, Scene(now=NOW))
    assert moot.remedy.endswith(f"windlass dead purge {flow}")


def test_why_names_any_other_signal_that_a_job_waits_for() -> None:
    reason = only(a_job(state=State.SCHEDULED, waiting_for="tea"))
    assert reason.cause is Cause.PARKED
    assert "'tea'" in reason.message


def test_why_of_a_scheduled_job_also_names_later_obstacles() -> None:
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
def test_a_pause_is_reported_with_the_command_that_ends_it(paused: Pauses, command: str) -> None:
    reason = only(a_job(key="a b"), paused=paused)
    assert (reason.cause, reason.remedy) == (Cause.PAUSED, command)


def test_a_kind_is_paused_under_its_aliases_too_and_shown_by_the_name_to_resume() -> None:
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
    assert reason.message == "breaker bank is open until 2026-03-01 12:01:00Z, in 1m00s: 5 in a row"
    assert reason.remedy == "windlass breakers probe bank"
    forced = BreakerStatus(name="bank", state=BreakerState.OPEN, forced="open")
    reason = only(a_job(), breakers=[forced])
    assert "by hand" in reason.message
    assert reason.remedy == "windlass breakers auto bank"


def test_a_closed_breaker_is_no_reason_and_a_half_open_one_lets_few_through() -> None:
    assert only(a_job(), breakers=[BreakerStatus(name="bank")]).cause is Cause.NEXT
    half = BreakerStatus(name="bank", state=BreakerState.HALF_OPEN)
    assert only(a_job(), breakers=[half]).cause is Cause.BREAKER
    assert only(a_job(), breakers=[half]).remedy == "windlass breakers show bank"


def test_a_breaker_whose_time_is_up_is_about_to_be_tried() -> None:
    late = BreakerStatus(name="bank", state=BreakerState.OPEN, until=NOW)
    told = only(a_job(), breakers=[late]).message
    assert told.startswith("breaker bank is open, and about to probe with a few jobs")


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


def test_a_used_up_concurrency_names_the_workers_and_jobs_that_hold_it() -> None:
    account = {"concurrency": {"holds": {"w1": {"": 2}}}}
    running = [a_job(id=job_id(9, number), state=State.RUNNING) for number in range(2)]
    (hold,) = holds(CRAWL, account, *running)
    assert hold.binds
    reason = only(a_job(), holds=[hold])
    assert reason.cause is Cause.LIMITED
    assert reason.message.startswith(
        "limit kind:send (2 at a time) is used up, held by w1 (2), for "
    )
    assert str(running[0].id) in reason.message
    assert reason.remedy == "windlass limits set kind:send --concurrency N"


def test_tokens_that_a_worker_has_and_does_not_use_hold_nothing_up() -> None:
    account = {"concurrency": {"holds": {"w1": {"": 2}}}}
    (hold,) = holds(CRAWL, account, a_job(id=OTHER, state=State.RUNNING))
    assert not hold.binds


def test_a_limited_job_is_not_given_the_rate_of_its_queue() -> None:
    """Prevents an estimate of seconds for a job that one start an hour holds back."""
    (hold,) = holds(None, {"rate": {"wants": {"": {"w2": NOW.timestamp() - 1}}}})
    standing = Standing(ahead=3, ended=600)
    limited, behind = reasons(a_job(), holds=[hold], standing=standing)
    assert (limited.cause, behind.cause) == (Cause.LIMITED, Cause.BEHIND)
    assert behind.message == "behind 3 jobs of queue mail; when it runs depends on the limit"
    assert behind.facts == {"ahead": 3, "rate": None, "wait": None}
    assert behind.remedy == limited.remedy


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
    assert reason.message.startswith("limit kind:send (2/m) is used up")
    assert reason.until == NOW + 30 * SECOND
    assert reason.remedy == "windlass limits set kind:send --rate N/s"


def test_a_limit_by_keys_counts_the_key_of_the_job_only() -> None:
    limit = Limit(name="kind:send", concurrency=1, keyed=True)
    account = {"concurrency": {"holds": {"w1": {"a": 1}}}}
    other = a_job(id=OTHER, key="a", state=State.RUNNING)
    (mine,) = holds(limit, account, other, key="a")
    assert mine.binds
    assert "for key a" in only(a_job(key="a"), holds=[mine]).message
    (free,) = holds(limit, account, other, key="b")
    assert not free.binds


def test_a_strict_order_binds_also_between_two_runs() -> None:
    limit = Limit(name="kind:send", concurrency=1, keyed=True, ordered=True)
    (hold,) = holds(limit, {"concurrency": {"holds": {"w1": {"a": 1}}}}, key="a")
    assert hold.binds
    failed = Attempt(
        number=1, worker="w1", started_at=NOW, duration=SECOND, outcome="failed",
        error=ErrorInfo(type="OSError", message="down"), retry_at=NOW + MINUTE,
    )  # fmt: skip
    first = a_job(id=OTHER, key="a", attempt=1, failures=1, error=failed.error, history=(failed,))
    behind, retried = f"windlass jobs retry {OTHER}", NOW + MINUTE
    reason = only(a_job(key="a"), holds=[hold], head=first)
    assert (reason.cause, reason.remedy, reason.until) == (Cause.IN_ORDER, behind, retried)
    assert "failed in attempt 1 (OSError: down)" in reason.message
    (own,) = reasons(first, holds=[hold], head=first)
    assert (own.cause, own.remedy, own.until) == (Cause.RETRYING, behind, retried)
    assert only(a_job(key="a"), holds=[hold], head=a_job(key="a")).cause is Cause.NEXT


def retried_in_order() -> Job:
    failed = Attempt(
        number=1, worker="w1", started_at=NOW, duration=SECOND, outcome="failed",
        error=ErrorInfo(type="OSError", message="down"), retry_at=NOW + MINUTE,
    )  # fmt: skip
    return a_job(id=OTHER, key="a", attempt=1, failures=1, error=failed.error, history=(failed,))


def test_the_retry_of_a_job_in_order_is_shown_also_when_no_worker_is_alive() -> None:
    limit = Limit(name="kind:send", concurrency=1, keyed=True, ordered=True)
    (free,) = holds(limit, {}, key="a")
    assert not free.binds
    first = retried_in_order()
    for known in ([free], []):
        nobody, own = reasons(first, workers=[], holds=known, head=first)
        assert (nobody.cause, own.cause) == (Cause.NO_WORKER, Cause.RETRYING)
        assert own.until == NOW + MINUTE
        assert "2026-03-01 12:01:00Z, in 1m" in own.message
    nobody, behind = reasons(a_job(key="a"), workers=[], holds=[free], head=first)
    assert (nobody.cause, behind.cause) == (Cause.NO_WORKER, Cause.IN_ORDER)
    assert behind.until == NOW + MINUTE


def test_a_job_in_order_has_one_estimate_and_not_that_of_its_queue() -> None:
    limit = Limit(name="kind:send", concurrency=1, keyed=True, ordered=True)
    (hold,) = holds(limit, {"concurrency": {"holds": {"w1": {"a": 1}}}}, key="a")
    standing = Standing(ahead=600, ended=60, span=MINUTE)
    first = retried_in_order()
    (only_one,) = reasons(a_job(key="a"), holds=[hold], head=first, standing=standing)
    assert (only_one.cause, only_one.until) == (Cause.IN_ORDER, NOW + MINUTE)


def test_a_limit_of_which_nothing_is_out_does_not_bind() -> None:
    (hold,) = holds(CRAWL, {})
    assert hold.measure is Measure.CONCURRENCY
    assert not hold.binds
    assert holds(None, {}) == []


# -- running and finished --------------------------------------------------------------------------


def test_why_of_a_running_job_names_its_worker_start_progress_and_lease() -> None:
    job = a_job(
        state=State.RUNNING,
        worker="w1",
        attempt=2,
        started_at=NOW - MINUTE,
        progress=Progress(fraction=0.4, message="half way"),
    )
    reason = only(job)
    assert reason.cause is Cause.RUNNING
    assert reason.message == (
        "running on worker w1 since 2026-03-01 11:59:00Z, 1m00s ago (attempt 2); "
        "progress 40% half way; its lease lasts until 2026-03-01 12:00:20Z, in 20s"
    )
    assert reason.remedy == f"windlass jobs cancel {ID}"


def test_a_job_of_a_lost_worker_is_to_be_rescued_if_somebody_is_there() -> None:
    job = a_job(state=State.RUNNING, worker="gone", attempt=1)
    gone = a_worker("gone", alive=False)
    lost, _ = reasons(job, workers=[gone, a_worker()])
    assert lost.cause is Cause.LOST
    assert "rescue it" in lost.message
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
    assert "30s ago" in reason.message
    if state is State.DEAD:
        assert "gave up; Refused: no" in reason.message
        assert reason.remedy == f"windlass jobs retry {ID}"


def test_additional_facts_come_last() -> None:
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
    assert failed.message == "it failed before, in attempt 2: Refused: no"
    assert [each.cause for each in rest] == [Cause.SUSPECT, Cause.EXPIRES]
