"""What a process believes about the lanes between two sweeps."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import pytest

from windlass.core.claims.lanes import Floor, Head, Sweep
from windlass.core.jobs.job import Lane
from windlass.store.postgres.lane_cache import AskResult, LaneCache, LaneCaches

START = datetime(2030, 1, 1, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)
MAIL, REPORT = Lane("default", "mail"), Lane("default", "report", 5, "tenant")


def floor(seconds: int, seq: int = 1) -> Floor:
    return Floor(START + seconds * SECOND, seq)


def sweep_into(
    lanes: LaneCache,
    heads: dict[Lane, Floor],
    *,
    next_due: datetime | None = None,
    cost: float = 0.001,
    now: float = 100.0,
) -> None:
    shown = tuple(Head(lane=lane, position=place.due_at) for lane, place in heads.items())
    sweep = Sweep(heads=shown, next_due=next_due, now=START, mark=1)
    lanes.swept(heads.items(), sweep, cost=cost, now=now)


def claimed(lanes: LaneCache, lane: Lane, last: Floor | None, *, dry: bool = False) -> None:
    lanes.claimed([AskResult(lane, [], last, dry, unreadable=[])])


def believed(lanes: LaneCache) -> dict[Lane, Floor | None]:
    return {head.lane: head.floor for head in lanes.believed(0, 100.0).heads}


# -- heads and floors --------------------------------------------------------------------------


def test_nothing_is_believed_before_the_first_sweep() -> None:
    assert believed(LaneCache()) == {}


def test_a_sweep_is_believed_with_its_heads_as_floors() -> None:
    lanes = LaneCache()
    sweep_into(lanes, {MAIL: floor(1), REPORT: floor(2)})
    assert believed(lanes) == {MAIL: floor(1), REPORT: floor(2)}
    positions = {head.lane: head.position for head in lanes.believed(0, 101.0).heads}
    assert positions == {MAIL: START + SECOND, REPORT: START + 2 * SECOND}


def test_a_claim_raises_the_floor_to_the_last_job_it_took() -> None:
    lanes = LaneCache()
    sweep_into(lanes, {MAIL: floor(1), REPORT: floor(2)})
    claimed(lanes, MAIL, floor(7, seq=70))
    assert believed(lanes) == {MAIL: floor(7, seq=70), REPORT: floor(2)}


def test_a_lane_that_gave_less_than_asked_is_believed_empty() -> None:
    lanes = LaneCache()
    sweep_into(lanes, {MAIL: floor(1), REPORT: floor(2)})
    claimed(lanes, MAIL, floor(7), dry=True)
    claimed(lanes, REPORT, None, dry=True)
    assert believed(lanes) == {}


def test_a_dry_lane_stays_dry_when_it_gives_nothing_again() -> None:
    lanes = LaneCache()
    claimed(lanes, MAIL, None, dry=True)
    assert believed(lanes) == {}


def test_a_claim_of_a_lane_that_was_not_known_makes_it_known() -> None:
    lanes = LaneCache()
    claimed(lanes, MAIL, floor(3))
    assert believed(lanes) == {MAIL: floor(3)}


def test_the_next_sweep_lowers_a_floor_again() -> None:
    """Prevents: a job that committed late below the floor waits for ever."""
    lanes = LaneCache()
    sweep_into(lanes, {MAIL: floor(1)})
    claimed(lanes, MAIL, floor(9))
    sweep_into(lanes, {MAIL: floor(2)})
    assert believed(lanes) == {MAIL: floor(2)}


def test_a_sweep_that_does_not_show_a_lane_ends_the_belief_in_it() -> None:
    lanes = LaneCache()
    sweep_into(lanes, {MAIL: floor(1), REPORT: floor(2)})
    sweep_into(lanes, {REPORT: floor(2)})
    assert believed(lanes) == {REPORT: floor(2)}


# -- wake-ups ----------------------------------------------------------------------------------


def test_a_wake_up_makes_every_known_lane_worth_asking_from_its_floor_on() -> None:
    lanes = LaneCache()
    sweep_into(lanes, {MAIL: floor(1), REPORT: floor(2)})
    claimed(lanes, MAIL, floor(7), dry=True)
    sweep_into(lanes, {})
    assert believed(lanes) == {}
    lanes.woken(0.0)
    assert believed(lanes) == {MAIL: floor(7), REPORT: floor(2)}


def test_a_wake_up_does_not_lower_the_floor_of_a_lane_that_is_believed_in() -> None:
    lanes = LaneCache()
    sweep_into(lanes, {MAIL: floor(1)})
    claimed(lanes, MAIL, floor(7))
    lanes.woken(0.0)
    assert believed(lanes) == {MAIL: floor(7)}


def test_a_lane_that_was_woken_in_vain_is_dry_again_after_one_claim() -> None:
    lanes = LaneCache()
    sweep_into(lanes, {MAIL: floor(1)})
    sweep_into(lanes, {})
    lanes.woken(0.0)
    claimed(lanes, MAIL, None, dry=True)
    assert believed(lanes) == {}


def test_lanes_that_come_and_go_are_forgotten_in_the_end() -> None:
    """Prevents: a key per tenant and years of uptime fill the memory, and every wake-up's claim."""
    lanes = LaneCache()
    for round_ in range(3):
        sweep_into(lanes, {Lane("q", "k", 0, f"{round_}-{n}"): floor(n) for n in range(6_000)})
    sweep_into(lanes, {MAIL: floor(1)})
    lanes.woken(0.0)
    assert len(believed(lanes)) <= 10_001
    assert believed(lanes)[MAIL] == floor(1)


