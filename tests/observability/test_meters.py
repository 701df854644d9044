"""A worker counts its jobs by queue and kind, within bounds; counts of processes add up."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest
from msgspec.structs import replace

from windlass.core.jobs.job import Attempt, ErrorInfo, Job, Saga
from windlass.core.jobs.settle import Transition, completed
from windlass.core.jobs.states import State
from windlass.core.metrics.exposition import NAMES
from windlass.core.metrics.families import EVENTS, FAMILIES
from windlass.observability.meters import MAX_PAIRS, Meters
from windlass.observability.process_stats import Figures, Life, Process, Totals, page, read, written
from windlass.process.stats_board import StatsBoard
from windlass.worker.status import leave

NOW = datetime(2030, 1, 1, 12, tzinfo=UTC)


def job(queue: str = "mail", kind: str = "send", waited: float = 1.0) -> Job:
    return Job(
        id=uuid4(),
        kind=kind,
        queue=queue,
        priority=0,
        key="",
        state=State.RUNNING,
        payload=b"{}",
        created_at=NOW,
        due_at=NOW - timedelta(seconds=waited),
        started_at=NOW,
        attempt=1,
        token=7,
    )


def move(job: Job, state: State, outcome: str = "", **fields: Any) -> Transition:
    attempt = Attempt(number=1, worker="w", started_at=NOW, duration=timedelta(0), outcome=outcome)
    return Transition(id=job.id, token=7, state=state, attempt=attempt, **fields)


def error(fingerprint: str, message: str = "no") -> ErrorInfo:
    return ErrorInfo(type="ValueError", message=message, fingerprint=fingerprint)


def counted(meters: Meters) -> dict[str, float]:
    (tallies,) = meters.tallies
    return {event: count for event, count in zip(EVENTS, tallies.events, strict=True) if count}


@pytest.mark.parametrize(
    ("state", "outcome", "failures", "events"),
    [
        (State.SCHEDULED, "failed", 1, {"retried", "failed"}),
        (State.PENDING, "failed", 1, {"retried", "failed"}),
        (State.SCHEDULED, "snoozed", 0, {"snoozed"}),
        (State.PENDING, "released", 0, {"released"}),
        (State.PENDING, "crashed", 0, {"crashed"}),
        (State.PENDING, "suspected", 0, {"suspected"}),
        (State.PENDING, "lost", 0, {"rescued"}),
        (State.PENDING, "lost with its host", 0, {"rescued"}),
        (State.PENDING, "not begun", 0, {"released"}),
        (State.DEAD, "failed", 1, {"dead", "failed"}),
        (State.DEAD, "crashed", 0, {"dead"}),
        (State.CANCELLED, "", 0, {"cancelled"}),
    ],
)
def test_every_outcome_of_a_job_is_counted(
    state: State, outcome: str, failures: int, events: set[str]
) -> None:
    meters, one = Meters(), job()
    meters.settled(one, move(one, state, outcome, failures=failures))
    assert counted(meters) == dict.fromkeys(events, 1)


def test_claims_runs_successes_and_late_words_are_counted() -> None:
    meters, one = Meters(), job()
    meters.claimed([one, job()], 0.002)
    meters.ran(one, 0.3)
    meters.settled(one, completed(one, None))
    meters.fenced(one)
    assert counted(meters) == {"claimed": 2, "completed": 1, "fenced": 1}
    text = page({"1": Process(meters.figures(), 0.0, 0.0)}, now=1.0)
    lines = text.splitlines()
    labels = 'queue="mail",kind="send"'
    assert f"windlass_job_duration_seconds_sum{{{labels}}} 0.3" in lines
    assert f'windlass_job_duration_seconds_bucket{{{labels},le="0.25"}} 0' in lines
    assert f'windlass_job_duration_seconds_bucket{{{labels},le="0.5"}} 1' in lines
    assert f"windlass_job_wait_seconds_sum{{{labels}}} 2" in lines
    assert 'windlass_batch_jobs_sum{call="claim"} 2' in lines


def test_a_job_that_started_before_it_was_due_has_not_waited() -> None:
    meters = Meters()
    meters.claimed([job(waited=-5.0)], 0.0)
    (tallies,) = meters.tallies
    assert (tallies.waited, sum(tallies.waits)) == (0.0, 1)


def test_names_that_somebody_invents_cost_a_bounded_number_of_series() -> None:
    """Torture 48: label bombs in queue and kind are inert."""
    meters = Meters()
    for number in range(5 * MAX_PAIRS):
        meters.claimed([job(f"queue-{number}", f'kind-{number}"}}\n')], 0.0)
    queues = {each.queue for each in meters.tallies}
    kinds = {each.kind for each in meters.tallies}
    assert len(queues) <= NAMES + 1
    assert len(kinds) <= NAMES + 1
    assert sum(each.events[0] for each in meters.tallies) == 5 * MAX_PAIRS, "nothing is lost"
    for number in range(NAMES):
        for other in range(20):
            meters.claimed([job(f"queue-{number}", f"kind-{other}")], 0.0)
    assert len(meters.tallies) <= MAX_PAIRS + 1


def test_counts_of_processes_add_up_and_do_not_fall_when_one_is_gone() -> None:
    one, other, gone = Meters(), Meters(), Totals()
    one.claimed([job()], 0.1)
    other.claimed([job(), job("files")], 0.1)
    two = {"1": Process(one.figures(), 0, 0), "2": Process(other.figures(), 0, 0)}
    gone.add(one.figures())
    before, after = page(two, now=0), page({"2": two["2"]}, now=0, gone=gone)
    for text in (before, after):
        assert 'windlass_jobs_claimed_total{queue="mail",kind="send"} 2' in text
        assert 'windlass_jobs_claimed_total{queue="files",kind="send"} 1' in text
        assert 'windlass_store_call_seconds_count{call="claim"} 2' in text
    assert page({}, now=0, gone=gone).count("windlass_jobs_claimed_total{") == 1


def test_series_of_another_length_are_left_out_of_the_page() -> None:
    meters, calls = Meters(), "windlass_store_call_seconds"
    meters.claimed([job()], 0.1)
    other = Figures(
        counts={"windlass_jobs_claimed_total": [(("mail",), 7.0)]},
        histograms={calls: [(("claim",), [1, 2], 0.5), (("settle",), [1, 2], 0.5)]},
    )
    for figures in ([other, meters.figures()], [meters.figures(), other]):
        text = page({}, now=0, others=figures)
        assert f'{calls}_count{{call="claim"}} 1' in text
        assert 'windlass_jobs_claimed_total{queue="mail",kind="send"} 1' in text
        assert '"settle"' not in text


def test_a_process_is_ready_while_it_serves_keeps_its_lease_and_reaches_the_store() -> None:
    life = Life(serves=True, beat_at=100.0, asked_at=100.0, lease=30.0)
    assert life.is_ready(110.0)
    assert not life.is_ready(116.0), "the store has not answered for too long"
    stuck = Process(Figures(life=life), lag=9.0, beat_at=120.0)
    assert not stuck.is_ready(121.0)
    assert not Life(serves=True, beat_at=60.0, asked_at=100.0, lease=30.0).is_ready(100.0)
    assert not Life(beat_at=100.0, asked_at=100.0).is_ready(100.0), "it drains"


def test_figures_survive_the_way_over_the_board() -> None:
    meters = Meters()
    meters.claimed([job()], 0.1)
    figures = Figures(
        counts=meters.counts(), histograms=meters.histograms(), gauges={"windlass_slots": 3}
    )
    board = StatsBoard.create()
    assert board.read() is None, "nothing was written yet"
    board.write(written(figures))
    data = board.read()
    assert data is not None
    assert read(data) == figures
    board.close()
    assert board.read() is None
    assert read(b"\xc1garbage") is None


def test_as_many_and_as_long_names_as_there_may_be_find_room_on_the_board() -> None:
    meters = Meters()
    for number in range(MAX_PAIRS):
        queue, kind = (f"{part:03}".ljust(120, "隊") for part in divmod(number, 50))
        meters.claimed([job(queue, kind)], 0.1)
    figures, board = meters.figures(), StatsBoard.create()
    assert leave(board, figures)
    data = board.read()
    assert data is not None
    assert read(data) == figures
    board.close()


def test_of_figures_that_find_no_room_the_signs_of_life_are_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Prevents a healthy worker from being taken for one that is stuck."""
    monkeypatch.setattr("windlass.process.stats_board._PAGE_BYTES", 300)
    meters, board = Meters(), StatsBoard.create()
    meters.claimed([job()], 0.1)
    told = Figures(gauges={"windlass_slots": 3}, life=Life(serves=True, beat_at=1.0, asked_at=2.0))
    assert not leave(board, replace(meters.figures(), gauges=told.gauges, life=told.life))
    data = board.read()
    assert data is not None
    assert read(data) == told
    board.close()


