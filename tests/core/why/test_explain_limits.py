"""Why a job waits for a limit: who holds it, and when there is room again."""

from __future__ import annotations

from typing import Any

from tests.core.why.waiting_job import MINUTE, NOW, SECOND, a_job, only, reasons
from windlass.core.jobs.ids import job_id
from windlass.core.jobs.job import Attempt, ErrorInfo, Job
from windlass.core.jobs.states import State
from windlass.core.policies.limit import Limit, Measure, Rate
from windlass.core.policies.limit_usage import Hold, holds_on
from windlass.core.stats.depths import Standing
from windlass.core.why.reason import Cause

OTHER = job_id(2, 2)


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
