"""What the last samples said of the rates is kept, and stays bounded, for who opens a picture."""

from __future__ import annotations

import json

from windlass.core.records import Json
from windlass.core.stats.cluster_sample import QueueSample, Sample
from windlass.core.stats.sample_history import POINTS, QUEUES, continued, read_history, recent_rate


def sample(at: float, **queues: QueueSample) -> Sample:
    return Sample(at=at, queues=queues)


def busy(pending: int = 5, came: float | None = 1.0, service: float | None = 2.0) -> QueueSample:
    rate = None if came is None else max(came, 0.0)
    jobs = {"pending": pending}
    return QueueSample(jobs=jobs, came=came, arrival_rate=rate, service_rate=service)


def test_a_sample_is_a_point_of_each_queue_and_of_all() -> None:
    record = continued(None, sample(15, mail=busy(), files=busy(7, 3.0, None)))
    record = continued(record, sample(30, mail=busy(4, -1.0)))
    history = read_history(record)
    assert history.at == [15, 30]
    assert history.queues["mail"].depths == [5, 4]
    assert history.queues["mail"].arrivals == [1.0, -1.0], "late counts, or a mean would be wrong"
    assert history.total.depths == [12, 4]
    assert history.total.arrivals == [4.0, -1.0]
    assert history.total.services == [None, 2.0], "who does not know of one, does not know of all"


def test_a_queue_that_comes_later_was_not_known_before() -> None:
    record = continued(continued(None, sample(15)), sample(30, mail=busy()))
    assert read_history(record).queues["mail"].arrivals == [None, 1.0]


def test_the_last_forty_are_kept_of_the_busiest_queues_however_many_there_are() -> None:
    record: Json | None = None
    for number in range(100):
        queues = {f"q{each:03}": busy(10_000_000 + each, 12345.678, 0.1) for each in range(200)}
        record = continued(record, sample(15.0 * number, **queues, mail=busy(99_999_999)))
    history = read_history(record)
    assert len(history.at) == len(history.total.depths) == POINTS
    assert history.at[-1] == 15.0 * 99
    assert len(history.queues) == QUEUES
    assert "mail" in history.queues
    assert len(history.others) == 181
    assert len(json.dumps(record)) < 80_000


def test_every_queue_has_a_rate_of_two_minutes_however_idle_it_is() -> None:
    """Else the rate of most queues is that of one sample, which jumps."""
    record: Json | None = None
    for number in range(20):
        queues = {f"q{each:02}": busy(1_000) for each in range(QUEUES)}
        came = 8.0 if number == 15 else 0.0
        record = continued(record, sample(15.0 * number, **queues, idle=busy(0, came, came / 2)))
    history = read_history(record)
    assert "idle" not in history.queues
    rates = history.rates("idle")
    assert recent_rate(history, rates.arrivals, 15.0 * 19) == 1.0
    assert recent_rate(history, rates.services, 15.0 * 19) == 0.5
    record = continued(record, sample(15.0 * 20, idle=busy(5_000, 16.0)))
    history = read_history(record)
    assert history.queues["idle"].arrivals[-6:] == [8.0, 0.0, 0.0, 0.0, 0.0, 16.0], "it goes on"
    assert recent_rate(history, history.rates("idle").arrivals, 15.0 * 20) == 3.0


def test_two_queues_that_are_as_busy_do_not_take_turns() -> None:
    queues = {f"q{each}": busy() for each in range(QUEUES)}
    record = continued(None, sample(15, **queues))
    record = continued(record, sample(30, **queues, a=busy(6)))
    assert "a" not in read_history(record).queues


def test_a_clock_that_was_set_back_leaves_nothing_of_the_future() -> None:
    record = continued(continued(None, sample(15, mail=busy())), sample(3600, mail=busy()))
    record = continued(record, sample(30, mail=busy()))
    assert read_history(record).at == [15, 30]


def test_an_unreadable_record_is_started_again() -> None:
    record = continued({"at": ["noon"]}, sample(15, mail=busy()))
    assert read_history(record).at == [15]