def test_a_reader_of_the_board_never_sees_half_a_page() -> None:
    board, over = StatsBoard.create(), threading.Event()

    def write() -> None:
        number = 0
        while not over.is_set():
            number = (number + 1) % 250
            board.write(bytes([number]) * (1_000 + number * 50))

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for _ in range(3_000):
            data = board.read()
            assert data is None or len(set(data)) == 1
    finally:
        over.set()
        writer.join()
        board.close()


def test_nothing_is_counted_that_is_not_declared() -> None:
    meters = Meters()
    meters.claimed([job()], 0.1)
    figures = meters.figures()
    assert set(figures.counts) | set(figures.histograms) <= set(FAMILIES)


def test_errors_are_counted_by_what_they_have_in_common() -> None:
    meters, one = Meters(), job()
    for message in ("first", "second"):
        told = move(one, State.SCHEDULED, failures=1, error=error("ab", message))
        meters.settled(one, told)
    meters.settled(one, move(one, State.DEAD, failures=1, error=error("cd")))
    meters.settled(one, move(one, State.SCHEDULED, outcome="snoozed"))
    (tallies,) = meters.tallies
    noted = {name: (each.count, each.line) for name, each in tallies.errors.items()}
    assert noted == {"ab": (2, "ValueError: second"), "cd": (1, "ValueError: no")}