# -- queues that a wake-up names ---------------------------------------------------------------


def crowded(queues: frozenset[str] | None = None, *, cost: float = 0.1) -> LaneCache:
    """Return a cache after a sweep of more lanes than are asked after a wake-up."""
    lanes = LaneCache(queues)
    sweep_into(lanes, {Lane("default", "kind", 0, f"{n}"): floor(n) for n in range(200)}, cost=cost)
    return lanes


def look(
    lanes: LaneCache, now: float, heads: Sequence[tuple[Lane, Floor]] = (), *, cost: float = 0.0
) -> list[str]:
    """Look at the queues that are to be looked at, and return them."""
    unseen = lanes.unseen(now)
    if unseen:
        lanes.looked(unseen, heads, cost=cost, now=now)
    return sorted(unseen)


def test_a_queue_that_is_named_is_looked_at_once_where_many_lanes_are_known() -> None:
    """Prevents: a job in an empty lane waits for a sweep of all lanes, which is due late."""
    lanes = crowded()
    lanes.woken(100.1, ["rare", "default"])
    assert lanes.due_in(100.1) == 0.0
    assert look(lanes, 100.1) == ["default", "rare"]
    assert look(lanes, 100.1) == []
    assert lanes.due_in(100.1) == pytest.approx(1.9), "the sweep of all lanes comes nevertheless"


def test_a_queue_is_named_to_no_avail_where_few_lanes_are_known() -> None:
    """They are asked at once, without another look."""
    lanes = LaneCache()
    sweep_into(lanes, {MAIL: floor(1)}, cost=0.1)
    lanes.woken(100.1, ["default"])
    assert look(lanes, 100.1) == []


def test_a_look_adds_the_lanes_that_it_found_and_leaves_the_others() -> None:
    lanes, rare = crowded(), Lane("rare", "kind")
    lanes.woken(100.1, ["rare"])
    assert look(lanes, 100.1, [(rare, floor(7))], cost=0.001)
    assert believed(lanes)[rare] == floor(7)
    assert len(believed(lanes)) == 201


def test_a_look_is_due_again_after_twenty_times_what_the_last_one_cost() -> None:
    """Prevents: a queue of thousands of keys is read for each of its jobs."""
    lanes = crowded()
    lanes.woken(100.1, ["rare"])
    assert look(lanes, 100.1, cost=0.01)
    lanes.woken(100.2, ["rare"])
    assert look(lanes, 100.2) == []
    assert lanes.due_in(100.2) == pytest.approx(0.1)
    assert look(lanes, 100.31) == ["rare"]


def test_a_queue_that_is_named_during_a_sweep_is_looked_at_after_it() -> None:
    """Prevents: a job that came after the snapshot of a sweep waits for the next poll."""
    lanes = crowded()
    lanes.woken(100.1, ["rare"])
    sweep_into(lanes, {Lane("default", "kind", 0, f"{n}"): floor(n) for n in range(200)}, cost=0.1)
    assert lanes.due_in(100.1) == 0.0
    assert look(lanes, 100.1) == ["rare"]


def test_a_queue_is_unseen_until_a_look_has_ended_and_if_it_was_named_again_meanwhile() -> None:
    """Prevents: one who looks takes a queue from another, who waits; or a wake-up gets lost."""
    lanes = crowded()
    lanes.woken(100.1, ["rare", "late"])
    under_way = lanes.unseen(100.1)
    assert lanes.unseen(100.1) == under_way
    lanes.woken(100.1, ["late"])
    lanes.looked(under_way, [], cost=0.0, now=100.1)
    assert look(lanes, 100.1) == ["late"]


def test_a_queue_that_is_not_served_is_not_looked_at() -> None:
    lanes = crowded(frozenset({"default"}))
    lanes.woken(100.1, ["rare", "default"])
    assert look(lanes, 100.1) == ["default"]


