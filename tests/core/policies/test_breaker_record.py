"""How a breaker changes: by what happens, by the store's clock, by hand; and what never happens."""

from __future__ import annotations

import itertools
import json
from datetime import UTC, datetime, timedelta
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from windlass.core.policies.breaker import Rule
from windlass.core.policies.breaker_record import (
    HISTORY,
    BreakerState,
    BreakerStatus,
    Enlist,
    Event,
    Failure,
    Gone,
    Hold,
    Success,
    force,
    react,
    read_status,
    record_of,
)

CLOSED, OPEN, HALF_OPEN = BreakerState.CLOSED, BreakerState.OPEN, BreakerState.HALF_OPEN
NOW = datetime(2030, 1, 1, tzinfo=UTC)
MINUTE = timedelta(seconds=60)
RULE = Rule(name="stripe", failures=3, cooldown=MINUTE, probes=2)
FRESH = BreakerStatus(name="stripe")
FAILURE, SUCCESS = Failure(why="Down"), Success()
BAD_PROBE, GOOD_PROBE = Failure(why="Down", probe=True), Success(probe=True)


def after(status: BreakerStatus, *events: Event, at: datetime = NOW) -> BreakerStatus:
    return react(status, events, rule=RULE, by="ann", now=at)


OPENED = after(FRESH, FAILURE, FAILURE, FAILURE)
TRIED = after(OPENED, at=NOW + MINUTE)


@pytest.mark.parametrize(
    ("events", "state", "failures"),
    [
        ([FAILURE] * 2, CLOSED, 2),
        ([FAILURE] * 3, OPEN, 3),
        ([FAILURE] * 9, OPEN, 3),
        ([FAILURE, FAILURE, SUCCESS, FAILURE, FAILURE], CLOSED, 2),
        ([SUCCESS], CLOSED, 0),
        ([BAD_PROBE] * 3, OPEN, 3),
        ([GOOD_PROBE], CLOSED, 0),
        ([Hold(worker="ann", count=2)], CLOSED, 0),
    ],
)
def test_a_breaker_opens_at_its_threshold_of_failures_in_a_row(
    events: list[Event], state: BreakerState, failures: int
) -> None:
    reached = after(FRESH, *events)
    assert (reached.state, reached.failures) == (state, failures)
    assert reached.probes == {}


@pytest.mark.parametrize("event", [FAILURE, SUCCESS, BAD_PROBE, GOOD_PROBE])
def test_an_open_one_heeds_nothing_but_the_clock(event: Event) -> None:
    assert after(OPENED, event, at=NOW + MINUTE / 2) == OPENED
    assert OPENED.until == NOW + MINUTE
    assert after(OPENED, at=NOW + MINUTE - timedelta(microseconds=1)).state is OPEN
    assert after(OPENED, at=NOW + MINUTE).state is HALF_OPEN


@pytest.mark.parametrize(
    ("events", "state"),
    [
        ([], HALF_OPEN),
        ([FAILURE] * 9, HALF_OPEN),
        ([SUCCESS] * 9, HALF_OPEN),
        ([GOOD_PROBE], HALF_OPEN),
        ([GOOD_PROBE] * 2, CLOSED),
        ([BAD_PROBE], OPEN),
        ([GOOD_PROBE, BAD_PROBE], OPEN),
        ([GOOD_PROBE, GOOD_PROBE, FAILURE], CLOSED),
    ],
)
def test_only_probes_decide_what_becomes_of_a_half_open_one(
    events: list[Event], state: BreakerState
) -> None:
    reached = after(TRIED, *events, at=NOW + MINUTE)
    assert reached.state is state
    if state is OPEN:
        assert reached.until == NOW + 2 * MINUTE
    if state is CLOSED:
        assert reached.until is reached.opened_at is None


def test_successes_of_the_last_time_do_not_count_the_next_time() -> None:
    again = after(TRIED, GOOD_PROBE, BAD_PROBE, at=NOW + MINUTE)
    assert after(again, GOOD_PROBE, at=NOW + 2 * MINUTE).state is HALF_OPEN


def test_workers_share_the_probes_and_ask_in_vain_for_more() -> None:
    held = after(TRIED, Hold(worker="ann", count=1), Hold(worker="bob", count=5), at=NOW + MINUTE)
    assert held.probes == {"ann": 1, "bob": 1}
    assert after(held, Hold(worker="cy", count=1), at=NOW + MINUTE).probes == held.probes
    given_back = after(held, Hold(worker="ann", count=0), Hold(worker="cy", count=2))
    assert given_back.probes == {"bob": 1, "cy": 1}