def test_a_crash_is_an_error_though_its_job_has_not_failed() -> None:
    meters, one = Meters(), job()
    crashed = Attempt(
        number=1, worker="w", started_at=NOW, duration=timedelta(0), outcome="crashed",
        error=error("ab"),
    )  # fmt: skip
    meters.settled(one, Transition(id=one.id, token=7, state=State.PENDING, attempt=crashed))
    (tallies,) = meters.tallies
    assert tallies.errors["ab"].count == 1


def test_errors_without_end_are_counted_together() -> None:
    meters, one = Meters(), job()
    for number in range(1_000):
        meters.settled(one, move(one, State.DEAD, failures=1, error=error(str(number))))
    (tallies,) = meters.tallies
    assert len(tallies.errors) == 51
    assert sum(each.count for each in tallies.errors.values()) == 1_000


def test_a_saga_that_fails_once_is_counted_once() -> None:
    """It fails, is undone, and then it is dead: of the error that was counted when it failed."""
    meters, one = Meters(), job()
    failed = move(one, State.PENDING, "failed", failures=1, error=error("ab"), saga=Saga.UNDOING)
    meters.settled(one, failed)
    meters.settled(one, move(one, State.DEAD, "undone", error=error("ab"), saga=Saga.OVER))
    assert counted(meters) == {"failed": 1, "dead": 1}
    (tallies,) = meters.tallies
    assert {name: each.count for name, each in tallies.errors.items()} == {"ab": 1}


def test_starts_of_kinds_with_a_target_are_counted_and_those_that_were_late() -> None:
    meters = Meters()
    for late in (False, True, False):
        meters.started("send", late=late)
    counts = meters.counts()
    assert counts["windlass_kind_starts_total"] == [(("send",), 3)]
    assert counts["windlass_kind_late_starts_total"] == [(("send",), 1)]