def test_queues_named_lately_are_looked_at_again_while_wake_ups_are_turned_off() -> None:
    lanes = crowded()
    lanes.woken(100.1, ["rare"])
    assert look(lanes, 100.1)
    lanes.call_again(101.0)
    assert look(lanes, 101.0) == ["rare"]
    lanes.call_again(200.0)
    assert look(lanes, 200.0) == []


def test_a_wake_up_that_names_too_many_queues_is_left_to_the_sweep() -> None:
    lanes = crowded()
    before = lanes.unnamed
    lanes.woken(100.1, [f"queue-{n}" for n in range(101)])
    lanes.woken(100.1)
    assert look(lanes, 100.1) == []
    assert lanes.unnamed == before + 2


# -- caches of several sets of queues ----------------------------------------------------------


def test_each_set_of_queues_has_a_cache_and_all_learn_what_was_claimed() -> None:
    caches, mail = LaneCaches(), frozenset({"default"})
    everything, own = caches.of(None, 100.0), caches.of(mail, 100.0)
    other = caches.of(frozenset({"other"}), 100.0)
    assert caches.of(mail, 100.0) is own
    caches.claimed([AskResult(MAIL, [], floor(3), dry=False, unreadable=[])])
    assert believed(everything) == believed(own) == {MAIL: floor(3)}
    assert believed(other) == {}
    for cache in (everything, own, other):
        sweep_into(cache, {}, next_due=START, now=100.0)
        assert not cache.is_due(100.0)
    caches.promoted()
    assert own.believed(1, 100.0).next_due is None
    caches.doubt()
    assert all(cache.is_due(100.0) for cache in (everything, own, other))


def test_a_cache_that_nobody_uses_is_dropped() -> None:
    """Prevents: what is claimed for one set of queues fills the cache of another, which is never
    swept again.
    """
    caches, mail = LaneCaches(), frozenset({"default"})
    old = caches.of(None, 100.0)
    caches.of(mail, 130.0)
    assert caches.of(None, 131.0) is old
    caches.of(mail, 192.0)
    assert len(list(caches)) == 1
    assert caches.of(None, 193.0) is not old


# -- when to look again ------------------------------------------------------------------------


def test_the_first_sweep_is_due_at_once() -> None:
    lanes = LaneCache()
    assert lanes.is_due(0.0)
    assert lanes.due_in(0.0) == 0.0


@pytest.mark.parametrize(
    ("cost", "pause"),
    [(0.0, 0.005), (0.0001, 0.005), (0.001, 0.02), (0.1, 2.0), (0.5, 10.0), (60.0, 10.0)],
)
def test_a_sweep_is_due_after_twenty_times_what_the_last_one_cost_and_at_most_ten_seconds(
    cost: float, pause: float
) -> None:
    lanes = LaneCache()
    sweep_into(lanes, {MAIL: floor(1)}, cost=cost)
    assert not lanes.is_due(100.0 + pause * 0.99)
    assert lanes.is_due(100.0 + pause * 1.01)


def test_nobody_need_look_again_while_nothing_can_have_changed() -> None:
    lanes = LaneCache()
    sweep_into(lanes, {}, cost=0.1)
    assert lanes.due_in(100.0) is None


def test_after_a_claim_the_next_sweep_is_waited_for() -> None:
    """Prevents: who found a lane dry sleeps for a whole poll with jobs below its floor."""
    lanes = LaneCache()
    sweep_into(lanes, {MAIL: floor(1)}, cost=0.1)
    claimed(lanes, MAIL, floor(7), dry=True)
    assert lanes.due_in(101.0) == pytest.approx(1.0)
    assert lanes.due_in(500.0) == 0.0


def test_after_a_wake_up_the_next_sweep_is_waited_for() -> None:
    lanes = LaneCache()
    sweep_into(lanes, {}, cost=0.1)
    lanes.woken(0.0)
    assert lanes.due_in(101.0) == pytest.approx(1.0)


# -- what else a belief says -------------------------------------------------------------------


def test_a_belief_lets_the_stores_clock_go_on() -> None:
    """Prevents: a scheduled job is not promoted before the next sweep."""
    lanes = LaneCache()
    sweep_into(lanes, {}, next_due=START + SECOND, now=100.5)
    belief = lanes.believed(7, 102.0)
    assert belief.now == START + 1.5 * SECOND
    assert belief.next_due == START + SECOND
    assert belief.mark == 7


def test_after_a_promotion_nothing_is_believed_to_be_due() -> None:
    """Prevents: a worker promotes in vain, thousands of times a second, until the next sweep."""
    lanes = LaneCache()
    sweep_into(lanes, {MAIL: floor(1)}, next_due=START + SECOND)
    lanes.promoted()
    belief = lanes.believed(7, 105.0)
    assert belief.next_due is None
    assert believed(lanes) == {MAIL: floor(1)}
    assert lanes.due_in(100.0) is not None
