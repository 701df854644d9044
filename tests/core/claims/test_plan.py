"""The laws of planning: which lanes are asked, in which order, and for how many."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.core.claims.heads import KINDS, NOON, ROOM, asked, head, heads, meet
from windlass.core.claims.lanes import Floor, Head
from windlass.core.claims.plan import Policies, plan
from windlass.core.claims.room import FREE, MOST_BUDGETS, SLOTS, Pool, Room
from windlass.core.jobs.job import Lane
from windlass.core.policies.pauses import Pauses

MINUTE = timedelta(minutes=1)
quick = settings(max_examples=40)
many_heads = st.lists(heads, max_size=30, unique_by=lambda head: head.lane)

rooms = st.builds(
    Room,
    slots=st.integers(-1, 20),
    threads=st.integers(-1, 20),
    isolated_processes=st.integers(-1, 20),
)

shared_rooms = st.builds(
    Room,
    slots=st.integers(-1, 20),
    threads=st.integers(-1, 20),
    isolated_processes=st.integers(-1, 20),
    queues=st.dictionaries(st.sampled_from(["default", "mail"]), st.integers(-1, 20)),
)

policies_at_work = st.builds(
    Policies,
    kinds=st.just(KINDS),
    queues=st.none() | st.just(frozenset({"default", "paused"})),
    excluded=st.just(frozenset()) | st.just(frozenset({"mail"})),
    paused=st.just(Pauses(queues=frozenset({"paused"}))),
)


# -- which lanes -----------------------------------------------------------------------------------


def test_a_kind_that_this_worker_does_not_know_is_not_asked_for() -> None:
    assert asked(head("unknown", waited=MINUTE), head()) == [head().lane]


def test_a_paused_queue_is_not_asked() -> None:
    policies = Policies(kinds=KINDS, paused=Pauses(queues=frozenset({"mail"})))
    assert asked(head(queue="mail", waited=MINUTE), head(), policies=policies) == [head().lane]


def test_a_worker_of_some_queues_asks_no_others() -> None:
    policies = Policies(kinds=KINDS, queues=frozenset({"mail"}))
    mail = head(queue="mail")
    assert asked(head(), mail, head(queue="other"), policies=policies) == [mail.lane]


def test_a_queue_that_is_excluded_is_not_asked_and_all_others_are() -> None:
    policies = Policies(kinds=KINDS, excluded=frozenset({"mail"}))
    other = head(queue="other")
    assert asked(head(queue="mail", waited=MINUTE), other, policies=policies) == [other.lane]


def test_an_exclusion_wins_over_being_served() -> None:
    policies = Policies(
        kinds=KINDS, queues=frozenset({"mail", "default"}), excluded=frozenset({"mail"})
    )  # fmt: skip
    assert asked(head(queue="mail"), head(), policies=policies) == [head().lane]


def test_a_worker_of_no_queue_asks_for_nothing() -> None:
    assert asked(head(), policies=Policies(kinds=KINDS, queues=frozenset())) == []


def test_a_pause_wins_over_being_served() -> None:
    policies = Policies(
        kinds=KINDS, queues=frozenset({"mail"}), paused=Pauses(queues=frozenset({"mail"}))
    )  # fmt: skip
    assert asked(head(queue="mail"), policies=policies) == []


@quick
@given(many_heads, policies_at_work, shared_rooms, st.integers(0, 20))
def test_every_lane_that_may_run_is_asked_once_where_there_is_room(
    heads: list[Head], policies: Policies, room: Room, at_most: int
) -> None:
    lanes = asked(*heads, policies=policies, room=room, at_most=at_most)
    slots = min(room.slots, at_most)
    pools = {Pool.LOOP: slots, Pool.THREADS: room.threads, Pool.ISOLATED: room.isolated_processes}
    may_run = {
        head.lane
        for head in heads
        if head.lane.kind in KINDS
        and head.lane.queue != "paused"
        and (policies.queues is None or head.lane.queue in policies.queues)
        and head.lane.queue not in policies.excluded
        and room.queues.get(head.lane.queue, 1) > 0
        and min(slots, pools[KINDS[head.lane.kind]]) > 0
    }
    assert set(lanes) <= may_run
    assert len(lanes) == len(set(lanes))
    # Whoever is left out is left out because the others alone can fill the room.
    of_pool = Counter(KINDS[lane.kind] for lane in lanes)
    of_queue = Counter(lane.queue for lane in lanes)
    for lane in may_run - set(lanes):
        pool = KINDS[lane.kind]
        is_full = len(lanes) == slots or of_pool[pool] == pools[pool]
        assert is_full or of_queue[lane.queue] == room.queues.get(lane.queue), lane


# -- in which order (D6) ---------------------------------------------------------------------------


def test_the_oldest_head_goes_first_among_equals() -> None:
    young, old = head(key="young"), head(key="old", waited=MINUTE)
    assert asked(young, old) == [old.lane, young.lane]


def test_the_greater_priority_goes_first_among_heads_of_one_age() -> None:
    low, high, middle = head(priority=-1), head(priority=5), head()
    assert asked(low, high, middle) == [high.lane, middle.lane, low.lane]


@pytest.mark.parametrize(
    ("waited", "first"),
    [(4 * MINUTE, 5), (5 * MINUTE - timedelta.resolution, 5), (6 * MINUTE, 0), (60 * MINUTE, 0)],
)
def test_an_old_head_of_low_priority_overtakes_in_the_end(waited: timedelta, first: int) -> None:
    assert asked(head(priority=5), head(waited=waited))[0].priority == first


@quick
@given(st.integers(-100, 100), st.integers(1, 200), st.timedeltas(MINUTE / 60, 60 * MINUTE))
def test_nothing_starves_behind_fresh_jobs_of_higher_priority(
    priority: int, steps: int, aging: timedelta
) -> None:
    policies = Policies(kinds=KINDS, aging=aging)
    old = head(priority=priority, waited=steps * aging + timedelta.resolution)
    fresh = head(priority=priority + steps)
    assert asked(fresh, old, policies=policies)[0] == old.lane


@quick
@given(many_heads)
def test_the_order_of_the_sweep_decides_nothing_but_ties(heads: list[Head]) -> None:
    policies = Policies(kinds=KINDS)
    order = {head.lane: policies.urgency(head) for head in heads}
    for lanes in (asked(*heads), asked(*reversed(heads))):
        assert [order[lane] for lane in lanes] == sorted(order[lane] for lane in lanes)


@pytest.mark.parametrize("extreme", [2**31 - 1, -(2**31), 2**63 - 1, -(2**63)])
def test_no_priority_is_so_extreme_that_it_stops_the_worker(extreme: int) -> None:
    """One such job in the store, put there by any producer, would otherwise stop every worker."""
    lanes = asked(head(), head(priority=extreme), head(key="other"))
    assert len(lanes) == 3
    assert lanes[0 if extreme > 0 else -1].priority == extreme


# -- how many --------------------------------------------------------------------------------------


def test_a_lane_of_coroutines_is_asked_for_all_slots() -> None:
    (ask,) = plan([head("async")], Policies(kinds=KINDS), ROOM, at_most=100).asks
    assert (ask.count, ask.draws) == (10, (SLOTS,))


def test_a_lane_of_threads_is_asked_for_no_more_than_the_threads() -> None:
    (ask,) = plan([head("sync")], Policies(kinds=KINDS), ROOM, at_most=100).asks
    assert (ask.count, ask.draws) == (4, (SLOTS, "threads"))


def test_no_more_is_asked_than_at_most() -> None:
    claim = plan([head("async"), head("sync")], Policies(kinds=KINDS), ROOM, at_most=3)
    assert [ask.count for ask in claim.asks] == [3, 3]
    assert claim.budgets[SLOTS] == 3


def test_without_threads_coroutines_still_run() -> None:
    room = Room(slots=5, threads=0)
    assert asked(head("sync", waited=MINUTE), head("async"), room=room) == [head("async").lane]


@pytest.mark.parametrize(
    ("room", "at_most"),
    [
        (Room(slots=0, threads=0), 10),
        (Room(slots=0, threads=4), 10),
        (Room(slots=-1, threads=4), 10),
        (ROOM, 0),
    ],
)
def test_where_there_is_no_room_nothing_is_asked(room: Room, at_most: int) -> None:
    assert asked(head("async"), head("sync"), room=room, at_most=at_most) == []


def test_where_nothing_waits_nothing_is_asked() -> None:
    assert asked() == []


@quick
@given(many_heads, policies_at_work, shared_rooms, st.integers(0, 20), st.data())
def test_claimed_jobs_always_fit_into_the_room(
    heads: list[Head], policies: Policies, room: Room, at_most: int, data: st.DataObject
) -> None:
    claim = plan(heads, policies, room, at_most=at_most)
    held = Counter({head.lane: data.draw(st.integers(1, 30)) for head in heads})
    taken = meet(claim, held)
    threads = sum(count for lane, count in taken.items() if KINDS[lane.kind] is Pool.THREADS)
    assert taken.total() <= max(0, min(room.slots, at_most))
    assert threads <= max(0, room.threads)
    for queue, free in room.queues.items():
        of_queue = sum(count for lane, count in taken.items() if lane.queue == queue)
        assert of_queue <= max(0, free), queue
    assert all(ask.count > 0 for ask in claim.asks)
    assert all(name in claim.budgets for ask in claim.asks for name in ask.draws)


@quick
@given(many_heads, rooms, st.integers(0, 20))
def test_room_is_left_empty_only_when_nothing_waits_that_could_use_it(
    heads: list[Head], room: Room, at_most: int
) -> None:
    held = Counter({head.lane: 100 for head in heads})
    taken = meet(plan(heads, Policies(kinds=KINDS), room, at_most=at_most), held)
    kinds = {head.lane.kind for head in heads}
    slots = max(0, min(room.slots, at_most))
    threads = max(0, room.threads) if "sync" in kinds else 0
    children = max(0, room.isolated_processes) if "isolated" in kinds else 0
    assert taken.total() == (slots if "async" in kinds else min(slots, threads + children))


def test_no_more_lanes_are_asked_than_could_fill_the_room_with_one_job_each() -> None:
    """Prevents: ten thousand lanes, and a claim that looks into each of them for a hundred jobs."""
    sync = [head("sync", key=f"s{number}", waited=2 * MINUTE) for number in range(500)]
    many = [head("async", key=f"a{number}") for number in range(500)]
    lanes = asked(*sync, *many)
    assert Counter(lane.kind for lane in lanes) == {"sync": ROOM.threads, "async": 6}
    assert len(lanes) == ROOM.slots


# -- slots of a queue's own ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("free", "at_most", "count"), [(3, 100, 3), (3, 2, 2), (10, 100, 10), (50, 100, 10)]
)
def test_a_queue_with_slots_is_asked_for_no_more_than_are_free(
    free: int, at_most: int, count: int
) -> None:
    room = Room(slots=10, threads=4, queues={"mail": free})
    claim = plan([head(queue="mail")], Policies(kinds=KINDS), room, at_most=at_most)
    assert [ask.count for ask in claim.asks] == [count]


def test_all_lanes_of_a_queue_share_its_slots() -> None:
    room = Room(slots=10, threads=4, queues={"mail": 3})
    heads = [head(kind, queue="mail", priority=n) for kind in KINDS for n in (1, 2)]
    claim = plan(heads, Policies(kinds=KINDS), room, at_most=100)
    assert meet(claim, Counter({each.lane: 9 for each in heads})).total() == 3


def test_a_queue_whose_slots_are_taken_stands_in_nobodys_way() -> None:
    room = Room(slots=10, threads=4, queues={"mail": 0})
    claim = plan(
        [head(queue="mail", waited=MINUTE), head()], Policies(kinds=KINDS), room, at_most=100
    )
    assert [(ask.lane.queue, ask.count) for ask in claim.asks] == [("default", 10)]


def test_a_queue_without_slots_of_its_own_has_all_of_them() -> None:
    room = Room(slots=10, threads=4, queues={"mail": 3})
    claim = plan([head(queue="mail"), head()], Policies(kinds=KINDS), room, at_most=100)
    held = Counter({head(queue="mail").lane: 9, head().lane: 99})
    assert meet(claim, held) == {head(queue="mail").lane: 3, head().lane: 7}


def test_more_queues_with_slots_than_budgets_are_asked_one_claim_after_the_other() -> None:
    """Prevents: a budget that has no bit in the store, and a bound that nobody keeps."""
    names = [f"queue-{number:02}" for number in range(50)]
    room = Room(slots=1000, threads=4, queues=dict.fromkeys(names, 2))
    held = Counter({head(queue=name).lane: 5 for name in names})
    taken = Counter[Lane]()
    for _ in range(2):
        left = {name: 2 - taken[head(queue=name).lane] for name in names}
        heads = [head(queue=name, waited=(50 - n) * MINUTE) for n, name in enumerate(names)]
        claim = plan(
            heads, Policies(kinds=KINDS), Room(slots=1000, threads=4, queues=left), at_most=1000
        )
        assert len(claim.budgets) <= MOST_BUDGETS
        taken += meet(claim, held - taken)
    assert room.queues == {lane.queue: count for lane, count in taken.items()}


def test_lanes_that_cannot_run_use_up_no_budget() -> None:
    """Prevents: queues whose threads are all busy, which keep those out that could start."""
    names = [f"queue-{number:02}" for number in range(50)]
    room = Room(slots=10, threads=0, queues=dict.fromkeys([*names, "mail"], 2))
    blocked = [head("sync", queue=name, waited=MINUTE) for name in names]
    assert asked(*blocked, head(queue="mail"), room=room) == [head(queue="mail").lane]


def test_a_lane_that_is_barred_is_not_asked_and_not_waited_for() -> None:
    policies = Policies(kinds=KINDS, bars=lambda lane: lane.kind == "sync")
    assert asked(head("sync"), head("async"), policies=policies) == [head("async").lane]
    assert not policies.serves(head("sync").lane)


# -- limits ----------------------------------------------------------------------------------------


def test_a_claim_of_an_ordered_kind_begins_at_the_head_of_its_lane() -> None:
    """Prevents: a job that went back below the floor is overtaken by the next one of its key."""
    floor = Floor(NOON, 7)
    lane = Head(lane=Lane("default", "async"), position=NOON, floor=floor)
    for ordered, expected in ((frozenset[str](), floor), (frozenset({"async"}), None)):
        policies = Policies(kinds=KINDS, ordered=ordered)
        (ask,) = plan([lane], policies, ROOM, at_most=10).asks
        assert (ask.floor, ask.ordered) == (expected, bool(ordered))


def test_a_lane_whose_tokens_are_used_up_does_not_count_as_work_that_waits() -> None:
    """Prevents: slots that grow for jobs which a limit keeps from starting."""
    left = {"async": 1, "sync": 0}
    policies = Policies(kinds=KINDS, lets=lambda lane: left[lane.kind] > 0)
    assert policies.may_run(head("async").lane)
    assert not policies.may_run(head("sync").lane)
    assert not policies.may_run(head("unknown").lane)


AHEAD = Room(slots=500, threads=4, isolated_processes=2, quick={"async"}, free=7)


def test_quick_kinds_are_asked_for_more_than_there_are_slots() -> None:
    (ask,) = plan([head("async")], Policies(kinds=KINDS), AHEAD, at_most=300).asks
    assert (ask.count, ask.draws) == (300, (SLOTS,))


def test_kinds_that_keep_their_slots_are_asked_for_no_more_than_are_free() -> None:
    kinds = {**KINDS, "slow": Pool.LOOP}
    heads = [head("slow", waited=2 * MINUTE), head("async", waited=MINUTE), head("sync")]
    claim = plan(heads, Policies(kinds=kinds), AHEAD, at_most=300)
    assert {ask.lane.kind: ask.count for ask in claim.asks} == {"slow": 7, "async": 300, "sync": 4}
    assert claim.budgets[FREE] == 7, "all of them together, not each"
    assert all((FREE in ask.draws) == (ask.lane.kind != "async") for ask in claim.asks)


def test_without_a_free_slot_only_quick_kinds_are_asked() -> None:
    room = replace(AHEAD, free=0)
    assert asked(head("sync", waited=MINUTE), head("async"), room=room) == [head("async").lane]
