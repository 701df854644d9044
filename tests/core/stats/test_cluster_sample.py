"""Cluster-wide figures are made of what the store says, and stay bounded whatever that is."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from windlass.core.claims.lanes import Head
from windlass.core.jobs.job import Lane
from windlass.core.jobs.states import State
from windlass.core.metrics.cluster_series import series_of
from windlass.core.metrics.histogram import bucket_of
from windlass.core.policies.pauses import Pauses
from windlass.core.stats.cluster_sample import (
    Sample,
    SampleInputs,
    read_sample,
    sampled,
    walk_after,
)
from windlass.core.stats.depths import Depth, Depths
from windlass.core.stats.kind_history import RECORD, Window, recorded
from windlass.core.workers import WorkerInfo, WorkerPulse, WorkerRecord
from windlass.store.depth_counts import depths_of

NOW = datetime(2030, 1, 1, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)


def facts(*, now: datetime = NOW, **told: Any) -> SampleInputs:
    nothing: dict[str, Any] = {
        "depths": Depths(counts=()),
        "heads": (),
        "workers": (),
        "pauses": Pauses(),
        "stats": {},
        "breakers": {},
        "limits": {},
        "targets": {},
        "ringing": {},
    }
    return SampleInputs(now=now, **nothing | told)


def depth(queue: str, count: int, state: State = State.PENDING, **told: Any) -> Depth:
    return Depth(queue=queue, state=state, count=count, **told)


def worker(*, kinds: tuple[str, ...] = ("send",), alive: bool = True, **told: Any) -> WorkerRecord:
    info = WorkerInfo(
        id="w", name="w", host="h", pid=1, release="1", lease=SECOND, slots=1, kinds=kinds, **told
    )
    return WorkerRecord(
        info=info, pulse=WorkerPulse(), started_at=NOW, last_seen=NOW, lease_until=NOW, alive=alive
    )


def series(sample: Sample, family: str, age: float = 0.0) -> Any:
    return series_of(msgspec.to_builtins(sample), age=age)[family]


@pytest.mark.parametrize(
    ("pauses", "paused"),
    [
        (Pauses(), 0.0),
        (Pauses(kinds=frozenset({"send"})), 1.0),
        (Pauses(queues=frozenset({"mail"})), 0.0),
        (Pauses(queues=frozenset({"mail", "bulk"})), 1.0),
        (Pauses(queues=frozenset({"mail"}), keys=frozenset({"acme"})), 1.0),
    ],
)
def test_a_kind_is_paused_when_none_of_its_jobs_may_start(pauses: Pauses, paused: float) -> None:
    lanes = Lane("mail", "send", 0, ""), Lane("bulk", "send", 0, "acme")
    heads = tuple(Head(lane=lane, position=NOW) for lane in lanes)
    made = sampled(facts(heads=heads, pauses=pauses), None, by="w")
    assert series(made, "windlass_kind_paused") == {("send",): paused}


def test_a_kind_that_waits_nowhere_is_paused_only_by_its_own_name() -> None:
    given = {"slo:send": {"target": 5}, "slo:scan": {"target": 5}}
    pauses = Pauses(kinds=frozenset({"scan"}))
    made = sampled(facts(targets=given, pauses=pauses), None, by="w")
    assert series(made, "windlass_kind_paused") == {("send",): 0.0, ("scan",): 1.0}


def test_queues_are_served_with_depth_oldest_job_and_workers() -> None:
    made = sampled(
        facts(
            depths=Depths(counts=(depth("mail", 3), depth("mail", 2, State.DEAD))),
            heads=(
                Head(lane=Lane("mail", "send", 0, ""), position=NOW - 7 * SECOND),
                Head(lane=Lane("mail", "unknown", 0, ""), position=NOW - 3 * SECOND),
            ),
            workers=(worker(), worker(queues=("other",)), worker(alive=False)),
        ),
        None,
        by="w",
    )
    assert series(made, "windlass_queue_jobs") == {
        ("mail", "pending"): 3,
        ("mail", "dead"): 2,
        ("mail", "running"): 0,
        ("mail", "scheduled"): 0,
    }, "of what there is none, too, or nobody could compare with when there was"
    assert series(made, "windlass_queue_oldest_pending_seconds", age=2) == {("mail",): 9.0}
    assert series(made, "windlass_queue_workers") == {("mail",): 1}
    assert series(made, "windlass_queue_unserved_lanes") == {("mail",): 1}
    assert series(made, "windlass_kind_oldest_pending_seconds") == {
        ("send",): 7.0,
        ("unknown",): 3.0,
    }


@pytest.mark.parametrize(
    ("pauses", "oldest", "unserved"),
    [
        (Pauses(), 900.0, 2),
        (Pauses(kinds=frozenset({"unknown"})), 60.0, 1),
        (Pauses(keys=frozenset({"acme"})), 900.0, 1),
        (Pauses(kinds=frozenset({"unknown"}), keys=frozenset({"acme"})), 5.0, 0),
        (Pauses(kinds=frozenset({"unknown", "send", "scan"})), 0.0, 0),
        (Pauses(queues=frozenset({"mail"})), 900.0, 2),
    ],
)
def test_paused_kinds_and_keys_make_their_queue_neither_old_nor_unserved(
    pauses: Pauses, oldest: float, unserved: int
) -> None:
    """Else who pauses a kind is alarmed, and told to pause the queue with all that is well in it.

    A pause of the queue itself is told beside the two, so that alerts can leave it out.
    """
    waits = (
        (Lane("mail", "unknown", 0, ""), 900),
        (Lane("mail", "scan", 0, "acme"), 60),
        (Lane("mail", "send", 0, ""), 5),
    )
    heads = tuple(Head(lane=lane, position=NOW - age * SECOND) for lane, age in waits)
    made = sampled(facts(heads=heads, workers=(worker(),), pauses=pauses), None, by="w")
    assert series(made, "windlass_queue_oldest_pending_seconds") == {("mail",): oldest}
    assert series(made, "windlass_queue_unserved_lanes") == {("mail",): unserved}
    assert series(made, "windlass_queue_paused") == {("mail",): float(bool(pauses.queues))}


def test_workers_that_drain_serve_nothing() -> None:
    drains = msgspec.structs.replace(worker(), pulse=WorkerPulse(state="draining"))
    head = Head(lane=Lane("mail", "send", 0, ""), position=NOW)
    made = sampled(facts(heads=(head,), workers=(drains,)), None, by="w")
    assert (made.queues["mail"].workers, made.queues["mail"].unserved) == (0, 1)
    assert made.workers == {"running": 0, "draining": 1}


def test_rates_are_what_came_and_what_left_between_two_samples() -> None:
    first = {RECORD + "send": recorded(None, Window(), {"mail": 100}, NOW)}
    then = {RECORD + "send": recorded(None, Window(), {"mail": 140}, NOW)}
    before = sampled(facts(depths=Depths(counts=(depth("mail", 50),)), stats=first), None, by="w")
    later = facts(
        now=NOW + 10 * SECOND,
        depths=Depths(counts=(depth("mail", 70), depth("mail", 9, State.DEAD))),
        stats=then,
    )
    made = sampled(later, before, by="w")
    assert series(made, "windlass_queue_service_rate") == {("mail",): 4.0}
    assert series(made, "windlass_queue_arrival_rate") == {("mail",): 6.0}


def test_a_gap_of_hours_tells_no_rates() -> None:
    """Else one sample after a night without workers would say for long what came at night."""
    before = sampled(facts(depths=Depths(counts=(depth("mail", 50),))), None, by="w")
    made = sampled(facts(now=NOW + timedelta(hours=2)), before, by="w")
    assert made.queues == {}
    full = Depths(counts=(depth("mail", 70_000),))
    made = sampled(facts(now=NOW + timedelta(hours=2), depths=full), before, by="w")
    assert made.queues["mail"].arrival_rate is made.queues["mail"].service_rate is None
    soon = sampled(facts(now=NOW + 60 * SECOND, depths=full), before, by="w")
    assert soon.queues["mail"].arrival_rate is not None


def test_nothing_is_said_about_arrivals_where_nobody_counted_to_the_end() -> None:
    full = Depths(counts=(depth("mail", 50, capped=True),))
    before = sampled(facts(depths=full), None, by="w")
    made = sampled(facts(now=NOW + SECOND, depths=full), before, by="w")
    assert series(made, "windlass_queue_arrival_rate") == {}
    capped = series(made, "windlass_queue_jobs_capped")
    assert [key for key, value in capped.items() if value] == [("mail", "pending")]


def test_ids_of_new_jobs_give_the_arrivals_of_a_queue_too_long_to_count() -> None:
    """A queue that grows beyond what is counted would seem to stand still."""
    full = Depths(counts=(depth("mail", 50, capped=True), depth("files", 5)))
    before = sampled(facts(depths=full), None, by="w")
    later = facts(
        now=NOW + 10 * SECOND, depths=full, arrivals={"mail": 70, "files": 90, "unknown": 3}
    )
    made = sampled(later, before, by="w")
    assert series(made, "windlass_queue_arrival_rate") == {("mail",): 7.0, ("files",): 0.0}
    assert made.queues["mail"].estimated
    assert not made.queues["files"].estimated, "those that were counted are counted"


def test_jobs_beyond_the_counted_ones_may_be_of_any_queue() -> None:
    """A queue whose scheduled jobs were not reached seemed counted, so that its rates jumped."""
    rows = [("mail", State.SCHEDULED, 11), ("files", State.PENDING, 5)]
    found = depths_of(rows, 10)
    assert found.cut == (State.SCHEDULED,)
    before = sampled(facts(depths=found), None, by="w")
    assert before.queues["files"].capped == before.queues["mail"].capped == ["scheduled"]
    later = facts(now=NOW + 10 * SECOND, depths=found, arrivals={"files": 20})
    assert sampled(later, before, by="w").queues["files"].arrival_rate == 2.0
    assert depths_of([("mail", State.SCHEDULED, 10)], 10).cut == ()


def test_dead_jobs_that_are_too_many_to_count_do_not_hide_what_comes() -> None:
    def look(pending: int) -> Depths:
        dead = depth("mail", 9, State.DEAD, capped=True)
        return Depths(counts=(depth("mail", pending), dead))

    before = sampled(facts(depths=look(10)), None, by="w")
    made = sampled(facts(now=NOW + 10 * SECOND, depths=look(30)), before, by="w")
    assert series(made, "windlass_queue_arrival_rate") == {("mail",): 2.0}


def test_a_queue_that_was_not_there_before_began_empty() -> None:
    later = facts(now=NOW + 10 * SECOND, depths=Depths(counts=(depth("mail", 30),)))
    made = sampled(later, sampled(facts(), None, by="w"), by="w")
    assert series(made, "windlass_queue_arrival_rate") == {("mail",): 3.0}


def test_a_thousand_queues_and_kinds_are_shown_as_two_hundred_and_other() -> None:
    """Torture 48: whoever invents names costs nobody anything."""
    names = [f"q{number}" for number in range(1_000)]
    made = sampled(
        facts(
            depths=Depths(counts=tuple(depth(name, 1) for name in names)),
            heads=[Head(lane=Lane(name, name, 0, ""), position=NOW) for name in names],
            limits={f"limit:{name}": {} for name in names},
            breakers={f"breaker:{name}": {} for name in names},
        ),
        None,
        by="w",
    )
    told = series(made, "windlass_queue_jobs")
    assert len(told) == 201 * 4
    assert told["other", "pending"] == 800
    assert len(made.kinds) == 200
    assert len(made.limits) <= 201
    assert len(made.breakers) == 200


def test_of_too_many_breakers_and_kinds_the_most_important_come_first() -> None:
    """An alert on an open breaker or a missed target must not depend on the order of names."""
    names = [f"a{number:03}" for number in range(300)]
    ran = {RECORD + name: recorded(None, _a_run(), {"mail": 1}, NOW) for name in names}
    made = sampled(
        facts(
            breakers={f"breaker:{name}": {} for name in names}
            | {"breaker:z": {"state": "open"}, "breaker:y": {"state": "half-open"}},
            stats=ran,
            heads=(Head(lane=Lane("mail", "waits", 0, ""), position=NOW - SECOND),),
            targets={"slo:target": {"target": 5.0}},
        ),
        None,
        by="w",
    )
    assert (made.breakers["z"], made.breakers["y"]) == (2, 1)
    assert made.kinds["waits"].oldest == 1.0
    assert made.kinds["target"].target == 5.0
    assert len(made.breakers) == len(made.kinds) == 200


def _a_run() -> Window:
    return Window(completed=1, durations=[bucket_of(1.0), 1], waits=[bucket_of(1.0), 1])


def test_breakers_limits_targets_and_pauses_are_sampled() -> None:
    made = sampled(
        facts(
            breakers={"breaker:smtp": {"state": "open"}, "breaker:bank": {}},
            limits={
                "limit:gpu": {"concurrency": {"holds": {"w1": {"": 2}, "w2": {"": 1}}}},
                "limit:kind:crawl/3": {"concurrency": {"holds": {"w1": {"a": 1}}}},
                "limit:kind:crawl/4": {"rate": {"holds": {}}},
            },
            targets={"slo:send": {"target": 5.0}},
            pauses=Pauses(queues=frozenset({"mail"})),
        ),
        None,
        by="w",
    )
    assert series(made, "windlass_breaker_state") == {("smtp",): 2, ("bank",): 0}
    assert series(made, "windlass_limit_in_use") == {("gpu",): 3, ("kind:crawl",): 1}
    assert series(made, "windlass_kind_target_seconds") == {("send",): 5.0}
    assert series(made, "windlass_queue_paused") == {("mail",): 1.0}


@pytest.mark.parametrize("due", [(NOW - 90 * SECOND).isoformat(), (NOW - 90 * SECOND).timestamp()])
def test_the_lag_of_schedules_is_that_of_the_latest(due: object) -> None:
    ringing = {"schedule:a": {"next": due}, "schedule:b": {}, "schedule:c": {"next": "soon"}}
    assert sampled(facts(ringing=ringing), None, by="w").schedule_lag == 90


def test_a_sample_that_another_release_wrote_is_none() -> None:
    assert read_sample({"at": "noon"}) is None
    assert series_of({"at": "noon"}, age=0) == {}


def test_as_many_jobs_are_counted_as_the_store_has_time_for() -> None:
    full = sampled(facts(depths=Depths(counts=(depth("q", 1, capped=True),))), None, by="w")
    free = sampled(facts(), None, by="w")

    def walk(sample: Sample, walk: int, seconds: float) -> int:
        return walk_after(msgspec.structs.replace(sample, walk=walk, seconds=seconds))

    assert walk_after(None) == 60_000
    assert walk(full, 60_000, 0.05) == 120_000
    assert walk(full, 60_000, 0.2) == 60_000
    assert walk(full, 60_000, 0.4) == 30_000
    assert walk(full, 5_000, 9.0) == 5_000
    assert walk(full, 500_000, 0.01) == 500_000
    assert walk(free, 480_000, 0.01) == 60_000, "an idle store tells nothing of a busy one"
