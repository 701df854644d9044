"""The laws of service-level targets: what they say, whom they pull forward, what is counted."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from windlass.core.claims.lanes import FairShare, Head
from windlass.core.claims.plan import Policies, plan
from windlass.core.claims.room import Pool, Room
from windlass.core.errors import ConfigError
from windlass.core.jobs.job import Job, Lane
from windlass.core.jobs.states import State
from windlass.core.policies.fairness import Rotation
from windlass.core.policies.slo import Tally, checked_target, counted, read_tally, tally

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)
TARGETS = {"mail": 10 * SECOND, "alert": 4 * SECOND}
KINDS = dict.fromkeys(["mail", "alert", "plain"], Pool.LOOP)


@pytest.mark.parametrize("slo", ["start within 5s", " starts  within 5 s ", "5s", 5, 5 * SECOND])
def test_a_target_is_written_as_people_say_it(slo: Any) -> None:
    assert checked_target("mail", slo) == 5 * SECOND


@pytest.mark.parametrize("slo", ["soon", "start within", "end within 5s", 0, -1, "0s", [5]])
def test_a_target_that_cannot_be_is_refused(slo: Any) -> None:
    with pytest.raises(ConfigError, match="kind 'mail'"):
        checked_target("mail", slo)


# -- who is pulled forward -------------------------------------------------------------------------


def head(kind: str, waited: float, priority: int = 0, key: str = "") -> Head:
    return Head(lane=Lane("default", kind, priority, key), position=NOON - waited * SECOND)


def first(*heads: Head, **policies: Any) -> Lane:
    rules = Policies(kinds=KINDS, targets=TARGETS, **policies)
    return plan(heads, rules, Room(slots=1, threads=0), at_most=1, now=NOON).asks[0].lane


@pytest.mark.parametrize(
    ("heads", "wins"),
    [
        ([head("mail", 4.9), head("plain", 5)], "plain"),
        ([head("mail", 5), head("plain", 60)], "mail"),
        ([head("mail", 5), head("plain", 0, priority=1000)], "mail"),
        ([head("mail", 5, priority=-1000), head("plain", 0, priority=1000)], "mail"),
        ([head("mail", 4.9), head("plain", 0, priority=1)], "plain"),
        ([head("mail", 7), head("alert", 2)], "alert"),
        ([head("mail", 9), head("alert", 2)], "mail"),
        ([head("mail", 100), head("alert", 3)], "mail"),
        ([head("mail", 9), head("alert", 2, priority=5)], "mail"),
    ],
    ids=[
        "less than half of it has passed",
        "half of it has passed",
        "before any priority",
        "whatever its own",
        "by priority until then",
        "the earlier deadline first",
        "the earlier deadline first, again",
        "one that is missed is the earliest",
        "by deadline, not by priority",
    ],
)
def test_a_target_in_jeopardy_goes_first_by_its_deadline(heads: list[Head], wins: str) -> None:
    assert first(*heads).kind == wins
    assert first(*reversed(heads)).kind == wins


def test_a_flood_with_a_target_does_not_starve_those_without() -> None:
    """What has waited longer than all priorities are worth goes before a target in jeopardy."""
    days = 2 * 24 * 3600
    assert first(head("mail", 60), head("plain", days)).kind == "plain"


def test_a_fair_kind_is_pulled_forward_as_a_whole_and_its_keys_still_take_turns() -> None:
    rotation = Rotation({"mail": lambda _: 1.0})
    flood, other = head("mail", 60, key="acme"), head("mail", 0, key="bolt")
    urgent = head("plain", 0, priority=9)
    assert first(urgent, flood, other, rotation=rotation) == flood.lane
    rotation.take([FairShare(flood.lane, 1, 0.0)])
    assert first(urgent, flood, other, rotation=rotation) == other.lane


def test_without_the_time_no_target_is_in_jeopardy() -> None:
    policies = Policies(kinds=KINDS, targets=TARGETS)
    late, plain = head("mail", 8), head("plain", 9)
    claim = plan([late, plain], policies, Room(slots=1, threads=0), at_most=1)
    assert claim.asks[0].lane == plain.lane


# -- aging (D6) ------------------------------------------------------------------------------------

priorities = st.integers(-1000, 1000)


@settings(max_examples=100)
@given(priorities, priorities, st.integers(1, 3600))
def test_a_job_of_low_priority_overtakes_fresh_ones_in_the_end(
    low: int, high: int, aging: int
) -> None:
    low, high = sorted((low, high))
    worth = (high - low) * aging
    old = head("plain", worth + 1, priority=low)
    young = head("plain", worth - 1, priority=low)
    fresh = head("mail", 0, priority=high)
    by_age = {"aging": timedelta(seconds=aging)}
    assert first(old, fresh, **by_age) == old.lane
    if worth > 1 and low < high:
        assert first(young, fresh, **by_age) == fresh.lane


@settings(max_examples=25, deadline=None)
@given(st.lists(st.integers(-100, 100), min_size=1, max_size=10), st.integers(-100, 100))
def test_nothing_starves_while_jobs_of_higher_priority_keep_coming(
    others: list[int], mine: int
) -> None:
    """There is one slot, and a fresh job of every other lane as soon as the last one began."""
    policies = Policies(kinds=KINDS, aging=SECOND)
    waiting = {Lane("default", "plain", mine, "mine"): NOON}
    lanes = [Lane("default", "mail", each, str(n)) for n, each in enumerate(others)]
    patience = max([0, *(each - mine for each in others)]) + len(others) + 2
    for second in range(patience):
        now = NOON + second * SECOND
        for lane in lanes:
            waiting.setdefault(lane, now)
        heads = [Head(lane=lane, position=since) for lane, since in waiting.items()]
        claim = plan(heads, policies, Room(slots=1, threads=0), at_most=1, now=now)
        del waiting[claim.asks[0].lane]
        if claim.asks[0].lane.key == "mine":
            return
    raise AssertionError(f"it has waited for {patience} seconds")


# -- what is counted -------------------------------------------------------------------------------


def job(waited: float, *, number: int = 1, attempt: int = 1) -> Job:
    return Job(
        id=UUID(int=number),
        kind="mail",
        queue="default",
        priority=0,
        key="",
        state=State.RUNNING,
        payload=b"{}",
        due_at=NOON,
        created_at=NOON,
        started_at=NOON + waited * SECOND,
        attempt=attempt,
    )


def test_only_the_first_start_of_a_job_counts_and_only_a_late_one_is_late() -> None:
    assert tally(job(10), 10 * SECOND) == Tally(started=1)
    assert tally(job(99, attempt=2), 10 * SECOND) == Tally()
    late = tally(job(11), 10 * SECOND)
    assert (late.started, late.late, late.worst) == (1, 1, 11 * SECOND)
    assert late.last is not None
    assert late.last.job == UUID(int=1)


def test_counts_of_workers_are_summed_up_with_the_worst_and_the_last() -> None:
    target = 10 * SECOND
    first = sum((tally(job(each, number=each), target) for each in (30, 5, 20)), Tally())
    record = counted(None, first, target, NOON)
    record = counted(record, tally(job(25, number=25), target), target, NOON + 60 * SECOND)
    assert (record["started"], record["late"], record["worst"]) == (4, 3, 30)
    assert (record["target"], record["since"]) == (10, NOON.isoformat())
    assert record["last"]["job"] == str(UUID(int=30)), "the one that started last"
    assert read_tally(record) == first + tally(job(25, number=25), target)
    assert read_tally(None) == Tally()