def test_a_probe_that_still_runs_is_none_of_the_next_ones() -> None:
    held = after(TRIED, Hold(worker="ann", count=2), at=NOW + MINUTE)
    again = after(held, BAD_PROBE, Hold(worker="ann", count=1), at=NOW + MINUTE)
    assert (again.state, again.probes) == (OPEN, {"ann": 1})
    later = after(again, Hold(worker="bob", count=2), at=NOW + 2 * MINUTE)
    assert (later.state, later.probes) == (HALF_OPEN, {"ann": 1, "bob": 1})


def test_the_probes_of_a_worker_that_is_gone_come_back() -> None:
    held = after(TRIED, Hold(worker="ann", count=2), at=NOW + MINUTE)
    free = after(held, Gone(workers={"ann", "eve"}), Hold(worker="bob", count=1), at=NOW + MINUTE)
    assert free.probes == {"bob": 1}


@pytest.mark.parametrize("status", [FRESH, OPENED, TRIED])
def test_one_that_is_kept_open_stays_so_whatever_happens(status: BreakerStatus) -> None:
    kept = force(status, "open", by="operator", now=NOW)
    late = NOW + timedelta(days=1)
    assert after(kept, GOOD_PROBE, GOOD_PROBE, Hold(worker="ann", count=1), at=late) == kept
    assert (kept.state, kept.until, kept.why) == (OPEN, None, "pinned open by hand")


@pytest.mark.parametrize("status", [FRESH, OPENED, TRIED])
def test_one_that_is_kept_closed_counts_no_failures(status: BreakerStatus) -> None:
    kept = force(status, "closed", by="operator", now=NOW)
    assert after(kept, *[FAILURE] * 9) == kept
    assert (kept.state, kept.failures) == (CLOSED, 0)


def test_back_to_automatic_what_was_kept_open_is_tried_with_care() -> None:
    kept = force(FRESH, "open", by="operator", now=NOW)
    assert force(kept, None, by="operator", now=NOW).state is HALF_OPEN
    closed = force(kept, "closed", by="operator", now=NOW)
    free = force(closed, None, by="operator", now=NOW)
    assert (free.state, free.forced) == (CLOSED, None)
    assert after(free, *[FAILURE] * 3).state is OPEN


@pytest.mark.parametrize("to", ["open", "closed", None])
def test_to_force_it_twice_changes_nothing(to: Literal["open", "closed"] | None) -> None:
    forced = force(OPENED, to, by="operator", now=NOW)
    assert force(forced, to, by="operator", now=NOW + MINUTE) == forced


def test_every_change_is_remembered_with_its_reason_and_the_latest_fifty() -> None:
    status, now = FRESH, NOW
    for _ in range(HISTORY):
        status = after(status, *[FAILURE] * 3, at=now)
        now += MINUTE
        status = after(status, GOOD_PROBE, GOOD_PROBE, at=now)
    assert (len(status.history), status.changes) == (HISTORY, 3 * HISTORY)
    *_, opened, tried, closed = status.history
    assert opened.why == "3 failures in a row, the last: Down"
    assert tried.why == "the cooldown of 1m is over"
    assert (closed.old, closed.new, closed.why) == (HALF_OPEN, CLOSED, "2 probes succeeded")
    assert (closed.at, closed.by) == (now, "ann")


def test_a_clock_that_was_set_back_keeps_nobody_waiting_for_longer_than_a_cooldown() -> None:
    back = NOW - timedelta(days=365)
    seen = after(OPENED, at=back)
    assert (seen.state, seen.until) == (OPEN, back + MINUTE)
    assert after(seen, at=back + MINUTE).state is HALF_OPEN


def test_the_record_is_json_and_reads_back_the_same() -> None:
    kept = force(after(TRIED, Enlist(kinds={"b", "a"})), "open", by="operator", now=NOW)
    assert kept.kinds == ("a", "b")
    record = json.loads(json.dumps(record_of(kept)))
    assert read_status("stripe", record) == kept
    assert record["history"][0]["from"] == "closed"


@pytest.mark.parametrize("record", [None, {"state": "ajar"}, {"probes": 5}, {"newer": True}])
def test_an_unreadable_breaker_record_is_closed(record: dict[str, object] | None) -> None:
    assert read_status("stripe", record) == FRESH


# -- properties --------------------------------------------------------------------------------

