"""Lanes whose tokens are used up are not asked for again, and hide no other lane."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.core.claims.heads import KINDS, ROOM, asked, head, heads
from windlass.core.claims.allotment import Allowance
from windlass.core.claims.lanes import Claim, Head
from windlass.core.claims.plan import MOST_SPENT, Policies, plan
from windlass.core.claims.room import Room
from windlass.core.jobs.job import Lane
from windlass.core.policies.fairness import Rotation

MINUTE = timedelta(minutes=1)
quick = settings(max_examples=40)
many_heads = st.lists(heads, max_size=30, unique_by=lambda head: head.lane)

rooms = st.builds(
    Room,
    slots=st.integers(-1, 20),
    threads=st.integers(-1, 20),
    isolated_processes=st.integers(-1, 20),
)


# -- lanes whose tokens are used up ----------------------------------------------------------------


class Till:
    """Tokens of each key, which remembers of which keys it has none; it counts who asks."""

    def __init__(self, tokens: dict[str, int]) -> None:
        self.tokens = tokens
        self.asked: list[Lane] = []
        self._empty: set[Lane] = set()

    def allowances(self, lane: Lane) -> list[Allowance]:
        self.asked.append(lane)
        left = self.tokens.get(lane.key, 0)
        if not left:
            self._empty.add(lane)
        return [Allowance(lane.key, left, shared=False)]

    def unspent(self, heads: Iterable[Head]) -> list[Head]:
        return [
            each
            for each in heads
            if self.tokens.get(each.lane.key, 0) or each.lane not in self._empty
        ]

    def policies(self, *, fair: bool, remembers: bool = True) -> Policies:
        return Policies(
            kinds=KINDS,
            rotation=Rotation({"async": lambda _key: 1.0}) if fair else None,
            allowances=self.allowances,
            unspent=self.unspent if remembers else None,
        )


fairly_or_not = pytest.mark.parametrize("fair", [False, True])


@quick
@given(
    many_heads,
    rooms,
    st.dictionaries(st.sampled_from(["acme", "globex"]), st.integers(0, 3)),
    st.booleans(),
)
def test_a_plan_does_not_depend_on_its_caches(
    heads: list[Head], room: Room, tokens: dict[str, int], fair: bool
) -> None:
    forgetful = Till(tokens).policies(fair=fair, remembers=False)
    expected = plan(heads, forgetful, room, at_most=9)
    policies = Till(tokens).policies(fair=fair)
    for _ in range(3):
        assert plan(heads, policies, room, at_most=9) == expected


@fairly_or_not
def test_a_lane_that_is_known_to_be_spent_is_not_asked_for_again(fair: bool) -> None:
    """Prevents: thousands of keys without a token keep a worker's loop busy with every plan."""
    till = Till({"rich": 5})
    heads = [head(key=f"k{number}", waited=MINUTE) for number in range(100)] + [head(key="rich")]
    policies = till.policies(fair=fair)
    assert asked(*heads, policies=policies) == [head(key="rich").lane]
    assert len(till.asked) == 101
    till.asked.clear()
    till.tokens["k7"] = 1
    assert asked(*heads, policies=policies) == [head(key="k7").lane, head(key="rich").lane]
    assert till.asked == [head(key="k7").lane, head(key="rich").lane]


@fairly_or_not
def test_a_plan_that_finds_many_lanes_spent_leaves_the_others_to_the_next_one(fair: bool) -> None:
    till = Till({"rich": 5})
    poor = [head(key=f"k{n}", waited=MINUTE) for n in range(2 * MOST_SPENT + 10)]
    policies, plans = till.policies(fair=fair), list[Claim]()
    while not plans or plans[-1].cut:
        till.asked.clear()
        plans.append(plan([*poor, head(key="rich")], policies, ROOM, at_most=100))
        assert len(till.asked) <= MOST_SPENT
    assert [len(each.asks) for each in plans] == [0, 0, 1]


@fairly_or_not
def test_a_thorough_plan_looks_at_all_lanes(fair: bool) -> None:
    till = Till({"rich": 5})
    poor = [head(key=f"k{n}", waited=MINUTE) for n in range(2 * MOST_SPENT)]
    heads, policies = [*poor, head(key="rich")], till.policies(fair=fair)
    claim = plan(heads, policies, ROOM, at_most=100, thorough=True)
    assert [ask.lane.key for ask in claim.asks] == ["rich"]
    assert not claim.cut


def test_a_lane_that_was_not_read_is_not_overtaken() -> None:
    """Prevents: the rest goes to the last who was asked, as if all the others had nothing."""
    till = Till({"rich": 9, "late": 9})
    poor = [head(key=f"k{n}", waited=MINUTE) for n in range(MOST_SPENT)]
    heads = [head(key="rich", waited=2 * MINUTE), *poor, head(key="late")]
    claim = plan(heads, till.policies(fair=True), Room(slots=8, threads=0), at_most=100)
    assert claim.cut
    assert [(ask.lane.key, ask.count) for ask in claim.asks] == [("rich", 1)]


@fairly_or_not
def test_lanes_that_are_allowed_nothing_but_may_be_at_any_time_are_all_asked(fair: bool) -> None:
    till = Till({"rich": 1})
    heads = [head(key=f"k{n}", waited=MINUTE) for n in range(2 * MOST_SPENT)] + [head(key="rich")]
    policies = till.policies(fair=fair, remembers=False)
    assert asked(*heads, policies=policies) == [head(key="rich").lane]


def test_lanes_that_are_not_served_change_nothing_about_ties() -> None:
    """Prevents: a plan that fails, since it compares a lane with a group as urgent as it."""
    policies = replace(Till({"acme": 9}).policies(fair=True), excluded=frozenset({"mail"}))
    heads = [head("sync", queue="mail"), head("sync", key="acme"), head("async", key="acme")]
    assert asked(*heads, policies=policies) == [heads[1].lane, heads[2].lane]
