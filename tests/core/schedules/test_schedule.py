"""What a schedule does when its alarm goes off: which ticks make a job, and what is next."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.core.schedules.ringing import (
    HOUR,
    IDS,
    JOB,
    MINUTE,
    NOON,
    SECOND,
    begun,
    look,
    minutes,
    rung,
    schedule,
)
from windlass import ConfigError
from windlass.core.jobs.job import OVERLAP, SCHEDULE, TICK, NewJob, UniqueKey
from windlass.core.schedules.schedule import (
    GRACE,
    Look,
    Rung,
    is_late,
    offset,
    owed,
    pause,
    put,
    put_off,
    ran,
    read_record,
    record_of,
    resume,
    righted,
    ring,
)

# -- ticks -----------------------------------------------------------------------------------------


def test_a_tick_makes_a_job_that_says_what_it_is_for() -> None:
    known = begun()
    assert (known.next, known.alarm) == (NOON + MINUTE, NOON + MINUTE)
    assert look(known, 59 * SECOND) is None
    found = rung(known, MINUTE)
    (job,) = found.jobs
    assert (job.id, job.kind, job.payload, job.queue) == (IDS[0], "report", b'{"a": 1}', "mail")
    assert job.headers == {SCHEDULE: "s", TICK: "2030-01-01T12:01:00+00:00"}
    after = found.record
    assert (after.next, after.alarm) == (NOON + 2 * MINUTE, NOON + 2 * MINUTE)
    assert (after.last_tick, after.last_job) == (NOON + MINUTE, IDS[0])
    assert (after.ticks, after.skipped, found.late) == (1, 0, 0)


def test_the_second_worker_finds_no_tick_to_make() -> None:
    known = rung(begun(), MINUTE).record
    assert look(known, MINUTE) is None
    assert look(known, MINUTE, running=None) is None


def test_a_job_is_what_its_draft_said() -> None:
    unique = UniqueKey(key="k", until=HOUR, on_duplicate="push")
    given = NewJob(
        id=UUID(int=1),
        kind="report",
        payload=b"{}",
        priority=7,
        key="acme",
        due=MINUTE,
        expires=HOUR,
        max_retries=2,
        timeout=MINUTE,
        unique=unique,
        headers={"trace": "x"},
    )
    known = read_record(json.loads(json.dumps(record_of(put("s", None, schedule(given), NOON)))))
    assert known is not None
    (job,) = rung(known, MINUTE).jobs
    made = {SCHEDULE: "s", TICK: "2030-01-01T12:01:00+00:00", "trace": "x"}
    for name in NewJob.__struct_fields__:
        expected = {"id": IDS[0], "headers": made}.get(name, getattr(given, name))
        assert getattr(job, name) == expected, name
    claimed = replace(given, unique=UniqueKey(key="k", until="claimed"))
    (job,) = rung(put("s", None, schedule(claimed), NOON), MINUTE).jobs
    assert job.unique == claimed.unique


def test_an_alarm_that_is_wrong_is_set_right() -> None:
    """Prevents a look every second, for ever, at a schedule that rings and is not due."""
    known = begun()
    assert rung(replace(known, alarm=NOON), SECOND) == Rung(record=known)


# -- catching up -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("manner", "after", "made", "late"),
    [
        ({"catch_up": "skip"}, 10.5, [10], 9),
        ({"catch_up": "skip", "every": "5m"}, 5.9, [5], 0),
        ({"catch_up": "skip", "every": "5m"}, 6.0, [], 1),
        ({"catch_up": "skip", "every": "5m"}, 18, [], 3),
        ({"catch_up": "latest"}, 1.5, [1], 0),
        ({"catch_up": "latest"}, 10.5, [10], 9),
        ({"catch_up": "latest", "every": "5m"}, 18, [15], 2),
        ({"catch_up": "all", "overlap": "allow"}, 4.5, [1, 2, 3, 4], 0),
        ({"catch_up": "all", "overlap": "allow", "catch_up_limit": 3}, 10.5, [8, 9, 10], 7),
        ({"catch_up": "all"}, 4.5, [1], 0),
        ({"cron": "*/5 * * * *"}, 18, [15], 2),
        ({"cron": "*/5 * * * *", "catch_up": "skip"}, 18, [], 3),
        ({"cron": "*/5 * * * *", "catch_up": "all", "overlap": "allow"}, 18, [5, 10, 15], 0),
    ],
)
def test_missed_ticks_are_caught_up_as_it_is_said(
    manner: dict[str, Any], after: float, made: list[float], late: int
) -> None:
    found = rung(begun(**manner), after * MINUTE)
    assert (minutes(found), found.late) == (made, late)
    assert (found.record.ticks, found.record.skipped) == (len(made), late)


def test_caught_up_ticks_take_turns_unless_they_may_overlap() -> None:
    found = rung(begun(catch_up="all"), 3.5 * MINUTE)
    made = minutes(found)
    (job,) = found.jobs
    assert job.headers[OVERLAP] == "queue"
    while found.record.next is not None and found.record.next <= NOON + 3.5 * MINUTE:
        assert look(found.record, 3.5 * MINUTE, running=None) is None
        waiting = rung(found.record, 3.5 * MINUTE, running=True)
        assert waiting.jobs == ()
        found = rung(waiting.record, 3.5 * MINUTE)
        made += minutes(found)
    assert made == [1, 2, 3]
    assert (found.record.next, found.record.skipped) == (NOON + 4 * MINUTE, 0)


def test_ticks_without_ids_are_left_for_the_next_look() -> None:
    found = rung(begun(catch_up="all", overlap="allow"), 5 * MINUTE, ids=2)
    assert minutes(found) == [1, 2]
    assert (found.record.next, found.record.alarm) == (NOON + 3 * MINUTE, NOON + 5 * MINUTE)
    assert minutes(rung(found.record, 5 * MINUTE)) == [3, 4, 5]
    assert look(begun(), MINUTE, ids=0) is None


@settings(max_examples=100, deadline=None)
@given(
    looks=st.lists(st.integers(1, 600), min_size=1, max_size=8),
    catch_up=st.sampled_from(["skip", "latest", "all"]),
    overlap=st.sampled_from([None, "queue", "allow"]),
    jitter=st.sampled_from([0, 20]),
    source=st.sampled_from([{"every": "30s"}, {"cron": "* * * * *"}, {"cron": "*/7 * * * *"}]),
    limit=st.integers(1, 4),
    running=st.booleans(),
)
def test_every_tick_is_made_once_or_skipped_once(
    looks: list[int],
    catch_up: Any,
    overlap: Any,
    jitter: int,
    source: dict[str, str],
    limit: int,
    running: bool,
) -> None:
    """However often, and however late, somebody looks: no tick is lost, none is made twice."""
    manner = {"catch_up": catch_up, "overlap": overlap, "catch_up_limit": limit, "jitter": jitter}
    known = begun(**source, **manner)
    first, after, made, ids = known.next, timedelta(0), [], iter(range(10_000, 99_999))
    for step in looks:
        after += step * SECOND
        jobs = {} if known.last_job is None else {known.last_job: running}
        found = ring(
            "s", known, Look(now=NOON + after, running=jobs), [UUID(int=next(ids)) for _ in "1234"]
        )
        if found is not None:
            made += [datetime.fromisoformat(job.headers[TICK]) for job in found.jobs]
            known = found.record
    assert made == sorted(set(made))
    assert all(tick <= NOON + after for tick in made)
    assert known.ticks == len(made)
    assert first is not None
    assert known.next is not None
    passed, older = known.schedule.cadence.due(first, known.next - SECOND, 10_000)
    assert known.ticks + known.skipped == len(passed) + older
    assert set(made) <= set(passed)


# -- jitter ----------------------------------------------------------------------------------------


def test_jitter_delays_a_tick_and_not_the_time_that_it_is_for() -> None:
    known = begun(jitter="30s")
    late = offset("s", known.schedule, NOON + MINUTE)
    assert timedelta(0) < late < 30 * SECOND
    assert known.alarm == NOON + MINUTE + late
    assert look(known, MINUTE) is None
    found = rung(known, MINUTE + late)
    assert minutes(found) == [1]
    assert found.record.alarm == NOON + 2 * MINUTE + offset("s", known.schedule, NOON + 2 * MINUTE)


def test_jitter_spreads_schedules_evenly() -> None:
    wanted = schedule(jitter="60s")
    late = sorted(offset(f"tenant-{n}", wanted, NOON) / SECOND for n in range(1_000))
    for share in range(1, 10):
        assert abs(late[share * 100] - 6 * share) < 3


def test_jitter_as_long_as_the_gaps_loses_no_tick() -> None:
    known, made = begun(cron="* * * * *", jitter="1m"), []
    for after in range(0, 3_600, 5):
        while (found := look(known, after * SECOND)) is not None:
            known = found.record
            made += minutes(found)
    assert len(made) + known.skipped >= 58
    assert made == sorted(set(made))


# -- by hand ---------------------------------------------------------------------------------------


def test_a_pause_ends_all_ticks_and_nothing_is_caught_up_after_it() -> None:
    paused = pause(begun(), NOON + SECOND)
    assert (paused.paused_at, paused.alarm) == (NOON + SECOND, None)
    assert look(paused, HOUR) is None
    assert owed("s", paused, NOON + HOUR) == []
    assert pause(paused, NOON + MINUTE) == paused
    resumed = resume("s", paused, NOON + 10.5 * MINUTE)
    assert (resumed.next, resumed.alarm, resumed.skipped) == (
        NOON + 11 * MINUTE,
        NOON + 11 * MINUTE,
        0,
    )
    assert resume("s", resumed, NOON + HOUR) == resumed


@pytest.mark.parametrize("times", [{"every": "30s", "jitter": "10s"}, {"cron": "*/5 * * * *"}])
def test_a_record_from_a_wrong_clock_is_corrected(times: dict[str, Any]) -> None:
    known = begun(**times)
    assert righted("s", known, NOON) is None
    ahead = rung(known, 365 * 24 * HOUR).record
    # A clock that is set back a little is waited for, so that no tick comes twice.
    assert righted("s", ahead, NOON + 365 * 24 * HOUR - 50 * MINUTE) is None
    for each in (ahead, pause(ahead, NOON)):
        right = righted("s", each, NOON + SECOND)
        assert right is not None
        assert right.next is not None
        assert NOON < right.next <= NOON + 5 * MINUTE + SECOND
        assert righted("s", right, NOON + SECOND) is None
    resumed = resume("s", pause(ahead, NOON), NOON + SECOND)
    assert resumed.alarm is not None
    assert resumed.alarm <= NOON + 6 * MINUTE


def test_a_schedule_postponed_by_a_wrong_clock_comes_back() -> None:
    known = begun()
    away = put_off(known, NOON + 365 * 24 * HOUR)
    assert away is not None
    assert righted("s", away, NOON + 2 * MINUTE) == known


def test_a_run_by_hand_leaves_the_ticks_as_they_are() -> None:
    known = begun()
    after = ran(known, IDS[5], NOON + SECOND)
    assert (after.next, after.alarm, after.paused_at) == (known.next, known.alarm, None)
    assert (after.last_job, after.ticks) == (IDS[5], 1)


def test_the_same_put_again_changes_nothing_and_other_times_begin_anew() -> None:
    known = rung(begun(), MINUTE).record
    later = NOON + 90 * SECOND
    assert put("s", known, schedule(), later) == known
    other = put("s", known, schedule(overlap="allow"), later)
    assert (other.next, other.schedule.overlap) == (known.next, "allow")
    anew = put("s", known, schedule(every="1h"), later)
    assert (anew.next, anew.ticks, anew.last_job) == (later + HOUR, 1, known.last_job)
    paused = put("s", pause(known, NOON), schedule(every="1h"), later)
    assert (paused.paused_at, paused.alarm) == (NOON, None)


def test_an_unserved_schedule_is_postponed_until_a_worker_serves_it() -> None:
    known = begun()
    assert put_off(known, NOON + 90 * SECOND) is None
    assert not is_late(known, NOON + 90 * SECOND)
    unserved = put_off(known, NOON + 3 * MINUTE)
    assert unserved is not None
    assert (unserved.unserved, unserved.alarm) == (True, NOON + 3 * MINUTE + GRACE)
    assert put_off(unserved, NOON + 3 * MINUTE) is None
    again = put_off(unserved, NOON + 4 * MINUTE)
    assert again is not None
    assert again.next == known.next
    assert put("s", again, schedule(), NOON + 5 * MINUTE).alarm == known.alarm
    assert rung(again, 5 * MINUTE).record.unserved is False


# -- what is refused -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("manner", "remedy"),
    [
        ({"catch_up": "some"}, "skip, latest, all"),
        ({"overlap": "maybe"}, "skip, queue, allow"),
        ({"catch_up": "all", "overlap": "skip"}, 'write overlap="queue"'),
        ({"catch_up_limit": 0}, "between 1 and 1000"),
        ({"catch_up_limit": True}, "between 1 and 1000"),
        ({"jitter": "a bit"}, "jitter must be a number and a unit, got 'a bit'"),
        ({"jitter": "2m"}, "at most the time between two ticks, 1m"),
        ({"jitter": "2m", "cron": "0,1 7 * * *"}, "at most the time between two ticks, 1m"),
        ({"job": replace(JOB, due=NOON)}, "with a fixed time"),
        ({"job": replace(JOB, expires=NOON)}, "with a fixed time"),
        ({"job": replace(JOB, payload=b'{"card": {"$secret": "x"}}')}, "look it up"),
    ],
)
def test_contradictory_schedule_options_are_refused_with_the_remedy(
    manner: dict[str, Any], remedy: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        schedule(**manner)
    assert remedy in str(refused.value)


def test_an_unreadable_record_is_none() -> None:
    assert read_record(None) is None
    assert read_record({"schedule": {"cadence": "?"}}) is None