WORKERS = ("ann", "bob", "cy")
workers = st.sampled_from(WORKERS)
events = st.one_of(
    st.builds(Failure, why=st.just("Down"), probe=st.booleans()),
    st.builds(Success, probe=st.booleans()),
    st.builds(Hold, worker=workers, count=st.integers(0, 4)),
    st.builds(Gone, workers=st.frozensets(workers)),
)
forces = st.sampled_from(["open", "closed", None])
steps = st.lists(
    st.tuples(st.integers(-90, 90), st.one_of(st.lists(events, max_size=6), forces)), max_size=40
)
rules = st.builds(
    Rule,
    name=st.just("stripe"),
    failures=st.integers(1, 4),
    probes=st.integers(1, 3),
    cooldown=st.just(MINUTE),
)


def walk(rule: Rule, taken: list[tuple[int, object]]) -> list[tuple[BreakerStatus, datetime]]:
    """Return every status on a walk, and when it was reached."""
    status, now = FRESH, NOW
    reached = [(status, now)]
    for seconds, what in taken:
        now += timedelta(seconds=seconds)
        if isinstance(what, list):
            status = react(status, what, rule=rule, by="ann", now=now)
        else:
            status = force(status, what, by="operator", now=now)  # type: ignore[arg-type]
        reached.append((status, now))
    return reached


@given(rules, steps)
def test_never_more_probes_than_allowed(rule: Rule, taken: list[tuple[int, object]]) -> None:
    for status, _ in walk(rule, taken):
        assert sum(status.probes.values()) <= rule.probes
        assert all(count > 0 for count in status.probes.values())


@given(rules, steps)
def test_from_wherever_it_is_it_can_close_again(
    rule: Rule, taken: list[tuple[int, object]]
) -> None:
    """Whoever is gone is gone, a cooldown passes, and probes succeed."""
    for status, now in walk(rule, taken):
        free = force(status, None, by="operator", now=now)
        free = react(free, [Gone(workers=WORKERS)], rule=rule, by="ann", now=now)
        now += MINUTE
        for _ in range(rule.probes):
            hold = Hold(worker="ann", count=1)
            free = react(free, [hold], rule=rule, by="ann", now=now)
            assert free.state is CLOSED or free.probes == {"ann": 1}
            free = react(free, [Success(probe=True)], rule=rule, by="ann", now=now)
        assert free.state is CLOSED


@given(rules, steps)
def test_the_cooldown_is_kept_by_the_clock(rule: Rule, taken: list[tuple[int, object]]) -> None:
    """Unless by hand, it is left only once it is over, and it is never longer than the rule's."""
    reached = walk(rule, taken)
    for ((before, _), (then, now)), (_, what) in zip(
        itertools.pairwise(reached), taken, strict=True
    ):
        by_hand = not isinstance(what, list)
        if before.state is OPEN and then.state is not OPEN and not by_hand:
            assert before.forced is None
            assert before.until is not None
            assert now >= before.until
        if then.state is OPEN and then.forced is None and not by_hand:
            assert then.until is not None
            assert then.until - now <= MINUTE


@given(rules, st.lists(st.booleans(), max_size=60))
def test_a_breaker_opens_exactly_at_its_number_of_failures_in_a_row(
    rule: Rule, fails: list[bool]
) -> None:
    status, row = FRESH, 0
    for failed in fails:
        status = react(status, [FAILURE if failed else SUCCESS], rule=rule, by="ann", now=NOW)
        row = row + 1 if failed else 0
        assert (status.state is OPEN) == (row >= rule.failures)
        if status.state is OPEN:
            return


@given(rules, steps)
def test_groups_of_events_come_to_the_same_as_one_by_one(
    rule: Rule, taken: list[tuple[int, object]]
) -> None:
    singly = [
        (seconds if index == 0 else 0, [event])
        for seconds, what in taken
        if isinstance(what, list)
        for index, event in enumerate(what or [Gone(workers=())])
    ]
    whole = [(seconds, what) for seconds, what in taken if isinstance(what, list)]
    last, _ = walk(rule, list(whole))[-1]
    assert walk(rule, list(singly))[-1][0] == last


def test_a_record_keeps_what_a_worker_of_another_rule_granted() -> None:
    """With fewer probes since a deployment, those that run are not taken for more than they are."""
    held = replace(TRIED, probes={"ann": 5})
    assert after(held, Hold(worker="bob", count=1)).probes == {"ann": 5}
    assert after(held, Hold(worker="ann", count=4)).probes == {"ann": 4}
