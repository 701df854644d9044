"""Lanes whose oldest jobs are of one age share a claim, and nobody else gets less by it."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.core.claims.heads import KINDS, NOON, head, heads, meet
from windlass.core.claims.allotment import Allowance
from windlass.core.claims.lanes import Head
from windlass.core.claims.plan import MOST_SPENT, Policies, plan
from windlass.core.claims.room import Room
from windlass.core.jobs.job import Lane
from windlass.core.policies.fairness import Rotation

WIDE = Room(slots=1_000, threads=4, isolated_processes=2)
SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
PLAIN = Policies(kinds=KINDS)
LAST = head(key="last", waited=-MINUTE)


def counts(
    *heads: Head, policies: Policies = PLAIN, room: Room = WIDE, at_most: int = 1_000
) -> list[tuple[str, int]]:
    """Return the key and the count of each ask."""
    claim = plan(heads, policies, room, at_most=at_most, now=NOON)
    return [(ask.lane.key, ask.count) for ask in claim.asks]


def taken(
    *heads_and_jobs: tuple[Head, int], policies: Policies = PLAIN, room: Room = WIDE
) -> dict[str, int]:
    """Return how many jobs a claim takes of each key, if the lanes hold so many."""
    held = Counter({head.lane: jobs for head, jobs in heads_and_jobs})
    claim = plan([head for head, _ in heads_and_jobs], policies, room, at_most=1_000, now=NOON)
    return {lane.key: jobs for lane, jobs in meet(claim, held).items() if jobs}


# -- who shares ------------------------------------------------------------------------------------


def test_lanes_of_one_age_are_asked_for_shares_and_then_for_the_rest() -> None:
    """Prevents that a claim takes a thousand jobs of one queue before the older ones of others."""
    four = [
        head(key=key, waited=timedelta(seconds=number / 4)) for number, key in enumerate("dcba")
    ]
    shares, rest = [(key, 250) for key in "abcd"], [(key, 750) for key in "abcd"]
    assert counts(*four, LAST) == [*shares, *rest, ("last", 1_000)]


def test_no_share_is_smaller_than_what_makes_it_worth_to_ask_a_lane() -> None:
    many = counts(*(head(key=f"{number}") for number in range(500)))
    assert [count for _, count in many] == [50] * 500 + [950] * 500


def test_a_lane_is_asked_once_where_each_slot_is_for_a_job_of_another_lane() -> None:
    many = counts(*(head(key=f"{number}") for number in range(1_200)))
    assert [count for _, count in many] == [50] * 1_000


@pytest.mark.parametrize(("at_most", "lanes"), [(1, "a"), (50, "ab")])
def test_a_claim_of_few_jobs_is_not_shared(at_most: int, lanes: str) -> None:
    asked = counts(head(key="a"), head(key="b"), at_most=at_most)
    assert asked == [(key, at_most) for key in lanes]


def test_no_more_lanes_share_a_claim_than_it_has_slots() -> None:
    """Prevents that a claim for 200 jobs goes through thousands of lanes before it asks again."""
    spent = Policies(
        kinds=KINDS, allowances=lambda lane: [] if lane.key in "yz" else [Allowance("none", 0)]
    )
    many = [head(key=f"{number}") for number in range(199)]
    asked = counts(head(key="z"), *many, head(key="y"), policies=spent, at_most=200)
    assert asked == [("z", 50), ("z", 150), ("y", 200)]


@pytest.mark.parametrize(
    "second",
    [head(key="b", priority=-1), head(key="b", waited=-1.001 * SECOND)],
    ids=["a lower priority", "younger jobs"],
)
def test_a_lane_is_asked_for_all_before_one_of(second: Head) -> None:
    assert counts(head(key="a"), second) == [("a", 1_000), ("b", 1_000)]


def test_ages_are_compared_with_the_oldest_lane_of_those_that_share() -> None:
    """Prevents that a lane waits behind a chain of younger ones, each a second after the last."""
    chain = [head(key=key, waited=-number * SECOND) for number, key in enumerate("abc")]
    assert counts(*chain) == [("a", 500), ("b", 500), ("a", 500), ("b", 500), ("c", 1_000)]


def test_a_kind_with_a_target_shares_with_nobody() -> None:
    """Prevents that a deadline is missed for jobs that have a later one, or none."""
    kinds = KINDS | {"other": KINDS["async"]}
    pressed = [head(key="a", waited=MINUTE), head(key="b", waited=MINUTE - SECOND)]
    policies = Policies(kinds=kinds, targets={"async": MINUTE})
    asked = counts(head("other", key="c", waited=MINUTE), *pressed, policies=policies)
    assert asked == [("a", 1_000), ("b", 1_000), ("c", 1_000)]
    # A target that is not in jeopardy yet goes by its age.
    asked = counts(head("other", key="c", waited=SECOND / 2), head(key="a"), policies=policies)
    assert asked == [("c", 1_000), ("a", 1_000)]


def test_keys_that_take_turns_share_nothing_with_other_lanes() -> None:
    policies = Policies(kinds=KINDS, rotation=Rotation({"async": lambda _key: 1.0}))
    room = Room(slots=1_000, threads=1_000)
    alone = [head("sync", key="s", waited=MINUTE), head("sync", key="t", waited=MINUTE)]
    asked = counts(*alone, head(key="a"), head(key="b"), policies=policies, room=room)
    assert asked[:4] == [("s", 500), ("t", 500), ("s", 500), ("t", 500)]
    assert {key for key, _ in asked[4:]} == {"a", "b"}


def test_a_lane_that_must_not_be_overtaken_is_asked_once() -> None:
    """Prevents that the second job of an ordered lane starts beside the first."""
    policies = Policies(kinds=KINDS, ordered=frozenset({"async"}))
    claim = plan([head(key="a"), head(key="b"), LAST], policies, WIDE, at_most=1_000)
    assert [ask.lane.key for ask in claim.asks] == ["a", "b", "last"]


# -- what nobody loses -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "second", [head(key="c"), head(key="c", priority=5, waited=-MINUTE)], ids=["priority", "age"]
)
def test_slots_that_a_shallow_lane_leaves_go_to_those_that_share_with_it(second: Head) -> None:
    """Prevents that jobs of lower priority, or younger ones, overtake the rest of a deep lane."""
    deep, shallow = head(key="a", priority=5), head(key="b", priority=5)
    assert taken((deep, 10_000), (shallow, 1), (second, 10_000)) == {"a": 999, "b": 1}


def test_one_deep_lane_among_shallow_ones_leaves_nothing_to_younger_lanes() -> None:
    lanes = [(head(key=f"{number}"), 10_000 if number == 0 else 1) for number in range(20)]
    assert "last" not in taken(*lanes, (LAST, 10_000))


def test_gates_answer_once_for_both_asks_of_a_lane() -> None:
    """Prevents that the rest of a lane does not draw on a limit that ran out in between."""
    answers = Counter[str]()

    def gates(lane: Lane) -> list[Allowance]:
        answers[lane.key] += 1
        return [Allowance("limit", 600)] if answers[lane.key] == 1 else []

    lanes = [(head(key=key), 10_000) for key in "ab"]
    assert sum(taken(*lanes, policies=Policies(kinds=KINDS, allowances=gates)).values()) == 600
    assert answers == {"a": 1, "b": 1}


def test_a_lane_that_little_can_start_of_leaves_its_share() -> None:
    limits = Policies(
        kinds=KINDS,
        allowances=lambda lane: [Allowance("b", 3, shared=False)] if lane.key == "b" else [],
    )
    lanes = [(head(key=key), 10_000) for key in "ab"]
    assert taken(*lanes, (LAST, 10_000), policies=limits) == {"a": 997, "b": 3}


def test_a_share_draws_on_what_is_left_of_an_allowance() -> None:
    """Prevents that an allowance is given twice, for the share and for the rest."""
    limits = Policies(
        kinds=KINDS, allowances=lambda lane: [Allowance(lane.key, 600, amount=2, shared=False)]
    )
    claim = plan([head(key="a"), head(key="b"), LAST], limits, WIDE, at_most=400, now=NOON)
    asked = [(ask.lane.key, ask.count) for ask in claim.asks]
    assert asked == [("a", 200), ("b", 200), ("a", 100), ("b", 100), ("last", 300)]
    assert claim.reserves == {"a": 600, "b": 600, "last": 600}


def test_no_tokens_are_reserved_for_more_jobs_of_a_lane_than_there_are_slots() -> None:
    """Prevents that lanes which share with it miss tokens for which it has no slots."""
    limits = Policies(
        kinds=KINDS, allowances=lambda _lane: [Allowance("limit", 1_500, amount=2, shared=False)]
    )
    claim = plan([head(key="a"), head(key="b")], limits, WIDE, at_most=400, now=NOON)
    asked = [(ask.lane.key, ask.count) for ask in claim.asks]
    assert asked == [("a", 200), ("b", 200), ("a", 200), ("b", 150)]


def test_kinds_that_keep_their_slots_leave_the_rest_to_quick_ones() -> None:
    room = Room(slots=1_000, threads=1_000, quick=frozenset({"async"}), free=10)
    lanes = [(head(key="quick"), 10_000), (head("sync", key="slow"), 10_000), (LAST, 10_000)]
    assert taken(*lanes, room=room) == {"quick": 990, "slow": 10}


def test_a_plan_that_is_cut_among_lanes_that_share_goes_on_with_the_next() -> None:
    spent: set[Lane] = set()

    def find(lane: Lane) -> list[Allowance]:
        spent.add(lane)
        return [Allowance(lane.key, 0)]

    def unspent(heads: object) -> list[Head]:
        assert isinstance(heads, list)
        return [head for head in heads if head.lane not in spent]

    policies = Policies(kinds=KINDS, allowances=find, unspent=unspent)
    many = [head(key=f"{number}") for number in range(MOST_SPENT + 1)]
    assert plan(many, policies, WIDE, at_most=1_000).cut
    assert (len(spent), plan(many, policies, WIDE, at_most=1_000).cut) == (MOST_SPENT, False)


@settings(max_examples=60)
@given(
    st.lists(heads, min_size=1, max_size=20, unique_by=lambda head: head.lane),
    st.lists(st.integers(1, 2_000), min_size=20, max_size=20),
    st.integers(1, 1_000),
    st.booleans(),
)
def test_however_deep_lanes_are_none_gets_jobs_while_a_more_urgent_one_has_more(
    found: list[Head], depths: list[int], slots: int, at_once: bool
) -> None:
    """Of one priority: all of the older lanes, or all of those of one age, go first."""
    if at_once:
        found = [Head(lane=head.lane, position=NOON) for head in found]
    known = sorted(
        [head for head in found if head.lane.kind in KINDS],
        key=lambda head: PLAIN.urgency(head),
    )
    held = Counter({head.lane: depth for head, depth in zip(known, depths, strict=False)})
    room = Room(slots=slots, threads=1_000, isolated_processes=1_000)
    claim = plan(known, PLAIN, room, at_most=1_000)
    got = meet(claim, held)
    assert got.total() == min(slots, held.total())
    assert len(claim.asks) <= 2 * min(slots, len(known))
    for number, urgent in enumerate(known):
        for other in known[number + 1 :]:
            if PLAIN.urgency(other) - PLAIN.urgency(urgent) > 1:
                assert got[other.lane] == 0 or got[urgent.lane] == held[urgent.lane]


@settings(max_examples=40)
@given(st.integers(1, 60), st.integers(51, 1_000))
def test_deep_lanes_of_one_age_fill_a_claim_together(lanes: int, at_most: int) -> None:
    many = [(head(key=f"{number}"), 10_000) for number in range(lanes)]
    got = taken(*many, room=Room(slots=at_most, threads=1))
    assert sum(got.values()) == at_most
    assert len(got) == min(lanes, -(-at_most // 50))
    assert max(got.values()) <= max(50, -(-at_most // lanes))
