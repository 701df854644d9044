"""The laws of fairness: keys take turns by their weights, and nobody's flood delays another."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from windlass.core.claims.allotment import Allowance
from windlass.core.claims.lanes import Claim, Head
from windlass.core.claims.plan import Policies, plan
from windlass.core.claims.room import SLOTS, Pool, Room
from windlass.core.errors import ConfigError
from windlass.core.jobs.job import Lane
from windlass.core.policies.fairness import (
    FEW_TURNS,
    MOST_TURNS,
    Rotation,
    checked_weights,
    weight_of,
)
from windlass.core.policies.pauses import Pauses

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)
quick = settings(max_examples=60, deadline=None)
keys = st.sampled_from(["acme", "bolt", "core", "dent", "eden"])
weightings = st.dictionaries(keys, st.sampled_from([0.5, 1.0, 2.0, 3.0, 10.0]))
rooms = st.lists(st.integers(1, 300), min_size=1, max_size=40)


class Shop:
    """Tenants with jobs, and a worker that claims for them as the claimer does."""

    def __init__(self, *, weights: Mapping[str, float] | None = None, **policies: Any) -> None:
        table = weights or {}
        self.rotation = Rotation({"mail": lambda key: table.get(key, 1.0)})
        kinds = {"mail": Pool.LOOP, "other": Pool.LOOP, "threaded": Pool.THREADS}
        self.policies = Policies(kinds=kinds, rotation=self.rotation, **policies)
        self.waiting: Counter[str] = Counter()
        self.served: Counter[str] = Counter()
        self.since: dict[str, datetime] = {}

    def plan(self, slots: int, *others: Head, plenty: bool = False) -> Claim:
        heads = [
            Head(lane=Lane("default", "mail", 0, key), position=self.since.get(key, NOON))
            for key, count in self.waiting.items()
            if count > 0
        ]
        room = Room(slots=10 * slots if plenty else slots, threads=slots)
        return plan([*others, *heads], self.policies, room, at_most=slots)

    def claim(self, slots: int) -> Counter[str]:
        claim = self.plan(slots)
        self.rotation.take(claim.turns)
        return self.meet(claim)

    def meet(self, claim: Claim) -> Counter[str]:
        """Bring what a claim asks for, as a store does, and what it has of it."""
        left, got = claim.budgets[SLOTS], Counter[str]()
        for ask in claim.asks:
            count = min(ask.count, left, self.waiting[ask.lane.key])
            got[ask.lane.key] += count
            left -= count
        lanes = {Lane("default", "mail", 0, key): count for key, count in got.items()}
        self.rotation.settle(claim.turns, lanes)
        self.waiting -= got
        self.served += got
        return got


@pytest.mark.parametrize(("tenants", "others"), [(10, False), (200, True)])
def test_a_claim_tells_whether_there_are_keys_whose_turn_comes_later(
    tenants: int, others: bool
) -> None:
    """So that who got less than there was room for knows that there is more to be had."""
    shop = Shop()
    for number in range(tenants):
        shop.waiting[f"tenant-{number}"] = 1
    claim = shop.plan(1_000, plenty=True)
    assert claim.others is others
    shop.rotation.take(claim.turns)
    assert (shop.meet(claim).total() < tenants) is others


# -- shares ----------------------------------------------------------------------------------------


@quick
@given(st.sets(keys, min_size=2), weightings, rooms)
def test_no_tenant_is_ever_beyond_its_share_by_more_than_one_quantum(
    tenants: set[str], weights: dict[str, float], claims: list[int]
) -> None:
    shop = Shop(weights=weights)
    quantum = -(-max(claims) // MOST_TURNS)
    for tenant in sorted(tenants):
        shop.waiting[tenant] = 1_000_000
    for slots in claims:
        assert shop.claim(slots).total() == slots, "nothing of the room is wasted"
        by_weight = {each: shop.served[each] / weights.get(each, 1) for each in tenants}
        for one in tenants:
            for other in tenants:
                most = quantum / weights.get(one, 1) + quantum / weights.get(other, 1)
                assert by_weight[one] - by_weight[other] <= most + 1e-6


@quick
@given(
    weightings,
    st.lists(st.tuples(keys, st.integers(1, 30), st.integers(1, 50)), min_size=1, max_size=40),
)
def test_nothing_starves_and_everything_that_comes_is_served(
    weights: dict[str, float], events: list[tuple[str, int, int]]
) -> None:
    shop = Shop(weights=weights)
    brought = Counter[str]()
    for tenant, jobs, slots in events:
        shop.waiting[tenant] += jobs
        brought[tenant] += jobs
        shop.claim(slots)
    for _ in range(brought.total() + 1):
        shop.claim(1)
    assert shop.served == brought


@quick
@given(st.integers(1, 100), st.integers(0, 30), weightings)
def test_a_new_key_is_next_however_many_jobs_others_have(
    slots: int, claims: int, weights: dict[str, float]
) -> None:
    shop = Shop(weights=weights)
    shop.waiting["acme"] = 100_000
    for _ in range(claims):
        shop.claim(slots)
    shop.waiting["bolt"], shop.since["bolt"] = 1, NOON + SECOND
    if claims:
        assert shop.claim(1) == {"bolt": 1}
    else:
        assert sum((shop.claim(1) for _ in range(64)), Counter())["bolt"] == 1


def test_a_key_that_was_absent_has_no_arrears() -> None:
    shop = Shop()
    shop.waiting.update(acme=10_000, bolt=1)
    for _ in range(50):
        shop.claim(100)
    shop.waiting["bolt"] = 10_000
    shop.served.clear()
    for _ in range(10):
        shop.claim(100)
    assert abs(shop.served["acme"] - shop.served["bolt"]) <= 4, "no more than two quanta apart"


def test_weights_divide_what_there_is() -> None:
    shop = Shop(weights={"acme": 3})
    shop.waiting.update(acme=100_000, bolt=100_000)
    for _ in range(40):
        shop.claim(100)
    assert shop.served["acme"] / shop.served["bolt"] == pytest.approx(3, rel=0.02)


def test_a_share_that_one_does_not_use_goes_to_the_others_in_the_same_claim() -> None:
    shop = Shop()
    shop.waiting.update(acme=10_000)
    shop.claim(100)
    shop.waiting.update(bolt=1)
    assert shop.claim(100) == {"bolt": 1, "acme": 99}
    shop.waiting.update(bolt=1, core=1)
    assert shop.claim(100) == {"bolt": 1, "core": 1, "acme": 98}


def test_of_a_thousand_tenants_a_claim_asks_a_few_and_all_have_their_turn() -> None:
    shop = Shop()
    tenants = [f"tenant-{number}" for number in range(1_000)]
    shop.waiting.update(dict.fromkeys(tenants, 100))
    claims = 0
    while len(shop.served) < 1_000:
        assert len(shop.plan(100).asks) <= MOST_TURNS
        assert shop.claim(100).total() == 100
        claims += 1
    assert claims == 20, "two of each tenant, a hundred with each claim"
    assert set(shop.served.values()) == {2}


@pytest.mark.parametrize(("jobs", "asked"), [(1_000, FEW_TURNS), (1, MOST_TURNS)])
def test_where_slots_are_not_scarce_a_claim_asks_as_few_tenants_as_fill_it(
    jobs: int, asked: int
) -> None:
    """Another claim follows at once, and a lane more costs the store more than a job more."""
    shop = Shop()
    shop.waiting.update({f"tenant-{number}": jobs for number in range(600)})
    for _ in range(8):
        claim = shop.plan(256, plenty=True)
        shop.rotation.take(claim.turns)
        shop.meet(claim)
    assert len(shop.plan(256, plenty=True).asks) == asked
    assert len(shop.plan(256).asks) == MOST_TURNS


def test_two_claims_under_way_do_not_serve_the_same_turn() -> None:
    shop = Shop()
    shop.waiting.update(acme=10, bolt=10, core=10, dent=10)
    first = shop.plan(2)
    shop.rotation.take(first.turns)
    second = shop.plan(2)
    shop.rotation.take(second.turns)
    asked = [ask.lane.key for claim in (first, second) for ask in claim.asks]
    assert sorted(asked) == ["acme", "bolt", "core", "dent"]


def test_a_failed_claim_costs_no_key_its_turn() -> None:
    shop = Shop()
    shop.waiting.update(acme=10, bolt=10)
    lost = shop.plan(1)
    shop.rotation.take(lost.turns)
    shop.rotation.settle(lost.turns, {})
    assert [ask.lane for ask in shop.plan(1).asks] == [ask.lane for ask in lost.asks]


def test_keys_that_are_gone_are_forgotten() -> None:
    shop = Shop()
    for number in range(5_000):
        shop.waiting = Counter({f"tenant-{number}": 1})
        shop.claim(1)
    (clock,) = shop.rotation._clocks.values()
    assert len(clock.given) <= 2_001


# -- beside others ---------------------------------------------------------------------------------


def test_a_group_is_as_urgent_as_its_oldest_job() -> None:
    shop = Shop()
    shop.waiting.update(acme=10, bolt=10)
    shop.since["bolt"] = NOON - SECOND
    older = Head(lane=Lane("default", "other"), position=NOON - 2 * SECOND)
    newer = Head(lane=Lane("default", "other"), position=NOON)
    assert [ask.lane.kind for ask in shop.plan(100, older).asks] == ["other", "mail", "mail"]
    assert [ask.lane.kind for ask in shop.plan(100, newer).asks] == ["mail", "mail", "other"]


def test_a_tenant_that_may_start_nothing_keeps_nobody_from_his_turn() -> None:
    """Prevents: newcomers who begin where a tenant stands that its limit holds back, far behind."""

    def allowances(lane: Lane) -> list[Allowance]:
        return [Allowance("full", 0, shared=False)] if lane.key == "acme" else []

    shop = Shop(allowances=allowances)
    shop.waiting.update(acme=1_000, bolt=10_000)
    for _ in range(20):
        assert shop.claim(10) == {"bolt": 10}
    shop.waiting["core"] = 10_000
    shop.served.clear()
    for _ in range(10):
        shop.claim(10)
    assert abs(shop.served["bolt"] - shop.served["core"]) <= 2
    assert shop.served["acme"] == 0


def test_no_more_is_asked_of_a_tenant_than_its_own_limit_allows() -> None:
    shop = Shop(allowances=lambda lane: [Allowance(f"limit:{lane.key}", 3, shared=False)])
    shop.waiting.update(acme=1_000, bolt=1_000)
    claim = shop.plan(100)
    assert {ask.lane.key: ask.count for ask in claim.asks} == {"acme": 3, "bolt": 3}
    assert claim.reserves == {"limit:acme": 3, "limit:bolt": 3}


def test_a_paused_tenant_is_not_asked_and_neither_is_a_paused_kind() -> None:
    shop = Shop(paused=Pauses(keys=frozenset({"acme"})))
    shop.waiting.update(acme=10, bolt=10)
    assert shop.claim(4) == {"bolt": 4}
    shop = Shop(paused=Pauses(kinds=frozenset({"mail"})))
    shop.waiting.update(acme=10, bolt=10)
    assert not shop.plan(4).asks


def test_fair_lanes_draw_on_threads_as_others_do() -> None:
    rotation = Rotation({"threaded": lambda _: 1.0})
    policies = Policies(kinds={"threaded": Pool.THREADS}, rotation=rotation)
    heads = [Head(lane=Lane("default", "threaded", 0, key), position=NOON) for key in "abc"]
    claim = plan(heads, policies, Room(slots=100, threads=2), at_most=100)
    assert sum(turn.jobs for turn in claim.turns) == 2
    assert {ask.draws for ask in claim.asks} == {("slots", "threads")}
    assert not plan(heads, policies, Room(slots=100, threads=0), at_most=100).asks


# -- weights ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "weights",
    [
        *({"a": 0}, {"a": -1}, {"a": float("nan")}, {"a": float("inf")}, {"a": "3x"}),
        *({"a": True}, {"a": None}, {1: 2}, 3, "heavy"),
    ],
)
def test_weights_that_cannot_be_are_refused(weights: Any) -> None:
    with pytest.raises(ConfigError, match="kind 'mail'"):
        checked_weights("mail", weights)


def test_a_key_without_a_weight_has_one() -> None:
    assert weight_of("mail", {"acme": 3}, "bolt") == 1
    assert weight_of("mail", {"acme": 3}, "acme") == 3
    assert weight_of("mail", len, "four") == 4


def test_a_function_that_fails_says_for_whom() -> None:
    with pytest.raises(ConfigError, match="'acme' failed: KeyError"):
        weight_of("mail", lambda key: dict[str, float]()[key], "acme")
